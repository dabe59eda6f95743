//! The functions that are called from C, by what they are about.

mod complete;
mod info;
mod lifecycle;
mod never;
mod partners;
mod raw;
mod transfer;

use std::ffi::{CStr, c_void};

use crate::code::{Code, Return};
use crate::errors::raise;
use crate::table;

/// What a call on an endpoint returns; a failure is put to its handler.
#[inline]
fn ended(handle: *mut c_void, what: &'static CStr, result: Result<(), Return>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => failed(handle, what, error),
    }
}

#[cold]
fn failed(handle: *mut c_void, what: &'static CStr, error: Return) -> Code {
    let own = table::lock(handle).map(|mut locked| locked.endpoint().errors);
    raise(own.ok().flatten(), what, error)
}
