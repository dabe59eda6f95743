//! Requests that failed, and who is told of them before the application.

use causeway_wire::mx::Status;

use super::request::State;
use super::{Buffer, Error, Library, RequestId};

impl<B: Buffer> Library<B> {
    /// Whether requests that fail from now on wait for [`Self::next_failed`].
    pub fn set_raises(&mut self, raises: bool) {
        self.raises = raises;
    }

    /// Whether there is anything to tell.
    #[inline]
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() || self.lost.is_some()
    }

    /// The request that failed first of those that were not told of, and how. It can be collected
    /// after [`Self::tell_failed`].
    pub fn next_failed(&mut self) -> Option<(RequestId, Status)> {
        let at = self.failed.first()?;
        self.requests.unlink(&mut self.failed, at);
        Some((self.id(at), self.requests.get(at)?.status))
    }

    /// What the application is told of a request: its status, as a number.
    pub fn tell_failed(&mut self, id: RequestId, code: u32) {
        let Some(at) = self.requests.find(id.0) else { return };
        let Some(request) = self.requests.get_mut(at) else { return };
        if request.state == State::Failed {
            request.code = code;
            self.over(at);
        }
    }

    /// How a send really ended that was completed before, if it failed since this was last asked.
    pub fn take_lost(&mut self) -> Option<Status> {
        self.lost.take()
    }

    /// From now on only who has its name sees a request: it is neither told of when it fails nor
    /// among those of which any is looked for. To be said right after it was made.
    ///
    /// # Errors
    /// There is no such request.
    pub fn hide(&mut self, id: RequestId) -> Result<(), Error> {
        let at = self.find(id)?;
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.hidden {
            return Ok(());
        }
        request.hidden = true;
        match request.state {
            State::Failed => {
                request.state = State::Done;
                self.requests.unlink(&mut self.failed, at);
            }
            State::Done => self.requests.unlink(&mut self.done, at),
            _ => {}
        }
        Ok(())
    }
}
