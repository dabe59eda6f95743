//! Domains.

use std::ffi::{c_int, c_void};

use crate::abi::{FI_ENODEV, FI_ENOSYS, FiInfo, FidDomain, FidFabric, failed};
use crate::boards::{self, Board};
use crate::info::{self, Asked};

/// Opens one.
///
/// # Safety
/// The fabric is one of ours; other pointers are what the interface says of them, none NULL but
/// `context`.
pub unsafe fn open(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    _domain: *mut *mut FidDomain,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller says.
    let chosen = unsafe { info::chosen(info, (*fabric).api_version) };
    match chosen.and_then(|(asked, _)| board(&asked)) {
        Ok(_) => failed(FI_ENOSYS),
        Err(code) => failed(code),
    }
}

/// The board that an application chose.
fn board(asked: &Asked) -> Result<Board, c_int> {
    let boards = boards::all().map_err(|_| FI_ENODEV)?;
    let mut chosen = boards.into_iter().filter(|board| info::is_wanted(asked, board));
    chosen.next().ok_or(FI_ENODEV)
}
