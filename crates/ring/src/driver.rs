//! The driver side of a ring, for processes that attach themselves.
//!
//! The mirror image of [`crate::Queue`], in both formats ([`split`], [`packed`]): chains are added, shown in a batch, and
//! come back used. The device is trusted with the memory but not believed: what
//! it writes into the ring is checked like anything else that is shared.
//!
//! # Budget
//! What a chain costs is the lines that the device wrote last. A split ring's index says how many
//! used entries are there, a packed ring is taken to have as many as the last time, and their lines
//! are fetched together. On cores far from each other (0.2 us a line) that carries 1.15 times (split)
//! and 1.3 times (packed) as many frames of 64 B as one line after the other.

mod layout;
pub mod packed;
pub mod split;
#[cfg(test)]
mod tests;

use causeway_memory::{Map, OutOfGrant, Span};

use crate::format::RING;
use crate::limits::DESCRIPTOR_BYTES;
use crate::position::Position;
pub use layout::Layout;
use packed::PackedDriver;
use split::SplitDriver;

/// Why the driver's side cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue size is zero, above 32768, or not a power of two.
    #[error("queue size {0}: expected a power of two, 1 to 32768")]
    Size(u16),
    /// Too few free descriptors at present; take used chains first.
    #[error("the ring is full")]
    Full,
    /// A chain needs at least one buffer.
    #[error("a chain without buffers")]
    Empty,
    /// The rings are not in our own memory.
    #[error("the ring is not in memory: {0}")]
    Lost(OutOfGrant),
    /// The device moved its index by more than there are chains.
    #[error("the device's used index jumped from {from} to {to}")]
    IndexJump {
        /// Where we are.
        from: u16,
        /// What the device wrote.
        to: u16,
    },
    /// The device used a chain that it does not have.
    #[error("the device used chain {0}, which it does not have")]
    Unknown(u32),
    /// The device says that it wrote more than the chain holds.
    #[error("the device wrote {written} bytes into a chain of {room}")]
    Overrun {
        /// Bytes that it says it wrote.
        written: u32,
        /// Bytes that the chain holds.
        room: u32,
    },
}

impl From<OutOfGrant> for DriverError {
    fn from(gap: OutOfGrant) -> Self {
        Self::Lost(gap)
    }
}

/// A chain that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// What [`Driver::add`] named it.
    pub head: u16,
    /// Bytes that the device wrote.
    pub written: u32,
}

/// The driver side of one ring.
#[derive(Debug)]
pub enum Driver {
    /// Of a split ring (virtio 1.3, 2.7).
    Split(SplitDriver),
    /// Of a packed ring (virtio 1.3, 2.8).
    Packed(PackedDriver),
}

/// Hands each call to the ring's format.
macro_rules! each {
    ($self:expr, $driver:ident => $call:expr) => {
        match $self {
            Self::Split($driver) => $call,
            Self::Packed($driver) => $call,
        }
    };
}

impl Driver {
    /// Sets up an empty split ring at `layout` in `map`. `event_index` and `indirect` say what was
    /// negotiated.
    pub fn new(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        Ok(Self::Split(SplitDriver::new(layout, event_index, indirect, map)?))
    }

    /// As [`Self::new`], a packed ring.
    pub fn packed(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        Ok(Self::Packed(PackedDriver::new(layout, event_index, indirect, map)?))
    }

    /// Where the ring lies.
    pub fn layout(&self) -> &Layout {
        each!(self, d => d.layout())
    }

    /// Where a fresh ring begins (vhost-user's SET_VRING_BASE).
    pub fn base(&self) -> u16 {
        match self {
            Self::Split(_) => 0,
            Self::Packed(_) => Position::START.bits(),
        }
    }

    /// Free descriptors.
    pub fn free_descriptors(&self) -> u16 {
        each!(self, d => d.free_descriptors())
    }

    /// Chains that the device has, shown or not.
    pub fn outstanding(&self) -> u16 {
        each!(self, d => d.outstanding())
    }

    /// Adds a chain of what the device may read, then of what it may write, and names it.
    /// The device sees it at the next [`Self::publish`].
    #[inline]
    pub fn add(
        &mut self,
        map: &Map,
        readable: &[Span],
        writable: &[Span],
    ) -> Result<u16, DriverError> {
        each!(self, d => d.add(map, readable, writable))
    }

    /// What the next chain will be named; none if there is no descriptor for one. Names are below the
    /// ring's size, and given anew as soon as they come back, the last one first: a buffer of each
    /// name is found without a list, and in the cache.
    #[inline]
    pub fn next_head(&self) -> Option<u16> {
        each!(self, d => d.next_head())
    }

    /// As [`Self::add`], of one buffer: what most chains are, in fewer instructions.
    #[inline]
    pub fn add_one(&mut self, span: Span, writable: bool) -> Result<u16, DriverError> {
        each!(self, d => d.add_one(span, writable))
    }

    /// Shows the device all that was added; says whether it wants its doorbell rung for it.
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        each!(self, d => d.publish())
    }

    /// Takes the next used chain, if there is one.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        each!(self, d => d.take())
    }

    /// Adds chains of one buffer each, which `span` gives by the chain's name: as many as there is room
    /// for, at most `most`; says how many.
    #[inline]
    pub fn add_each(
        &mut self,
        most: u16,
        writable: bool,
        span: impl Fn(u16) -> Span,
    ) -> Result<u16, DriverError> {
        each!(self, d => {
            let mut count = 0_u16;
            while count < most && let Some(head) = d.next_head() {
                d.add_one(span(head), writable)?;
                count = count.wrapping_add(1);
            }
            Ok(count)
        })
    }

    /// Takes the used chains that are there, at most `most`, and adds each again, as one buffer to be
    /// written, which `span` gives by its name: what sinks do. Says how many.
    #[inline]
    pub fn renew(&mut self, most: u16, span: impl Fn(u16) -> Span) -> Result<u16, DriverError> {
        each!(self, d => {
            let mut count = 0_u16;
            while count < most && let Some(used) = d.take()? {
                d.add_one(span(used.head), true)?;
                count = count.wrapping_add(1);
            }
            Ok(count)
        })
    }

    /// Takes all used chains that are there, of which nothing is to be known.
    #[inline]
    pub fn take_all(&mut self) -> Result<(), DriverError> {
        each!(self, d => {
            while d.take()?.is_some() {}
            Ok(())
        })
    }

    /// Asks for a notification when the next chain is used; says whether one is there already,
    /// in which case the caller must look again instead of waiting.
    pub fn arm(&mut self) -> Result<bool, DriverError> {
        self.arm_after(0)
    }

    /// As [`Self::arm`], for the used chain after the next `skip` ones (with event index; without,
    /// the next one notifies). For senders, who care only that there is room again. A packed ring
    /// counts descriptors instead of chains.
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        each!(self, d => d.arm_after(skip))
    }

    /// Says that no notification is needed for now.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        each!(self, d => d.disarm())
    }
}

/// Writes a descriptor's two words into an indirect table.
fn tabulate(map: &Map, at: u64, words: [u64; 2]) -> Result<(), OutOfGrant> {
    let [first, second] = words.map(u128::from);
    map.write(at, &(first | second.wrapping_shl(64)).to_le_bytes())
}

/// A list of `size` free places, each of which names the next.
fn links(size: u16) -> Vec<u16> {
    let mut next: Vec<u16> = (1..=size).collect();
    if let Some(last) = next.last_mut() {
        *last = u16::MAX;
    }
    next
}
