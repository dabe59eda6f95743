//! How the application learns that requests ended, and how it takes them back.

use super::request::{Completion, Request, State};
use super::{Buffer, Error, Library, RequestId, Transport, check_mask};

impl<B: Buffer> Library<B> {
    /// Collects a request if it has ended; its name is of no use then.
    ///
    /// # Errors
    /// There is no such request.
    #[inline(always)]
    pub fn test(&mut self, id: RequestId) -> Result<Option<Completion>, Error> {
        let (at, request) = self.requests.named(id.0).ok_or(Error::BadRequest)?;
        if request.forgotten || request.state == State::Detached {
            return Err(Error::BadRequest);
        }
        if request.state != State::Done {
            return Ok(None);
        }
        if request.hidden || request.unacked {
            return Ok(self.collect(at));
        }
        Ok(self.requests.discard_from(&mut self.done, at, Request::completion))
    }

    /// Collects the request that ended first of those whose match information under `mask` is
    /// `info`.
    ///
    /// # Errors
    /// `info` has bits that `mask` does not cover.
    #[inline]
    pub fn test_any(&mut self, info: u64, mask: u64) -> Result<Option<Completion>, Error> {
        check_mask(info, mask)?;
        let mut done = self.requests.iter(&self.done);
        let found = done.find(|(_, request)| request.match_info & mask == info);
        let found = found.map(|(at, _)| at);
        drop(done);
        Ok(found.and_then(|at| self.collect(at)))
    }

    /// The request that ended first, without collecting it.
    pub fn ipeek(&self) -> Option<RequestId> {
        self.done.first().map(|at| self.id(at))
    }

    /// What the application gave with a request.
    ///
    /// # Errors
    /// There is no such request.
    pub fn context(&self, id: RequestId) -> Result<u64, Error> {
        let at = self.find(id)?;
        self.requests.get(at).map(|request| request.context).ok_or(Error::BadRequest)
    }

    fn collect(&mut self, at: u32) -> Option<Completion> {
        if self.requests.get(at).is_some_and(|request| !request.hidden) {
            self.requests.unlink(&mut self.done, at);
        }
        let request = self.requests.get_mut(at)?;
        let completion = request.completion();
        if request.unacked {
            request.state = State::Detached;
        } else {
            self.requests.discard(at);
        }
        Some(completion)
    }

    /// Wants no completion of a request: it goes on, and its name is of no use any more.
    ///
    /// # Errors
    /// There is no such request.
    pub fn forget(&mut self, id: RequestId) -> Result<(), Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.state == State::Done {
            self.collect(at);
        } else {
            request.forgotten = true;
        }
        Ok(())
    }

    /// Takes a receive back that has no message yet, or a connect that has not ended. True: it was,
    /// and its name is of no use any more. False: too late.
    ///
    /// # Errors
    /// There is no such request, or it is a send.
    pub fn cancel<T: Transport<B>>(&mut self, way: &mut T, id: RequestId) -> Result<bool, Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get(at) else { return Err(Error::BadRequest) };
        if request.is_send() {
            return Err(Error::BadRequest);
        }
        match request.state {
            State::Posted => {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
            }
            State::WantsConnect => self.requests.unlink(&mut self.retry, at),
            State::Connecting => way.cancel(self.token(at)),
            _ => return Ok(false),
        }
        self.requests.discard(at);
        Ok(true)
    }
}
