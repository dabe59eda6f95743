//! Registration of memory regions. Registering pins nothing: peers' operations copy in this
//! process.
//!
//! # Limits
//! A region has 1 to [`SEGMENTS_MAX`] (8) segments (`-FI_EINVAL` otherwise). The application
//! chooses the key, which must be free (`-FI_ENOKEY`), unless the domain has `FI_MR_BASIC`: then
//! the provider chooses. A domain has at most 65,536 regions (`-FI_ENOMEM`). The memory is not
//! checked: it must stay mapped until the region is closed. Closing withdraws the memory from
//! operations in progress: the write of a peer fails, and the rest of a read is zeros or fails;
//! short writes and atomic operations are performed as a whole or not at all. Sends and receives
//! with this memory are not affected. Offset and flags have no effect, nor has binding to an
//! endpoint; binding to counters and other objects is not supported (`-FI_ENOSYS`).
//!
//! # Place
//! The application calls the functions in [`MR_OPS`] on a domain, in its threads; `rdm::regions`
//! stores the regions, and `rdm::target` accesses them for peers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::iovec;

use super::domain_object::domain_of;
use super::object::{FidObject, close_object, give_object, to_status};
use crate::abi::*;
use crate::errno::Errno;
use crate::limits::SEGMENTS_MAX;
use crate::rdm::{AppSpan, RegisteredRegion};

static OPS: Ops = Ops { close, bind, control, ..Ops::NONE };
/// The functions in a domain's table.
pub static MR_OPS: OpsMr = OpsMr { reg, regv, regattr, ..OpsMr::NONE };

unsafe extern "C" fn reg(
    fid: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
    // SAFETY: as for `regv`.
    unsafe { regv(fid, &iov, 1, access, offset, key, flags, mr, context) }
}

unsafe extern "C" fn regattr(
    fid: *mut Fid,
    attr: *const FiMrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    if attr.is_null() {
        return -FI_EINVAL;
    }
    macro_rules! get {
        ($field:ident) => {
            // SAFETY: the caller passes attributes, which have this field in all versions.
            unsafe { (*attr).$field }
        };
    }
    let (iov, count) = (get!(mr_iov), get!(iov_count));
    let (access, offset, key) = (get!(access), get!(offset), get!(requested_key));
    let context = get!(context);
    // SAFETY: as for `regv`.
    unsafe { regv(fid, iov, count, access, offset, key, flags, mr, context) }
}

unsafe extern "C" fn regv(
    fid: *mut Fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    if fid.is_null() || iov.is_null() || mr.is_null() || count == 0 || count > SEGMENTS_MAX {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes a domain that was opened here; it begins with its fid.
    let shared = unsafe { domain_of(fid.cast()) };
    let segments = (0..count).map(|at| {
        // SAFETY: the caller passes `count` segments, and registers their memory for access by any
        // thread until it closes the region, which withdraws it from all operations.
        unsafe {
            let iovec { iov_base, iov_len } = iov.wrapping_add(at).read();
            AppSpan::new(iov_base.cast(), iov_len)
        }
    });
    let segments: Box<[AppSpan]> = segments.collect();
    let first = segments.first().map_or(0, AppSpan::address);
    let basic = shared.basic;
    let base = if basic { u64::try_from(first).unwrap_or(0) } else { 0 };
    let registered = shared.state.with(|state| {
        let key = if basic { state.regions.free_key() } else { key };
        state.regions.insert(key, RegisteredRegion::new(segments, access, base)).map(|()| key)
    });
    let key = match registered {
        Ok(key) => key,
        Err(Errno(err)) => return err.wrapping_neg(),
    };
    shared.children.fetch_add(1, Ordering::Relaxed);
    let fid = Fid { fclass: FI_CLASS_MR, context, ops: &OPS };
    let fid = FidMr { fid, mem_desc: std::ptr::null_mut(), key };
    // SAFETY: the caller passes a place for the region.
    unsafe { give_object(FidObject { fid, shared: Arc::clone(&shared), at: 0 }, mr) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a region that was registered here.
    let object = unsafe { &*fid.cast::<FidObject<FidMr>>() };
    let key = object.fid.key;
    object.shared.state.with(|state| {
        state.regions.remove(key);
        state.eps.iter_mut().flatten().for_each(|ep| ep.rdm.release(key));
    });
    // SAFETY: the region is closed once.
    unsafe { close_object::<FidMr>(fid) }
}

/// All endpoints of a domain access its regions, so a binding has no effect.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    if bound.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes an open object.
    match unsafe { (*bound).fclass } {
        FI_CLASS_EP => 0,
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn control(_fid: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    to_status(match command {
        FI_ENABLE | FI_REFRESH => Ok(()),
        _ => Err(Errno(FI_ENOSYS)),
    })
}
