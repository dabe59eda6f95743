//! The request for a measurement, as a message of [`BYTES`] (24) bytes to the peer that serves.
//!
//! The format has a magic number and no version: both sides must be of one release. A request of
//! another length, with another magic number, an unknown pattern, or messages above 256 MiB is
//! invalid; the number of messages has no limit here. In a stream a side keeps 64 messages pending,
//! or as many as have 64 MiB together, but at least 4 ([`BenchRequest::window`]). A ping-pong is
//! timed in at least [`PARTS`] (21) parts ([`BenchRequest::part`]). The key [`KEY`] (0xca5e) is
//! public: it separates the tool from other applications and protects nothing. `measure` sends
//! requests; `serve` parses them; `traffic` runs them; `report` computes results from them. Each
//! measurement has its own request; a request is sent once, and has no answer of its own: the
//! messages of the measurement follow. All in the only thread.

/// Key of the endpoints of this tool.
pub const KEY: u32 = 0xca5e;
/// Match bits of a request.
pub const REQUEST: u64 = 1 << 32;
/// Match bits of the message by which both sides wait for each other before the data.
pub const READY: u64 = 2 << 32;
/// Match bits of data.
pub const DATA: u64 = 3 << 32;
/// Match bits of the end of the data.
pub const DONE: u64 = 4 << 32;

/// Length of a request in bytes.
pub const BYTES: usize = 24;
/// First field of a request.
const MAGIC: u32 = 0x7a10_ca5e;
/// Least number of parts of a ping-pong, whose times are compared.
const PARTS: u32 = 21;
/// Number of pending sends and receives of a stream.
const WINDOW_MAX: usize = 64;
/// Maximum number of bytes of the pending messages, unless that is too few messages.
const WINDOW_BYTES: usize = 64 << 20;
/// Least number of pending messages, however long they are.
const WINDOW_MIN: usize = 4;

/// Pattern of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePattern {
    /// There and back, one at a time.
    Pingpong,
    /// From the requesting side.
    Stream,
    /// In both directions at the same time.
    Both,
    /// The requesting side has finished.
    End,
}

/// A request for a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BenchRequest {
    /// Pattern of the messages.
    pub pattern: MessagePattern,
    /// Length of each message, in bytes.
    pub len: u32,
    /// Number of messages of each sending side.
    pub count: u32,
    /// Whether a send ends only when the peer has matched it.
    pub sync: bool,
    /// Whether the receiver compares each byte.
    pub verify: bool,
}

impl BenchRequest {
    /// The last request of a peer.
    pub const END: Self =
        Self { pattern: MessagePattern::End, len: 0, count: 0, sync: false, verify: false };

    /// Returns the request as bytes.
    pub fn emit(&self) -> [u8; BYTES] {
        let play = match self.pattern {
            MessagePattern::Pingpong => 0,
            MessagePattern::Stream => 1,
            MessagePattern::Both => 2,
            MessagePattern::End => 3,
        };
        let flags = u32::from(self.sync) | u32::from(self.verify) << 1;
        let mut bytes = [0; BYTES];
        let words = [MAGIC, play, self.len, self.count, flags, 0];
        for (room, word) in bytes.chunks_exact_mut(4).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses a request. Returns `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = [0; BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        let [magic, play, len, count, flags, _] = words;
        let pattern = match play {
            0 => MessagePattern::Pingpong,
            1 => MessagePattern::Stream,
            2 => MessagePattern::Both,
            3 => MessagePattern::End,
            _ => return None,
        };
        let right = bytes.len() == BYTES && magic == MAGIC && len <= crate::args::LEN_MAX;
        let (sync, verify) = (flags & 1 != 0, flags & 2 != 0);
        right.then_some(Self { pattern, len, count, sync, verify })
    }

    /// Returns the number of messages that are timed together, or `None` if the measurement is timed
    /// as a whole.
    pub fn part(&self) -> Option<u32> {
        let is_pingpong = self.pattern == MessagePattern::Pingpong;
        is_pingpong.then_some((self.count / PARTS).max(1))
    }

    /// Returns the number of pending messages.
    pub fn window(&self) -> usize {
        let fit = WINDOW_BYTES / (self.len as usize).max(1);
        fit.clamp(WINDOW_MIN, WINDOW_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_request_round_trips() {
        let order = BenchRequest {
            pattern: MessagePattern::Both,
            len: 70_000,
            count: 9,
            sync: true,
            verify: false,
        };
        assert_eq!(BenchRequest::parse(&order.emit()), Some(order));
        assert_eq!(BenchRequest::parse(&BenchRequest::END.emit()), Some(BenchRequest::END));
        assert_eq!(BenchRequest::parse(&[0; BYTES]), None);
        assert_eq!(BenchRequest::parse(&order.emit()[1..]), None);
        let long = BenchRequest { len: u32::MAX, ..order };
        assert_eq!(BenchRequest::parse(&long.emit()), None);
    }

    #[test]
    fn only_a_pingpong_is_timed_in_parts() {
        let of = |pattern, count| BenchRequest { pattern, count, ..BenchRequest::END }.part();
        let pingpong = |count| of(MessagePattern::Pingpong, count);
        assert_eq!((pingpong(0), pingpong(20), pingpong(2100)), (Some(1), Some(1), Some(100)));
        assert_eq!(
            (of(MessagePattern::Stream, 2100), of(MessagePattern::Both, 2100)),
            (None, None)
        );
    }

    #[test]
    fn windows_are_bounded_by_bytes() {
        let of = |len| BenchRequest { len, ..BenchRequest::END }.window();
        assert_eq!((of(0), of(1 << 20), of(64 << 20)), (64, 64, 4));
    }
}
