//! Errors of the device side of a ring.
//!
//! Each error is a violation by the guest's driver or frontend, except [`RingError::PositionLost`],
//! which the end of the previous backend causes. An error of the set-up leaves no queue; a later
//! error is final for the queue ([`crate::Queue`] returns it from all later calls that access the
//! ring), except of `remap`, `record` and `locate`, after which the caller stops the queue.
//! `fabric` reports it as a fault in the dispatcher's thread and ends the attachment; the port
//! accepts the next frontend. An empty or full ring is no error. Errors of the driver side are in
//! [`crate::driver`], errors of doorbells in [`DoorbellError`](crate::DoorbellError).

use causeway_memory::OutOfGrant;

/// The reason why a queue cannot be set up, or is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The queue size is zero, above 32768, or, for a split ring, not a power of two.
    #[error("queue size {0}: expected 1 to 32768, of a split ring a power of two")]
    Size(u16),
    /// A ring part is not aligned as virtio 1.3, 2.7 and 2.8 require.
    #[error("the {part} at {addr:#x} is not aligned to {align} bytes")]
    Alignment {
        /// The part: `descriptor table`, `available ring` or `used ring`; of a packed ring
        /// `descriptor ring`, `descriptor ring in its file`, `driver event area` or `device event
        /// area`.
        part: &'static str,
        /// Guest address of the part.
        addr: u64,
        /// Required alignment, in bytes.
        align: u64,
    },
    /// A ring part is not completely in granted memory.
    #[error("the {part} is not granted: {gap}")]
    Hole {
        /// The part: `descriptor table`, `available ring` or `used ring`; of a packed ring
        /// `descriptor ring`, `driver event area` or `device event area`.
        part: &'static str,
        /// The bytes without grant.
        gap: OutOfGrant,
    },
    /// The available index moved by more than the queue size.
    #[error("the available index jumped from {from} to {to} in a queue of {size}")]
    IndexJump {
        /// Next index to pop.
        from: u16,
        /// Index that the driver wrote.
        to: u16,
        /// Queue size.
        size: u16,
    },
    /// A chain has a number outside the queue: a descriptor past the table, or a buffer id.
    #[error("head {head} in a queue of {size}")]
    Head {
        /// The number.
        head: u16,
        /// Queue size.
        size: u16,
    },
    /// The previous backend took the position of a packed ring with it, and the descriptors do not
    /// show the position.
    #[error(
        "the packed ring does not continue at the position that the frontend sent, and its \
         descriptors do not show another: reset the guest's device, and hold the port ([daemon] \
         hold) or use split rings (packed=off)"
    )]
    PositionLost,
    /// The driver made a chain available again while it is in flight.
    #[error("head {0} made available while it is in flight")]
    Twice(u16),
    /// The next field of a descriptor points past its table.
    #[error("descriptor {next} in a table of {size}")]
    Next {
        /// The next field.
        next: u16,
        /// Number of entries of the table.
        size: u32,
    },
    /// A chain has more descriptors than the queue: a cycle, or a chain that is too long.
    #[error("a chain of more than {0} descriptors")]
    Endless(u32),
    /// A chain describes more than 2^32 bytes.
    #[error("a chain of more than 2^32 bytes")]
    Bytes,
    /// An indirect table contains an indirect descriptor.
    #[error("an indirect table within an indirect table")]
    Nested,
    /// An indirect descriptor, although the feature was not negotiated.
    #[error("an indirect descriptor, which was not negotiated")]
    NotNegotiated,
    /// An indirect table is empty, not a multiple of 16 bytes long, or combined with NEXT.
    #[error("an indirect table of {0} bytes, or with a next descriptor")]
    IndirectTable(u32),
    /// A device-readable descriptor follows a device-writable descriptor (virtio 1.3, 2.7.4.2).
    #[error("a readable descriptor after a writable one")]
    Order,
    /// A descriptor refers to memory without grant.
    #[error("a descriptor is not granted: {0}")]
    Descriptor(OutOfGrant),
    /// The ring's memory became unreachable, for example because its file shrank.
    #[error("the ring became unreachable: {0}")]
    Lost(OutOfGrant),
    /// The initial position of a packed ring is outside the ring, or too far ahead of the used
    /// position.
    #[error("position {bits:#06x} in a packed queue of {size}")]
    Position {
        /// Slot, and wrap counter in bit 15.
        bits: u16,
        /// Queue size.
        size: u16,
    },
    /// The driver of a packed ring made descriptors available in slots of chains in flight.
    #[error("more descriptors made available at once than the queue of {0} has")]
    Overfull(u16),
    /// The in-flight record is too small or inconsistent.
    #[error("the in-flight record does not fit the queue")]
    Inflight,
}
