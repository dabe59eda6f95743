//! Calls that connect and disconnect peers, decode addresses, and set the handler of unexpected
//! messages.
//!
//! `mx_connect` waits for the result or its timeout (0, `MX_INFINITE`: no limit of its own), after
//! which, or after `mx_wakeup`, it cancels the connect and fails with `MX_TIMEOUT`; a wrong key
//! gives `MX_BAD_CONNECTION_KEY`, an unknown NIC `MX_NIC_NOT_FOUND`, no such endpoint
//! `MX_CONNECTION_FAILED`; `mx_iconnect` makes a request, whose status has the result. Two connects
//! to one endpoint give the same peer. At most 256 connects of an endpoint wait for the daemon's
//! answer; further connects are queued. `mx_disconnect` ends the requests to the peer with an
//! error; the peer learns of it. An address belongs to one endpoint of this process; with another
//! endpoint a call fails with `MX_BAD_ENDPOINT`. A context of an address is the application's
//! pointer, and is lost with the peer.
//!
//! The calls resolve no names (`call::info`). [`causeway_endpoint`] chooses the path: channel,
//! rings or direct mode.

use std::ffi::c_void;

use causeway_message::library::{Completion, Partner, RequestId};
use causeway_message::split::{Address, NicId};

use super::complete::decompose;
use super::finish_call;
use crate::abi::{CallerPtr, EndpointAddr, UnexpHandler, put, put_if};
use crate::address::unpack;
use crate::code::{Code, Return, of_connect};
use crate::endpoint::{MxEndpoint, UnexpectedHandler};
use crate::wait::{WaitLimit, until};
use crate::{errors, table, wait};
use causeway_endpoint::limits::ENDPOINT_ANY;

/// Target of a connect.
#[derive(Debug, Clone, Copy)]
struct ConnectTarget {
    /// NIC of the peer.
    nic: u64,
    /// Number of the peer's endpoint.
    endpoint: u32,
    /// Key of the peer's endpoint.
    key: u32,
}

fn start_connect(
    endpoint: &mut MxEndpoint,
    to: ConnectTarget,
    info: u64,
    context: *mut c_void,
    timeout_ms: u32,
) -> Result<RequestId, Return> {
    let number = u8::try_from(to.endpoint).ok().filter(|&number| number != ENDPOINT_ANY);
    let number = number.ok_or(Return::BadEndpointId)?;
    if to.nic >> 48 != 0 {
        return Err(Return::NicNotFound);
    }
    let timeout = Some(u64::from(timeout_ms).saturating_mul(1_000_000)).filter(|&t| t != 0);
    if timeout.is_some() {
        endpoint.core.update_time();
    } else {
        endpoint.before_send();
    }
    let address = Address { nic: NicId(to.nic), endpoint: number };
    let (library, way) = (&mut endpoint.core.library, &mut endpoint.core.paths);
    let id = library.iconnect(way, address, to.key, info, context.addr() as u64, timeout)?;
    endpoint.wake();
    Ok(id)
}

fn connect(
    handle: *mut c_void,
    to: ConnectTarget,
    timeout_ms: u32,
    into: CallerPtr<EndpointAddr>,
) -> Result<(), Return> {
    if into.is_null() {
        return Err(Return::BadParamVal);
    }
    let mut locked = table::lock(handle)?;
    let endpoint = locked.endpoint();
    let id = start_connect(endpoint, to, 0, std::ptr::null_mut(), timeout_ms)?;
    // An internal request: the application sees only the result of this call.
    endpoint.core.library.hide(id)?;
    drop(wait::report_failures(locked)?);
    let look = |endpoint: &mut MxEndpoint| -> Result<Option<(Completion, EndpointAddr)>, Return> {
        let ended = endpoint.core.library.test(id)?;
        Ok(ended
            .map(|ended| (ended, ended.partner.map(|p| endpoint.address(p)).unwrap_or_default())))
    };
    let ready = |endpoint: &mut MxEndpoint| endpoint.core.library.has_ended(id);
    match until(handle, WaitLimit::of(timeout_ms), ready, look)? {
        Some((completion, address)) => {
            of_connect(completion.status)?;
            put(into, address, Return::BadParamVal)
        }
        None => {
            let mut locked = table::lock(handle)?;
            let endpoint = locked.endpoint();
            let _ = endpoint.core.library.cancel(&mut endpoint.core.paths, id);
            Err(Return::Timeout)
        }
    }
}

/// `mx_connect`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_connect(
    handle: *mut c_void,
    nic: u64,
    endpoint: u32,
    key: u32,
    timeout_ms: u32,
    into: CallerPtr<EndpointAddr>,
) -> Code {
    let to = ConnectTarget { nic, endpoint, key };
    finish_call(handle, c"mx_connect", connect(handle, to, timeout_ms, into))
}

