//! Fabrics, from which the application opens domains and event queues.
//!
//! There is one fabric, named `causeway`: another name gives `-FI_ENODATA`. A process may open it
//! several times; the objects are independent. A fabric with domains or event queues refuses to
//! close (`-FI_EBUSY`). Wait sets and poll sets are not offered (`-FI_ENOSYS`). `fi_trywait` checks
//! its objects in order and returns `-FI_EAGAIN` at the first that has an event, and `-FI_ENOSYS`
//! at an object that is no queue, event queue or counter; the objects before it stay armed until
//! their next read. No other thread may use a fabric that is being closed.
//!
//! libfabric's core calls [`open`] by the provider's description; `domain` and `eq` open the
//! children, which hold the fabric ([`fabric_object`](super::fabric_object)).

use std::ffi::{CStr, c_int, c_void};

use super::fabric_object::FabricObject;
use super::{cntr, cq, domain, eq};
use crate::abi::{
    FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_FABRIC, FI_EBUSY, FI_EINVAL, FI_ENODATA,
    FI_ENOSYS, FiFabricAttr, FiInfo, Fid, FidDomain, FidFabric, Ops, OpsFabric,
};
use crate::info::FABRIC;

static OPS: Ops = Ops { close, ..Ops::NONE };
/// The functions in the table of a fabric; the others are not supported.
static FABRIC_OPS: OpsFabric =
    OpsFabric { domain: open_domain, domain2, eq_open: eq::open, trywait, ..OpsFabric::NONE };

/// Opens a fabric (`fi_provider.fabric`).
///
/// # Safety
/// Pointers are as the interface requires.
pub unsafe extern "C" fn open(
    attr: *mut FiFabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || fabric.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes attributes.
    let (name, api_version) = unsafe { ((*attr).name, (*attr).api_version) };
    // SAFETY: a name that is not NULL ends with a zero.
    if !name.is_null() && unsafe { CStr::from_ptr(name) }.to_bytes() != FABRIC.as_bytes() {
        return -FI_ENODATA;
    }
    let opened = FabricObject::new(FidFabric {
        fid: Fid { fclass: FI_CLASS_FABRIC, context, ops: &OPS },
        ops: &FABRIC_OPS,
        api_version,
    });
    // SAFETY: the caller passes a place for the fabric.
    unsafe { fabric.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let fabric = fid.cast::<FabricObject>();
    // SAFETY: the caller closes a fabric that was opened here; it begins with its fid.
    if unsafe { &*fabric }.is_held() {
        return -FI_EBUSY;
    }
    // SAFETY: the fabric was boxed, is closed once, and has no children.
    drop(unsafe { Box::from_raw(fabric) });
    0
}

unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as for `domain2`.
    unsafe { domain2(fabric, info, domain, 0, context) }
}

unsafe extern "C" fn domain2(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if fabric.is_null() || info.is_null() || domain.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes the arguments that the interface requires.
    unsafe { domain::open(fabric, info, domain, flags, context) }
}

/// Returns 0 if the application may sleep on an object, `-FI_EAGAIN` if it has entries or an event
/// arrived, `-FI_EINVAL` for NULL, or `-FI_ENOSYS` for an object without waits.
///
/// # Safety
/// `fid` is NULL, or an open object that was opened here.
unsafe fn may_sleep(fid: *const Fid) -> c_int {
    if fid.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: guaranteed by the caller.
    match unsafe { (*fid).fclass } {
        // SAFETY: an object of this class belongs to `eq`.
        FI_CLASS_EQ => unsafe { eq::may_sleep(fid) },
        // SAFETY: an object of this class belongs to `cq`.
        FI_CLASS_CQ => unsafe { cq::may_sleep(fid) },
        // SAFETY: an object of this class belongs to `cntr`.
        FI_CLASS_CNTR => unsafe { cntr::may_sleep(fid) },
        _ => -FI_ENOSYS,
    }
}

/// Returns 0 if the application may sleep on the wait objects of all these fids (`fi_trywait`).
unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    if fids.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    for at in 0..count {
        // SAFETY: the caller passes `count` open objects.
        let may = unsafe { may_sleep(fids.wrapping_add(at).read()) };
        if may != 0 {
            return may;
        }
    }
    0
}
