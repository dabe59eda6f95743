//! Objects as the application has them: a pointer to what the interface wants to see, and behind
//! it where our part of it is.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::domain::Domain;
use super::state::Shared;
use crate::abi::{Fid, FidDomain, failed};
use crate::rdm::Errno;

/// See above. `F` begins with a [`Fid`].
#[derive(Debug)]
#[repr(C)]
pub struct Object<F> {
    pub fid: F,
    pub shared: Arc<Shared>,
    /// Its place.
    pub at: usize,
}

/// Gives one to the application.
///
/// # Safety
/// There is a place for a pointer to it.
pub unsafe fn give<F>(object: Object<F>, to: *mut *mut F) {
    // SAFETY: as the caller says.
    unsafe { to.write(Box::into_raw(Box::new(object)).cast()) };
}

/// Ends one that the application closed.
///
/// # Safety
/// It is an object of that kind, and nobody has it any more.
pub unsafe fn closed<F>(fid: *mut Fid) -> c_int {
    // SAFETY: as the caller says; it came out of a box.
    let object = unsafe { Box::from_raw(fid.cast::<Object<F>>()) };
    object.shared.children.fetch_sub(1, Ordering::Release);
    0
}

/// What all of a domain share.
///
/// # Safety
/// It is a domain of ours that is open.
pub unsafe fn usable(domain: *mut FidDomain) -> Arc<Shared> {
    // SAFETY: as the caller says.
    Arc::clone(&unsafe { &*domain.cast::<Domain>() }.shared)
}

/// As functions return it.
pub fn answer(done: Result<(), Errno>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(Errno(err)) => failed(err),
    }
}
