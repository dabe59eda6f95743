//! What a peer is asked to play, as a message.

/// Where an endpoint's key would be.
pub const KEY: u32 = 0xca5e;
/// Match bits of orders, of answers to them, of what is measured, and of its end.
pub const ORDER: u64 = 1 << 32;
pub const READY: u64 = 2 << 32;
pub const DATA: u64 = 3 << 32;
pub const DONE: u64 = 4 << 32;

/// Length of an order, in bytes.
pub const BYTES: usize = 24;
const MAGIC: u32 = 0x7a10_ca5e;
/// Receives and sends under way while streaming.
const WINDOW_MAX: usize = 64;
/// ... of so many bytes at most, but for a few.
const WINDOW_BYTES: usize = 64 << 20;
const WINDOW_MIN: usize = 4;

/// How messages go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Play {
    /// There and back, one at a time.
    Pingpong,
    /// From the one who asks.
    Stream,
    /// Both ways at a time.
    Both,
    /// The peer is done.
    End,
}

/// An order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub play: Play,
    pub len: u32,
    pub count: u32,
    pub sync: bool,
    pub verify: bool,
}

impl Order {
    /// The last one.
    pub const END: Self = Self { play: Play::End, len: 0, count: 0, sync: false, verify: false };

    /// As bytes.
    pub fn emit(&self) -> [u8; BYTES] {
        let play = match self.play {
            Play::Pingpong => 0,
            Play::Stream => 1,
            Play::Both => 2,
            Play::End => 3,
        };
        let flags = u32::from(self.sync) | u32::from(self.verify) << 1;
        let mut bytes = [0; BYTES];
        let words = [MAGIC, play, self.len, self.count, flags, 0];
        for (room, word) in bytes.chunks_exact_mut(4).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = [0; BYTES / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        let [magic, play, len, count, flags, _] = words;
        let play = match play {
            0 => Play::Pingpong,
            1 => Play::Stream,
            2 => Play::Both,
            3 => Play::End,
            _ => return None,
        };
        let right = bytes.len() == BYTES && magic == MAGIC && len <= crate::args::LEN_MAX;
        let (sync, verify) = (flags & 1 != 0, flags & 2 != 0);
        right.then_some(Self { play, len, count, sync, verify })
    }

    /// How many messages are under way at a time.
    pub fn window(&self) -> usize {
        let fit = WINDOW_BYTES / (self.len as usize).max(1);
        fit.clamp(WINDOW_MIN, WINDOW_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_were_written() {
        let order = Order { play: Play::Both, len: 70_000, count: 9, sync: true, verify: false };
        assert_eq!(Order::parse(&order.emit()), Some(order));
        assert_eq!(Order::parse(&Order::END.emit()), Some(Order::END));
        assert_eq!(Order::parse(&[0; BYTES]), None);
        assert_eq!(Order::parse(&order.emit()[1..]), None);
        let long = Order { len: u32::MAX, ..order };
        assert_eq!(Order::parse(&long.emit()), None);
    }

    #[test]
    fn windows_are_bounded_by_bytes() {
        let of = |len| Order { len, ..Order::END }.window();
        assert_eq!((of(0), of(1 << 20), of(64 << 20)), (64, 64, 4));
    }
}
