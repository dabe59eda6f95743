//! Answers `fi_getinfo`: reads the application's hints ([`hints`]), compares them with the
//! capabilities of the provider ([`offer`]), and builds the list of the NICs that match
//! ([`info_list`]), an entry for each.
//!
//! The comparison is repeated when the application opens a domain, to check the `fi_info` that it
//! chose ([`read_chosen`]).
//!
//! # Limits
//! The module opens no endpoint, except to look up a service ([`node`]), and may block for that and
//! for a daemon that does not answer. `-FI_ENODATA` stands for a field that the provider does not
//! support, an unknown node or service (each named at log level `info`), no NIC that answers (a
//! warning), and no NIC that matches. `FI_SOURCE` without node and service gives `-FI_EINVAL`, as
//! does an unsupported field in a chosen `fi_info`; missing memory gives `-FI_ENOMEM`. Each call
//! reports the NICs that answer now, in a guest those that answered in the last 60 s; the failure of
//! a slow daemon is remembered for 60 s too (`nics`).
//!
//! # Place
//! libfabric's core calls [`getinfo`] by the provider's description, in the thread of the
//! application; `shell::domain` calls [`read_chosen`]; `nics` finds the NICs.

mod hints;
mod info_list;
mod node;
mod offer;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int};

use crate::abi::{FI_EINVAL, FI_ENODATA, FI_ENOMEM, FiInfo, failed};
use crate::{log, nics};

pub use hints::{Hints, read_address};
pub use offer::{FABRIC, ProviderOffer, matches_hints};

/// Answers `fi_getinfo` (`fi_provider.getinfo`).
///
/// # Safety
/// Pointers are NULL or as the interface requires.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int {
    if info.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    let hints = unsafe { hints::read(version, node, service, flags, hints) };
    match list(&hints) {
        Ok(list) => {
            // SAFETY: the caller passes a place for the list.
            unsafe { info.write(list.take()) };
            0
        }
        Err(code) => failed(code),
    }
}

/// Returns the list of the NICs that match the hints.
///
/// # Errors
/// `FI_EINVAL`, `FI_ENODATA` or `FI_ENOMEM`.
fn list(hints: &hints::Hints) -> Result<info_list::InfoList, c_int> {
    if hints.is_source && hints.node.is_none() && hints.service.is_none() {
        return Err(FI_EINVAL);
    }
    let mut offer = offer::offer(hints).map_err(|unsupported| {
        log::info(&format!("the requested {} is not supported", unsupported.0));
        FI_ENODATA
    })?;
    let nics = nics::all().map_err(|why| {
        let by_name = hints.provider.as_deref().is_some_and(log::names_this_provider);
        log::warn(&why.to_string(), by_name);
        FI_ENODATA
    })?;
    if !hints.is_source && (hints.node.is_some() || hints.service.is_some()) {
        offer.destination = Some(node::find(hints, &nics).map_err(|why| {
            log::info(&why.to_string());
            FI_ENODATA
        })?);
    }
    let mut list = info_list::InfoList::new();
    let mut none = true;
    for nic in nics.iter().filter(|nic| matches_hints(hints, nic)) {
        list.push(nic, &offer, hints.version).map_err(|_| FI_ENOMEM)?;
        none = false;
    }
    if none { Err(FI_ENODATA) } else { Ok(list) }
}

/// Reads the `fi_info` from which an application opens an object. The application may have changed
/// it, so it is compared with the capabilities again.
///
/// # Errors
/// `FI_EINVAL` if it is NULL or exceeds the capabilities.
///
/// # Safety
/// `info` is NULL or a list of the application.
pub unsafe fn read_chosen(
    info: *const FiInfo,
    version: u32,
) -> Result<(Hints, ProviderOffer), c_int> {
    if info.is_null() {
        return Err(FI_EINVAL);
    }
    // SAFETY: guaranteed by the caller.
    let hints = unsafe { hints::read(version, std::ptr::null(), std::ptr::null(), 0, info) };
    match offer::offer(&hints) {
        Ok(offer) => Ok((hints, offer)),
        Err(_) => Err(FI_EINVAL),
    }
}
