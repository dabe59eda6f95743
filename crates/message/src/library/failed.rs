//! Failed requests, which an error handler sees before the application collects them.
//!
//! With [`Library::set_raises`], a request that fails waits in the list `failed` and is not
//! collectable: the caller takes it by [`Library::next_failed`], runs the application's error
//! handler without the lock, and calls [`Library::set_failure_code`]. A request that is never
//! passed to [`Library::set_failure_code`] stays uncollectable. Truncation counts as a failure.
//!
//! Sends that fail after their early completion, or that were made without a request
//! ([`Library::send_at_once`]), have no request that could fail: only the last status is kept, and
//! a second loss before [`Library::take_lost`] replaces the first.
//!
//! `wait::report_failures` of `libmyriexpress` takes failed requests, and runs the handlers, in a
//! thread of the application; the library runs none. The libfabric provider does not set
//! [`Library::set_raises`]. [`Library::next_failed`] returns each request once. A second
//! [`Library::set_failure_code`], or one for a request that has not failed, has no effect.

use causeway_wire::mx::Status;

use super::request::RequestState;
use super::{Buffer, Error, Library, RequestId};

impl<B: Buffer> Library<B> {
    /// Sets whether requests that fail from now on wait for [`Self::next_failed`].
    pub fn set_raises(&mut self, raises: bool) {
        self.ended.set_raises(raises);
    }

    /// Returns whether a failure is to be reported.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.ended.has_failed() || self.losses.has_lost()
    }

    /// Returns the oldest unreported failed request and its status. It is collectable after
    /// [`Self::set_failure_code`].
    pub fn next_failed(&mut self) -> Option<(RequestId, Status)> {
        let at = self.ended.next_failed(&mut self.requests)?;
        Some((self.id(at), self.requests.get(at)?.status))
    }

    /// Sets the completion code of a request that [`Self::next_failed`] returned, and makes it
    /// collectable. A request that was forgotten meanwhile is removed. No effect for another
    /// request.
    pub fn set_failure_code(&mut self, id: RequestId, code: u32) {
        let Some(at) = self.requests.find(id.0) else { return };
        let Some(request) = self.requests.get_mut(at) else { return };
        if request.state == RequestState::Reported {
            request.code = code;
            self.make_collectable(at);
        }
    }

    /// Returns the status of the last send that failed after its early completion or without a
    /// request, if there was one since the last call.
    pub fn take_lost(&mut self) -> Option<Status> {
        self.losses.take_lost()
    }

    /// Hides a request: it is neither reported when it fails nor found by [`Self::test_any`] or
    /// [`Self::ipeek`]. A request that has ended is hidden too; one between [`Self::next_failed`]
    /// and [`Self::set_failure_code`] becomes collectable by the latter. A second call has no
    /// effect. A hidden request is collected by [`Self::test`] or [`Self::forget`] only.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request.
    pub fn hide(&mut self, id: RequestId) -> Result<(), Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.hidden {
            return Ok(());
        }
        request.hidden = true;
        match request.state {
            RequestState::Failed => {
                request.state = RequestState::Done;
                self.ended.unlink_failed(&mut self.requests, at);
            }
            RequestState::Done => self.ended.unlink_done(&mut self.requests, at),
            _ => {}
        }
        Ok(())
    }
}
