//! Calls that report completed requests and unexpected messages: `mx_test`, `mx_wait`,
//! `mx_test_any`, `mx_wait_any`, `mx_peek`, `mx_probe` and their variants, and `mx_context`.
//!
//! A call except `mx_context` makes progress first, if its result does not exist already. After a
//! completion was reported, the handle of its request is invalid: a second call with it fails with
//! `MX_BAD_REQUEST`. A NULL status is permitted; with a NULL result the call fails with
//! `MX_BAD_PARAM_VAL` before a completion is consumed. A wait ends with the result 0 at its timeout
//! in ms (0, `MX_INFINITE`: no limit), or after `mx_wakeup`; the request goes on. If several
//! threads wait, a completion goes to one of them. `mx_peek` and `mx_probe` consume nothing, so
//! another thread may take the request or message before the caller does. A truncated message is
//! reported in the status, not in the return code.
//!
//! Waiting is in `wait`; the engine's part is `causeway_message`'s `library::complete`.

use std::ffi::c_void;

use causeway_message::library::Library;

use super::finish_call;
use crate::abi::{CallerPtr, EndpointAddr, MxStatus, get, put, put_if};
use crate::code::{Code, Return};
use crate::endpoint::{MxEndpoint, status_of};
use crate::table;
use crate::wait::{WaitLimit, until};

/// Writes a status directly to memory of the caller, without a copy.
#[inline]
fn found(status: CallerPtr<MxStatus>, found: Option<MxStatus>) -> Option<()> {
    found.map(|found| put_if(status, found))
}

#[inline]
fn report(found: Option<()>, result: CallerPtr<u32>) -> Result<bool, Return> {
    put(result, u32::from(found.is_some()), Return::BadParamVal)?;
    Ok(found.is_some())
}

/// Fails if there is no memory for the result; called before a call has an effect.
#[inline]
pub(super) fn checked(result: CallerPtr<u32>) -> Result<(), Return> {
    if result.is_null() { Err(Return::BadParamVal) } else { Ok(()) }
}

#[inline]
fn one(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    limit: WaitLimit,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let named = get(request, Return::BadRequest)?;
    let ready = |endpoint: &mut MxEndpoint| {
        endpoint.request(named).map_or(true, |id| endpoint.core.library.has_ended(id))
    };
    let seen = until(handle, limit, ready, |endpoint: &mut MxEndpoint| {
        let (id, own) = (endpoint.request(named)?, endpoint.own);
        let tell = |library: &Library<_>, ended| put_if(status, status_of(own, library, ended));
        Ok(endpoint.core.library.test_with(id, tell)?)
    })?;
    if report(seen, result)? {
        put(request, std::ptr::null_mut(), Return::BadRequest)?;
    }
    Ok(())
}

/// `mx_test`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_test(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    finish_call(handle, c"mx_test", one(handle, request, WaitLimit::None, status, result))
}

/// `mx_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_wait(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    timeout_ms: u32,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    let limit = WaitLimit::of(timeout_ms);
    finish_call(handle, c"mx_wait", one(handle, request, limit, status, result))
}

fn any(
    handle: *mut c_void,
    limit: WaitLimit,
    (info, mask): (u64, u64),
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut MxEndpoint| endpoint.core.library.has_any(info, mask);
    let seen = until(handle, limit, ready, |endpoint: &mut MxEndpoint| {
        let library = &mut endpoint.core.library;
        let ended = library.test_any(info, mask)?;
        Ok(found(status, ended.map(|ended| status_of(endpoint.own, library, ended))))
    })?;
    report(seen, result).map(drop)
}

/// `mx_test_any`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_test_any(
    handle: *mut c_void,
    info: u64,
    mask: u64,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    let found = any(handle, WaitLimit::None, (info, mask), status, result);
    finish_call(handle, c"mx_test_any", found)
}

/// `mx_wait_any`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_wait_any(
    handle: *mut c_void,
    timeout_ms: u32,
    info: u64,
    mask: u64,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    let found = any(handle, WaitLimit::of(timeout_ms), (info, mask), status, result);
    finish_call(handle, c"mx_wait_any", found)
}

