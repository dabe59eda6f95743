//! Staging: memory for large messages through the rings (to and from other hosts, and peers of this
//! host without a channel), lent to the NIC side and reused. This module allocates windows; the
//! matching engine copies messages.
//!
//! Staging consists of *slabs* (a file each, or registered memory behind an adapter), which the
//! daemon knows as regions; a message has a range in a slab (its *window*), at a multiple of 4 KiB.
//! A slab has a multiple of [`SLAB_BYTES`] (4 MiB), or of [`REGISTERED_SLAB_BYTES`] (2 MiB) behind an
//! adapter. A slab is requested when no window is free, and
//! messages wait for the daemon's answer.
//!
//! With a NIC side in the process ([`crate::bypass`]), a contiguous offer needs no window: it is
//! sent from the application's memory. Behind an adapter, contiguous messages leave from and arrive
//! in registered memory of the application ([`cache`]).
//!
//! Offers (memory of sends) and pulls (memory of receives) have separate slabs. An offer keeps its
//! window until the peer has pulled it, for which the peer needs a window, too: if offers could
//! occupy all windows on both sides, both would wait forever. A pull ends without further windows.
//!
//! # Limits
//! A slab is requested if the slabs of its purpose then total at most [`STAGING_BYTES_MAX`] (512
//! MiB). While they total at most [`STAGING_ROOM_BYTES`] (320 MiB), a slab of any length is
//! requested, so that the longest message (4 GiB) gets a window: with 300 MiB of slabs a message of
//! 1 GiB gets a slab; with 400 MiB a message of 200 MiB waits. Before a message waits for such
//! room, idle slabs of its purpose are returned to the daemon. If the daemon or the kernel refuses
//! a slab, idle registrations of application memory end as well.
//!
//! [`TransportError::Full`] means: repeat later, when the daemon answered or a window is free.
//! [`TransportError::Never`] fails the message with [`Status::NoResources`]: the host has no memory
//! or descriptor for a slab, or the daemon refused a slab and this purpose has none; the next
//! message asks again. A registration of application memory that can end turns the first into
//! `Full`. Idle slabs above [`STAGING_IDLE_MAX`] (64 MiB) are returned. The end of a daemon that
//! has the NIC side ends all windows; the next daemon's rings have new, empty staging. Windows are
//! not zeroed between messages.
//!
//! # Place
//! All calls run in the application's process, under the endpoint's lock.
//! [`Rings`](causeway_message::library::Rings) owns the slabs and allocates by [`Staging`]; `Paths`
//! sends the queued commands to the daemon, or executes them on the NIC side in the process.

mod cache;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_host::AppMemory;
use causeway_ibverbs::{ProtectionDomain, Registration};
use causeway_memory::{Map, Mapping, Region, View, create};
use causeway_message::library::{Purpose, Staging, TransportError};
use causeway_message::split::{RegionId, Token, Window};
use causeway_message::status::Status;
use causeway_wire::local::ClientMessage;

use self::cache::{Policy, RegistrationCache};
use crate::connection::Grant;
use crate::limits::{
    REGISTERED_SLAB_BYTES, SLAB_BYTES, STAGING_BYTES_MAX, STAGING_IDLE_MAX, STAGING_ROOM_BYTES,
};

pub use self::cache::{CacheCounters, clean};
pub use self::watch::{MemoryWatch, WatchedRange};

/// Windows begin at multiples of this.
const GRAIN: u64 = 4096;

/// A command for the daemon, with its memory.
pub type StagingCommand = (ClientMessage, Grant);

/// Memory that the NIC side may access, and its free ranges.
#[derive(Debug)]
struct StagingSlab {
    /// Number by which the daemon's answer finds the slab.
    tag: u32,
    /// Whether its windows are for offers or for pulls.
    purpose: Purpose,
    /// Region number of the daemon, once it has answered.
    region: Option<RegionId>,
    /// The slab's memory in this process.
    map: Map,
    /// Its registration; `None` for a file.
    registration: Option<Arc<Registration>>,
    /// Length in bytes.
    len: u64,
    /// Free ranges: offset to length.
    free: BTreeMap<u64, u64>,
    /// Windows in use.
    used: usize,
    /// No window was used: a message waits for this slab.
    is_unused: bool,
}

