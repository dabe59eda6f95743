//! What a driver can do wrong in a ring. Each is the guest's fault, and final for the queue.

use causeway_memory::OutOfGrant;

/// The driver broke a rule of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The queue size is zero, above 32768, or, of a split ring, not a power of two.
    #[error("queue size {0}: expected 1 to 32768, of a split ring a power of two")]
    Size(u16),
    /// A ring part is not aligned as virtio 1.3, 2.7 and 2.8 want it.
    #[error("the {part} at {addr:#x} is not aligned to {align} bytes")]
    Alignment {
        /// `descriptor table`, `available ring` or `used ring`; of a packed ring `descriptor
        /// ring`, `driver event area` or `device event area`.
        part: &'static str,
        /// Its guest address.
        addr: u64,
        /// What it must be a multiple of.
        align: u64,
    },
    /// A ring part is not wholly in granted memory.
    #[error("the {part} is not granted: {gap}")]
    Hole {
        /// `descriptor table`, `available ring` or `used ring`; of a packed ring `descriptor
        /// ring`, `driver event area` or `device event area`.
        part: &'static str,
        /// The bytes that are missing.
        gap: OutOfGrant,
    },
    /// The available index moved by more than the queue size.
    #[error("the available index jumped from {from} to {to} in a queue of {size}")]
    IndexJump {
        /// Where we are.
        from: u16,
        /// What the driver wrote.
        to: u16,
        /// Queue size.
        size: u16,
    },
    /// A chain is named by a number that the queue does not have: a descriptor past the table, or
    /// a buffer id.
    #[error("head {head} in a queue of {size}")]
    Head {
        /// The index.
        head: u16,
        /// Queue size.
        size: u16,
    },
    /// The position of a packed ring went with the backend before, and its descriptors do not show
    /// it.
    #[error(
        "the packed ring does not go on at the position that the frontend gives, and its \
         descriptors do not show another: reset the guest's device, and hold the port ([daemon] \
         hold) or use split rings (packed=off)"
    )]
    PositionLost,
    /// The driver made a chain available that we still hold.
    #[error("head {0} made available while it is in flight")]
    Twice(u16),
    /// A descriptor's next field points past its table.
    #[error("descriptor {next} in a table of {size}")]
    Next {
        /// The index.
        next: u16,
        /// Entries of the table.
        size: u32,
    },
    /// A chain has more descriptors than its bound: a cycle, or one longer than the queue.
    #[error("a chain of more than {0} descriptors")]
    Endless(u32),
    /// A chain describes more than 2^32 bytes.
    #[error("a chain of more than 2^32 bytes")]
    Bytes,
    /// An indirect table inside an indirect table.
    #[error("an indirect table within an indirect table")]
    Nested,
    /// An indirect descriptor where that feature was not negotiated.
    #[error("an indirect descriptor, which was not negotiated")]
    NotNegotiated,
    /// An indirect table that is empty, or not a multiple of 16 bytes, or that goes on by NEXT.
    #[error("an indirect table of {0} bytes, or with a next descriptor")]
    IndirectTable(u32),
    /// A device-readable descriptor after a device-writable one (virtio 1.3, 2.7.4.2).
    #[error("a readable descriptor after a writable one")]
    Order,
    /// A descriptor names memory that was not granted.
    #[error("a descriptor is not granted: {0}")]
    Descriptor(OutOfGrant),
    /// The ring's memory became unreachable under us.
    #[error("the ring became unreachable: {0}")]
    Lost(OutOfGrant),
    /// A packed ring is to go on at a slot that it does not have, or further than it is long.
    #[error("position {bits:#06x} in a packed queue of {size}")]
    Position {
        /// Slot, and wrap counter in bit 15.
        bits: u16,
        /// Queue size.
        size: u16,
    },
    /// The driver of a packed ring made descriptors available in slots that we still hold.
    #[error("more descriptors made available at once than the queue of {0} has")]
    Overfull(u16),
    /// The shared in-flight record is too small or inconsistent.
    #[error("the in-flight record does not fit the queue")]
    Inflight,
}
