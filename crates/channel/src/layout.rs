//! Memory layout of a channel, and its header, which is written and checked once.
//!
//! The creator (the daemon in `mx` and `mxoe::driver`, or a process in direct mode for its own
//! rings) calls [`crate::format`] on zeroed memory, and each end then calls [`crate::open`] for its
//! side; an end may send before the other end is opened. The crate's documentation has the table of
//! offsets. A direction has 16 to 16,384 slots and 4 KiB to 64 MiB of data, both powers of two
//! ([`crate::limits`]); for other sizes [`Layout::new`] and [`open`] fail with [`ChannelError`].
//!
//! The module maps no memory, does not pass it to the peer and assigns no sides: these belong to
//! the owner. The calls run in the thread of the owner (in causewayd, a dispatcher) and do not
//! block. The module cannot detect that a side is opened twice, or that formatted memory was not
//! zero; either would corrupt the direction. [`open`] fails with [`ChannelError::Header`] for a
//! channel of another version, and with [`ChannelError::Memory`] for memory that is too short or
//! not aligned; there is no conversion.

use causeway_memory::View;

use crate::area::Area;
use crate::limits::{DATA_BYTES_MAX, DATA_BYTES_MIN, SLOTS_MAX, SLOTS_MIN};
use crate::{Receiver, Sender};

const MAGIC: [u8; 4] = *b"CWCH";
const VERSION: u16 = 3;
const HEADER_BYTES: u16 = 64;
/// Offsets of the control words of each side's direction.
const CONTROLS: [usize; 2] = [1024, 2048];
/// Offset of the first slot.
const SLOTS: usize = 4096;
/// Byte range that channels leave to the owner of both ends.
pub const UNUSED: std::ops::Range<usize> = 2560..SLOTS;

/// Length of a slot, in bytes.
pub(crate) const SLOT_BYTES: usize = 64;
/// Offset of the inline bytes in a slot.
pub(crate) const INLINE_AT: usize = 16;
/// Unit in which data is counted, in bytes.
pub(crate) const UNIT: usize = 64;

/// The reason why memory is not a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The numbers are outside their limits.
    #[error(
        "a channel of {slots} slots and {data} bytes: both must be powers of two, slots \
         {SLOTS_MIN} to {SLOTS_MAX}, bytes {DATA_BYTES_MIN} to {DATA_BYTES_MAX}"
    )]
    Layout {
        /// Number of slots per direction.
        slots: u32,
        /// Number of data bytes per direction.
        data: u32,
    },
    /// The memory contains no channel of this version.
    #[error("the memory holds no channel of version {VERSION}")]
    Header,
    /// The memory is shorter than the channel, or does not start on a cache line.
    #[error("the channel needs {needed} bytes from a cache line on, the memory has {len}")]
    Memory {
        /// Number of bytes that the layout needs.
        needed: usize,
        /// Length of the memory, in bytes.
        len: usize,
    },
}

/// A side of a channel; the owner assigns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side that sends in the first direction.
    First,
    /// The side that sends in the second direction.
    Second,
}

/// Size of a channel, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of slots per direction.
    slots: u32,
    /// Bytes of the data ring per direction.
    data: u32,
}

impl Layout {
    /// The fastest size for two endpoints of one host by measurement: 128 slots stay in the
    /// first-level cache, 128 KiB of data in the second-level cache.
    pub const DEFAULT: Self = Self { slots: 128, data: 128 << 10 };

    /// Returns the layout of `slots` events and `data` bytes per direction; both are powers of two.
    ///
    /// # Errors
    /// [`ChannelError::Layout`] if a number is not a power of two or outside [`crate::limits`].
    pub fn new(slots: u32, data: u32) -> Result<Self, ChannelError> {
        let slots_fit = (SLOTS_MIN..=SLOTS_MAX).contains(&slots);
        let data_fit = (DATA_BYTES_MIN..=DATA_BYTES_MAX).contains(&data);
        if slots_fit && data_fit && slots.is_power_of_two() && data.is_power_of_two() {
            Ok(Self { slots, data })
        } else {
            Err(ChannelError::Layout { slots, data })
        }
    }

    /// Returns the number of slots per direction.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the size of the data ring per direction, in bytes.
    pub fn data(self) -> u32 {
        self.data
    }

    /// Returns the maximum number of bytes of an event: half of the data ring, so that they fit
    /// even while the receiver has not published its latest consumption.
    pub fn event_bytes_max(self) -> usize {
        self.data_bytes() / 2
    }

