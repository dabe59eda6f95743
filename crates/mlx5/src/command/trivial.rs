//! Commands about objects that are only numbers, and the query of pages that the function wants
//! (none).
//!
//! Protection domains, transport domains, XRC domains and counter sets have no content: other
//! objects name them. Doorbell pages (UAR) are pages of BAR 0 that the driver maps into processes;
//! each is handed out to a single owner at a time, so that processes have distinct pages. Nothing
//! in them is ever read.
//!
//! A full table, and a BAR without free pages, answer *limit exceeded*; an unknown number answers
//! *bad resource*. A protection or transport domain or counter set is destroyed although other
//! objects name it: these keep working. An XRC domain with target queue pairs or shared receive
//! queues is not destroyed (*bad resource state*): a driver keeps the targets of processes that
//! exited, and destroys them when the domain is closed. Only new queue pairs look their domain up;
//! memory keys and receive queues do not. Numbers return late (`verbs::number`; those of counter
//! sets have 8 bits only), pages in the order of their release.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use std::collections::VecDeque;

use causeway_verbs::number::Table;
use causeway_wire::mlx5::command::Status;

use super::{Input, Outcome, Output};
use crate::function::Function;
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
    fn allocate(&mut self) -> Option<u32> {
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
    fn release(&mut self, page: u32) -> bool {
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

/// Makes an object without content, and returns its number to the driver.
fn create(table: &mut Table<()>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let number = table.insert(()).map_err(|_| Status::ExceededLimit)?;
    output.put_number(number)
}

/// Destroys an object without content.
fn destroy(table: &mut Table<()>, input: Input<'_>) -> Outcome {
    table.remove(input.number()?).ok_or(Status::BadResource)
}

/// Executes ALLOC_PD: makes a protection domain.
pub(crate) fn alloc_pd(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    create(&mut f.objects.domains, output)
}

/// Executes DEALLOC_PD.
pub(crate) fn dealloc_pd(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.domains, input)
}

/// Executes ALLOC_TRANSPORT_DOMAIN.
pub(crate) fn alloc_td(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    create(&mut f.objects.transport_domains, output)
}

/// Executes DEALLOC_TRANSPORT_DOMAIN.
pub(crate) fn dealloc_td(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.transport_domains, input)
}

/// Executes ALLOC_XRCD: makes an XRC domain without users.
pub(crate) fn alloc_xrcd(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let number = f.objects.xrc_domains.insert(0).map_err(|_| Status::ExceededLimit)?;
    output.put_number(number)
}

/// Executes DEALLOC_XRCD, unless the domain has users.
pub(crate) fn dealloc_xrcd(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let number = input.number()?;
    match f.objects.xrc_domains.get(number).ok_or(Status::BadResource)? {
        0 => f.objects.xrc_domains.remove(number).map(drop).ok_or(Status::BadResource),
        _ => Err(Status::BadResourceState),
    }
}

/// Executes ALLOC_Q_COUNTER: makes a counter set.
pub(crate) fn alloc_counter(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    // The number of a counter set has 8 bits.
    create(&mut f.objects.counter_sets, output)
}

/// Executes DEALLOC_Q_COUNTER.
pub(crate) fn dealloc_counter(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.counter_sets, input)
}

/// Executes ALLOC_UAR: hands out a doorbell page.
pub(crate) fn alloc_uar(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let page = f.objects.uar_pages.allocate().ok_or(Status::ExceededLimit)?;
    output.put_number(page)
}

/// Executes DEALLOC_UAR.
pub(crate) fn dealloc_uar(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    if f.objects.uar_pages.release(input.number()?) { Ok(()) } else { Err(Status::BadResource) }
}

/// Answers a query of pages that the function wants: none, ever.
pub(crate) fn query_pages(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.put(0xc, &[0; 4])
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
