//! Fast path for short messages: one call takes the message from the channel and copies it into a
//! posted receive.
//!
//! A short message has at most [`INLINE_BYTES`](causeway_channel::INLINE_BYTES) (32) bytes. The
//! fast path applies if the next event of the transport is a short message, a posted receive
//! matches, and nothing else is pending: no waiting send, pull or connect, no ended request, no
//! handler that decides, and no error handler. If the receive is too short, forgotten or hidden,
//! the message is taken and the receive ends for [`Library::test`] ([`FastMiss::Worked`]). In every
//! other case the call has no effect ([`FastMiss::Unsure`]). After both the caller calls
//! [`Library::progress`] and [`Library::test_any`]. Offers, chunks and ends of sends never take the
//! fast path.
//!
//! `causeway-endpoint` calls [`Library::receive_fast`] when an API library polls for a completion,
//! before the general path, in the thread of the application that holds the endpoint.
//!
//! The values stay in registers from the peer's cache line on. Values that are grouped into an
//! option or a tuple may pass through memory, with stores of one width and loads of another; such a
//! load cannot be forwarded and waits. That cost 12 ns of 117.

use causeway_wire::mx::Status;

use super::send::fill_short;
use super::{Buffer, Completion, Library, Transport};

/// Reason for which the fast path delivered no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastMiss {
    /// No event is ready. The library itself does not return this value; its caller does.
    Nothing,
    /// No effect; the caller must use the general path.
    Unsure,
    /// A message was taken or other work was done, without a completion for the caller; there may
    /// be more.
    Worked,
}

impl<B: Buffer> Library<B> {
    /// Takes the next event if it is a short message for a posted receive, and collects the
    /// receive: the effect of [`Self::progress`] and then [`Self::test_any`] where nothing else is
    /// pending. Also returns whether another event of the same peer is ready.
    ///
    /// # Errors
    /// [`FastMiss`] if the event is no short message, or the receive needs the general path.
    #[inline(always)]
    pub fn receive_fast<T: Transport<B>>(
        &mut self,
        transport: &mut T,
    ) -> Result<(Completion, bool), FastMiss> {
        if !self.is_still() || !self.ended.is_none_done() || self.ended.raises() {
            return Err(FastMiss::Unsure);
        }
        let (peer, short) = transport.short().ok_or(FastMiss::Unsure)?;
        let partner = self.live_partner(peer).ok_or(FastMiss::Unsure)?;
        let at = self.take_posted(peer, short.word).ok_or(FastMiss::Unsure)?;
        let request = self.requests.get_mut(at).ok_or(FastMiss::Unsure)?;
        // A closure that is not inlined would pass the bytes through memory.
        let taken = match &mut request.buffer {
            Some(into) => fill_short(into, &short),
            None => 0,
        };
        if taken < short.len() || request.forgotten || request.hidden {
            let len = u32::try_from(short.len()).unwrap_or(u32::MAX);
            self.end_whole(at, partner, short.word, len, taken);
            transport.short_done();
            return Err(FastMiss::Worked);
        }
        let (len, context) = (u32::try_from(taken).unwrap_or(u32::MAX), request.context);
        self.counters.received.count(len);
        self.requests.discard(at);
        let ended = Completion {
            status: Status::Success,
            code: Status::Success as u32,
            partner: Some(partner),
            match_info: short.word,
            msg_length: len,
            xfer_length: len,
            context,
        };
        Ok((ended, transport.short_done()))
    }

    /// Takes the next event if it is a short message for a posted receive. Returns whether another
    /// event of the same peer is ready.
    #[inline(always)]
    pub(super) fn take_short<T: Transport<B>>(&mut self, transport: &mut T) -> Option<bool> {
        let (peer, short) = transport.short()?;
        let partner = self.live_partner(peer)?;
        let at = self.take_posted(peer, short.word)?;
        let request = self.requests.get_mut(at)?;
        let taken = match &mut request.buffer {
            Some(into) => fill_short(into, &short),
            None => 0,
        };
        request.set_partner(Some(partner));
        request.match_info = short.word;
        request.len = u32::try_from(short.len()).unwrap_or(u32::MAX);
        request.at = u32::try_from(taken).unwrap_or(u32::MAX);
        let cut = request.at < request.len;
        if cut {
            self.finish(at, Status::Truncated);
        } else {
            self.finish_inline(at, Status::Success);
        }
        Some(transport.short_done())
    }
}
