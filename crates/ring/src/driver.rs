//! The driver side of a ring, for processes that attach themselves, and for tests.
//!
//! The counterpart of [`crate::Queue`] in both formats ([`split`], [`packed`]): the driver adds
//! chains, publishes them in batches, and takes used chains back. The device has access to the
//! memory but is not trusted: every value that it writes into the ring is checked. `attach::native`
//! uses it for ports of processes.
//!
//! The driver allocates no buffers, accesses no payload, waits for nothing and sends no signal:
//! [`Driver::publish`] returns whether the device wants a doorbell. An addition to a full ring
//! returns [`DriverError::Full`] and changes nothing; the caller takes used chains and tries again,
//! unless the chain has more spans than the ring has descriptors, which never fits. A chain without
//! spans returns [`DriverError::Empty`] and changes nothing, and an invalid size, or a ring outside
//! the memory, creates no driver.
//! Any other error means that the device or the memory is unusable: it does not latch here, and the
//! caller must not use the driver again. One thread owns a driver at a time.
//!
//! # Budget
//! The cost of a chain is that of the cache lines that the device wrote last. The index of a split
//! ring gives the number of used entries; a packed ring is assumed to have as many as last time.
//! Their lines are prefetched together. Between distant cores (0.2 us a line) this carries 1.15
//! times (split) and 1.3 times (packed) as many frames of 64 B as sequential loads.

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

/// Errors of the driver side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The queue size is zero, above 32768, or, for a split ring, not a power of two.
    #[error("queue size {0}: expected 1 to 32768, for a split ring a power of two")]
    Size(u16),
    /// Too few descriptors are free; take used chains first.
    #[error("the ring is full")]
    Full,
    /// A chain without spans was added: it needs at least one buffer.
    #[error("a chain without buffers")]
    Empty,
    /// The ring is outside the mapped memory.
    #[error("the ring is not in memory: {0}")]
    Lost(OutOfGrant),
    /// The device's index moved by more than the number of outstanding chains.
    #[error("the device's used index jumped from {from} to {to}")]
    IndexJump {
        /// Next index to take.
        from: u16,
        /// Index that the device wrote.
        to: u16,
    },
    /// The device used a chain that is not outstanding.
    #[error("the device used chain {0}, which it does not have")]
    Unknown(u32),
    /// The device reports more written bytes than the chain holds.
    #[error("the device wrote {written} bytes into a chain of {room}")]
    Overrun {
        /// Number of bytes that the device reports.
        written: u32,
        /// Number of writable bytes of the chain.
        room: u32,
    },
}

impl From<OutOfGrant> for DriverError {
    fn from(gap: OutOfGrant) -> Self {
        Self::Lost(gap)
    }
}

/// A used chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The number that [`Driver::add`] returned.
    pub head: u16,
    /// Number of bytes that the device wrote.
    pub written: u32,
}

/// The driver side of a ring.
#[derive(Debug)]
pub enum Driver {
    /// A split ring (virtio 1.3, 2.7).
    Split(SplitDriver),
    /// A packed ring (virtio 1.3, 2.8).
    Packed(PackedDriver),
}

/// Dispatches a call to the ring's format.
macro_rules! each {
    ($self:expr, $driver:ident => $call:expr) => {
        match $self {
            Self::Split($driver) => $call,
            Self::Packed($driver) => $call,
        }
    };
}

impl Driver {
    /// Sets up an empty split ring at `layout` in `map`. `event_index` and `indirect` are
    /// negotiated features.
    ///
    /// # Errors
    /// [`DriverError`] if the size is invalid or the layout is outside `map`.
    pub fn new(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        Ok(Self::Split(SplitDriver::new(layout, event_index, indirect, map)?))
    }

    /// Like [`Self::new`], for a packed ring.
    ///
    /// # Errors
    /// [`DriverError`] if the size is invalid or the layout is outside `map`.
    pub fn packed(
        layout: Layout,
        event_index: bool,
        indirect: bool,
        map: &Map,
    ) -> Result<Self, DriverError> {
        Ok(Self::Packed(PackedDriver::new(layout, event_index, indirect, map)?))
    }

    /// Returns the layout of the ring.
    pub fn layout(&self) -> &Layout {
        each!(self, d => d.layout())
    }

    /// Returns the initial index of a new ring (vhost-user's SET_VRING_BASE).
    pub fn base(&self) -> u16 {
        match self {
            Self::Split(_) => 0,
            Self::Packed(_) => Position::START.bits(),
        }
    }

