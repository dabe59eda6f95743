//! Memory for large messages on their way to and from other hosts: lent to the daemon, kept and
//! used again.
//!
//! It lies in slabs, which the daemon knows as regions; a message has a place in one. A slab is
//! asked for when no place is free, and what waits for a place waits for the daemon's answer.
//!
//! Where the backend half is in the process itself ([`crate::bypass`]), what is offered in one
//! piece takes no place: it is sent from where it lies.
//!
//! What is offered and what is pulled have slabs of their own. An offer keeps its place until the
//! partner pulled it, for which the partner needs a place: were all places of both taken by offers,
//! both would wait for ever. A pull ends without anybody else's place.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_host::OwnMemory;
use causeway_memory::{Map, Mapping, Region, create};
use causeway_message::library::{Purpose, Refused, Staging};
use causeway_message::split::{RegionId, Window};
use causeway_message::status::Status;
use causeway_wire::local::Ask;

use crate::limits::{SLAB_BYTES, STAGING_BYTES_MAX, STAGING_IDLE_MAX, STAGING_ROOM_BYTES};

/// Places begin at multiples of this.
const GRAIN: u64 = 4096;

/// What the daemon is to be asked.
pub type Order = (Ask, Vec<OwnedFd>);

#[derive(Debug)]
struct Slab {
    tag: u32,
    purpose: Purpose,
    /// The daemon's number for it, once it answered.
    region: Option<RegionId>,
    map: Map,
    len: u64,
    /// What is free: where, and how many bytes.
    free: BTreeMap<u64, u64>,
    /// Places in use.
    used: usize,
    /// None of it was used yet: somebody waits for it.
    fresh: bool,
}

impl Slab {
    fn new(tag: u32, purpose: Purpose, len: u64) -> Option<(Self, OwnedFd)> {
        let file = create("causeway-staging", len).ok()?;
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).ok()?);
        let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).ok()?;
        let free = BTreeMap::from([(0, len)]);
        Some((Self { tag, purpose, region: None, map, len, free, used: 0, fresh: true }, file))
    }

    /// Whether there is a place of so many bytes, and the daemon knows it.
    fn has_room(&self, len: u64) -> bool {
        self.region.is_some() && self.free.values().any(|free| *free >= len)
    }

    /// Takes a place of so many bytes, a multiple of [`GRAIN`].
    fn take(&mut self, len: u64) -> Option<u64> {
        let (&at, &free) = self.free.iter().find(|(_, free)| **free >= len)?;
        self.free.remove(&at);
        if free > len {
            self.free.insert(at.saturating_add(len), free.saturating_sub(len));
        }
        self.used = self.used.saturating_add(1);
        self.fresh = false;
        Some(at)
    }

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

/// See above.
#[derive(Debug)]
pub struct Slabs {
    endpoint: u8,
    slabs: Vec<Slab>,
    /// Memory of the process itself, and its number, where it is sent from.
    own: Option<(RegionId, OwnMemory)>,
    last: u32,
    pub orders: VecDeque<Order>,
    /// How often memory was lent.
    pub lent: u64,
    /// How often a place in it was taken.
    pub taken: u64,
    /// The daemon takes no more.
    full: bool,
}

/// How often memory was lent to the daemon, and how often a place in it was taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Staged {
    pub lent: u64,
    pub taken: u64,
}

/// The bytes that a place takes.
fn rounded(len: u32) -> u64 {
    u64::from(len).next_multiple_of(GRAIN)
}

impl Slabs {
    /// For the rings of an endpoint.
    pub fn new(endpoint: u8) -> Self {
        let (slabs, orders) = (Vec::new(), VecDeque::new());
        Self { endpoint, slabs, own: None, last: 0, orders, lent: 0, taken: 0, full: false }
    }

    /// What lies in one piece is offered from there, by that number.
    pub fn set_own(&mut self, own: (RegionId, OwnMemory)) {
        self.own = Some(own);
    }

    fn own(&self, window: Window) -> Option<&OwnMemory> {
        self.own.as_ref().filter(|(region, _)| *region == window.region).map(|(_, own)| own)
    }

