//! The fabric object, from which the application opens domains and event queues. It only counts its
//! children; all state of a domain is in `shell`.
//!
//! There is one fabric, named `causeway`: another name gives `-FI_ENODATA`. A process may open it
//! several times; the objects are independent. A fabric with domains or event queues refuses to
//! close (`-FI_EBUSY`). Wait sets and poll sets are not offered (`-FI_ENOSYS`). `fi_trywait` checks
//! its objects in order and returns `-FI_EAGAIN` at the first that has an event, and `-FI_ENOSYS`
//! at an object that is no queue, event queue or counter; the objects before it stay armed until
//! their next read. No other thread may use a fabric that is being closed.
//!
//! libfabric's core calls [`open`] by the provider's description; `shell::domain` and `eq` open the
//! children and [`hold`] the fabric.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{
    FI_CLASS_FABRIC, FI_EBUSY, FI_EINVAL, FI_ENODATA, FiFabricAttr, FiInfo, Fid, FidDomain,
    FidFabric, Ops, OpsFabric,
};
use crate::info::FABRIC;
use crate::{eq, shell};

/// A fabric that an application opened.
#[derive(Debug)]
#[repr(C)]
pub struct Fabric {
    fid: FidFabric,
    /// Objects that were opened from it and are not closed.
    children: AtomicUsize,
}

static OPS: Ops = Ops { close, ..Ops::NONE };
/// The functions in the table of a fabric; the others are not supported.
static FABRIC_OPS: OpsFabric =
    OpsFabric { domain, domain2, eq_open: eq::open, trywait, ..OpsFabric::NONE };

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
    let opened = Fabric {
        fid: FidFabric {
            fid: Fid { fclass: FI_CLASS_FABRIC, context, ops: &OPS },
            ops: &FABRIC_OPS,
            api_version,
        },
        children: AtomicUsize::new(0),
    };
    // SAFETY: the caller passes a place for the fabric.
    unsafe { fabric.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

/// Counts an object that is opened from the fabric.
///
/// # Safety
/// The fabric is open and was opened here.
pub unsafe fn hold(fabric: *mut FidFabric) {
    // SAFETY: guaranteed by the caller; a fabric begins with its fid.
    unsafe { &*fabric.cast::<Fabric>() }.children.fetch_add(1, Ordering::Relaxed);
}

/// Counts an object that is closed.
///
/// # Safety
/// As for [`hold`], which was called for the object.
pub unsafe fn release(fabric: *mut FidFabric) {
    // SAFETY: guaranteed by the caller; a fabric begins with its fid.
    unsafe { &*fabric.cast::<Fabric>() }.children.fetch_sub(1, Ordering::Release);
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let fabric = fid.cast::<Fabric>();
    // SAFETY: the caller closes a fabric that was opened here; it begins with its fid.
    if unsafe { &*fabric }.children.load(Ordering::Acquire) != 0 {
        return -FI_EBUSY;
    }
    // SAFETY: the fabric was boxed, is closed once, and has no children.
    drop(unsafe { Box::from_raw(fabric) });
    0
}

unsafe extern "C" fn domain(
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
    unsafe { shell::domain::open(fabric, info, domain, flags, context) }
}

/// Returns 0 if the application may sleep on the wait objects of all these fids (`fi_trywait`).
unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    if fids.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    for at in 0..count {
        // SAFETY: the caller passes `count` open objects.
        let may = unsafe { shell::wait::may_sleep(fids.wrapping_add(at).read()) };
        if may != 0 {
            return may;
        }
    }
    0
}
