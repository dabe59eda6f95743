//! Event queues: what applications, and address vectors that were asked to, put there.
//!
//! Nothing connects here, so most have no event in their life.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::errno;
use crate::fabric;
use crate::limits::{EVENT_BYTES_MAX, EVENTS_MAX};

/// An event: which, and what is told of it.
type Event = (u32, Vec<u8>);

/// An event queue of an application.
#[derive(Debug)]
#[repr(C)]
pub struct Eq {
    fid: FidEq,
    fabric: *mut FidFabric,
    flags: u64,
    wait_obj: u32,
    events: Mutex<VecDeque<Event>>,
    changed: Condvar,
    /// Readable while there are events, for who waits by a descriptor.
    bell: Option<OwnedFd>,
}

static OPS: Ops = Ops { close, control, ..Ops::NONE };
static EQ_OPS: OpsEq = OpsEq { read, readerr, write, sread, strerror, ..OpsEq::NONE };

/// `fi_ops_fabric.eq_open`.
///
/// # Safety
/// The fabric is one of ours; other pointers are what the interface says of them.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut FiEqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    if fabric.is_null() || eq.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: NULL, or attributes of the caller.
    let (flags, wait_obj) =
        unsafe { attr.as_ref() }.map_or((0, FI_WAIT_NONE), |attr| (attr.flags, attr.wait_obj));
    let bell = match wait_obj {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => None,
        FI_WAIT_FD => match new_bell() {
            Some(bell) => Some(bell),
            None => return -FI_EMFILE,
        },
        _ => return -FI_ENOSYS,
    };
    let opened = Eq {
        fid: FidEq { fid: Fid { fclass: FI_CLASS_EQ, context, ops: &OPS }, ops: &EQ_OPS },
        fabric,
        flags,
        wait_obj,
        events: Mutex::default(),
        changed: Condvar::new(),
        bell,
    };
    // SAFETY: the fabric is one of ours; the caller has a place there for the queue.
    unsafe {
        fabric::hold(fabric);
        eq.write(Box::into_raw(Box::new(opened)).cast());
    }
    0
}