fn first(
    handle: *mut c_void,
    limit: WaitLimit,
    request: CallerPtr<*mut c_void>,
    result: CallerPtr<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut MxEndpoint| endpoint.core.library.ipeek().is_some();
    let found = until(handle, limit, ready, |endpoint: &mut MxEndpoint| {
        Ok(endpoint.core.library.ipeek().map(|id| endpoint.own.handle(id)))
    })?;
    put(result, u32::from(found.is_some()), Return::BadParamVal)?;
    found.map_or(Ok(()), |found| put(request, found, Return::BadRequest))
}

/// `mx_ipeek`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_ipeek(
    handle: *mut c_void,
    request: CallerPtr<*mut c_void>,
    result: CallerPtr<u32>,
) -> Code {
    finish_call(handle, c"mx_ipeek", first(handle, WaitLimit::None, request, result))
}

/// `mx_peek`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_peek(
    handle: *mut c_void,
    timeout_ms: u32,
    request: CallerPtr<*mut c_void>,
    result: CallerPtr<u32>,
) -> Code {
    finish_call(handle, c"mx_peek", first(handle, WaitLimit::of(timeout_ms), request, result))
}

fn unexpected(
    handle: *mut c_void,
    limit: WaitLimit,
    (info, mask): (u64, u64),
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut MxEndpoint| {
        endpoint.core.library.iprobe(info, mask).map_or(true, |probed| probed.is_some())
    };
    let seen = until(handle, limit, ready, |endpoint: &mut MxEndpoint| {
        let probed = endpoint.core.library.iprobe(info, mask)?;
        let probed = probed.map(|probed| MxStatus {
            code: 0,
            source: endpoint.address(probed.partner),
            match_info: probed.match_info,
            msg_length: probed.len,
            xfer_length: probed.len,
            context: std::ptr::null_mut(),
        });
        Ok(found(status, probed))
    })?;
    report(seen, result).map(drop)
}

/// `mx_iprobe`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_iprobe(
    handle: *mut c_void,
    info: u64,
    mask: u64,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    let found = unexpected(handle, WaitLimit::None, (info, mask), status, result);
    finish_call(handle, c"mx_iprobe", found)
}

/// `mx_probe`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_probe(
    handle: *mut c_void,
    timeout_ms: u32,
    info: u64,
    mask: u64,
    status: CallerPtr<MxStatus>,
    result: CallerPtr<u32>,
) -> Code {
    let found = unexpected(handle, WaitLimit::of(timeout_ms), (info, mask), status, result);
    finish_call(handle, c"mx_probe", found)
}

/// `mx_context`: the request handle identifies the endpoint.
#[unsafe(no_mangle)]
pub extern "C" fn mx_context(
    request: CallerPtr<*mut c_void>,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let look = || {
        let named = get(request, Return::BadRequest)?;
        let slot = table::slot(crate::address::slot_of(named)).ok_or(Return::BadRequest)?;
        let mut locked = slot.locked().map_err(|_| Return::BadRequest)?;
        let endpoint = locked.endpoint();
        let context = endpoint.core.library.context(endpoint.request(named)?)?;
        put(into, std::ptr::without_provenance_mut(context as usize), Return::BadParamVal)
    };
    crate::errors::finish(c"mx_context", look())
}

/// Returns the NIC, endpoint and session of an address.
pub(super) fn decompose(address: EndpointAddr) -> Result<(u64, u32, u32), Return> {
    let (own, partner) = crate::address::unpack(address).ok_or(Return::BadEndpoint)?;
    let mut locked = table::slot(own.slot).ok_or(Return::BadEndpoint)?.locked()?;
    let endpoint = locked.endpoint();
    if !endpoint.own.matches(own) {
        return Err(Return::BadEndpoint);
    }
    let (address, session) = endpoint.core.library.decompose(partner).ok_or(Return::BadEndpoint)?;
    Ok((address.nic.0, address.endpoint.into(), session))
}
