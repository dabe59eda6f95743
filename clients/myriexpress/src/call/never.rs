//! Functions that MX declared and never had, and one that does nothing here.

use std::ffi::{c_int, c_void};

use super::ended;
use crate::abi::EndpointAddr;
use crate::code::{Code, Return};
use crate::memory;

/// `mx_register_unexp_callback`: the handler took its place.
#[unsafe(no_mangle)]
pub extern "C" fn mx_register_unexp_callback(
    handle: *mut c_void,
    _callback: *mut c_void,
    _context: *mut c_void,
) -> Code {
    ended(
        handle,
        c"mx_register_unexp_callback: use mx_register_unexp_handler",
        Err(Return::Failure),
    )
}

/// `mx_iput`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_iput(
    handle: *mut c_void,
    _from: *mut c_void,
    _len: u32,
    _to: EndpointAddr,
    _at: u64,
    _context: *mut c_void,
    _into: *mut *mut c_void,
) -> Code {
    ended(handle, c"mx_iput: MX has no such operation", Err(Return::Failure))
}

/// `mx_iget`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_iget(
    handle: *mut c_void,
    _into: *mut c_void,
    _len: u32,
    _from: EndpointAddr,
    _at: u64,
    _context: *mut c_void,
    _request: *mut *mut c_void,
) -> Code {
    ended(handle, c"mx_iget: MX has no such operation", Err(Return::Failure))
}

/// `mx_buffered`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_buffered(
    handle: *mut c_void,
    _request: *mut *mut c_void,
    _timeout_ms: u32,
    _result: *mut u32,
) -> Code {
    ended(handle, c"mx_buffered: use mx_ibuffered", Err(Return::Failure))
}

/// `mx__regcache_clean`: the caller unmaps memory. Gives 1: there is something that is cleaned.
#[unsafe(no_mangle)]
pub extern "C" fn mx__regcache_clean(_start: *mut c_void, _len: usize) -> c_int {
    memory::clean();
    1
}