    /// Returns the number of free descriptors.
    pub fn free_descriptors(&self) -> u16 {
        each!(self, d => d.free_descriptors())
    }

    /// Returns the number of chains that the device has, published or not.
    pub fn outstanding(&self) -> u16 {
        each!(self, d => d.outstanding())
    }

    /// Adds a chain of device-readable, then device-writable spans, and returns its number. The
    /// device sees it at the next [`Self::publish`].
    ///
    /// # Errors
    /// [`DriverError::Full`], [`DriverError::Empty`], or [`DriverError::Lost`].
    #[inline]
    pub fn add(
        &mut self,
        map: &Map,
        readable: &[Span],
        writable: &[Span],
    ) -> Result<u16, DriverError> {
        each!(self, d => d.add(map, readable, writable))
    }

    /// Returns the number of the next chain, or `None` if no descriptor is free. Numbers are below
    /// the ring's size, and are reused as soon as their chains return, the last first: so a buffer
    /// per number needs no list, and is likely in the cache.
    #[inline]
    pub fn next_head(&self) -> Option<u16> {
        each!(self, d => d.next_head())
    }

    /// Like [`Self::add`], for a single buffer: the common case, in fewer instructions.
    ///
    /// # Errors
    /// [`DriverError::Full`] or [`DriverError::Lost`].
    #[inline]
    pub fn add_one(&mut self, span: Span, writable: bool) -> Result<u16, DriverError> {
        each!(self, d => d.add_one(span, writable))
    }

    /// Publishes all added chains. Returns whether the device wants a doorbell.
    ///
    /// # Errors
    /// [`DriverError::Lost`] if the ring is outside the memory.
    #[inline]
    pub fn publish(&mut self) -> Result<bool, DriverError> {
        each!(self, d => d.publish())
    }

    /// Takes the next used chain, or returns `None` if there is none.
    ///
    /// # Errors
    /// [`DriverError`] if the device wrote an invalid index, number or length.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Used>, DriverError> {
        each!(self, d => d.take())
    }

    /// Adds chains of one buffer each, which `span` returns for the chain's number: as many as fit,
    /// at most `most`. Returns their count. The caller publishes them.
    ///
    /// # Errors
    /// [`DriverError::Lost`] if the ring is outside the memory.
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

    /// Takes used chains, at most `most`, and adds each again as one writable buffer, which `span`
    /// returns for its number: for receivers that ignore the content. Returns their count. The
    /// caller publishes them.
    ///
    /// # Errors
    /// [`DriverError`] if the device wrote an invalid index, number or length.
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

    /// Takes all used chains and discards them.
    ///
    /// # Errors
    /// [`DriverError`] if the device wrote an invalid index, number or length.
    #[inline]
    pub fn take_all(&mut self) -> Result<(), DriverError> {
        each!(self, d => {
            while d.take()?.is_some() {}
            Ok(())
        })
    }

    /// Requests a notification for the next used chain. Returns whether a used chain is there
    /// already; the caller must poll again then instead of waiting.
    ///
    /// # Errors
    /// [`DriverError`] if the device wrote an invalid index.
    pub fn arm(&mut self) -> Result<bool, DriverError> {
        self.arm_after(0)
    }

    /// Like [`Self::arm`], for the used chain after the next `skip` chains (with event index;
    /// without, for the next). For senders, which need only free descriptors. A packed ring counts
    /// descriptors instead of chains.
    ///
    /// # Errors
    /// [`DriverError`] if the device wrote an invalid index.
    pub fn arm_after(&mut self, skip: u16) -> Result<bool, DriverError> {
        each!(self, d => d.arm_after(skip))
    }

    /// Suppresses notifications until the next [`Self::arm`].
    ///
    /// # Errors
    /// [`DriverError::Lost`] if the ring is outside the memory.
    #[inline]
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        each!(self, d => d.disarm())
    }
}

/// Writes a descriptor's two words into an indirect table.
fn write_indirect(map: &Map, at: u64, words: [u64; 2]) -> Result<(), OutOfGrant> {
    let [first, second] = words.map(u128::from);
    map.write(at, &(first | second.wrapping_shl(64)).to_le_bytes())
}

/// Returns a free list of `size` entries, each linked to the next.
fn free_list(size: u16) -> Vec<u16> {
    let mut next: Vec<u16> = (1..=size).collect();
    if let Some(last) = next.last_mut() {
        *last = u16::MAX;
    }
    next
}