    /// Returns the length of a channel's memory, in bytes.
    pub fn bytes(self) -> usize {
        // At most 4 KiB + 2 * (1 MiB + 64 MiB).
        SLOTS.saturating_add(self.slot_bytes().saturating_add(self.data_bytes()).saturating_mul(2))
    }

    /// Returns the length of the slots of a direction, in bytes.
    fn slot_bytes(self) -> usize {
        (self.slots as usize).saturating_mul(SLOT_BYTES)
    }

    /// Returns the length of the data ring of a direction, in bytes.
    pub(crate) fn data_bytes(self) -> usize {
        self.data as usize
    }

    /// Returns the offsets of a direction's control words, slots and data.
    pub(crate) fn direction(self, of: Side) -> DirectionOffsets {
        let [first, second] = CONTROLS;
        let data = SLOTS.saturating_add(self.slot_bytes().saturating_mul(2));
        match of {
            Side::First => DirectionOffsets { control: first, slots: SLOTS, data },
            Side::Second => DirectionOffsets {
                control: second,
                slots: SLOTS.saturating_add(self.slot_bytes()),
                data: data.saturating_add(self.data_bytes()),
            },
        }
    }

    /// Returns the header's bytes.
    fn header(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let fields = MAGIC
            .into_iter()
            .chain(VERSION.to_le_bytes())
            .chain(HEADER_BYTES.to_le_bytes())
            .chain(self.slots.to_le_bytes())
            .chain(self.data.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }
}

/// Offsets of a direction, in bytes from the start of the channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectionOffsets {
    /// The control words.
    pub control: usize,
    /// The first slot.
    pub slots: usize,
    /// The data ring.
    pub data: usize,
}

impl DirectionOffsets {
    /// Returns the offset of the consumed counts.
    pub(crate) fn consumed(self) -> usize {
        self.control
    }

    /// Returns the offset of the receiver's wake-up request.
    pub(crate) fn receiver_sleeps(self) -> usize {
        self.control.saturating_add(128)
    }

    /// Returns the offset of the word of the cooperative copy.
    pub(crate) fn copy_progress(self) -> usize {
        self.control.saturating_add(192)
    }

    /// Returns the offset of the sender's request for room.
    pub(crate) fn sender_waits(self) -> usize {
        self.control.saturating_add(256)
    }

    /// Returns the offset of the number of withdrawals.
    pub(crate) fn withdrawals(self) -> usize {
        self.control.saturating_add(320)
    }

    /// Returns the offset of the flag that the sender closed the direction.
    pub(crate) fn sender_closed(self) -> usize {
        self.control.saturating_add(384)
    }

    /// Returns the offset of the flag that the sender omits fences.
    pub(crate) fn sender_omits_fences(self) -> usize {
        self.control.saturating_add(448)
    }
}

/// Creates a channel in `memory`, whose bytes must all be zero, for example a new memfd.
///
/// # Errors
/// [`ChannelError::Memory`] if the memory is too short.
pub fn format(memory: &View, layout: Layout) -> Result<(), ChannelError> {
    let short = ChannelError::Memory { needed: layout.bytes(), len: memory.len() };
    if memory.len() < layout.bytes() {
        return Err(short);
    }
    memory.write(0, &layout.header()).map_err(|_| short)
}

/// Opens a side of the channel in `memory`. Each side may be opened once.
///
/// The header is read once; later writes of the peer to it have no effect.
///
/// # Errors
/// [`ChannelError`] if the memory holds no channel of this version or is too short.
pub fn open(memory: &View, side: Side) -> Result<(Sender, Receiver), ChannelError> {
    let header = memory.read::<16>(0).map_err(|_| ChannelError::Header)?;
    let [m0, m1, m2, m3, v0, v1, h0, h1, s0, s1, s2, s3, d0, d1, d2, d3] = header;
    let version = u16::from_le_bytes([v0, v1]);
    let length = u16::from_le_bytes([h0, h1]);
    if [m0, m1, m2, m3] != MAGIC || version != VERSION || length != HEADER_BYTES {
        return Err(ChannelError::Header);
    }
    let slots = u32::from_le_bytes([s0, s1, s2, s3]);
    let layout = Layout::new(slots, u32::from_le_bytes([d0, d1, d2, d3]))?;
    let area = Area::new(memory.clone(), layout.bytes())
        .ok_or(ChannelError::Memory { needed: layout.bytes(), len: memory.len() })?;
    let (out, back) = match side {
        Side::First => (Side::First, Side::Second),
        Side::Second => (Side::Second, Side::First),
    };
    Ok((
        Sender::new(area.clone(), layout, out),
        Receiver::new(area, layout, layout.direction(back)),
    ))
}
