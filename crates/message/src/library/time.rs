//! Time limits of requests.
//!
//! The library has no clock and no timer: the caller passes the time in ns by [`Library::tick`],
//! and sleeps no longer than [`Library::deadline`]. A request ends late by the interval between
//! ticks. The time does not run backwards: a lower time than before is ignored.
//!
//! A limit applies to sends, connects, and receives that have not matched a message. A matched
//! receive is not limited: its end depends on the sender. An eager send that timed out may still
//! arrive at the peer; a receive that pulls a timed-out send fails. A send to the own endpoint, and
//! a request that has ended, have no limit. A tick with a due limit searches all places of the
//! table of requests, which never shrinks; other ticks cost a comparison.
//!
//! [`Library::tick`] is called by `causeway-endpoint` while a request has a limit: in the
//! endpoint's rare checks (about every 200 us of polling) and before and after a sleep.
//! `libmyriexpress` calls [`Library::set_timeout`], and `tick` before that, before a connect, and
//! before a send that has a limit by default; the libfabric provider calls `tick` before a connect:
//! a limit counts from the last tick. A further call of [`Library::set_timeout`] replaces the
//! limit; for an ended request it has no effect.

use causeway_wire::mx::Status;

use super::request::{RequestKind, RequestState};
use super::{Buffer, Error, Library, RequestId, Transport};

impl<B: Buffer> Library<B> {
    /// Sets the time limit of a request, counted from the time of the last [`Self::tick`], so the
    /// caller calls that first; `None` removes the limit. Without a request: sets the
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
            self.clock.set_default(timeout_ns);
            return Ok(());
        };
        let at = self.find(id)?;
        let Some(request) = self.requests.get_mut(at) else { return Err(Error::BadRequest) };
        if request.state != RequestState::Done {
            request.deadline = self.clock.restart(timeout_ns);
        }
        Ok(())
    }

    /// Returns whether new sends have a time limit, so that the caller must call [`Self::tick`]
    /// before.
    #[inline]
    pub fn limits_sends(&self) -> bool {
        self.clock.has_default()
    }

    /// Returns the time, in ns, at which [`Self::tick`] must be called next, or `None` if no
    /// request has a limit. The time may be too early, after a limit was removed.
    pub fn deadline(&self) -> Option<u64> {
        self.clock.next()
    }

    /// Sets the time, in ns from any origin, and ends late requests with [`Status::Timeout`]:
    /// sends, connects, and receives without a message.
    pub fn tick<T: Transport<B>>(&mut self, transport: &mut T, now: u64) {
        if !self.clock.advance(now) {
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
        self.clock.set_next(next);
    }

    /// Ends the request at an index with [`Status::Timeout`], if its state has a limit.
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