fn new_bell() -> Option<OwnedFd> {
    // SAFETY: it makes a descriptor, no more.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: it was made above, and nobody else has it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Eq {
    /// The queue of a fid.
    ///
    /// # Safety
    /// It is one of ours, and stays open for as long.
    unsafe fn of<'a>(fid: *const FidEq) -> &'a Self {
        // SAFETY: as the caller says; a queue begins with its fid.
        unsafe { &*fid.cast::<Self>() }
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event there.
    pub fn push(&self, event: u32, bytes: &[u8]) -> Result<(), i32> {
        if bytes.len() > EVENT_BYTES_MAX {
            return Err(FI_EINVAL);
        }
        let mut events = self.events();
        if events.len() >= EVENTS_MAX {
            return Err(FI_EAGAIN);
        }
        events.push_back((event, bytes.to_vec()));
        if events.len() == 1 {
            self.ring(true);
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Sets the bell, when the first event is there, or silences it, when the last is gone.
    fn ring(&self, loud: bool) {
        let Some(bell) = &self.bell else { return };
        let mut count = 1_u64;
        let at = (&raw mut count).cast();
        // SAFETY: eight bytes of ours are read or written; the descriptor is ours.
        unsafe {
            match loud {
                true => libc::write(bell.as_raw_fd(), at, size_of::<u64>()),
                false => libc::read(bell.as_raw_fd(), at, size_of::<u64>()),
            }
        };
    }

    /// Takes the first event, or looks at it, into a place of this length.
    fn take(&self, events: &mut VecDeque<Event>, len: usize, peek: bool) -> Result<Event, i32> {
        let first = events.front().ok_or(FI_EAGAIN)?;
        if first.1.len() > len {
            return Err(FI_ETOOSMALL);
        }
        if peek {
            return Ok(first.clone());
        }
        let taken = events.pop_front().ok_or(FI_EAGAIN)?;
        if events.is_empty() {
            self.ring(false);
        }
        Ok(taken)
    }

    /// The same, waiting for it: so many milliseconds, or for ever if they are negative.
    fn wait(&self, timeout: c_int, len: usize, peek: bool) -> Result<Event, i32> {
        let patience = u64::try_from(timeout).ok().map(Duration::from_millis);
        let since = Instant::now();
        let mut events = self.events();
        loop {
            let taken = self.take(&mut events, len, peek);
            if taken != Err(FI_EAGAIN) {
                return taken;
            }
            let Some(patience) = patience else {
                events = self.changed.wait(events).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = patience.checked_sub(since.elapsed()).filter(|left| !left.is_zero());
            let left = left.ok_or(FI_EAGAIN)?;
            let waited = self.changed.wait_timeout(events, left);
            events = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Gives an event to the caller.
///
/// # Safety
/// The caller has room there for the event, whose length was checked.
unsafe fn give(taken: Result<Event, i32>, event: *mut u32, buf: *mut c_void) -> isize {
    let (kind, bytes) = match taken {
        Ok(taken) => taken,
        Err(code) => return failed_size(code),
    };
    // SAFETY: as the caller says.
    unsafe {
        event.write(kind);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len());
    }
    isize::try_from(bytes.len()).unwrap_or(isize::MAX)
}

unsafe extern "C" fn read(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    if event.is_null() || (buf.is_null() && len > 0) {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller has a queue of ours.
    let eq = unsafe { Eq::of(eq) };
    let taken = eq.take(&mut eq.events(), len, flags & FI_PEEK != 0);
    // SAFETY: the caller has so much room there.
    unsafe { give(taken, event, buf) }
}

unsafe extern "C" fn sread(
    eq: *mut FidEq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    if event.is_null() || (buf.is_null() && len > 0) {
        return failed_size(FI_EINVAL);
    }
    // SAFETY: the caller has a queue of ours.
    let eq = unsafe { Eq::of(eq) };
    if eq.wait_obj == FI_WAIT_NONE {
        return failed_size(FI_ENOSYS);
    }
    let taken = eq.wait(timeout, len, flags & FI_PEEK != 0);
    // SAFETY: the caller has so much room there.
    unsafe { give(taken, event, buf) }
}

/// There are no errors: what fails here fails at once, in its call.
unsafe extern "C" fn readerr(_: *mut FidEq, _: *mut FiEqErrEntry, _: u64) -> isize {
    failed_size(FI_EAGAIN)
}

unsafe extern "C" fn write(
    eq: *mut FidEq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _: u64,
) -> isize {
    // SAFETY: the caller has a queue of ours.
    let eq = unsafe { Eq::of(eq) };
    if eq.flags & FI_WRITE == 0 || (buf.is_null() && len > 0) || len > EVENT_BYTES_MAX {
        return failed_size(FI_EINVAL);
    }
    let bytes = match buf.is_null() {
        true => &[],
        // SAFETY: the caller has so many bytes there.
        false => unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) },
    };
    match eq.push(event, bytes) {
        Ok(()) => isize::try_from(len).unwrap_or(isize::MAX),
        Err(code) => failed_size(code),
    }
}

unsafe extern "C" fn strerror(
    _: *mut FidEq,
    number: c_int,
    _: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the caller has so much room there.
    unsafe { errno::describe_into(number, buf, len) }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller has a queue of ours.
    let eq = unsafe { Eq::of(fid.cast()) };
    if arg.is_null() {
        return -FI_EINVAL;
    }
    match (command, &eq.bell) {
        (FI_GETWAIT, Some(bell)) => {
            // SAFETY: the caller has room there for a descriptor.
            unsafe { arg.cast::<c_int>().write(bell.as_raw_fd()) };
            0
        }
        (FI_GETWAITOBJ, _) => {
            // SAFETY: the caller has room there for its kind.
            unsafe { arg.cast::<u32>().write(eq.wait_obj) };
            0
        }
        _ => -FI_ENOSYS,
    }
}

/// Whether whoever has it may sleep on its descriptor.
///
/// # Safety
/// It is an event queue of ours.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: as the caller says.
    let eq = unsafe { Eq::of(fid.cast()) };
    if eq.events().is_empty() { 0 } else { -FI_EAGAIN }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a queue that we opened, once; it begins with its fid.
    let eq = unsafe { Box::from_raw(fid.cast::<Eq>()) };
    // SAFETY: it was held when the queue was opened.
    unsafe { fabric::release(eq.fabric) };
    0
}

#[cfg(test)]
mod tests;
