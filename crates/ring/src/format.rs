//! What both sides of a split ring agree on (virtio 1.3, 2.7.5 to 2.7.8).

/// In a descriptor: the chain goes on at `next`.
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