    /// Whether the daemon is yet to answer.
    pub fn asks(&self) -> bool {
        self.slabs.iter().any(|slab| slab.region.is_none())
    }

    fn for_purpose(&self, purpose: Purpose) -> impl Iterator<Item = &Slab> {
        self.slabs.iter().filter(move |slab| slab.purpose == purpose)
    }

    fn bytes(&self, purpose: Purpose) -> u64 {
        self.for_purpose(purpose).fold(0, |sum, slab| sum.saturating_add(slab.len))
    }

    /// The daemon answered.
    pub fn answered(&mut self, tag: u32, region: Option<RegionId>) {
        let Some(at) = self.slabs.iter().position(|slab| slab.tag == tag) else { return };
        match region {
            Some(_) => {
                if let Some(slab) = self.slabs.get_mut(at) {
                    slab.region = region;
                }
            }
            None => {
                self.slabs.remove(at);
                self.full = true;
            }
        }
    }

    /// Lets go of the longest slab that nobody uses, of those that are meant.
    fn drop_idle(&mut self, meant: impl Fn(&Slab) -> bool) -> bool {
        let idle = |slab: &Slab| slab.used == 0 && slab.region.is_some() && meant(slab);
        let all = self.slabs.iter().enumerate().filter(|(_, slab)| idle(slab));
        let Some((at, _)) = all.max_by_key(|(_, slab)| slab.len) else { return false };
        if let Some(region) = self.slabs.remove(at).region {
            let ask = Ask::Unregion { endpoint: self.endpoint, region: region.0 };
            self.orders.push_back((ask, Vec::new()));
            self.full = false;
        }
        true
    }

    /// Whether so many bytes more are within bounds. One message may be longer than all that others
    /// share.
    fn fits(&self, purpose: Purpose, size: u64) -> bool {
        let bytes = self.bytes(purpose);
        bytes <= STAGING_ROOM_BYTES || bytes.saturating_add(size) <= STAGING_BYTES_MAX
    }

    /// Asks for a slab with a place for so many bytes.
    fn order(&mut self, purpose: Purpose, len: u64) -> Result<(), Refused> {
        let never = Refused::Never(Status::NoResources);
        let size = len.next_multiple_of(SLAB_BYTES);
        while self.full || !self.fits(purpose, size) {
            // Where the daemon takes no more, what the other purpose has idle gives it room.
            let full = self.full;
            if !self.drop_idle(|slab| full || slab.purpose == purpose) {
                // What is in use is free one day; where there is nothing, nothing comes, but others
                // may have given theirs back when it is asked for next.
                let nothing = self.bytes(purpose) == 0;
                self.full &= !nothing;
                return if nothing { Err(never) } else { Ok(()) };
            }
        }
        self.last = self.last.wrapping_add(1);
        self.lent = self.lent.wrapping_add(1);
        let tag = self.last;
        let (slab, file) = Slab::new(tag, purpose, size).ok_or(never)?;
        self.slabs.push(slab);
        let ask = Ask::Region { tag, endpoint: self.endpoint, len: size };
        self.orders.push_back((ask, vec![file]));
        Ok(())
    }

    fn of(&self, region: RegionId) -> Option<&Slab> {
        self.slabs.iter().find(|slab| slab.region == Some(region))
    }
}

impl Staging for Slabs {
    fn take(&mut self, len: u32, purpose: Purpose) -> Result<Window, Refused> {
        let needed = rounded(len);
        // The shortest that has room, so that long ones are idle when their message is through.
        let room = |slab: &&mut Slab| slab.purpose == purpose && slab.has_room(needed);
        if let Some(slab) = self.slabs.iter_mut().filter(room).min_by_key(|slab| slab.len)
            && let (Some(region), Some(offset)) = (slab.region, slab.take(needed))
        {
            self.taken = self.taken.wrapping_add(1);
            return Ok(Window { region, offset, len });
        }
        let comes = |slab: &Slab| slab.region.is_none() && slab.len >= needed;
        if !self.for_purpose(purpose).any(comes) {
            self.order(purpose, needed)?;
        }
        Err(Refused::Full)
    }

