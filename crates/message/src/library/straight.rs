//! The straight way of most messages: of a few bytes, for a receive that is posted.
//!
//! All that is told of one here is in registers from the partner's cache line on. What is put into
//! one value with others and handed on, as an option or in a tuple, may go through memory instead,
//! by stores of one width and loads of another, which wait for each other: 12 ns of 117 were lost so.

use causeway_wire::mx::Status;

use super::send::fill_short;
use super::{Buffer, Completion, Library, Transport};

/// What else there was than a message that went straight to its receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// Nothing came, as a glance shows.
    Nothing,
    /// Nothing was done; it is not known what there is to do.
    Unsure,
    /// Something was done, and there is more of it to do.
    Worked,
}

impl<B: Buffer> Library<B> {
    /// Takes what is next, if it is a message of a few bytes for a receive that is posted, and
    /// collects that: what [`Self::progress`] and then [`Self::test_any`] come to where there is
    /// nothing else to do. Also says whether there is more of the same partner.
    ///
    /// # Errors
    /// It is something else, or the receive is to be collected.
    #[inline(always)]
    pub fn receive_straight<T: Transport<B>>(
        &mut self,
        way: &mut T,
    ) -> Result<(Completion, bool), Missed> {
        if !self.is_still() || !self.done.is_empty() || self.raises {
            return Err(Missed::Unsure);
        }
        let (peer, short) = way.short().ok_or(Missed::Unsure)?;
        let partner = self.alive(peer).ok_or(Missed::Unsure)?;
        let at = self.take_posted(peer, short.word).ok_or(Missed::Unsure)?;
        let request = self.requests.get_mut(at).ok_or(Missed::Unsure)?;
        // Not a closure: of one that is called out of line, the bytes would go through memory.
        let taken = match &mut request.buffer {
            Some(into) => fill_short(into, &short),
            None => 0,
        };
        if taken < short.len() || request.forgotten || request.hidden {
            let len = u32::try_from(short.len()).unwrap_or(u32::MAX);
            self.end_whole(at, partner, short.word, len, taken);
            way.short_done();
            return Err(Missed::Worked);
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
        Ok((ended, way.short_done()))
    }

    /// Takes what is next, if it is a message of a few bytes for a receive that is posted: the
    /// straight way of most messages. Says whether there is more of the same partner.
    #[inline(always)]
    pub(super) fn take_short<T: Transport<B>>(&mut self, way: &mut T) -> Option<bool> {
        let (peer, short) = way.short()?;
        let partner = self.alive(peer)?;
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
            self.finish_here(at, Status::Success);
        }
        Some(way.short_done())
    }
}
