//! Raw endpoints, which mappers use. They cannot be opened: the daemon finds the peers of a NIC, so
//! a mapper has no task, and no process may see raw packets of others.
//!
//! No function here has an effect: `mx_raw_handle` returns `MX__INVALID_HANDLE`;
//! `mx_raw_open_endpoint` fails with `MX_NO_PERM`, and each other function with `MX_BAD_ENDPOINT`,
//! after a report to the error handler of the process (by default it ends the process). The symbols
//! exist so that programs of MX link and load. The application calls the functions, in any thread.
//! Discovery is in the daemon (`mxoe::discovery`).

use std::ffi::{c_char, c_int, c_void};

use crate::abi::Param;
use crate::code::{Code, Return};
use crate::errors::finish;

fn refuse(call: &'static std::ffi::CStr, error: Return) -> Code {
    finish(call, Err(error))
}

/// `mx_raw_handle`: `MX__INVALID_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_handle(_endpoint: *mut c_void) -> c_int {
    -1
}

/// `mx_raw_open_endpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_open_endpoint(
    _board: u32,
    _params: *const Param,
    _count: u32,
    _into: *mut *mut c_void,
) -> Code {
    refuse(
        c"mx_raw_open_endpoint: the daemon finds the peers, so no mapper is needed",
        Return::NoPerm,
    )
}

/// `mx_raw_send`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_send(
    _endpoint: *mut c_void,
    _port: u32,
    _route: *mut c_void,
    _route_len: u32,
    _buffer: *mut c_void,
    _len: u32,
    _context: *mut c_void,
) -> Code {
    refuse(c"mx_raw_send", Return::BadEndpoint)
}

/// `mx_raw_next_event`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_next_event(
    _endpoint: *mut c_void,
    _port: *mut u32,
    _context: *mut *mut c_void,
    _buffer: *mut c_void,
    _len: *mut u32,
    _timeout_ms: u32,
    _status: *mut c_int,
) -> Code {
    refuse(c"mx_raw_next_event", Return::BadEndpoint)
}

/// `mx_raw_set_route_mag`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_set_route_mag(
    _endpoint: *mut c_void,
    _to: u64,
    _route: *mut c_void,
    _len: u32,
    _input: u32,
    _output: u32,
    _host_type: c_int,
    _mag: u32,
) -> Code {
    refuse(c"mx_raw_set_route_mag", Return::BadEndpoint)
}

/// `mx_raw_set_route`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_set_route(
    _endpoint: *mut c_void,
    _to: u64,
    _route: *mut c_void,
    _len: u32,
    _input: u32,
    _output: u32,
    _host_type: c_int,
) -> Code {
    refuse(c"mx_raw_set_route", Return::BadEndpoint)
}

/// `mx_raw_set_map_version`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_raw_set_map_version(
    _endpoint: *mut c_void,
    _port: u32,
    _mapper: u64,
    _version: u32,
    _nodes: u32,
    _complete: u32,
) -> Code {
    refuse(c"mx_raw_set_map_version", Return::BadEndpoint)
}

macro_rules! without_endpoint {
    ($($name:ident($($kind:ty),*), $text:literal;)*) => {
        $(
            /// Fails: no raw endpoint can exist.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(_endpoint: *mut c_void $(, _: $kind)*) -> Code {
                refuse($text, Return::BadEndpoint)
            }
        )*
    };
}

without_endpoint! {
    mx_raw_close_endpoint(), c"mx_raw_close_endpoint";
    mx_raw_set_route_begin(), c"mx_raw_set_route_begin";
    mx_raw_set_route_end(), c"mx_raw_set_route_end";
    mx_raw_clear_routes(u64, u32), c"mx_raw_clear_routes";
    mx_raw_remove_peer(u64), c"mx_raw_remove_peer";
    mx_raw_num_ports(*mut u32), c"mx_raw_num_ports";
    mx_raw_line_speed(*mut c_int), c"mx_raw_line_speed";
    mx_raw_set_hostname(*mut c_char), c"mx_raw_set_hostname";
    mx_raw_set_peer_name(u64, *mut c_char), c"mx_raw_set_peer_name";
    mx_raw_set_nic_reply_info(*mut c_void, u32), c"mx_raw_set_nic_reply_info";
}
