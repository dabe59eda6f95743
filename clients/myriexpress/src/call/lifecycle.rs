//! Calls that start and end the library, endpoints, and progress.
//!
//! `mx_init` finds the NICs of this host and fails without one, with an API version other than 3.x,
//! or if it was called before (`MX_ALREADY_INITIALIZED`). Before it `mx_open_endpoint`,
//! `mx_finalize` and most calls about NICs (`info`) fail with `MX_NOT_INITIALIZED`. `mx_finalize`
//! forgets the NICs and leaves open endpoints open and usable. `mx_open_endpoint` connects to the
//! daemon of the NIC and waits for its answer. `mx_close_endpoint` ends the endpoint's requests
//! without completions, and waits for a running handler and at most 30 s for the acknowledgement of
//! messages that were reported as sent; in the handler itself it fails (`MX_CLOSE_IN_HANDLER`).
//! Once the close has begun, calls of other threads fail with `MX_BAD_ENDPOINT`, and waits in
//! progress end so when the close does. `mx_disable_progression` waits for a running handler,
//! except in the handler itself. While progress is disabled, calls handle no events, and waits end
//! only with a result that exists already, at their timeout, or by `mx_wakeup`. The calls nest:
//! progress starts again after as many calls of `mx_reenable_progression`. `mx_wakeup` ends the
//! waits of all threads at the endpoint, once.
//!
//! There is no progress thread to start or stop. Open endpoints are kept in `table`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::finish_call;
use crate::abi::{CallerPtr, ErrorHandler, Param, get_at, put};
use crate::code::{Code, Return};
use crate::endpoint::{MxEndpoint, OpenParams};
use crate::table::{self, LockedEndpoint};
use causeway_endpoint::limits::ENDPOINT_ANY;
use causeway_endpoint::{lock, nic};

use crate::{errors, fork, wait};

static INITIALIZED: AtomicBool = AtomicBool::new(false);
/// `MX_ANY_NIC`, `MX_ANY_ENDPOINT`.
const ANY: u32 = u32::MAX;

/// Fails if `mx_init` was not called.
pub(super) fn initialized() -> Result<(), Return> {
    if INITIALIZED.load(Ordering::Acquire) { Ok(()) } else { Err(Return::NotInitialized) }
}

/// Implements `mx_init()`, which passes the API version.
#[unsafe(no_mangle)]
pub extern "C" fn mx__init_api(api: c_int) -> Code {
    let begin = || {
        if api >> 8 != 3 {
            return Err(Return::BadLibVersion);
        }
        if INITIALIZED.load(Ordering::Acquire) {
            return Err(Return::AlreadyInitialized);
        }
        nic::find_all();
        if nic::count() == 0 {
            return Err(Return::NoDev);
        }
        fork::watch();
        lock::find_out();
        INITIALIZED.store(true, Ordering::Release);
        Ok(())
    };
    errors::finish(c"mx_init", begin())
}

/// `mx_finalize`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_finalize() -> Code {
    let end = initialized().map(|()| {
        INITIALIZED.store(false, Ordering::Release);
        nic::forget();
    });
    errors::finish(c"mx_finalize", end)
}

/// Parses the parameters of an endpoint.
fn opening(key: u32, params: CallerPtr<Param>, count: u32) -> Result<OpenParams, Return> {
    let mut opening = OpenParams { key, ..OpenParams::default() };
    for at in 0..count {
        // SAFETY: the caller guarantees `count` parameters.
        let param = unsafe { get_at(params, at as usize, Return::BadParamList) }?;
        let Param { key, value: [value] } = param;
        let [bits, shift, ..] = value.to_le_bytes();
        match key {
            0 if value == 0 => opening.errors = None,
            0 => {
                let pointer = std::ptr::with_exposed_provenance::<()>(value);
                // SAFETY: the value of this key is a handler, and it is not null.
                let handler = unsafe { std::mem::transmute::<*const (), ErrorHandler>(pointer) };
                opening.errors = Some(handler);
            }
            // The limit on unexpected messages is ignored: their bytes are limited anyway.
            1 => {}
            2 => (opening.context_bits, opening.context_shift) = (bits, shift),
            _ => return Err(Return::BadParamName),
        }
    }
    Ok(opening)
}

fn open(board: u32, wanted: u8, opening: OpenParams) -> Result<*mut c_void, Return> {
    if board != ANY {
        return table::insert(|own, room| MxEndpoint::open((own, room), board, wanted, opening));
    }
    let mut last = Return::NoDev;
    for board in 0..nic::count() {
        match table::insert(|own, room| MxEndpoint::open((own, room), board, wanted, opening)) {
            Err(error) => last = error,
            opened => return opened,
        }
    }
    Err(last)
}

/// `mx_open_endpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_open_endpoint(
    board: u32,
    endpoint: u32,
    key: u32,
    params: CallerPtr<Param>,
    count: u32,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let opened = || {
        initialized()?;
        let wanted = match u8::try_from(endpoint) {
            Ok(number) if number < ENDPOINT_ANY => number,
            _ if endpoint == ANY => ENDPOINT_ANY,
            _ => return Err(Return::BadEndpointId),
        };
        if into.is_null() {
            return Err(Return::BadEndpoint);
        }
        let handle = open(board, wanted, opening(key, params, count)?)?;
        put(into, handle, Return::BadEndpoint)
    };
    errors::finish(c"mx_open_endpoint", opened())
}

/// Waits until no thread runs the handler. Fails with `inside` in the handler itself.
fn wait_for_handler(mut locked: LockedEndpoint, inside: Return) -> Result<LockedEndpoint, Return> {
    loop {
        match locked.endpoint().handling {
            None => return Ok(locked),
            Some(thread) if thread == std::thread::current().id() => return Err(inside),
            Some(_) => (locked, ()) = locked.unlocked(std::thread::yield_now)?,
        }
    }
}

/// `mx_close_endpoint`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_close_endpoint(handle: *mut c_void) -> Code {
    let close = || {
        let locked = wait_for_handler(table::lock(handle)?, Return::CloseInHandler)?;
        let mut closed = locked.remove().ok_or(Return::BadEndpoint)?;
        closed.core.finish();
        closed.wake();
        Ok(())
    };
    finish_call(handle, c"mx_close_endpoint", close())
}

/// `mx_wakeup`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_wakeup(handle: *mut c_void) -> Code {
    let wake = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        endpoint.wakeups = endpoint.wakeups.wrapping_add(1);
        endpoint.wake();
        Ok(())
    };
    finish_call(handle, c"mx_wakeup", wake())
}

/// `mx_disable_progression`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_disable_progression(handle: *mut c_void) -> Code {
    let disable = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        endpoint.disabled = endpoint.disabled.saturating_add(1);
        // A call in the handler itself must not wait for its end.
        match wait_for_handler(locked, Return::Busy) {
            Ok(_) | Err(Return::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    };
    finish_call(handle, c"mx_disable_progression", disable())
}

/// `mx_reenable_progression`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_reenable_progression(handle: *mut c_void) -> Code {
    let enable = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        endpoint.disabled = endpoint.disabled.saturating_sub(1);
        endpoint.wake();
        wait::progress(locked).map(drop)
    };
    finish_call(handle, c"mx_reenable_progression", enable())
}

/// `mx_progress`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_progress(handle: *mut c_void) -> Code {
    let progress = || wait::progress(table::lock(handle)?).map(drop);
    finish_call(handle, c"mx_progress", progress())
}
