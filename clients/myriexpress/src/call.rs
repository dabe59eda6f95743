//! The functions of the C API, by subject.
//!
//! A function on an endpoint takes the lock of the endpoint ([`crate::table`]) and performs one
//! operation; every function reports a failure to the error handler. The modules contain no
//! protocol logic.
//!
//! Place: application, a function here, [`crate::table`] (lock), `wait` or `endpoint`, the matching
//! engine. A function checks its arguments, and has no effect but progress if one is invalid. Every
//! call on an endpoint waits for its lock. `mx_wait*`, `mx_peek`, `mx_probe` and `mx_connect` wait
//! for a result or their timeout, `mx_open_endpoint` and queries of NICs for the daemon (at most 10
//! s per connect and answer), `mx_close_endpoint` for messages in flight, it and
//! `mx_disable_progression` for a running handler (`lifecycle`), and it and `mx_disconnect` for a
//! peer that copies into a receive buffer (at most 2 s). Other functions do not wait, but each that
//! makes progress or fails runs the application's handlers, in the calling thread. No panic crosses
//! the C interface.

mod complete;
mod connect;
mod info;
mod lifecycle;
mod raw;
mod transfer;
mod unsupported;

use std::ffi::{CStr, c_void};

use crate::code::{Code, Return};
use crate::errors::raise;
use crate::table;

/// Returns the code of a call on an endpoint, after a failure was reported to its error handler.
#[inline]
fn finish_call(handle: *mut c_void, call: &'static CStr, result: Result<(), Return>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => failed(handle, call, error),
    }
}

#[cold]
fn failed(handle: *mut c_void, call: &'static CStr, error: Return) -> Code {
    let own = table::lock(handle).map(|mut locked| locked.endpoint().errors);
    raise(own.ok().flatten(), call, error)
}