    fn lend(&mut self, bytes: &[u8]) -> Option<Window> {
        let (region, own) = self.own.as_ref()?;
        let len = u32::try_from(bytes.len()).ok()?;
        Some(Window { region: *region, offset: own.lend(bytes.as_ptr(), bytes.len())?, len })
    }

    fn take_back(&mut self, window: Window) {
        if let Some(own) = self.own(window) {
            own.take_back(window.offset);
        }
    }

    fn give(&mut self, window: Window) {
        if let Some(own) = self.own(window) {
            return own.give(window.offset);
        }
        let found = self.slabs.iter_mut().find(|slab| slab.region == Some(window.region));
        let Some(slab) = found else { return };
        slab.give(window.offset, rounded(window.len));
        let used_up = |slab: &&Slab| slab.used == 0 && !slab.fresh;
        let idle = |slabs: &[Slab]| {
            slabs.iter().filter(used_up).fold(0_u64, |sum, slab| sum.saturating_add(slab.len))
        };
        while idle(&self.slabs) > STAGING_IDLE_MAX && self.drop_idle(|slab| !slab.fresh) {}
    }

    fn write(&self, window: Window, at: usize, bytes: &[u8]) {
        if let Some(slab) = self.of(window.region) {
            let _ = slab.map.write(window.offset.saturating_add(at as u64), bytes);
        }
    }

