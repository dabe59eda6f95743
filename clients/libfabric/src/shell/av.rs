//! Address vectors: insertion and removal of addresses, and their textual form. Inserting an
//! address sends nothing; the first operation connects.
//!
//! # Limits
//! `fi_addr_t` is always an index: `FI_AV_MAP` is accepted and behaves as `FI_AV_TABLE`. Named
//! vectors and asynchronous insertion (`FI_EVENT`) give `-FI_ENOSYS`; insertion of services and
//! symbolic names is not offered. An address that is not from this provider (`FI_EINVAL` with
//! `FI_SYNC_ERR`), or beyond the limit of the vector (`FI_ENOMEM`), gets `FI_ADDR_NOTAVAIL`; the
//! other addresses of the call are inserted, and the result is their number. A vector that an
//! endpoint uses cannot be closed (`-FI_EBUSY`). Removal with an unknown index returns
//! `-FI_EINVAL`: the indices before it are removed, those behind it are not. Operations in progress
//! to a removed index continue; new ones fail with `-FI_EINVAL`, and later messages from there are
//! reported with `FI_ADDR_NOTAVAIL`.
//!
//! # Place
//! The application exchanges addresses (`fi_getname`) and inserts them here; `rdm::address_vector`
//! stores them, at most 1,048,576 in the life of a vector. The functions run in the calling thread,
//! under the domain's lock.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::domain_object::domain_of;
use super::object::{FidObject, close_object, give_object, to_status};
use crate::abi::*;
use crate::address::{self, Address};
use crate::domain::{self, get};
use crate::errno::Errno;
use crate::rdm::{AddressVector, EndpointName};

/// An address vector that an application opened.
pub type AvObject = FidObject<FidAv>;

static OPS: Ops = Ops { close, bind, ..Ops::NONE };
/// The functions in the table of this class of objects; the others are not supported.
static AV_OPS: OpsAv = OpsAv { insert, remove, lookup, straddr, ..OpsAv::NONE };

/// Opens an address vector.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiAvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    if av.is_null() || attr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes attributes.
    let attr = unsafe { &mut *attr };
    // SAFETY: the caller passes a domain that was opened here.
    let shared = unsafe { domain_of(domain) };
    if attr.kind > FI_AV_TABLE {
        return -FI_EINVAL;
    }
    // A named vector would be shared between processes, which is not supported.
    if !attr.name.is_null() || attr.flags & FI_EVENT != 0 {
        return -FI_ENOSYS;
    }
    if attr.kind == FI_AV_UNSPEC {
        attr.kind = FI_AV_TABLE;
    }
    let at =
        shared.state.with(|state| domain::insert(&mut state.vectors, AddressVector::default()));
    shared.children.fetch_add(1, Ordering::Relaxed);
    let fid = FidAv { fid: Fid { fclass: FI_CLASS_AV, context, ops: &OPS }, ops: &AV_OPS };
    // SAFETY: the caller passes a place for the vector.
    unsafe { give_object(FidObject { fid, shared: Arc::clone(&shared), at }, av) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a vector that was opened here.
    let object = unsafe { &*fid.cast::<AvObject>() };
    let free = object.shared.state.with(|state| {
        if state.eps.iter().flatten().any(|ep| ep.vector == Some(object.at)) {
            return false;
        }
        if let Some(slot) = state.vectors.get_mut(object.at) {
            *slot = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: the vector is closed once.
    unsafe { close_object::<FidAv>(fid) }
}

/// Insertion completes before its call returns, so a bound event queue gets no events.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: the caller passes an open object.
    if !bound.is_null() && unsafe { (*bound).fclass } == FI_CLASS_EQ { 0 } else { -FI_EINVAL }
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    addr: *const c_void,
    count: usize,
    to: *mut FiAddr,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if addr.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    let errors =
        if flags & FI_SYNC_ERR != 0 { context.cast::<c_int>() } else { std::ptr::null_mut() };
    // SAFETY: the caller passes a vector that was opened here.
    let object = unsafe { &*av.cast::<AvObject>() };
    let inserted = object.shared.state.with(|state| {
        let vector = get(&mut state.vectors, object.at)?;
        let mut inserted: c_int = 0;
        for at in 0..count {
            // SAFETY: the caller passes `count` addresses.
            let bytes = unsafe { addr.cast::<Address>().wrapping_add(at).read() };
            let name = EndpointName::parse(&bytes).ok_or(Errno(FI_EINVAL));
            let number = name.and_then(|name| vector.insert(name));
            if !to.is_null() {
                // SAFETY: the caller passes room for `count` indices.
                unsafe { to.wrapping_add(at).write(number.unwrap_or(FI_ADDR_NOTAVAIL)) };
            }
            if !errors.is_null() {
                // SAFETY: the caller passes room for `count` error numbers.
                unsafe { errors.wrapping_add(at).write(number.map_or_else(|e| e.0, |_| 0)) };
            }
            inserted = inserted.saturating_add(c_int::from(number.is_ok()));
        }
        Ok::<c_int, Errno>(inserted)
    });
    inserted.unwrap_or_else(|Errno(err)| err.wrapping_neg())
}

unsafe extern "C" fn remove(
    av: *mut FidAv,
    which: *mut FiAddr,
    count: usize,
    _flags: u64,
) -> c_int {
    if which.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes a vector that was opened here.
    let object = unsafe { &*av.cast::<AvObject>() };
    to_status(object.shared.state.with(|state| {
        let vector = get(&mut state.vectors, object.at)?;
        for at in 0..count {
            // SAFETY: the caller passes `count` indices.
            vector.remove(unsafe { which.wrapping_add(at).read() })?;
        }
        Ok(())
    }))
}

unsafe extern "C" fn lookup(
    av: *mut FidAv,
    which: FiAddr,
    addr: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller passes a vector that was opened here.
    let object = unsafe { &*av.cast::<AvObject>() };
    to_status(object.shared.state.with(|state| {
        let name = get(&mut state.vectors, object.at)?.name(which).ok_or(Errno(FI_EINVAL))?;
        // SAFETY: the caller passes `len` bytes of room, or NULL.
        unsafe { write_address(&name.emit(), addr, len) }
    }))
}

/// Writes as much of an address as fits, and its full length.
///
/// # Errors
/// `FI_ETOOSMALL` if it was cut.
///
/// # Safety
/// `addr` has the room that `len` contains, or either is NULL.
pub unsafe fn write_address(
    address: &Address,
    addr: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    if len.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: guaranteed by the caller.
    let room = unsafe { len.replace(address::BYTES) };
    if !addr.is_null() {
        let count = room.min(address::BYTES);
        // SAFETY: guaranteed by the caller.
        unsafe { std::ptr::copy_nonoverlapping(address.as_ptr(), addr.cast(), count) };
    }
    if room < address::BYTES { Err(Errno(FI_ETOOSMALL)) } else { Ok(()) }
}

unsafe extern "C" fn straddr(
    _av: *mut FidAv,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    if addr.is_null() || buf.is_null() || len.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller passes an address.
    let text = match EndpointName::parse(unsafe { &*addr.cast::<Address>() }) {
        Some(name) => name.to_string(),
        None => "not an address of causeway".to_owned(),
    };
    let text = CString::new(text).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    // SAFETY: `buf` has the room that `len` contains.
    unsafe {
        let room = len.replace(bytes.len());
        let count = bytes.len().min(room);
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buf, count);
        if count > 0 {
            buf.wrapping_add(count.saturating_sub(1)).write(0);
        }
    }
    buf
}
