//! Feature bits that every virtio device shares (virtio 1.3, section 6), as bit numbers.

/// Descriptors may point to a table of descriptors.
pub const VIRTIO_F_INDIRECT_DESC: u32 = 28;
/// Notifications are asked for by index instead of by flag.
pub const VIRTIO_F_EVENT_IDX: u32 = 29;
/// The device follows version 1 of the specification.
pub const VIRTIO_F_VERSION_1: u32 = 32;
/// The packed ring layout.
pub const VIRTIO_F_RING_PACKED: u32 = 34;

/// Whether `features` has the bit of that number.
pub const fn has(features: u64, bit: u32) -> bool {
    features & mask(bit) != 0
}

/// The mask of the bit of that number, 0 to 63; nothing for a number beyond.
pub const fn mask(bit: u32) -> u64 {
    match 1_u64.checked_shl(bit) {
        Some(mask) => mask,
        None => 0,
    }
}
