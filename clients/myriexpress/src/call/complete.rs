//! How the application learns that requests ended, and what came unexpected.

use std::ffi::c_void;

use causeway_message::library::Library;

use super::ended;
use crate::abi::{EndpointAddr, Given, MxStatus, get, put, put_if};
use crate::code::{Code, Return};
use crate::endpoint::{Endpoint, told};
use crate::table;
use crate::wait::{Patience, until};

/// Reports what was found, if anything was: written at once, without a copy of it.
#[inline]
fn found(status: Given<MxStatus>, found: Option<MxStatus>) -> Option<()> {
    found.map(|found| put_if(status, found))
}

#[inline]
fn report(found: Option<()>, result: Given<u32>) -> Result<bool, Return> {
    put(result, u32::from(found.is_some()), Return::BadParamVal)?;
    Ok(found.is_some())
}

/// A place for the result there must be, before anything is collected.
#[inline]
fn checked(result: Given<u32>) -> Result<(), Return> {
    if result.is_null() { Err(Return::BadParamVal) } else { Ok(()) }
}

#[inline]
fn one(
    handle: *mut c_void,
    request: Given<*mut c_void>,
    patience: Patience,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let named = get(request, Return::BadRequest)?;
    let ready = |endpoint: &mut Endpoint| {
        endpoint.request(named).map_or(true, |id| endpoint.core.library.has_ended(id))
    };
    let seen = until(handle, patience, ready, |endpoint: &mut Endpoint| {
        let (id, own) = (endpoint.request(named)?, endpoint.own);
        let tell = |library: &Library<_>, ended| put_if(status, told(own, library, ended));
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
    request: Given<*mut c_void>,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    ended(handle, c"mx_test", one(handle, request, Patience::None, status, result))
}

/// `mx_wait`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_wait(
    handle: *mut c_void,
    request: Given<*mut c_void>,
    timeout_ms: u32,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    let patience = Patience::of(timeout_ms);
    ended(handle, c"mx_wait", one(handle, request, patience, status, result))
}

fn any(
    handle: *mut c_void,
    patience: Patience,
    (info, mask): (u64, u64),
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut Endpoint| endpoint.core.library.has_any(info, mask);
    let seen = until(handle, patience, ready, |endpoint: &mut Endpoint| {
        let library = &mut endpoint.core.library;
        let ended = library.test_any(info, mask)?;
        Ok(found(status, ended.map(|ended| told(endpoint.own, library, ended))))
    })?;
    report(seen, result).map(drop)
}

/// `mx_test_any`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_test_any(
    handle: *mut c_void,
    info: u64,
    mask: u64,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    let found = any(handle, Patience::None, (info, mask), status, result);
    ended(handle, c"mx_test_any", found)
}

/// `mx_wait_any`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_wait_any(
    handle: *mut c_void,
    timeout_ms: u32,
    info: u64,
    mask: u64,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    let found = any(handle, Patience::of(timeout_ms), (info, mask), status, result);
    ended(handle, c"mx_wait_any", found)
}

fn first(
    handle: *mut c_void,
    patience: Patience,
    request: Given<*mut c_void>,
    result: Given<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut Endpoint| endpoint.core.library.ipeek().is_some();
    let found = until(handle, patience, ready, |endpoint: &mut Endpoint| {
        Ok(endpoint.core.library.ipeek().map(|id| endpoint.own.handle(id)))
    })?;
    put(result, u32::from(found.is_some()), Return::BadParamVal)?;
    found.map_or(Ok(()), |found| put(request, found, Return::BadRequest))
}

/// `mx_ipeek`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_ipeek(
    handle: *mut c_void,
    request: Given<*mut c_void>,
    result: Given<u32>,
) -> Code {
    ended(handle, c"mx_ipeek", first(handle, Patience::None, request, result))
}

/// `mx_peek`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_peek(
    handle: *mut c_void,
    timeout_ms: u32,
    request: Given<*mut c_void>,
    result: Given<u32>,
) -> Code {
    ended(handle, c"mx_peek", first(handle, Patience::of(timeout_ms), request, result))
}

fn unexpected(
    handle: *mut c_void,
    patience: Patience,
    (info, mask): (u64, u64),
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Result<(), Return> {
    checked(result)?;
    let ready = |endpoint: &mut Endpoint| {
        endpoint.core.library.iprobe(info, mask).map_or(true, |probed| probed.is_some())
    };
    let seen = until(handle, patience, ready, |endpoint: &mut Endpoint| {
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
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    let found = unexpected(handle, Patience::None, (info, mask), status, result);
    ended(handle, c"mx_iprobe", found)
}

/// `mx_probe`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_probe(
    handle: *mut c_void,
    timeout_ms: u32,
    info: u64,
    mask: u64,
    status: Given<MxStatus>,
    result: Given<u32>,
) -> Code {
    let found = unexpected(handle, Patience::of(timeout_ms), (info, mask), status, result);
    ended(handle, c"mx_probe", found)
}

/// `mx_context`: the request alone says whose it is.
#[unsafe(no_mangle)]
pub extern "C" fn mx_context(request: Given<*mut c_void>, into: Given<*mut c_void>) -> Code {
    let look = || {
        let named = get(request, Return::BadRequest)?;
        let slot = table::slot(crate::address::slot_of(named)).ok_or(Return::BadRequest)?;
        let mut locked = slot.locked().map_err(|_| Return::BadRequest)?;
        let endpoint = locked.endpoint();
        let context = endpoint.core.library.context(endpoint.request(named)?)?;
        put(into, std::ptr::without_provenance_mut(context as usize), Return::BadParamVal)
    };
    crate::errors::ended(c"mx_context", look())
}

/// What an address says; `None` of the three is where nobody wants it.
pub(super) fn decomposed(address: EndpointAddr) -> Result<(u64, u32, u32), Return> {
    let (own, partner) = crate::address::unpack(address).ok_or(Return::BadEndpoint)?;
    let mut locked = table::slot(own.slot).ok_or(Return::BadEndpoint)?.locked()?;
    let endpoint = locked.endpoint();
    if !endpoint.own.made(own) {
        return Err(Return::BadEndpoint);
    }
    let (address, session) = endpoint.core.library.decompose(partner).ok_or(Return::BadEndpoint)?;
    Ok((address.nic.0, address.endpoint.into(), session))
}
