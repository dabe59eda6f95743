//! Calls that send, receive and cancel: `mx_isend`, `mx_issend`, `mx_irecv`, `mx_cancel`,
//! `mx_forget`, and limits of requests.
//!
//! A send or receive returns at once with a request handle, or without one if the caller passes no
//! place for it: then, and after `mx_forget`, the request has no completion: the application learns
//! its success only from its peer, and its failure from the error handler. Buffers are validated
//! (`memory`) and must stay valid and, for sends, unchanged until the request has ended or
//! `mx_ibuffered` reports a send as buffered. A message has at most 2^32 - 1 bytes in 256 segments.
//! Only receives and connects can be cancelled; `mx_cancel` of a send fails with
//! `MX_CANCEL_NOT_SUPPORTED`; of a receive that has its message it has the result 0. With a NULL
//! result it fails with `MX_BAD_PARAM_VAL` and cancels nothing. With 2^20 requests, ended requests
//! included, a call fails with `MX_NO_RESOURCES`.
//!
//! `mx_ibuffered` makes progress. A call waits only for the lock of its endpoint, but may run
//! handlers of the application first. Completions are reported by `call::complete`.

use std::ffi::c_void;

use causeway_message::library::RequestId;

use super::complete::checked;
use super::finish_call;
use crate::abi::{CallerPtr, EndpointAddr, MxSegment, get, put};
use crate::code::{Code, Return};
use crate::endpoint::MxEndpoint;
use crate::{table, wait};

/// Returns the handle of a new request to the application, or forgets the request without a handle.
#[inline]
fn give(
    endpoint: &mut MxEndpoint,
    id: RequestId,
    into: CallerPtr<*mut c_void>,
) -> Result<(), Return> {
    // The request may have ended already, and other threads may wait for any request.
    endpoint.wake();
    if into.is_null() {
        return Ok(endpoint.core.library.forget(id)?);
    }
    put(into, endpoint.own.handle(id), Return::BadRequest)
}

/// Both kinds of sends. Inlined, so that all arguments stay in registers.
#[inline(always)]
fn send(
    sync: bool,
    handle: *mut c_void,
    (list, count): (CallerPtr<MxSegment>, u32),
    to: EndpointAddr,
    (info, context): (u64, *mut c_void),
    into: CallerPtr<*mut c_void>,
) -> Result<(), Return> {
    let mut locked = table::lock(handle)?;
    let endpoint = locked.endpoint();
    let to = endpoint.partner(to)?;
    let data = endpoint.mapped.segments(list, count, false)?;
    endpoint.before_send();
    let context = context.addr() as u64;
    let (library, way) = (&mut endpoint.core.library, &mut endpoint.core.paths);
    let id = if sync {
        library.issend(way, to, info, context, data)?
    } else {
        library.isend(way, to, info, context, data)?
    };
    give(endpoint, id, into)?;
    wait::report_failures(locked).map(drop)
}

/// `mx_isend`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_isend(
    handle: *mut c_void,
    list: CallerPtr<MxSegment>,
    count: u32,
    to: EndpointAddr,
    info: u64,
    context: *mut c_void,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let sent = send(false, handle, (list, count), to, (info, context), into);
    finish_call(handle, c"mx_isend", sent)
}

/// `mx_issend`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_issend(
    handle: *mut c_void,
    list: CallerPtr<MxSegment>,
    count: u32,
    to: EndpointAddr,
    info: u64,
    context: *mut c_void,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let sent = send(true, handle, (list, count), to, (info, context), into);
    finish_call(handle, c"mx_issend", sent)
}

/// `mx_irecv`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_irecv(
    handle: *mut c_void,
    list: CallerPtr<MxSegment>,
    count: u32,
    info: u64,
    mask: u64,
    context: *mut c_void,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let receive = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let data = endpoint.mapped.segments(list, count, true)?;
        let context = context.addr() as u64;
        let (library, way) = (&mut endpoint.core.library, &mut endpoint.core.paths);
        let id = library.irecv(way, info, mask, context, data)?;
        way.nudge();
        give(endpoint, id, into)?;
        wait::report_failures(locked).map(drop)
    };
    finish_call(handle, c"mx_irecv", receive())
}

/// `mx_cancel`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_cancel(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    result: CallerPtr<u32>,
) -> Code {
    let cancel = || {
        checked(result)?;
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let id = endpoint.request(get(request, Return::BadRequest)?)?;
        if endpoint.core.library.ibuffered(id).is_ok() {
            return Err(Return::CancelNotSupported);
        }
        let cancelled = endpoint.core.library.cancel(&mut endpoint.core.paths, id)?;
        endpoint.wake();
        put(result, u32::from(cancelled), Return::BadParamVal)?;
        if cancelled {
            put(request, std::ptr::null_mut(), Return::BadRequest)?;
        }
        Ok(())
    };
    finish_call(handle, c"mx_cancel", cancel())
}

/// `mx_forget`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_forget(handle: *mut c_void, request: CallerPtr<*mut c_void>) -> Code {
    let forget = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let id = endpoint.request(get(request, Return::BadRequest)?)?;
        endpoint.core.library.forget(id)?;
        put(request, std::ptr::null_mut(), Return::BadRequest)
    };
    finish_call(handle, c"mx_forget", forget())
}

/// `mx_set_request_timeout`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_set_request_timeout(
    handle: *mut c_void,
    request: *mut c_void,
    timeout_ms: u32,
) -> Code {
    let limit = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let id = match request.is_null() {
            true => None,
            false => Some(endpoint.request(request)?),
        };
        endpoint.core.update_time();
        // 0 is MX_INFINITE.
        let timeout = u64::from(timeout_ms).saturating_mul(1_000_000);
        endpoint.core.library.set_timeout(id, Some(timeout).filter(|&timeout| timeout != 0))?;
        // A sleeping thread may have to wake earlier.
        endpoint.wake();
        wait::report_failures(locked).map(drop)
    };
    finish_call(handle, c"mx_set_request_timeout", limit())
}

/// `mx_ibuffered`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_ibuffered(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    result: CallerPtr<u32>,
) -> Code {
    let look = || {
        let mut locked = wait::progress(table::lock(handle)?)?;
        let endpoint = locked.endpoint();
        let id = endpoint.request(get(request, Return::BadRequest)?)?;
        let free = endpoint.core.library.ibuffered(id)?;
        put(result, u32::from(free), Return::BadParamVal)
    };
    finish_call(handle, c"mx_ibuffered", look())
}
