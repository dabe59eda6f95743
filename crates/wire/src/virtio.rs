//! Feature bits common to all virtio devices (virtio 1.3, section 6), as bit numbers. Those of one
//! device type are in its module.
//!
//! Only bits that this project uses have a constant. The module neither offers nor negotiates
//! features: `attach` negotiates, and `ring` behaves accordingly. Bit numbers of 64 and above are
//! never set. The constants are read in a dispatcher's turn.

/// A descriptor may refer to an indirect table.
pub const VIRTIO_F_INDIRECT_DESC: u32 = 28;
/// Notifications are requested by index instead of by flag.
pub const VIRTIO_F_EVENT_IDX: u32 = 29;
/// The device conforms to version 1 of the specification.
pub const VIRTIO_F_VERSION_1: u32 = 32;
/// The packed ring layout.
pub const VIRTIO_F_RING_PACKED: u32 = 34;

/// Returns whether `features` contains the bit of this number.
pub const fn has(features: u64, bit: u32) -> bool {
    features & mask(bit) != 0
}

/// Returns the mask of the bit of this number, 0 to 63, or 0 for a larger number.
pub const fn mask(bit: u32) -> u64 {
    match 1_u64.checked_shl(bit) {
        Some(mask) => mask,
        None => 0,
    }
}
