//! `getinfo`: what an application asks for ([`asked`]), whether we have it ([`offer`]), and the
//! list that it gets ([`make`]).

mod asked;
mod make;
mod node;
mod offer;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int};

use crate::abi::{FI_EINVAL, FI_ENODATA, FI_ENOMEM, FiInfo, failed};
use crate::{boards, say};

pub use asked::{Asked, place};
pub use offer::{FABRIC, Offer, is_wanted};

/// `fi_provider.getinfo`.
///
/// # Safety
/// Pointers are NULL, or what the interface says of them.
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
    // SAFETY: as the caller says.
    let asked = unsafe { asked::read(version, node, service, flags, hints) };
    match list(&asked) {
        Ok(list) => {
            // SAFETY: the caller has a place there for the list.
            unsafe { info.write(list.take()) };
            0
        }
        Err(code) => failed(code),
    }
}

fn list(asked: &asked::Asked) -> Result<make::List, c_int> {
    if asked.is_source && asked.node.is_none() && asked.service.is_none() {
        return Err(FI_EINVAL);
    }
    let mut offer = offer::offer(asked).map_err(|lack| {
        say::inform(&format!("{} is not what there is here", lack.0));
        FI_ENODATA
    })?;
    let boards = boards::all().map_err(|why| {
        let by_name = asked.provider.as_deref().is_some_and(say::is_us);
        say::warn(&why.to_string(), by_name);
        FI_ENODATA
    })?;
    if !asked.is_source && (asked.node.is_some() || asked.service.is_some()) {
        offer.destination = Some(node::find(asked, &boards).map_err(|why| {
            say::inform(&why.to_string());
            FI_ENODATA
        })?);
    }
    let mut list = make::List::new();
    let mut none = true;
    for board in boards.iter().filter(|board| is_wanted(asked, board)) {
        list.push(board, &offer, asked.version).map_err(|_| FI_ENOMEM)?;
        none = false;
    }
    if none { Err(FI_ENODATA) } else { Ok(list) }
}

/// What an application chose when it opens something: an offer that it may have changed since, so
/// that it is held once more against what there is.
///
/// # Safety
/// It is NULL, or a list of the application's.
pub unsafe fn chosen(info: *const FiInfo, version: u32) -> Result<(Asked, Offer), c_int> {
    if info.is_null() {
        return Err(FI_EINVAL);
    }
    // SAFETY: as the caller says.
    let asked = unsafe { asked::read(version, std::ptr::null(), std::ptr::null(), 0, info) };
    match offer::offer(&asked) {
        Ok(offer) => Ok((asked, offer)),
        Err(_) => Err(FI_EINVAL),
    }
}