    fn read(&self, window: Window, at: usize, into: &mut [u8]) {
        if let Some(slab) = self.of(window.region) {
            let _ = slab.map.read(window.offset.saturating_add(at as u64), into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(slabs: &mut Slabs, region: u8) -> u64 {
        let (ask, files) = slabs.orders.pop_front().unwrap();
        let Ask::Region { tag, len, .. } = ask else { panic!("{ask:?}") };
        assert_eq!(files.len(), 1);
        slabs.answered(tag, Some(RegionId(region)));
        len
    }

    #[test]
    fn places_are_apart_and_used_again() {
        let mut slabs = Slabs::new(1);
        assert_eq!(slabs.take(100_000, Purpose::Offer), Err(Refused::Full));
        assert_eq!(slabs.take(100_000, Purpose::Offer), Err(Refused::Full));
        assert!(slabs.asks());
        assert_eq!(answered(&mut slabs, 7), SLAB_BYTES);
        assert!(slabs.orders.is_empty(), "asked once");
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
        // It is in one piece again.
        assert_eq!(slabs.take(SLAB_BYTES as u32, Purpose::Offer).unwrap().offset, 0);
        assert_eq!(slabs.take(1, Purpose::Offer), Err(Refused::Full), "the next slab");
    }

    #[test]
    fn what_is_sent_from_where_it_lies_takes_no_slab() {
        let mut slabs = Slabs::new(1);
        let bytes = vec![9; 100_000];
        assert_eq!(slabs.lend(&bytes), None, "the daemon does not reach it");
        let own = OwnMemory::new().unwrap();
        slabs.set_own((RegionId(0), own.clone()));
        let window = slabs.lend(&bytes).unwrap();
        assert_eq!((window.region, window.len), (RegionId(0), 100_000));
        assert!(own.piece(window.offset + 99_999, 1).is_some());
        slabs.take_back(window);
        assert!(own.piece(window.offset, 1).is_none());
        slabs.give(window);
        assert_eq!(slabs.lend(&bytes), Some(window));
        // Others are slabs' as before.
        assert_eq!(slabs.take(10, Purpose::Offer), Err(Refused::Full));
        answered(&mut slabs, 7);
        let other = slabs.take(10, Purpose::Offer).unwrap();
        slabs.take_back(other);
        slabs.give(other);
        assert!(own.piece(window.offset, 1).is_some());
    }

    #[test]
    fn idle_slabs_are_bounded_and_what_never_fits_is_said() {
        let mut slabs = Slabs::new(1);
        let large = (STAGING_IDLE_MAX + SLAB_BYTES) as u32;
        assert_eq!(slabs.take(large, Purpose::Offer), Err(Refused::Full));
        answered(&mut slabs, 3);
        let window = slabs.take(large, Purpose::Offer).unwrap();
        slabs.give(window);
        let (ask, _) = slabs.orders.pop_front().unwrap();
        assert_eq!(ask, Ask::Unregion { endpoint: 1, region: 3 });
        let never = Err(Refused::Never(Status::NoResources));
        // The daemon has no room, and nothing is there.
        assert_eq!(slabs.take(1, Purpose::Offer), Err(Refused::Full));
        let (ask, _) = slabs.orders.pop_front().unwrap();
        let Ask::Region { tag, .. } = ask else { panic!("{ask:?}") };
        slabs.answered(tag, None);
        assert_eq!(slabs.take(1, Purpose::Offer), never);
    }

    #[test]
    fn long_slabs_go_when_their_message_is_through() {
        let mut slabs = Slabs::new(1);
        let place = |slabs: &mut Slabs, len: u64, region| {
            let len = len as u32;
            assert_eq!(slabs.take(len, Purpose::Pull), Err(Refused::Full));
            answered(slabs, region);
            slabs.take(len, Purpose::Pull).unwrap()
        };
        // A long one comes first, and short ones find room in it as long as there is no other.
        let long = place(&mut slabs, STAGING_IDLE_MAX + SLAB_BYTES, 1);
        let short = place(&mut slabs, 100_000, 2);
        slabs.give(short);
        slabs.give(long);
        assert_eq!(slabs.orders.pop_front().unwrap().0, Ask::Unregion { endpoint: 1, region: 1 });
        assert!(slabs.orders.is_empty(), "the short one is kept");
        // As many of them as may be idle, while one is used; it is not used for what others can
        // hold.
        let long = place(&mut slabs, STAGING_IDLE_MAX - SLAB_BYTES, 3);
        slabs.give(long);
        let short = slabs.take(100_000, Purpose::Pull).unwrap();
        assert_eq!(short.region, RegionId(2));
        slabs.give(short);
        // What somebody waits for is not taken from him.
        assert_eq!(slabs.take(STAGING_IDLE_MAX as u32, Purpose::Pull), Err(Refused::Full));
        answered(&mut slabs, 4);
        let short = slabs.take(100_000, Purpose::Pull).unwrap();
        slabs.give(short);
        assert!(slabs.orders.is_empty());
        assert_eq!(slabs.take(STAGING_IDLE_MAX as u32, Purpose::Pull).unwrap().region, RegionId(4));
    }

    #[test]
    fn offers_leave_room_for_pulls_and_one_message_may_be_as_long_as_any() {
        let mut slabs = Slabs::new(1);
        let part = (STAGING_BYTES_MAX / 4) as u32;
        let mut offered = Vec::new();
        for region in 0..4 {
            assert_eq!(slabs.take(part, Purpose::Offer), Err(Refused::Full));
            answered(&mut slabs, region);
            offered.push(slabs.take(part, Purpose::Offer).unwrap());
        }
        // No more of these, whoever asks how often, but of the others.
        for _ in 0..3 {
            assert_eq!(slabs.take(1, Purpose::Offer), Err(Refused::Full));
        }
        assert!(slabs.orders.is_empty() && !slabs.asks());
        assert_eq!(slabs.take(1 << 20, Purpose::Pull), Err(Refused::Full));
        answered(&mut slabs, 9);
        assert_eq!(slabs.take(1 << 20, Purpose::Pull).unwrap().region, RegionId(9));
        // Places of the ones are not given to the others.
        slabs.give(offered.pop().unwrap());
        assert_eq!(slabs.take(part, Purpose::Pull), Err(Refused::Full));
        // The longest there is finds a place when it is alone.
        let mut slabs = Slabs::new(1);
        assert_eq!(slabs.take(u32::MAX, Purpose::Pull), Err(Refused::Full));
        assert_eq!(answered(&mut slabs, 1), 1 << 32);
        let all = slabs.take(u32::MAX, Purpose::Pull).unwrap();
        assert_eq!(slabs.take(1, Purpose::Pull).map(|place| place.len), Err(Refused::Full));
        assert!(!slabs.asks(), "what is in use is free one day");
        slabs.give(all);
        let (ask, _) = slabs.orders.pop_front().unwrap();
        assert_eq!(ask, Ask::Unregion { endpoint: 1, region: 1 });
    }
}