impl StagingSlab {
    /// Creates a slab of `len` bytes, in registered memory if there is a domain. Returns the slab
    /// and the grant of its memory, or `None` without memory or descriptors.
    fn new(
        tag: u32,
        purpose: Purpose,
        len: u64,
        domain: Option<&ProtectionDomain>,
    ) -> Option<(Self, Grant)> {
        let (mapping, registration, grant) = match domain {
            None => {
                let file = create("causeway-staging", len).ok()?;
                let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).ok()?);
                (mapping, None, Grant::File(file))
            }
            Some(domain) => {
                let mapping = Arc::new(Mapping::private(len).ok()?);
                let view = View::new(Arc::clone(&mapping), 0, usize::try_from(len).ok()?).ok()?;
                let registration = Arc::new(domain.register(view).ok()?);
                (mapping, Some(Arc::clone(&registration)), Grant::Memory(registration))
            }
        };
        let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).ok()?;
        let free = BTreeMap::from([(0, len)]);
        let (region, used, is_unused) = (None, 0, true);
        Some((Self { tag, purpose, region, map, registration, len, free, used, is_unused }, grant))
    }

    /// Returns whether a window of `len` bytes is free and the daemon knows the slab.
    fn has_room(&self, len: u64) -> bool {
        self.region.is_some() && self.free.values().any(|free| *free >= len)
    }

    /// Allocates `len` bytes, a multiple of [`GRAIN`].
    fn take(&mut self, len: u64) -> Option<u64> {
        let (&at, &free) = self.free.iter().find(|(_, free)| **free >= len)?;
        self.free.remove(&at);
        if free > len {
            self.free.insert(at.saturating_add(len), free.saturating_sub(len));
        }
        self.used = self.used.saturating_add(1);
        self.is_unused = false;
        Some(at)
    }

    /// Frees the `len` bytes at offset `at`, and merges neighbouring free ranges.
    fn give(&mut self, at: u64, len: u64) {
        let (mut at, mut len) = (at, len);
        if let Some(behind) = self.free.remove(&at.saturating_add(len)) {
            len = len.saturating_add(behind);
        }
        if let Some((&before, &free)) = self.free.range(..at).next_back()
            && before.saturating_add(free) == at
        {
            at = before;
            len = len.saturating_add(free);
        }
        self.free.insert(at, len);
        self.used = self.used.saturating_sub(1);
    }
}

/// All slabs of an endpoint.
#[derive(Debug)]
pub struct StagingSlabs {
    /// Number of the endpoint, for commands.
    endpoint: u8,
    /// Domain in which slabs are registered; `None` if slabs are files.
    domain: Option<ProtectionDomain>,
    /// Slabs of both purposes, including those that the daemon has not accepted yet.
    slabs: Vec<StagingSlab>,
    /// Region number and table of the process's own memory, if the NIC side sends from it.
    own: Option<(RegionId, AppMemory)>,
    /// Registrations of the application's memory, if the NIC side accesses it by an adapter.
    cache: Option<RegistrationCache<ProtectionDomain>>,
    /// Tag of the last requested slab or registration.
    last: u32,
    /// Commands that `Paths` has not sent yet.
    pub commands: VecDeque<StagingCommand>,
    /// Number of slabs that the daemon accepted.
    pub lent: u64,
    /// Number of windows that were allocated.
    pub taken: u64,
    /// The window that is taken next is of a message in memory that was not lent.
    is_copy: bool,
    /// The daemon refused a slab; no slab is requested until an idle slab was returned, or a
    /// message failed because its purpose has no slab.
    is_refused: bool,
}

/// Counters of staging, since the endpoint was opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct StagingCounters {
    /// Slabs that the NIC side accepted.
    pub lent: u64,
    /// Windows that were allocated.
    pub taken: u64,
    /// Registrations of application memory.
    pub cache: CacheCounters,
}

/// Returns the bytes that a window occupies.
fn rounded(len: u32) -> u64 {
    u64::from(len).next_multiple_of(GRAIN)
}

impl StagingSlabs {
    /// Returns the staging of an endpoint, in files.
    pub fn new(endpoint: u8) -> Self {
        Self {
            endpoint,
            domain: None,
            slabs: Vec::new(),
            own: None,
            cache: None,
            last: 0,
            commands: VecDeque::new(),
            lent: 0,
            taken: 0,
            is_copy: false,
            is_refused: false,
        }
    }

