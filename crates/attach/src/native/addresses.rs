//! Addresses of the memory file of a native frontend: those of the guest, by which descriptors name
//! buffers, and those of the frontend, by which its messages name rings. Both are constants; the
//! functions cannot fail and keep no state.

use causeway_ring::driver::Layout;

use crate::vhost_user::message::RingAddresses;

/// Guest address of the memory file. Not 0, so that no address is valid by accident.
pub(super) const GUEST_BASE: u64 = 0x1_0000_0000;
/// Frontend address of the memory file. Nothing is mapped there; it only has to differ from the
/// guest address.
pub(super) const USER_BASE: u64 = 0x7c00_0000_0000;

/// Returns the addresses of a queue's ring in the frontend's address space.
pub(super) fn addresses(index: u32, layout: &Layout) -> RingAddresses {
    let user = |(guest, _): (u64, usize)| guest.wrapping_sub(GUEST_BASE).wrapping_add(USER_BASE);
    RingAddresses {
        index,
        flags: 0,
        descriptors: user(layout.desc()),
        used: user(layout.used()),
        available: user(layout.avail()),
        log: 0,
    }
}
