//! The NIC side's end of the rings and regions of an endpoint.
//!
//! [`EndpointIo`] reads requests and writes events as values. It does not interpret them. A host
//! side that writes an impossible index, or a malformed or too long request, or unmaps the rings
//! marks the endpoint as broken: no more requests and events pass, and the owner closes it
//! ([`EndpointAction::Broken`](crate::driver::EndpointAction)).
//!
//! The rings are a channel of [`causeway_channel`] with the encoding of [`mx_rings`]. A region is a
//! memfd of the host side, 1 byte to [`REGION_BYTES_MAX`] (4 GiB), sealed against shrinking and
//! mapped once; its bytes may change at any time. An endpoint has at most `REGIONS_MAX` (256)
//! regions of together `REGION_BYTES_OF_ENDPOINT_MAX` (10 GiB); a further region gets
//! [`RegionRefusal::Limit`]. In direct mode the memory of the own process is one of the 256, for
//! sending only, and not counted in bytes. An event without room, or a message or offer of a peer
//! that the host side holds ([`Holds`]), is not written: the engine keeps it.
//!
//! The rings and regions of a process in a guest lie in registered memory of the guest: rings in
//! one row of bytes, regions in ranges of guest addresses. The owner drops both before the guest
//! uses the memory otherwise ([`Engine::detach_region`](crate::driver::Engine::detach_region)).
//!
//! No memory is pinned. An access to memory without pages, that was unmapped, or beyond its region
//! is a [`RegionFault`]. A region that is given back stays mapped until queued frames with its
//! bytes were sent or copied. Called by [`Engine`](crate::driver::Engine) and
//! [`TxPath`](crate::driver::TxPath) on the thread that owns them.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_channel::mx_rings::{self, Holds};
use causeway_channel::{Receiver, Sender, Side, format, open};
use causeway_host::AppMemory;
use causeway_host::net::send::FrameBody;
use causeway_memory::{
    Access, GuestSpans, Map, Mapping, Region, RegionKey, Regions, Registration, View, create,
};
use causeway_wire::mx::limits::REGIONS_MAX;
use causeway_wire::mx::{Event, RegionId};
use rustix::fs::{SealFlags, fcntl_get_seals};

use crate::driver::limits::REGION_BYTES_MAX;
use crate::{CopyFault, LentBytes, RegionFault};

/// Rings and regions of one endpoint. `W` is its owner.
#[derive(Debug)]
pub struct EndpointIo<W> {
    /// Owner of the endpoint.
    pub owner: W,
    /// Events to the host side.
    pub(crate) sender: Sender,
    /// Requests of the host side.
    pub(crate) receiver: Receiver,
    /// Memory that the host side lent, by the number that the engine chose.
    regions: Regions<GuestSpans>,
    /// Memory of the own process in direct mode, and its number.
    own: Option<(RegionId, AppMemory)>,
    /// Length of all regions, in bytes.
    pub region_bytes: u64,
    /// The doorbell is armed.
    armed: bool,
    /// Length of an event that found no room, in bytes.
    pub(crate) full: Option<usize>,
    /// Time of the first turn that ended with such an event.
    full_since: Option<Instant>,
    /// Peers whose messages the host side does not take now.
    pub(crate) holds: Holds,
    /// The next request was deferred.
    pub(crate) later: bool,
    /// An event was offered to the ring since the last commit.
    pub(crate) touched: bool,
    /// The host side sleeps and must be woken by the owner.
    pub(crate) must_wake: bool,
    /// The rule that the host side broke.
    pub(crate) broken: Option<String>,
}

/// Memory that was lent as a region.
pub type LentRegion = Arc<Registration<GuestSpans>>;

/// Owner of all regions of an endpoint.
const OWNER: u32 = 0;

