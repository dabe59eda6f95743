//! Functions of MX that this library does not implement, and `mx__regcache_clean`.
//!
//! The symbols exist so that programs of MX link and load. `mx_register_unexp_callback`, `mx_iput`,
//! `mx_iget` and `mx_buffered` report `MX_FAILURE` to the error handler of their endpoint, return
//! the code of the handler, and have no other effect. `mx__regcache_clean` clears the caches of
//! validated buffers (`memory`) and of registrations (`causeway_endpoint`) of all endpoints, for
//! every range. The application calls the functions, in any thread.

use std::ffi::{c_int, c_void};

use super::finish_call;
use crate::abi::EndpointAddr;
use crate::code::{Code, Return};
use crate::memory;

/// `mx_register_unexp_callback`: replaced by the handler.
#[unsafe(no_mangle)]
pub extern "C" fn mx_register_unexp_callback(
    handle: *mut c_void,
    _callback: *mut c_void,
    _context: *mut c_void,
) -> Code {
    finish_call(
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
    finish_call(handle, c"mx_iput: MX has no such operation", Err(Return::Failure))
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
    finish_call(handle, c"mx_iget: MX has no such operation", Err(Return::Failure))
}

/// `mx_buffered`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_buffered(
    handle: *mut c_void,
    _request: *mut *mut c_void,
    _timeout_ms: u32,
    _result: *mut u32,
) -> Code {
    finish_call(handle, c"mx_buffered: use mx_ibuffered", Err(Return::Failure))
}

/// `mx__regcache_clean`: the caller unmaps memory. Returns 1: there is a cache.
#[unsafe(no_mangle)]
pub extern "C" fn mx__regcache_clean(_start: *mut c_void, _len: usize) -> c_int {
    memory::clean();
    causeway_endpoint::clean_registrations();
    1
}
