//! Memory of a guest that lends pages to the daemon: a page that is lent to nobody must not change.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};

use causeway_channel::mx_rings;
use causeway_fabric::guest_session::{GuestMemory, MemoryGrant, ServingEnd};
use causeway_memory::{Map, Mapping, Region, View};

/// Guest address of the first page.
const GUEST: u64 = 0x10_0000;
/// Length of a page.
pub const PAGE: u64 = 4096;
/// Places for rings.
pub const SLOTS: u64 = 3;
/// Pages for regions, behind the slots.
pub const POOL_PAGES: u64 = 24;

/// Returns the pages of the rings of an endpoint.
pub fn ring_pages() -> u64 {
    (mx_rings::layout().bytes() as u64).div_ceil(PAGE)
}

/// Ranges of guest addresses.
pub type Spans = Vec<(u64, u64)>;

/// Pages that were offered, until the guest takes them away.
struct Lent {
    grant: Arc<MemoryGrant>,
    /// Number of the offer.
    number: u64,
    /// Alive as long as the service holds the memory.
    held: Weak<()>,
    session: u64,
    pages: Vec<usize>,
}

/// The memory of a guest.
pub struct LendingMemory {
    pub map: Arc<Map>,
    /// Content of all pages that are not lent.
    copy: Vec<u8>,
    /// Offers of each page.
    offers: Vec<u32>,
    lent: Vec<Lent>,
    ended: Vec<Weak<()>>,
}

impl LendingMemory {
    pub fn new() -> Self {
        let pages = SLOTS * ring_pages() + POOL_PAGES;
        let len = pages * PAGE;
        let file = causeway_memory::create("fuzz-guest", len).expect("memory");
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len).expect("a range of the file"));
        let map = Map::new(vec![Region { guest: GUEST, user: GUEST, mapping }]).expect("a region");
        let (copy, offers) = (vec![0; len as usize], vec![0; pages as usize]);
        Self { map: Arc::new(map), copy, offers, lent: Vec::new(), ended: Vec::new() }
    }

    /// Returns the pages of a slot in ascending order, or in descending order, so that no two are
    /// adjacent for the daemon.
    pub fn slot(slot: u64, is_scattered: bool) -> Spans {
        let first = slot % SLOTS * ring_pages();
        let span = |page: u64| (GUEST + (first + page) * PAGE, PAGE);
        match is_scattered {
            true => (0..ring_pages()).rev().map(span).collect(),
            false => vec![(GUEST + first * PAGE, ring_pages() * PAGE)],
        }
    }

    /// Returns a range of the pool that begins at byte `at` of the page `page`.
    pub fn pool(page: u64, at: u64, len: u64) -> (u64, u64) {
        let bytes = POOL_PAGES * PAGE;
        let first = (page % POOL_PAGES * PAGE + at) % bytes;
        (GUEST + SLOTS * ring_pages() * PAGE + first, len.clamp(1, bytes - first))
    }

    /// Returns a slot as its process sees it; `None` if the host has no mapping left.
    pub fn view(&self, slot: u64, is_scattered: bool) -> Option<View> {
        let (spans, bytes) = (Self::slot(slot, is_scattered), mx_rings::layout().bytes());
        if !is_scattered {
            return self.map.view(spans[0].0, bytes).ok();
        }
        let (mirror, _) = self.map.mirror(&spans, usize::MAX).ok()?;
        View::new(mirror, 0, bytes).ok()
    }

    fn pages(&self, spans: &[(u64, u64)]) -> Vec<usize> {
        let page = |addr: u64| (addr.saturating_sub(GUEST) / PAGE) as usize;
        let ends = spans.iter().filter(|(addr, _)| *addr >= GUEST);
        let pages = ends.flat_map(|(addr, len)| page(*addr)..=page(addr.saturating_add(len - 1)));
        pages.filter(|page| *page < self.offers.len()).collect()
    }

    /// Offers ranges for a request of a session.
    pub fn lend(&mut self, end: &ServingEnd, session: u64, spans: Spans) -> GuestMemory {
        let pages = self.pages(&spans);
        pages.iter().for_each(|page| self.offers[*page] += 1);
        let (grant, kept) = (Arc::new(MemoryGrant::new(end.clone())), Arc::new(()));
        let held = Arc::downgrade(&kept);
        let memory = GuestMemory::new(Arc::clone(&self.map), spans, Arc::clone(&grant), kept);
        self.lent.push(Lent { grant, number: memory.number(), held, session, pages });
        memory
    }

    /// Returns whether the guest has not taken an offer away.
    pub fn is_lent(&self, number: u64) -> bool {
        self.lent.iter().any(|lent| lent.number == number)
    }

    /// Takes an offer away, as a deregistration does.
    pub fn revoke(&mut self, choice: usize) {
        if self.lent.is_empty() {
            return;
        }
        let lent = self.lent.swap_remove(choice % self.lent.len());
        lent.grant.revoke();
        self.end(lent);
    }

    /// Takes the latest offer away.
    pub fn revoke_last(&mut self) {
        if let Some(last) = self.lent.len().checked_sub(1) {
            self.revoke(last);
        }
    }

    /// Notes the end of a session, after which the service touches none of its memory.
    pub fn session_ended(&mut self, session: u64) {
        let (its, others) = std::mem::take(&mut self.lent)
            .into_iter()
            .partition::<Vec<_>, _>(|lent| lent.session == session);
        self.lent = others;
        its.into_iter().for_each(|lent| self.end(lent));
    }

    /// From now on the pages must not change, unless another offer has them.
    fn end(&mut self, lent: Lent) {
        for page in lent.pages {
            self.offers[page] -= 1;
            if self.offers[page] == 0 {
                let at = page * PAGE as usize;
                let bytes = &mut self.copy[at..at + PAGE as usize];
                self.map.read(GUEST + at as u64, bytes).expect("a page of the guest");
            }
        }
        self.ended.push(lent.held);
    }

    /// Writes as the guest.
    pub fn write(&mut self, at: u64, bytes: &[u8; 8]) {
        let at = (at % (self.copy.len() as u64 - 8)) as usize;
        self.map.write(GUEST + at as u64, bytes).expect("a place in the guest");
        for (place, byte) in (at..).zip(bytes) {
            self.copy[place] = *byte;
        }
    }

    /// Checks that only lent pages changed.
    pub fn check(&self) {
        let mut now = vec![0; self.copy.len()];
        self.map.read(GUEST, &mut now).expect("all of the guest");
        let pages = now.chunks(PAGE as usize).zip(self.copy.chunks(PAGE as usize));
        for (number, (now, then)) in pages.enumerate() {
            let is_free = self.offers[number] == 0;
            assert!(!is_free || now == then, "page {number} changed although it is not lent");
        }
    }

    /// Checks that the service holds none of the memory that was taken away.
    pub fn check_dropped(&self) {
        assert!(self.lent.is_empty());
        let held = self.ended.iter().filter(|held| held.strong_count() > 0).count();
        assert_eq!(held, 0, "memory that was taken away is held");
    }
}
