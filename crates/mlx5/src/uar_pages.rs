//! The doorbell pages (UAR) of a function: pages of BAR 0, each with a single owner at a time.
//!
//! Pages return in the order of their release, so that a page is used again as late as possible. A
//! BAR without free pages hands out none. `command::trivial` executes the driver's commands; the
//! restoration of a record reserves the pages that its commands had ([`UarPages::prepare`]). Nothing
//! in the pages is ever read.

use std::collections::VecDeque;

use crate::limits::{PAGE_BYTES, UAR_FIRST};

/// Allocator of doorbell pages.
#[derive(Debug)]
pub(crate) struct UarPages {
    /// Pages that were in use before, the longest free first.
    free: VecDeque<u32>,
    used: Vec<bool>,
    next: u32,
    end: u32,
    /// Page that the next allocation returns.
    prepared: Option<u32>,
}

impl UarPages {
    /// Returns the pages of a BAR of `bytes`.
    pub fn new(bytes: u64) -> Self {
        let end = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        Self { free: VecDeque::new(), used: Vec::new(), next: UAR_FIRST, end, prepared: None }
    }

    /// Hands out a page; `None` if all pages have an owner.
    pub fn allocate(&mut self) -> Option<u32> {
        let page = if let Some(page) = self.prepared.take() {
            page
        } else if self.next < self.end {
            let page = self.next;
            self.next = page.wrapping_add(1);
            self.used.push(false);
            page
        } else {
            // A page that was prepared is still listed.
            loop {
                let page = self.free.pop_front()?;
                if !*self.slot(page)? {
                    break page;
                }
            }
        };
        *self.slot(page)? = true;
        Some(page)
    }

    /// Reserves a page for the next allocation. Returns false if it is not free.
    pub fn prepare(&mut self, page: u32) -> bool {
        while self.next <= page && self.next < self.end {
            self.free.push_back(self.next);
            self.used.push(false);
            self.next = self.next.wrapping_add(1);
        }
        let is_free = self.slot(page).is_some_and(|used| !*used);
        self.prepared = is_free.then_some(page);
        is_free
    }

    /// Takes a page back. Returns false if the page has no owner.
    pub fn release(&mut self, page: u32) -> bool {
        match self.slot(page) {
            Some(used) if *used => *used = false,
            _ => return false,
        }
        self.free.push_back(page);
        true
    }

    /// Returns the mark of a page, true if the page has an owner; `None` for a page behind those
    /// that were handed out or prepared.
    fn slot(&mut self, page: u32) -> Option<&mut bool> {
        self.used.get_mut(page.checked_sub(UAR_FIRST)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uar_pages_are_distinct_and_bounded() {
        let mut pages = UarPages::new(18 * PAGE_BYTES);
        assert_eq!(pages.allocate(), Some(16));
        assert_eq!(pages.allocate(), Some(17));
        assert_eq!(pages.allocate(), None);
        assert!(pages.release(16));
        assert!(!pages.release(16) && !pages.release(3) && !pages.release(99));
        assert_eq!(pages.allocate(), Some(16));
    }

    #[test]
    fn uar_pages_of_a_small_bar_are_none() {
        assert_eq!(UarPages::new(4096).allocate(), None);
    }
}
