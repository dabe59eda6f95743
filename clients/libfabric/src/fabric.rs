//! The fabric: from it domains and event queues are opened.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{
    FI_CLASS_FABRIC, FI_EBUSY, FI_EINVAL, FI_ENODATA, FiFabricAttr, FiInfo, Fid, FidDomain,
    FidFabric, Ops, OpsFabric,
};
use crate::info::FABRIC;
use crate::{eq, shell};

/// A fabric of an application.
#[derive(Debug)]
#[repr(C)]
pub struct Fabric {
    fid: FidFabric,
    /// What was opened from it and is not closed.
    children: AtomicUsize,
}

static OPS: Ops = Ops { close, ..Ops::NONE };
static FABRIC_OPS: OpsFabric =
    OpsFabric { domain, domain2, eq_open: eq::open, trywait, ..OpsFabric::NONE };

/// `fi_provider.fabric`.
///
/// # Safety
/// Pointers are what the interface says of them.
pub unsafe extern "C" fn open(
    attr: *mut FiFabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    if attr.is_null() || fabric.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has attributes there.
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
    // SAFETY: the caller has a place there for it.
    unsafe { fabric.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

/// Something was opened from it.
///
/// # Safety
/// It is a fabric of ours that is open.
pub unsafe fn hold(fabric: *mut FidFabric) {
    // SAFETY: as the caller says; a fabric begins with its fid.
    unsafe { &*fabric.cast::<Fabric>() }.children.fetch_add(1, Ordering::Relaxed);
}

/// It was closed again.
///
/// # Safety
/// As of [`hold`], which was called for it.
pub unsafe fn release(fabric: *mut FidFabric) {
    // SAFETY: as the caller says; a fabric begins with its fid.
    unsafe { &*fabric.cast::<Fabric>() }.children.fetch_sub(1, Ordering::Release);
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    let fabric = fid.cast::<Fabric>();
    // SAFETY: the caller closes a fabric that we opened; it begins with its fid.
    if unsafe { &*fabric }.children.load(Ordering::Acquire) != 0 {
        return -FI_EBUSY;
    }
    // SAFETY: it came out of a box, is closed once, and nothing has it any more.
    drop(unsafe { Box::from_raw(fabric) });
    0
}

unsafe extern "C" fn domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as of `domain2`.
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
    // SAFETY: the caller gives what the interface asks for.
    unsafe { shell::domain::open(fabric, info, domain, flags, context) }
}

/// May whoever has these sleep on their wait objects?
unsafe extern "C" fn trywait(_: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    if fids.is_null() && count > 0 {
        return -FI_EINVAL;
    }
    for at in 0..count {
        // SAFETY: the caller has so many there, each of them open.
        let may = unsafe { shell::wait::may_sleep(fids.wrapping_add(at).read()) };
        if may != 0 {
            return may;
        }
    }
    0
}
