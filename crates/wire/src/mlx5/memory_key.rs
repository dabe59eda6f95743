//! Memory keys: the context of CREATE_MKEY, and the work request that changes a key (UMR, "user
//! memory registration").
//!
//! A key is the object's number times 256 plus a variable byte that the owner chooses. The segment
//! of a UMR work request has the layout of the context; a mask selects the fields that change
//! ([`UpdateControl::mask`]). Drivers leave unselected fields undefined, the access mode included.
//!
//! Guests write both; the device parses them (`mlx5::command::memory_key` for commands,
//! `mlx5::send_entry` for work requests) and emits contexts for QUERY_MKEY. This module checks
//! lengths only; rights, ranges and limits are checked by `verbs::region`. The device refuses the
//! access modes [`AccessMode::RangeList`] and [`AccessMode::FixedRangeList`] with *bad parameter*,
//! and ignores the order flags (`relaxed_*`, `SMALL_FENCE`), the binding of a key to a queue pair,
//! and `requires_valid` and `requires_free` of [`UpdateControl`]. The device runs in the
//! dispatcher's turn.

use super::field::{at, codes, layout};

/// Offset of the context in the input of CREATE_MKEY.
pub const CREATE_CONTEXT: usize = 0x10;
/// Offset of the number of 16-byte units in the page list, in the input of CREATE_MKEY.
pub const CREATE_ACTUAL_SIZE: usize = 0x60;
/// Offset of the page list in the input of CREATE_MKEY.
pub const CREATE_PAGES: usize = 0x110;
/// Offset of the context in the output of QUERY_MKEY.
pub const QUERY_CONTEXT: usize = 0x10;
/// The reserved local key of this device. A data segment with this key and no length ends a list.
pub const RESERVED_LOCAL_KEY: u32 = 0x100;
/// Queue pair number of a key that every queue pair may use.
pub const ANY_QUEUE_PAIR: u32 = 0xff_ffff;

/// Returns the key with number `index` and variable byte `variable`.
#[inline]
pub const fn key(index: u32, variable: u8) -> u32 {
    (index << 8) | variable as u32
}

/// Returns the number and the variable byte of a key.
#[inline]
pub const fn split(key: u32) -> (u32, u8) {
    (key >> 8, key as u8)
}

layout! {
    /// Context of a memory key; also the second segment of a UMR work request.
    pub struct MemoryKeyContext("memory key context", 0x40) {
        /// The key is free: accesses fail.
        is_free: bool = at(0x00, 1, 1),
        /// Upper bits of the access mode.
        access_mode_high: u8 = at(0x00, 3, 3),
        /// Writes may be reordered.
        relaxed_write: bool = at(0x01, 5, 1),
        /// A UMR work request may change the key.
        has_update: bool = at(0x02, 0, 1),
        /// Remote atomic operations are permitted.
        remote_atomic: bool = at(0x02, 1, 1),
        /// Remote writes are permitted.
        remote_write: bool = at(0x02, 2, 1),
        /// Remote reads are permitted.
        remote_read: bool = at(0x02, 3, 1),
        /// Local writes are permitted.
        local_write: bool = at(0x02, 4, 1),
        /// Local reads are permitted.
        local_read: bool = at(0x02, 5, 1),
        /// Code of an [`AccessMode`].
        access_mode: u8 = at(0x02, 6, 2),
        /// Queue pair that may use the key; [`ANY_QUEUE_PAIR`] for all.
        queue_pair: u32 = at(0x04, 0, 24),
        /// Variable byte of the key.
        variable: u8 = at(0x07, 0, 8),
        /// The region covers the whole address space; the length is not valid.
        is_unlimited: bool = at(0x0c, 0, 1),
        /// A peer may invalidate the key.
        has_remote_invalidate: bool = at(0x0c, 7, 1),
        /// Protection domain.
        domain: u32 = at(0x0d, 0, 24),
        /// Address of the first byte, as work requests name the byte.
        start: u64 = at(0x10, 0, 64),
        /// Length, in bytes.
        len: u64 = at(0x18, 0, 64),
        /// Capacity of the page list, in units of 16 bytes.
        list_size: u32 = at(0x34, 0, 32),
        /// Reads may be reordered.
        relaxed_read: bool = at(0x3b, 1, 1),
        /// Binary logarithm of the page size.
        log_page_size: u8 = at(0x3b, 2, 6),
    }
}

