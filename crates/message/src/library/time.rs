//! Timeouts of requests. The library has no clock: the caller passes the time.

use causeway_wire::mx::Status;

use super::request::{RequestKind, RequestState};
use super::{Buffer, Error, Library, RequestId, Transport};

impl<B: Buffer> Library<B> {
    /// Sets the time limit of a request from now on; `None` removes it. Without a request: sets the
    /// default of later sends and connects. (Receives have no default, since their end depends on a
    /// peer's decision.)
    ///
    /// # Errors
    /// [`Error::BadRequest`] if there is no such request.
    pub fn set_timeout(
        &mut self,
        id: Option<RequestId>,
        timeout_ns: Option<u64>,
    ) -> Result<(), Error> {
        let Some(id) = id else {
            self.send_timeout = timeout_ns;
            return Ok(());
        };
        let at = self.find(id)?;
        let deadline = timeout_ns.map_or(u64::MAX, |timeout| self.now.saturating_add(timeout));
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.state != RequestState::Done {
            request.deadline = deadline;
            self.deadline = self.deadline.min(deadline);
        }
        Ok(())
    }

    /// Returns whether new sends have a time limit, so that the caller must call [`Self::tick`]
    /// before.
    #[inline]
    pub fn limits_sends(&self) -> bool {
        self.send_timeout.is_some()
    }

    /// Returns the time at which [`Self::tick`] has work, or `None` if no request has a limit.
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline != u64::MAX).then_some(self.deadline)
    }

    /// Sets the time, in ns from any origin, and ends late requests with [`Status::Timeout`]:
    /// sends, connects, and receives without a message.
    pub fn tick<T: Transport<B>>(&mut self, transport: &mut T, now: u64) {
        self.now = self.now.max(now);
        if now < self.deadline {
            return;
        }
        let mut next = u64::MAX;
        for at in 0..self.requests.places() {
            let Some(request) = self.requests.get(at) else { continue };
            if request.deadline > now {
                next = next.min(request.deadline);
            } else {
                self.time_out(transport, at);
            }
        }
        self.deadline = next;
    }

    fn time_out<T: Transport<B>>(&mut self, transport: &mut T, at: u32) {
        let token = self.token(at);
        let Some(request) = self.requests.get(at) else { return };
        let peer = request.partner().map(|partner| partner.peer);
        let known = peer.and_then(|peer| self.partners.get_mut(peer));
        match (request.state, known) {
            (RequestState::Posted, _) => {
                if let Some(queues) = self.contexts.of_mut(request.match_info) {
                    self.requests.unlink(&mut queues.posted, at);
                }
            }
            (RequestState::Waiting, Some(known)) => self.requests.unlink(&mut known.waiting, at),
            (RequestState::Streaming, Some(known)) => {
                let other = request.other;
                self.requests.unlink(&mut known.streams, at);
                if let Some(peer) = peer {
                    transport.fail(peer, other);
                }
            }
            (RequestState::WantsConnect, _) => self.requests.unlink(&mut self.retry, at),
            (RequestState::Offered | RequestState::Unacked | RequestState::Connecting, _) => {
                transport.cancel(token)
            }
            // Matched or ended: the limit applied to the time before the match.
            _ => {
                if let Some(request) = self.requests.get_mut(at) {
                    request.deadline = u64::MAX;
                }
                return;
            }
        }
        if let Some(request) = self.requests.get_mut(at)
            && request.kind != RequestKind::Receive
        {
            request.at = 0;
        }
        self.finish(at, Status::Timeout);
    }
}