/// `mx_iconnect`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_iconnect(
    handle: *mut c_void,
    nic: u64,
    endpoint: u32,
    key: u32,
    info: u64,
    context: *mut c_void,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let to = ConnectTarget { nic, endpoint, key };
    let connect = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let id = start_connect(endpoint, to, info, context, 0)?;
        if into.is_null() {
            endpoint.core.library.forget(id)?;
            return wait::report_failures(locked).map(drop);
        }
        put(into, endpoint.own.handle(id), Return::BadRequest)?;
        wait::report_failures(locked).map(drop)
    };
    finish_call(handle, c"mx_iconnect", connect())
}

/// `mx_disconnect`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_disconnect(handle: *mut c_void, address: EndpointAddr) -> Code {
    let part = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        let partner = endpoint.partner(address)?;
        let parted = endpoint.core.library.disconnect(&mut endpoint.core.paths, partner);
        parted.map_err(|_| Return::BadEndpoint)?;
        // Requests of this peer have ended.
        endpoint.wake();
        wait::report_failures(locked).map(drop)
    };
    finish_call(handle, c"mx_disconnect", part())
}

/// `mx_get_endpoint_addr`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_get_endpoint_addr(handle: *mut c_void, into: CallerPtr<EndpointAddr>) -> Code {
    let look = || {
        let mut locked = table::lock(handle)?;
        let address = locked.endpoint().address(Partner::SELF);
        put(into, address, Return::BadParamVal)
    };
    finish_call(handle, c"mx_get_endpoint_addr", look())
}

/// `mx_decompose_endpoint_addr`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_decompose_endpoint_addr(
    address: EndpointAddr,
    nic: CallerPtr<u64>,
    endpoint: CallerPtr<u32>,
) -> Code {
    let parts = decompose(address).map(|(its_nic, its_endpoint, _)| {
        put_if(nic, its_nic);
        put_if(endpoint, its_endpoint);
    });
    errors::finish(c"mx_decompose_endpoint_addr", parts)
}

/// `mx_decompose_endpoint_addr2`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_decompose_endpoint_addr2(
    address: EndpointAddr,
    nic: CallerPtr<u64>,
    endpoint: CallerPtr<u32>,
    session: CallerPtr<u32>,
) -> Code {
    let parts = decompose(address).map(|(its_nic, its_endpoint, its_session)| {
        put_if(nic, its_nic);
        put_if(endpoint, its_endpoint);
        put_if(session, its_session);
    });
    errors::finish(c"mx_decompose_endpoint_addr2", parts)
}

/// Calls `run` with the peer of an address. The address identifies the endpoint.
fn with<T>(
    address: EndpointAddr,
    run: impl FnOnce(&mut MxEndpoint, Partner) -> Option<T>,
) -> Result<T, Return> {
    let (own, _) = unpack(address).ok_or(Return::BadEndpoint)?;
    let mut locked = table::slot(own.slot).ok_or(Return::BadEndpoint)?.locked()?;
    let endpoint = locked.endpoint();
    let partner = endpoint.partner(address)?;
    run(endpoint, partner).ok_or(Return::BadEndpoint)
}

/// `mx_set_endpoint_addr_context`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_set_endpoint_addr_context(
    address: EndpointAddr,
    context: *mut c_void,
) -> Code {
    let context = context.addr() as u64;
    let set = with(address, |endpoint, partner| {
        endpoint.core.library.set_partner_context(partner, context).then_some(())
    });
    errors::finish(c"mx_set_endpoint_addr_context", set)
}

/// `mx_get_endpoint_addr_context`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_get_endpoint_addr_context(
    address: EndpointAddr,
    into: CallerPtr<*mut c_void>,
) -> Code {
    let context = with(address, |endpoint, partner| endpoint.core.library.partner_context(partner));
    let got = context.and_then(|context| {
        put(into, std::ptr::without_provenance_mut(context as usize), Return::BadParamVal)
    });
    errors::finish(c"mx_get_endpoint_addr_context", got)
}

/// `mx_register_unexp_handler`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_register_unexp_handler(
    handle: *mut c_void,
    handler: Option<UnexpHandler>,
    context: *mut c_void,
) -> Code {
    let register = || {
        let mut locked = table::lock(handle)?;
        let endpoint = locked.endpoint();
        endpoint.handler = handler.map(|run| UnexpectedHandler { run, context: context.addr() });
        endpoint.core.library.set_handler(handler.is_some());
        wait::progress(locked).map(drop)
    };
    finish_call(handle, c"mx_register_unexp_handler", register())
}