    /// Returns the staging of an endpoint, in memory that is registered in `domain`.
    pub fn registered(endpoint: u8, domain: ProtectionDomain) -> Self {
        let cache = RegistrationCache::new(endpoint, domain.clone(), Policy::chosen());
        Self { domain: Some(domain), cache: Some(cache), ..Self::new(endpoint) }
    }

    /// Returns the counters.
    pub fn counters(&self) -> StagingCounters {
        let cache = self.cache.as_ref().map(|cache| cache.counters).unwrap_or_default();
        StagingCounters { lent: self.lent, taken: self.taken, cache }
    }

    /// Sets the region from which contiguous offers are sent.
    pub fn set_own(&mut self, own: (RegionId, AppMemory)) {
        self.own = Some(own);
    }

    /// Returns the process's own memory if the window is in it and not in a slab.
    fn own_memory(&self, window: Window) -> Option<&AppMemory> {
        self.own.as_ref().filter(|(region, _)| *region == window.region).map(|(_, own)| own)
    }

    /// Returns whether an answer of the daemon is pending.
    pub fn awaits_answer(&self) -> bool {
        self.slabs.iter().any(|slab| slab.region.is_none())
            || self.cache.as_ref().is_some_and(RegistrationCache::awaits_answer)
    }

    /// Returns the slabs of a purpose.
    fn for_purpose(&self, purpose: Purpose) -> impl Iterator<Item = &StagingSlab> {
        self.slabs.iter().filter(move |slab| slab.purpose == purpose)
    }

    /// Returns the length of all slabs of a purpose, in bytes.
    fn bytes(&self, purpose: Purpose) -> u64 {
        self.for_purpose(purpose).fold(0, |sum, slab| sum.saturating_add(slab.len))
    }

    /// Records the daemon's answer to a slab or registration; `None` is a refusal. An unknown tag
    /// has no effect.
    pub fn record_answer(&mut self, tag: u32, region: Option<RegionId>) {
        if self.cache.as_mut().is_some_and(|cache| cache.record_answer(tag, region)) {
            return;
        }
        let Some(at) = self.slabs.iter().position(|slab| slab.tag == tag) else { return };
        match region {
            Some(_) => {
                if let Some(slab) = self.slabs.get_mut(at) {
                    slab.region = region;
                    self.lent = self.lent.wrapping_add(1);
                }
            }
            None => {
                self.slabs.remove(at);
                self.is_refused = true;
            }
        }
    }

    /// Returns the longest idle slab among those that `meant` selects to the daemon. Returns
    /// whether there was an idle slab.
    fn return_idle(&mut self, meant: impl Fn(&StagingSlab) -> bool) -> bool {
        let idle = |slab: &StagingSlab| slab.used == 0 && slab.region.is_some() && meant(slab);
        let all = self.slabs.iter().enumerate().filter(|(_, slab)| idle(slab));
        let Some((at, _)) = all.max_by_key(|(_, slab)| slab.len) else { return false };
        let slab = self.slabs.remove(at);
        if let Some(region) = slab.region {
            let ask = ClientMessage::Unregion { endpoint: self.endpoint, region: region.0 };
            let grant = slab.registration.map_or(Grant::Nothing, Grant::Ended);
            self.commands.push_back((ask, grant));
            self.is_refused = false;
        }
        true
    }

    /// Returns whether a new slab of `size` bytes is within the limits of its purpose: any size if
    /// the present slabs total at most [`STAGING_ROOM_BYTES`] (320 MiB), else up to
    /// [`STAGING_BYTES_MAX`] (512 MiB).
    fn fits(&self, purpose: Purpose, size: u64) -> bool {
        let bytes = self.bytes(purpose);
        bytes <= STAGING_ROOM_BYTES || bytes.saturating_add(size) <= STAGING_BYTES_MAX
    }

