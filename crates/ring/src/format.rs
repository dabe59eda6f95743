//! What both sides of a ring agree on (virtio 1.3, 2.7.5 to 2.7.8, and 2.8).

/// In a descriptor: the chain goes on.
pub(crate) const FLAG_NEXT: u16 = 1;
/// In a descriptor: the device writes, else it reads.
pub(crate) const FLAG_WRITE: u16 = 2;
/// In a descriptor: it names a table of descriptors.
pub(crate) const FLAG_INDIRECT: u16 = 4;
/// In the available ring's flags: the driver wants no notification.
pub(crate) const NO_INTERRUPT: u16 = 1;
/// In the used ring's flags: the device wants no doorbell.
pub(crate) const NO_NOTIFY: u16 = 1;
/// Offset of the index in both rings.
pub(crate) const INDEX: usize = 2;
/// Offset of the first element in both rings.
pub(crate) const RING: usize = 4;

/// What packed rings have of their own (virtio 1.3, 2.8).
pub(crate) mod packed {
    use causeway_memory::Span;

    /// In a descriptor: equals the wrap counter of the driver that made it available.
    pub const AVAIL: u16 = 1 << 7;
    /// In a descriptor: equals the wrap counter once it is used, differs while it is available.
    pub const USED: u16 = 1 << 15;
    /// Descriptors in a cache line.
    pub const PER_LINE: u16 = 4;
    /// Offset of the length in a descriptor; the buffer id and the flags follow.
    pub const LEN: usize = 8;
    /// Offset of the flags.
    pub const FLAGS: usize = 14;
    /// Bytes of an event suppression structure.
    pub const EVENT_BYTES: usize = 4;
    /// In it: the position at which to tell.
    pub const EVENT_POSITION: usize = 0;
    /// In it: whether to tell.
    pub const EVENT_FLAGS: usize = 2;
    /// Tell of everything.
    pub const EVENT_ENABLE: u16 = 0;
    /// Tell of nothing.
    pub const EVENT_DISABLE: u16 = 1;
    /// Tell of the descriptor at the position.
    pub const EVENT_DESC: u16 = 2;

    /// A descriptor, copied out.
    pub struct Descriptor {
        /// What it names.
        pub span: Span,
        /// Its buffer id.
        pub id: u16,
        /// Its flags.
        pub flags: u16,
    }

    impl Descriptor {
        /// Of its two words.
        #[inline]
        pub fn parse([addr, high]: [u64; 2]) -> Self {
            Self {
                span: Span { addr, len: high as u32 },
                id: (high >> 32) as u16,
                flags: (high >> 48) as u16,
            }
        }

        /// Its two words.
        #[inline]
        pub fn emit(&self) -> [u64; 2] {
            let high = u64::from(self.span.len)
                | u64::from(self.id).wrapping_shl(32)
                | u64::from(self.flags).wrapping_shl(48);
            [self.span.addr, high]
        }
    }
}