codes! {
    /// Meaning of a memory key's list.
    pub enum AccessMode: u8 {
        /// No list: addresses are guest addresses.
        Physical = 0 "physical",
        /// Pages of equal size.
        PageList = 1 "page list",
        /// Ranges of other keys, with a length each.
        RangeList = 2 "range list",
        /// Ranges of other keys, of equal length.
        FixedRangeList = 3 "list of ranges of equal length",
    }
}

impl MemoryKeyContext {
    /// Returns the access mode, or `None` if the upper bits are set.
    pub const fn mode(&self) -> Option<AccessMode> {
        if self.access_mode_high == 0 { AccessMode::from_raw(self.access_mode) } else { None }
    }
}

layout! {
    /// An entry of the list of a key of [`AccessMode::RangeList`] or
    /// [`AccessMode::FixedRangeList`].
    pub struct RangeEntry("memory key range", 16) {
        /// Length, in bytes; reserved if all ranges have the same length.
        len: u32 = at(0x00, 0, 32),
        /// Key.
        key: u32 = at(0x04, 0, 32),
        /// Address in the key's space.
        address: u64 = at(0x08, 0, 64),
    }
}

/// Masks of [`UpdateControl::mask`].
pub mod mask {
    /// Length.
    pub const LEN: u64 = 1 << 0;
    /// Page size.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// Start address.
    pub const START: u64 = 1 << 6;
    /// Protection domain.
    pub const DOMAIN: u64 = 1 << 7;
    /// Remote invalidation.
    pub const REMOTE_INVALIDATE: u64 = 1 << 8;
    /// Variable byte.
    pub const VARIABLE: u64 = 1 << 13;
    /// Queue pair.
    pub const QUEUE_PAIR: u64 = 1 << 14;
    /// Right of local reads.
    pub const LOCAL_READ: u64 = 1 << 17;
    /// Right of local writes.
    pub const LOCAL_WRITE: u64 = 1 << 18;
    /// Right of remote reads.
    pub const REMOTE_READ: u64 = 1 << 19;
    /// Right of remote writes.
    pub const REMOTE_WRITE: u64 = 1 << 20;
    /// Right of remote atomic operations.
    pub const REMOTE_ATOMIC: u64 = 1 << 21;
    /// Order of small reads.
    pub const SMALL_FENCE: u64 = 1 << 23;
    /// Order of writes.
    pub const RELAXED_WRITE: u64 = 1 << 25;
    /// Free or valid.
    pub const FREE: u64 = 1 << 29;
    /// Order of reads.
    pub const RELAXED_READ: u64 = 1 << 47;

    /// Fields of a fast registration by the Linux kernel.
    pub const FAST_REGISTRATION: u64 = 0x209e_2143;
    /// Fields of a registration by a user's driver.
    pub const USER_REGISTRATION: u64 = 0x203e_20c3;
    /// Fields of the revocation of a user's registration.
    pub const REVOCATION: u64 = 0x2000_0080;
}

layout! {
    /// The first segment of a UMR work request, behind the control segment. The control segment's
    /// immediate is the key.
    pub struct UpdateControl("UMR control segment", 48) {
        /// The list is in the work request, behind the [`MemoryKeyContext`]; otherwise one data
        /// segment names the list's memory.
        is_inline: bool = at(0x00, 0, 1),
        /// The update is refused if the key is free.
        requires_valid: bool = at(0x00, 1, 1),
        /// The update is refused unless the key is free.
        requires_free: bool = at(0x00, 2, 1),
        /// The update changes the list from the offset on.
        has_offset: bool = at(0x00, 3, 1),
        /// Length of the list, in units of 16 bytes.
        list_size: u16 = at(0x04, 0, 16),
        /// Lower bits of the offset in the list, in units of 16 bytes.
        offset_low: u16 = at(0x06, 0, 16),
        /// Fields of the context that change, see [`mask`].
        mask: u64 = at(0x08, 0, 64),
        /// Upper bits of the offset.
        offset_high: u32 = at(0x10, 0, 32),
    }
}

impl UpdateControl {
    /// Returns the offset in the list, in units of 16 bytes; 0 unless the update has an offset.
    pub const fn offset(&self) -> u64 {
        if !self.has_offset {
            return 0;
        }
        ((self.offset_high as u64) << 16) | self.offset_low as u64
    }

    /// Returns true if the mask has all bits of `fields`.
    pub const fn changes(&self, fields: u64) -> bool {
        self.mask & fields == fields
    }
}
