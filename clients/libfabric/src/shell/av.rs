//! Address vectors.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::object::{Object, answer, closed, give, usable};
use super::state::{Shared, of, place};
use crate::abi::*;
use crate::address::{self, Address};
use crate::rdm::{Book, Errno, Name};

/// One as the application has it.
pub type Vector = Object<FidAv>;

static OPS: Ops = Ops { close, bind, ..Ops::NONE };
static AV_OPS: OpsAv = OpsAv { insert, remove, lookup, straddr, ..OpsAv::NONE };

/// Opens one.
pub unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut FiAvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    if av.is_null() || attr.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller has attributes there.
    let attr = unsafe { &mut *attr };
    // SAFETY: the caller has a domain of ours.
    let shared = unsafe { usable(domain) };
    if attr.kind > FI_AV_TABLE {
        return -FI_EINVAL;
    }
    // Named ones are shared between processes, which ours are not.
    if !attr.name.is_null() || attr.flags & FI_EVENT != 0 {
        return -FI_ENOSYS;
    }
    if attr.kind == FI_AV_UNSPEC {
        attr.kind = FI_AV_TABLE;
    }
    let at = shared.state.with(|state| place(&mut state.books, Book::default()));
    shared.children.fetch_add(1, Ordering::Relaxed);
    let fid = FidAv { fid: Fid { fclass: FI_CLASS_AV, context, ops: &OPS }, ops: &AV_OPS };
    // SAFETY: the caller has a place there for it.
    unsafe { give(Object { fid, shared: Arc::clone(&shared), at }, av) };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes one that we opened.
    let object = unsafe { &*fid.cast::<Vector>() };
    let free = object.shared.state.with(|state| {
        if state.eps.iter().flatten().any(|ep| ep.book == Some(object.at)) {
            return false;
        }
        if let Some(place) = state.books.get_mut(object.at) {
            *place = None;
        }
        true
    });
    if !free {
        return -FI_EBUSY;
    }
    // SAFETY: it is closed once.
    unsafe { closed::<FidAv>(fid) }
}

/// Insertion is done when the call returns, so an event queue has nothing to tell.
unsafe extern "C" fn bind(_fid: *mut Fid, bound: *mut Fid, _flags: u64) -> c_int {
    // SAFETY: the caller gives an object that is open.
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
    // SAFETY: the caller gives one that we opened.
    let object = unsafe { &*av.cast::<Vector>() };
    let inserted = object.shared.state.with(|state| {
        let book = of(&mut state.books, object.at)?;
        let mut inserted: c_int = 0;
        for at in 0..count {
            // SAFETY: the caller has so many addresses there.
            let bytes = unsafe { addr.cast::<Address>().wrapping_add(at).read() };
            let name = Name::parse(&bytes).ok_or(Errno(FI_EINVAL));
            let number = name.and_then(|name| book.insert(name));
            if !to.is_null() {
                // SAFETY: and room for as many numbers.
                unsafe { to.wrapping_add(at).write(number.unwrap_or(FI_ADDR_NOTAVAIL)) };
            }
            if !errors.is_null() {
                // SAFETY: and for as many error numbers.
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
    // SAFETY: the caller gives one that we opened.
    let object = unsafe { &*av.cast::<Vector>() };
    answer(object.shared.state.with(|state| {
        let book = of(&mut state.books, object.at)?;
        for at in 0..count {
            // SAFETY: the caller has so many numbers there.
            book.remove(unsafe { which.wrapping_add(at).read() })?;
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
    // SAFETY: the caller gives one that we opened.
    let object = unsafe { &*av.cast::<Vector>() };
    answer(object.shared.state.with(|state| {
        let name = of(&mut state.books, object.at)?.name(which).ok_or(Errno(FI_EINVAL))?;
        // SAFETY: the caller has the room there that it says, or says where.
        unsafe { write_address(&name.emit(), addr, len) }
    }))
}

/// Writes as much of an address as there is room for, and how long it is.
///
/// # Safety
/// `len` says how much room there is at `addr`, or either is NULL.
pub unsafe fn write_address(
    address: &Address,
    addr: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    if len.is_null() {
        return Err(Errno(FI_EINVAL));
    }
    // SAFETY: as the caller says.
    let room = unsafe { len.replace(address::BYTES) };
    if !addr.is_null() {
        let count = room.min(address::BYTES);
        // SAFETY: as the caller says.
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
    // SAFETY: the caller has an address there.
    let text = match Name::parse(unsafe { &*addr.cast::<Address>() }) {
        Some(name) => name.to_string(),
        None => "not an address of causeway".to_owned(),
    };
    let text = CString::new(text).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    // SAFETY: `len` says how much room there is.
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

/// The domain of one and its place there, for who binds it.
///
/// # Safety
/// It is one of ours that is open.
pub unsafe fn bound<'a>(fid: *mut Fid) -> (&'a Arc<Shared>, usize) {
    // SAFETY: as the caller says.
    let object = unsafe { &*fid.cast::<Vector>() };
    (&object.shared, object.at)
}