    /// Requests a slab with a window of `len` bytes.
    fn request_slab(&mut self, purpose: Purpose, len: u64) -> Result<(), TransportError> {
        let never = TransportError::Never(Status::NoResources);
        let unit = if self.domain.is_some() { REGISTERED_SLAB_BYTES } else { SLAB_BYTES };
        let size = len.next_multiple_of(unit);
        while self.is_refused || !self.fits(purpose, size) {
            if self.is_refused && self.end_idle_registrations() {
                self.is_refused = false;
                continue;
            }
            // If the daemon accepts no more, idle slabs of the other purpose make room.
            let is_refused = self.is_refused;
            if !self.return_idle(|slab| is_refused || slab.purpose == purpose) {
                // Windows in use will be freed. Without any slab the request fails; the next
                // request asks again, since other endpoints may have freed slabs.
                let nothing = self.bytes(purpose) == 0;
                self.is_refused &= !nothing;
                return if nothing { Err(never) } else { Ok(()) };
            }
        }
        self.last = self.last.wrapping_add(1);
        let tag = self.last;
        let made = match StagingSlab::new(tag, purpose, size, self.domain.as_ref()) {
            // The locked memory of idle registrations is free at once.
            None if self.release_idle_registrations() => {
                StagingSlab::new(tag, purpose, size, self.domain.as_ref())
            }
            made => made,
        };
        let Some((slab, grant)) = made else { return Err(never) };
        self.slabs.push(slab);
        let ask = ClientMessage::Region { tag, endpoint: self.endpoint, len: size };
        self.commands.push_back((ask, grant));
        Ok(())
    }

    /// Ends the registrations of application memory that no message uses, to make room for a slab.
    /// Returns whether there were any.
    fn end_idle_registrations(&mut self) -> bool {
        self.cache.as_mut().is_some_and(|cache| cache.end_idle(&mut self.commands))
    }

    /// As [`Self::end_idle_registrations`], and unlocks their memory at once.
    fn release_idle_registrations(&mut self) -> bool {
        self.cache.as_mut().is_some_and(|cache| cache.release_idle(&mut self.commands))
    }

    /// Returns the slab of a region.
    fn slab_of(&self, region: RegionId) -> Option<&StagingSlab> {
        self.slabs.iter().find(|slab| slab.region == Some(region))
    }
}

impl Staging for StagingSlabs {
    fn take(&mut self, len: u32, purpose: Purpose) -> Result<Window, TransportError> {
        let is_copy = std::mem::take(&mut self.is_copy);
        let needed = rounded(len);
        // The shortest slab with room, so that long slabs become idle after their message.
        let room = |slab: &&mut StagingSlab| slab.purpose == purpose && slab.has_room(needed);
        if let Some(slab) = self.slabs.iter_mut().filter(room).min_by_key(|slab| slab.len)
            && let (Some(region), Some(offset)) = (slab.region, slab.take(needed))
        {
            self.taken = self.taken.wrapping_add(1);
            if let Some(cache) = self.cache.as_mut().filter(|_| is_copy) {
                cache.count_copy();
            }
            return Ok(Window { region, offset, len });
        }
        let comes = |slab: &StagingSlab| slab.region.is_none() && slab.len >= needed;
        if !self.for_purpose(purpose).any(comes) {
            self.request_slab(purpose, needed)?;
        }
        Err(TransportError::Full)
    }

    fn lend(
        &mut self,
        memory: Range<usize>,
        purpose: Purpose,
        token: Token,
    ) -> Result<Option<Window>, TransportError> {
        if let Some(cache) = &mut self.cache {
            let lent = cache.lend((memory, token), &mut self.last, &mut self.commands);
            self.is_copy = lent == Ok(None);
            return lent;
        }
        let (Some((region, own)), Purpose::Offer) = (&self.own, purpose) else { return Ok(None) };
        let start = std::ptr::with_exposed_provenance(memory.start);
        let (Ok(len), Some(offset)) = (u32::try_from(memory.len()), own.lend(start, memory.len()))
        else {
            return Ok(None);
        };
        Ok(Some(Window { region: *region, offset, len }))
    }

    fn take_back(&mut self, window: Window) {
        if let Some(own) = self.own_memory(window) {
            own.take_back(window.offset);
        }
        if let Some(cache) = &mut self.cache {
            cache.take_back(window.region);
        }
    }

    fn give(&mut self, window: Window) {
        if let Some(own) = self.own_memory(window) {
            return own.give(window.offset);
        }
        if let Some(cache) = &mut self.cache
            && cache.give(window.region, &mut self.commands)
        {
            return;
        }
        let found = self.slabs.iter_mut().find(|slab| slab.region == Some(window.region));
        let Some(slab) = found else { return };
        slab.give(window.offset, rounded(window.len));
        let used_up = |slab: &&StagingSlab| slab.used == 0 && !slab.is_unused;
        let idle = |slabs: &[StagingSlab]| {
            slabs.iter().filter(used_up).fold(0_u64, |sum, slab| sum.saturating_add(slab.len))
        };
        while idle(&self.slabs) > STAGING_IDLE_MAX && self.return_idle(|slab| !slab.is_unused) {}
    }

