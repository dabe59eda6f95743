//! Collection of ended requests: test, peek, forget, cancel.
//!
//! A request ends in `library::progress`, in `library::time`, or in a call of the application (the
//! call that makes it, or a disconnect), and stands in the list `done` until the application
//! collects it; a failed request may wait for the error handler first (`library::failed`) and
//! counts as not ended until then. The name of a collected, cancelled or forgotten request is
//! invalid: a second call with it fails with [`Error::BadRequest`], except [`Library::has_ended`],
//! which returns no error. A cancelled or forgotten request has no completion.
//!
//! These calls do not wait, and handle no events: the caller calls [`Library::progress`] before.
//! [`Library::cancel`] does not cancel sends, nor receives that have matched a message; the target
//! of a cancelled connect may have become a peer nevertheless. A forgotten request goes on: its
//! buffer must stay valid until the transfer has ended. [`Library::test_any`] is linear in the
//! ended requests before the first match. Called by the API libraries and by `causeway-endpoint`,
//! in the thread that holds the lock of the endpoint.

use super::request::{Completion, RequestState};
use super::{Buffer, Error, Library, RequestId, Transport, check_mask};

impl<B: Buffer> Library<B> {
    /// Returns whether a request is collectable, or does not exist.
    #[inline]
    pub fn has_ended(&self, id: RequestId) -> bool {
        self.requests.named(id.0).is_none_or(|(_, request)| request.state == RequestState::Done)
    }

    /// Collects a request if it has ended; its name is invalid afterwards.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request.
    pub fn test(&mut self, id: RequestId) -> Result<Option<Completion>, Error> {
        self.test_with(id, |_, completion| completion)
    }

    /// Collects a request as [`Self::test`] does, and passes the completion to `see` without a copy
    /// through memory.
    ///
    /// # Errors
    /// Those of [`Self::test`].
    #[inline(always)]
    pub fn test_with<R>(
        &mut self,
        id: RequestId,
        see: impl FnOnce(&Self, Completion) -> R,
    ) -> Result<Option<R>, Error> {
        let (at, request) = self.requests.named(id.0).ok_or(Error::BadRequest)?;
        if request.forgotten || request.state == RequestState::Detached {
            return Err(Error::BadRequest);
        }
        if request.state != RequestState::Done {
            return Ok(None);
        }
        let plain = !request.hidden && !request.unacked && request.buffer.is_none();
        let seen = see(self, request.completion());
        if plain {
            self.ended.unlink_done(&mut self.requests, at);
            self.requests.discard_spent(at);
        } else {
            self.collect(at);
        }
        Ok(Some(seen))
    }

    /// Collects the oldest ended request that matches `info` under `mask`.
    ///
    /// # Errors
    /// [`Error::BadMatchMask`] if `info` has bits that `mask` does not cover.
    #[inline]
    pub fn test_any(&mut self, info: u64, mask: u64) -> Result<Option<Completion>, Error> {
        check_mask(info, mask)?;
        Ok(self.first_done(info, mask).and_then(|at| self.collect(at)))
    }

    /// Returns whether [`Self::test_any`] would collect a request.
    pub fn has_any(&self, info: u64, mask: u64) -> bool {
        self.first_done(info, mask).is_some()
    }

    /// Returns the index of the oldest ended request that matches.
    #[inline]
    fn first_done(&self, info: u64, mask: u64) -> Option<u32> {
        self.ended.find_done(&self.requests, |request| request.match_info & mask == info)
    }

    /// Returns the oldest ended request without collecting it.
    pub fn ipeek(&self) -> Option<RequestId> {
        self.ended.first_done().map(|at| self.id(at))
    }

    /// Returns the context value of a request, also of an ended request until it is collected.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request.
    pub fn context(&self, id: RequestId) -> Result<u64, Error> {
        let at = self.find(id)?;
        self.requests.get(at).map(|request| request.context).ok_or(Error::BadRequest)
    }

    /// Removes an ended request, or detaches it until its peer confirms it, and returns its result.
    fn collect(&mut self, at: u32) -> Option<Completion> {
        if self.requests.get(at).is_some_and(|request| !request.hidden) {
            self.ended.unlink_done(&mut self.requests, at);
        }
        let request = self.requests.get_mut(at)?;
        let completion = request.completion();
        if request.unacked {
            request.state = RequestState::Detached;
        } else {
            self.requests.discard(at);
        }
        Some(completion)
    }

    /// Drops the interest in a completion: the request goes on, and its name is invalid. An ended
    /// request is collected. A failed request that waits for the error handler is removed by
    /// [`Self::set_failure_code`].
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request.
    pub fn forget(&mut self, id: RequestId) -> Result<(), Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.state == RequestState::Done {
            self.collect(at);
        } else {
            request.forgotten = true;
        }
        Ok(())
    }

    /// Cancels a receive without a message, or a connect that has not ended. Returns true if the
    /// request was cancelled, and its name is invalid then; false if it has matched or ended.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request, or it is a send.
    pub fn cancel<T: Transport<B>>(
        &mut self,
        transport: &mut T,
        id: RequestId,
    ) -> Result<bool, Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get(at) else { return Err(Error::BadRequest) };
        if request.is_send() {
            return Err(Error::BadRequest);
        }
        match request.state {
            RequestState::Posted => {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
            }
            RequestState::WantsConnect => self.requests.unlink(&mut self.retry, at),
            RequestState::Connecting => transport.cancel(self.token(at)),
            _ => return Ok(false),
        }
        self.requests.discard(at);
        Ok(true)
    }
}
