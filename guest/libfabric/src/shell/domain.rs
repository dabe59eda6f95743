//! Domains.

use std::ffi::{c_int, c_void};

use crate::abi::{FI_ENOSYS, FiInfo, FidDomain, FidFabric};

/// Opens one.
///
/// # Safety
/// The fabric is one of ours; other pointers are what the interface says of them, none NULL but
/// `context`.
pub unsafe fn open(
    _fabric: *mut FidFabric,
    _info: *mut FiInfo,
    _domain: *mut *mut FidDomain,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}