    fn write(&self, window: Window, at: usize, bytes: &[u8]) {
        if let Some(slab) = self.slab_of(window.region) {
            let _ = slab.map.write(window.offset.saturating_add(at as u64), bytes);
        }
    }

    fn read(&self, window: Window, at: usize, into: &mut [u8]) {
        if let Some(slab) = self.slab_of(window.region) {
            let _ = slab.map.read(window.offset.saturating_add(at as u64), into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_answer(slabs: &mut StagingSlabs, region: u8) -> u64 {
        let (ask, grant) = slabs.commands.pop_front().unwrap();
        let ClientMessage::Region { tag, len, .. } = ask else { panic!("{ask:?}") };
        assert!(matches!(grant, Grant::File(_)));
        slabs.record_answer(tag, Some(RegionId(region)));
        len
    }

    #[test]
    fn staging_windows_are_disjoint_and_reused() {
        let mut slabs = StagingSlabs::new(1);
        assert_eq!(slabs.take(100_000, Purpose::Offer), Err(TransportError::Full));
        assert_eq!(slabs.take(100_000, Purpose::Offer), Err(TransportError::Full));
        assert!(slabs.awaits_answer());
        assert_eq!(record_answer(&mut slabs, 7), SLAB_BYTES);
        assert!(slabs.commands.is_empty(), "asked once");
        let all: Vec<Window> =
            (0..5).map(|_| slabs.take(100_000, Purpose::Offer).unwrap()).collect();
        for (number, window) in (0_u8..).zip(&all) {
            slabs.write(*window, 0, &[number; 100_000]);
        }
        for (number, window) in (0_u8..).zip(&all) {
            let mut bytes = [0xff; 99_999];
            slabs.read(*window, 1, &mut bytes);
            assert_eq!(bytes, [number; 99_999]);
        }
        for at in [1, 3, 2, 0, 4] {
            slabs.give(all[at]);
        }
        // The free ranges were merged.
        assert_eq!(slabs.take(SLAB_BYTES as u32, Purpose::Offer).unwrap().offset, 0);
        assert_eq!(slabs.take(1, Purpose::Offer), Err(TransportError::Full), "the next slab");
    }

    #[test]
    fn staging_lent_memory_needs_no_slab() {
        let mut slabs = StagingSlabs::new(1);
        let bytes = vec![9; 100_000];
        let start = bytes.as_ptr().expose_provenance();
        let lend = |slabs: &mut StagingSlabs, purpose| {
            slabs.lend(start..start + bytes.len(), purpose, Token(1)).unwrap()
        };
        assert_eq!(lend(&mut slabs, Purpose::Offer), None, "the daemon does not reach it");
        let own = AppMemory::new().unwrap();
        slabs.set_own((RegionId(0), own.clone()));
        assert_eq!(lend(&mut slabs, Purpose::Pull), None, "for reads only");
        let window = lend(&mut slabs, Purpose::Offer).unwrap();
        assert_eq!((window.region, window.len), (RegionId(0), 100_000));
        assert!(own.piece(window.offset + 99_999, 1).is_some());
        slabs.take_back(window);
        assert!(own.piece(window.offset, 1).is_none());
        slabs.give(window);
        assert_eq!(lend(&mut slabs, Purpose::Offer), Some(window));
        // Other windows come from slabs as before.
        assert_eq!(slabs.take(10, Purpose::Offer), Err(TransportError::Full));
        record_answer(&mut slabs, 7);
        let other = slabs.take(10, Purpose::Offer).unwrap();
        slabs.take_back(other);
        slabs.give(other);
        assert!(own.piece(window.offset, 1).is_some());
    }

    #[test]
    fn staging_idle_slabs_are_bounded() {
        let mut slabs = StagingSlabs::new(1);
        let large = (STAGING_IDLE_MAX + SLAB_BYTES) as u32;
        assert_eq!(slabs.take(large, Purpose::Offer), Err(TransportError::Full));
        record_answer(&mut slabs, 3);
        let window = slabs.take(large, Purpose::Offer).unwrap();
        slabs.give(window);
        let (ask, _) = slabs.commands.pop_front().unwrap();
        assert_eq!(ask, ClientMessage::Unregion { endpoint: 1, region: 3 });
        let never = Err(TransportError::Never(Status::NoResources));
        // The daemon refuses, and there is no slab.
        assert_eq!(slabs.take(1, Purpose::Offer), Err(TransportError::Full));
        let (ask, _) = slabs.commands.pop_front().unwrap();
        let ClientMessage::Region { tag, .. } = ask else { panic!("{ask:?}") };
        slabs.record_answer(tag, None);
        assert_eq!(slabs.take(1, Purpose::Offer), never);
    }

    #[test]
    fn staging_long_slabs_are_returned_after_their_message() {
        let mut slabs = StagingSlabs::new(1);
        let place = |slabs: &mut StagingSlabs, len: u64, region| {
            let len = len as u32;
            assert_eq!(slabs.take(len, Purpose::Pull), Err(TransportError::Full));
            record_answer(slabs, region);
            slabs.take(len, Purpose::Pull).unwrap()
        };
        // The first slab is long; without another slab, short messages use it.
        let long = place(&mut slabs, STAGING_IDLE_MAX + SLAB_BYTES, 1);
        let short = place(&mut slabs, 100_000, 2);
        slabs.give(short);
        slabs.give(long);
        assert_eq!(
            slabs.commands.pop_front().unwrap().0,
            ClientMessage::Unregion { endpoint: 1, region: 1 }
        );
        assert!(slabs.commands.is_empty(), "the short one is kept");
        // A long slab within the idle limit stays; a short message does not use it if a short
        // slab has room.
        let long = place(&mut slabs, STAGING_IDLE_MAX - SLAB_BYTES, 3);
        slabs.give(long);
        let short = slabs.take(100_000, Purpose::Pull).unwrap();
        assert_eq!(short.region, RegionId(2));
        slabs.give(short);
        // A slab for which a message waits is kept.
        assert_eq!(slabs.take(STAGING_IDLE_MAX as u32, Purpose::Pull), Err(TransportError::Full));
        record_answer(&mut slabs, 4);
        let short = slabs.take(100_000, Purpose::Pull).unwrap();
        slabs.give(short);
        assert!(slabs.commands.is_empty());
        assert_eq!(slabs.take(STAGING_IDLE_MAX as u32, Purpose::Pull).unwrap().region, RegionId(4));
    }

    #[test]
    fn staging_offers_leave_room_for_pulls() {
        let mut slabs = StagingSlabs::new(1);
        let part = (STAGING_BYTES_MAX / 4) as u32;
        let mut offered = Vec::new();
        for region in 0..4 {
            assert_eq!(slabs.take(part, Purpose::Offer), Err(TransportError::Full));
            record_answer(&mut slabs, region);
            offered.push(slabs.take(part, Purpose::Offer).unwrap());
        }
        // No more slabs for offers, but slabs for pulls.
        for _ in 0..3 {
            assert_eq!(slabs.take(1, Purpose::Offer), Err(TransportError::Full));
        }
        assert!(slabs.commands.is_empty() && !slabs.awaits_answer());
        assert_eq!(slabs.take(1 << 20, Purpose::Pull), Err(TransportError::Full));
        record_answer(&mut slabs, 9);
        assert_eq!(slabs.take(1 << 20, Purpose::Pull).unwrap().region, RegionId(9));
        // Windows of offers are not used for pulls.
        slabs.give(offered.pop().unwrap());
        assert_eq!(slabs.take(part, Purpose::Pull), Err(TransportError::Full));
        // The longest message is accepted if it is alone.
        let mut slabs = StagingSlabs::new(1);
        assert_eq!(slabs.take(u32::MAX, Purpose::Pull), Err(TransportError::Full));
        assert_eq!(record_answer(&mut slabs, 1), 1 << 32);
        let all = slabs.take(u32::MAX, Purpose::Pull).unwrap();
        assert_eq!(slabs.take(1, Purpose::Pull).map(|place| place.len), Err(TransportError::Full));
        assert!(!slabs.awaits_answer(), "windows in use will be freed");
        slabs.give(all);
        let (ask, _) = slabs.commands.pop_front().unwrap();
        assert_eq!(ask, ClientMessage::Unregion { endpoint: 1, region: 1 });
    }
}
