//! Ended requests: those that the application may collect, and failed requests that an error
//! handler must see first.
//!
//! Each request stands in at most one list, named by its state ([`RequestState::Done`] and not
//! hidden, [`RequestState::Failed`]). A failed request stands in neither list between
//! [`EndedRequests::next_failed`] and its completion code. The lists keep the order of the ends, or
//! of the reports for failed requests. They hold no memory and have no limit: the entries are
//! requests (at most 2^20).
//!
//! [`Library`](super::Library) adds a request when it ends; `library::complete` and
//! `library::failed` remove it, under the lock of the endpoint. The caller checks the state: a
//! request must stand in the list from which it is removed.

use super::request::{RequestEntry, RequestState};
use super::slab::{Slab, SlabList};

/// Lists of ended requests.
#[derive(Debug, Default)]
pub(super) struct EndedRequests {
    /// Collectable requests.
    done: SlabList,
    /// Failed requests that were not reported.
    failed: SlabList,
    /// Failed requests wait in `failed` for the error handler.
    raises: bool,
}

impl EndedRequests {
    /// Sets whether requests that fail from now on wait for the error handler.
    pub(super) fn set_raises(&mut self, raises: bool) {
        self.raises = raises;
    }

    /// Returns whether failed requests wait for the error handler.
    #[inline]
    pub(super) fn raises(&self) -> bool {
        self.raises
    }

    /// Returns whether no request is collectable.
    #[inline]
    pub(super) fn is_none_done(&self) -> bool {
        self.done.is_empty()
    }

    /// Returns the oldest collectable request.
    #[inline]
    pub(super) fn first_done(&self) -> Option<u32> {
        self.done.first()
    }

    /// Returns the oldest collectable request for which `matches` returns true.
    #[inline]
    pub(super) fn find_done<B>(
        &self,
        requests: &Slab<RequestEntry<B>>,
        matches: impl Fn(&RequestEntry<B>) -> bool,
    ) -> Option<u32> {
        requests.iter(&self.done).find(|(_, request)| matches(request)).map(|(at, _)| at)
    }

    /// Adds a request that stands in no list to the collectable requests.
    #[inline]
    pub(super) fn push_done<B>(&mut self, requests: &mut Slab<RequestEntry<B>>, at: u32) {
        requests.push(&mut self.done, at);
    }

    /// Removes a request from the collectable requests.
    #[inline]
    pub(super) fn unlink_done<B>(&mut self, requests: &mut Slab<RequestEntry<B>>, at: u32) {
        requests.unlink(&mut self.done, at);
    }

    /// Returns whether a failed request is to be reported.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Adds a failed request that stands in no list.
    #[inline]
    pub(super) fn push_failed<B>(&mut self, requests: &mut Slab<RequestEntry<B>>, at: u32) {
        if let Some(request) = requests.get_mut(at) {
            request.state = RequestState::Failed;
        }
        requests.push(&mut self.failed, at);
    }

    /// Removes a failed request that was not reported.
    pub(super) fn unlink_failed<B>(&mut self, requests: &mut Slab<RequestEntry<B>>, at: u32) {
        requests.unlink(&mut self.failed, at);
    }

    /// Removes the oldest failed request, which is being reported from now on.
    #[inline]
    pub(super) fn next_failed<B>(&mut self, requests: &mut Slab<RequestEntry<B>>) -> Option<u32> {
        let at = self.failed.first()?;
        requests.unlink(&mut self.failed, at);
        requests.get_mut(at)?.state = RequestState::Reported;
        Some(at)
    }
}
