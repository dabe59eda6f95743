//! Objects that the application has pointers to: the interface's structure, followed by the
//! provider's index into the domain's state.
//!
//! [`give_object`] boxes an object and hands it out; [`close_object`] frees it. Each object counts
//! as a child of its domain, which cannot be closed before: the functions that open objects count
//! them, and [`close_object`] ends the count. The functions trust the pointer and its type: neither
//! a second close nor a foreign object is detected. Endpoints, domains and fabrics have structures of
//! their own, which begin in the same way.
//!
//! `cq`, `cntr`, `av` and `mr` use it for their `open` and `close`, `endpoint` for the objects that
//! are bound to an endpoint ([`location`]), in the application's thread.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::{Fid, failed};
use crate::domain::DomainShared;
use crate::errno::Errno;

/// An object. `F` is the interface's structure, which begins with a [`Fid`].
#[derive(Debug)]
#[repr(C)]
pub struct FidObject<F> {
    /// The structure of the interface; must be first.
    pub fid: F,
    /// The domain of the object.
    pub shared: Arc<DomainShared>,
    /// The index in the domain's state; 0 for a memory region, which has its key.
    pub at: usize,
}

/// Gives an object to the application.
///
/// # Safety
/// `to` has room for a pointer.
pub unsafe fn give_object<F>(object: FidObject<F>, to: *mut *mut F) {
    // SAFETY: guaranteed by the caller.
    unsafe { to.write(Box::into_raw(Box::new(object)).cast()) };
}

/// Frees an object that the application closes.
///
/// # Safety
/// The object has this type, and no other code refers to it.
pub unsafe fn close_object<F>(fid: *mut Fid) -> c_int {
    // SAFETY: guaranteed by the caller; the object was boxed.
    let object = unsafe { Box::from_raw(fid.cast::<FidObject<F>>()) };
    object.shared.children.fetch_sub(1, Ordering::Release);
    0
}

/// Returns the domain of an object and its index there, for a binding.
///
/// # Safety
/// The object has this type, was opened here and is open.
pub unsafe fn location<'a, F>(fid: *mut Fid) -> (&'a Arc<DomainShared>, usize) {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { &*fid.cast::<FidObject<F>>() };
    (&object.shared, object.at)
}

/// Returns the result of a function of type `int`.
pub fn to_status(done: Result<(), Errno>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(Errno(err)) => failed(err),
    }
}