/// Returns the key of a region's number.
fn key(region: RegionId) -> RegionKey {
    RegionKey::new(u32::from(region.0), 0)
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Reason why a region was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionRefusal {
    /// The descriptor is not memory, is not sealed against shrinking, or is shorter than declared;
    /// the length is 0 or exceeds 4 GiB; or the endpoint is not open.
    Rule,
    /// A limit of the endpoint is reached, or the kernel has no memory or mappings left.
    Limit,
}

impl<W> EndpointIo<W> {
    /// Creates rings. Returns them with their memory, whose first side belongs to the host side.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub fn new(owner: W) -> io::Result<(Self, OwnedFd)> {
        let layout = mx_rings::layout();
        let len = layout.bytes();
        let file = create("causeway-rings", len as u64)?;
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(failed)?;
        let view = View::new(Arc::new(mapping), 0, len).map_err(failed)?;
        Ok((Self::over(owner, view)?, file))
    }

    /// Creates rings in memory of the host side, to whom the first side belongs. The memory is
    /// zeroed first.
    ///
    /// # Errors
    /// The memory is too short, or does not start on a cache line.
    pub fn in_memory(owner: W, view: View) -> io::Result<Self> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let len = mx_rings::layout().bytes();
        for at in (0..len).step_by(ZEROES.len()) {
            let part = ZEROES.get(..len.saturating_sub(at)).unwrap_or(&ZEROES);
            view.write(at, part).map_err(failed)?;
        }
        Self::over(owner, view)
    }

    /// Formats zeroed memory as rings.
    fn over(owner: W, view: View) -> io::Result<Self> {
        format(&view, mx_rings::layout()).map_err(failed)?;
        let (sender, receiver) = open(&view, Side::Second).map_err(failed)?;
        Ok(Self {
            owner,
            sender,
            receiver,
            regions: Regions::new(REGIONS_MAX),
            own: None,
            region_bytes: 0,
            armed: false,
            full: None,
            full_since: None,
            holds: Holds::new(view),
            later: false,
            touched: false,
            must_wake: false,
            broken: None,
        })
    }

    /// Writes an event. Returns false if there is no room, the host side holds messages of the
    /// peer, or the endpoint is broken.
    pub(crate) fn event(&mut self, event: &Event<'_>) -> bool {
        if self.broken.is_some() {
            return false;
        }
        if let Event::Message { peer, .. } | Event::Offered { peer, .. } = event
            && self.holds.has(*peer)
        {
            return false;
        }
        self.touched = true;
        match mx_rings::write_event(&mut self.sender, event) {
            Ok(true) => true,
            Ok(false) => {
                let Event::Message { data, .. } = event else {
                    self.full = self.full.or(Some(0));
                    return false;
                };
                self.full = Some(data.len());
                false
            }
            Err(broken) => {
                self.broken = Some(broken.to_string());
                false
            }
        }
    }

    /// Returns whether an event or request waits, or the host side takes messages again.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.full.is_some() || self.later || self.holds.releases_any()
    }

    /// Returns whether there is room for the event that found none.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let Some(len) = self.full else { return false };
        match self.sender.room(len) {
            Ok(true) => {
                (self.full, self.full_since) = (None, None);
                true
            }
            Ok(false) => false,
            Err(broken) => {
                self.broken = Some(broken.to_string());
                false
            }
        }
    }

    /// Returns for how long an event has waited because the host side reads none.
    pub fn full_for(&self) -> Option<Duration> {
        self.full_since.map(|since| since.elapsed())
    }

    /// Returns whether the owner waits for the doorbell of the rings.
    pub fn is_parked(&self) -> bool {
        self.armed
    }

    /// Returns whether the next request waits until a limit allows it.
    pub fn is_deferred(&self) -> bool {
        self.later
    }

    /// Notes the end of a turn in which an event found no room.
    pub(crate) fn note_full(&mut self) {
        self.full_since.get_or_insert_with(Instant::now);
    }

    /// Disarms the doorbell while the caller serves the endpoint.
    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.receiver.disarm();
            self.sender.disarm();
        }
    }

    /// Arms the doorbell for room only, because the next request is deferred. Returns false if
    /// there is room.
    pub(crate) fn arm_for_room(&mut self) -> bool {
        let Some(len) = self.full else { return true };
        self.armed = true;
        let room = self.sender.arm_room(len);
        if let Err(broken) = room {
            self.broken = Some(broken.to_string());
        }
        if room == Ok(true) {
            self.disarm();
        }
        room != Ok(true)
    }

    /// Arms the doorbell for the next request, and for room if an event waits. Returns false if
    /// there is work.
    pub(crate) fn arm(&mut self) -> bool {
        self.armed = true;
        let mut idle = !self.receiver.arm();
        if let Some(len) = self.full {
            match self.sender.arm_room(len) {
                Ok(room) => idle &= !room,
                Err(broken) => self.broken = Some(broken.to_string()),
            }
        }
        if self.receiver.is_poisoned() {
            self.broken = Some("the memory of its rings was unmapped".into());
        }
        if !idle {
            self.disarm();
        }
        idle
    }

    /// Checks and maps lent memory. Its file must be sealed against shrinking.
    pub(crate) fn lend(
        &self,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<CheckedRegion, RegionRefusal> {
        let seals = fcntl_get_seals(file).map_err(|_| RegionRefusal::Rule)?;
        if !seals.contains(SealFlags::SHRINK) || len == 0 || len > REGION_BYTES_MAX {
            return Err(RegionRefusal::Rule);
        }
        let mapping = Mapping::new(file, 0, len).map_err(|error| match error {
            causeway_memory::MappingError::Many | causeway_memory::MappingError::Kernel(_) => {
                RegionRefusal::Limit
            }
            _ => RegionRefusal::Rule,
        })?;
        let whole = Region { guest: 0, user: 0, mapping: Arc::new(mapping) };
        let map = Map::new(vec![whole]).map_err(|_| RegionRefusal::Rule)?;
        GuestSpans::new(Arc::new(map), [(0, len)]).map(CheckedRegion).ok_or(RegionRefusal::Rule)
    }

    /// Checks memory of a guest's process.
    pub(crate) fn lend_spans(memory: GuestSpans) -> Result<CheckedRegion, RegionRefusal> {
        let fits = !memory.is_empty() && memory.len() <= REGION_BYTES_MAX;
        if fits { Ok(CheckedRegion(memory)) } else { Err(RegionRefusal::Rule) }
    }

    /// Registers lent memory under a number that the engine chose. Returns `false` if the number is
    /// in use.
    pub(crate) fn keep(&mut self, region: RegionId, lent: CheckedRegion) -> bool {
        let CheckedRegion(memory) = lent;
        let len = memory.len();
        let access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);
        let registration = Registration { memory, base: 0, len, access, owner: OWNER };
        let kept = self.regions.register_as(key(region), registration).is_ok();
        if kept {
            self.region_bytes = self.region_bytes.saturating_add(len);
        }
        kept
    }

    /// Returns the number of regions.
    pub fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// Registers the memory of the own process, from which it is only sent.
    pub(crate) fn keep_own(&mut self, region: RegionId, own: AppMemory) {
        self.own = Some((region, own));
    }

    /// Returns whether the memory of the own process is registered.
    pub(crate) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the memory of the own process, if it has this number.
    fn own(&self, region: RegionId) -> Option<&AppMemory> {
        self.own.as_ref().filter(|(number, _)| *number == region).map(|(_, own)| own)
    }

    /// Deregisters lent memory, and returns it.
    pub(crate) fn give_back(&mut self, region: RegionId) -> Option<LentRegion> {
        let region = self.regions.deregister(key(region)).ok()?;
        self.region_bytes = self.region_bytes.saturating_sub(region.len);
        Some(region)
    }

    /// Returns a region, for an access of `len` bytes at `at` that needs `needed`.
    fn region(
        &self,
        region: RegionId,
        (at, len): (u64, usize),
        needed: Access,
    ) -> Result<&GuestSpans, RegionFault> {
        let found = self.regions.find(key(region), (at, len as u64), needed, OWNER);
        found.map(|(region, _)| &region.memory).map_err(|_| RegionFault)
    }

    /// Reads a region.
    pub(crate) fn read(
        &self,
        region: RegionId,
        at: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault> {
        if let Some(own) = self.own(region) {
            let whole = own.piece(at, into.len()).is_some_and(|piece| piece.read_into(into));
            return if whole { Ok(()) } else { Err(RegionFault) };
        }
        let memory = self.region(region, (at, into.len()), Access::REMOTE_READ)?;
        memory.read(at, into).map_err(|_| RegionFault)?;
        if memory.is_poisoned() { Err(RegionFault) } else { Ok(()) }
    }

    /// Returns a part of a region, to be sent in place.
    pub(crate) fn view(
        &self,
        region: RegionId,
        at: u64,
        len: usize,
    ) -> Result<FrameBody, RegionFault> {
        if let Some(own) = self.own(region) {
            return own.piece(at, len).map(FrameBody::Own).ok_or(RegionFault);
        }
        let memory = self.region(region, (at, len), Access::REMOTE_READ)?;
        if memory.is_poisoned() {
            return Err(RegionFault);
        }
        memory.view(at, len).map(FrameBody::Shared).map_err(|_| RegionFault)
    }

    /// Returns a part of a region for another NIC of the daemon.
    pub(crate) fn lend_part(
        &self,
        region: RegionId,
        at: u64,
        len: usize,
    ) -> Result<LentBytes, RegionFault> {
        if self.own(region).is_some() {
            let mut bytes = vec![0; len];
            self.read(region, at, &mut bytes)?;
            return Ok(LentBytes::copied(bytes));
        }
        let found = self.regions.find(key(region), (at, len as u64), Access::REMOTE_READ, OWNER);
        let (region, at) = found.map_err(|_| RegionFault)?;
        Ok(LentBytes::in_place(region.clone(), at, len))
    }

    /// Copies bytes of another NIC of the daemon to a region.
    pub(crate) fn copy_in(
        &self,
        region: RegionId,
        at: u64,
        from: &LentBytes,
    ) -> Result<(), CopyFault> {
        let found = self.regions.find(key(region), (at, from.len()), Access::REMOTE_WRITE, OWNER);
        let (region, at) = found.map_err(|_| CopyFault::Destination)?;
        from.copy_to(&region.memory, at)
    }

    /// Writes to a region.
    pub(crate) fn write(&self, region: RegionId, at: u64, bytes: &[u8]) -> Result<(), RegionFault> {
        let memory = self.region(region, (at, bytes.len()), Access::REMOTE_WRITE)?;
        memory.write(at, bytes).map_err(|_| RegionFault)?;
        if memory.is_poisoned() { Err(RegionFault) } else { Ok(()) }
    }
}

/// Lent memory that was checked and can be registered.
#[derive(Debug)]
pub struct CheckedRegion(GuestSpans);
