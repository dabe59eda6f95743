//! Registered memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use libc::iovec;

use super::object::{Object, answer, closed, give, usable};
use crate::abi::*;
use crate::limits::PIECES_MAX;
use crate::rdm::{Errno, Region, Span};

static OPS: Ops = Ops { close, bind, control, ..Ops::NONE };
/// What a domain registers with.
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
    // SAFETY: as of `regv`.
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
            // SAFETY: the caller has attributes there, which have this field in all versions.
            unsafe { (*attr).$field }
        };
    }
    let (iov, count) = (get!(mr_iov), get!(iov_count));
    let (access, offset, key) = (get!(access), get!(offset), get!(requested_key));
    let context = get!(context);
    // SAFETY: as of `regv`.
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
    if fid.is_null() || iov.is_null() || mr.is_null() || count == 0 || count > PIECES_MAX {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has a domain of ours; it begins with its fid.
    let shared = unsafe { usable(fid.cast()) };
    let pieces = (0..count).map(|at| {
        // SAFETY: the caller has so many there, and registers their memory for any thread to reach
        // until it closes the region, which takes it back from all operations.
        unsafe {
            let iovec { iov_base, iov_len } = iov.wrapping_add(at).read();
            Span::new(iov_base.cast(), iov_len)
        }
    });
    let pieces: Box<[Span]> = pieces.collect();
    let first = pieces.first().map_or(0, Span::address);
    let basic = shared.basic;
    let base = if basic { u64::try_from(first).unwrap_or(0) } else { 0 };
    let registered = shared.state.with(|state| {
        let key = if basic { state.regions.free_key() } else { key };
        state.regions.insert(key, Region::new(pieces, access, base)).map(|()| key)
    });
    let key = match registered {
        Ok(key) => key,
        Err(Errno(err)) => return err.wrapping_neg(),
    };
    shared.children.fetch_add(1, Ordering::Relaxed);
    let fid = Fid { fclass: FI_CLASS_MR, context, ops: &OPS };
    let fid = FidMr { fid, mem_desc: std::ptr::null_mut(), key };
    // SAFETY: the caller has a place there for it.
    unsafe { give(Object { fid, shared: Arc::clone(&shared), at: 0 }, mr) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes memory that we registered.
    let object = unsafe { &*fid.cast::<Object<FidMr>>() };
    let key = object.fid.key;
    object.shared.state.with(|state| {
        state.regions.remove(key);
        state.eps.iter_mut().flatten().for_each(|ep| ep.rdm.release(key));
    });
    // SAFETY: it is closed once.
    unsafe { closed::<FidMr>(fid) }
}

/// All endpoints of a domain reach its memory, so there is nothing to be bound to.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    if bound.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller gives an object that is open.
    match unsafe { (*bound).fclass } {
        FI_CLASS_EP => 0,
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn control(_fid: *mut Fid, command: c_int, _arg: *mut c_void) -> c_int {
    answer(match command {
        FI_ENABLE | FI_REFRESH => Ok(()),
        _ => Err(Errno(FI_ENOSYS)),
    })
}
