//! Constants of the ring layouts (virtio 1.3, 2.7.5 to 2.7.8, and 2.8), for device and driver side,
//! and the descriptor of a packed ring as a plain value.
//!
//! Accesses to shared memory are in [`crate::handshake`] and the modules of the formats
//! ([`crate::split`], [`crate::packed`], [`crate::driver`]), which read the constants in the
//! threads that own their queues; nothing here checks a value, keeps a state or can fail. All
//! numbers in rings are little-endian.

/// Descriptor flag: the chain continues.
pub(crate) const FLAG_NEXT: u16 = 1;
/// Descriptor flag: the device writes the buffer; else it reads it.
pub(crate) const FLAG_WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub(crate) const FLAG_INDIRECT: u16 = 4;
/// Flag of the available ring: the driver wants no notification.
pub(crate) const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device wants no doorbell.
pub(crate) const NO_NOTIFY: u16 = 1;
/// Offset of the index in both rings.
pub(crate) const INDEX: usize = 2;
/// Offset of the first element in both rings.
pub(crate) const RING: usize = 4;

/// Constants of packed rings only (virtio 1.3, 2.8).
pub(crate) mod packed {
    use causeway_memory::Span;

    /// Descriptor flag: set to the driver's wrap counter when the descriptor is made available.
    pub const AVAIL: u16 = 1 << 7;
    /// Descriptor flag: equals the wrap counter in a used descriptor, differs in an available
    /// descriptor.
    pub const USED: u16 = 1 << 15;
    /// Number of descriptors in a cache line.
    pub const PER_LINE: u16 = 4;
    /// Offset of the length in a descriptor; buffer id and flags follow.
    pub const LEN: usize = 8;
    /// Offset of the flags.
    pub const FLAGS: usize = 14;
    /// Length of an event suppression structure, in bytes.
    pub const EVENT_BYTES: usize = 4;
    /// Offset in it: the position at which a notification is wanted.
    pub const EVENT_POSITION: usize = 0;
    /// Offset in it: the flags.
    pub const EVENT_FLAGS: usize = 2;
    /// Event flags: notify for every descriptor.
    pub const EVENT_ENABLE: u16 = 0;
    /// Event flags: never notify.
    pub const EVENT_DISABLE: u16 = 1;
    /// Event flags: notify for the descriptor at the position.
    pub const EVENT_DESC: u16 = 2;

    /// A copied descriptor of a packed ring.
    pub struct Descriptor {
        /// Its buffer.
        pub span: Span,
        /// Its buffer id.
        pub id: u16,
        /// Its flags.
        pub flags: u16,
    }

    impl Descriptor {
        /// Returns the descriptor with these two words.
        #[inline]
        pub fn parse([addr, high]: [u64; 2]) -> Self {
            Self {
                span: Span { addr, len: high as u32 },
                id: (high >> 32) as u16,
                flags: (high >> 48) as u16,
            }
        }

        /// Returns the descriptor's two words.
        #[inline]
        pub fn emit(&self) -> [u64; 2] {
            let high = u64::from(self.span.len)
                | u64::from(self.id).wrapping_shl(32)
                | u64::from(self.flags).wrapping_shl(48);
            [self.span.addr, high]
        }
    }
}
