//! Event queues: events that applications write. The provider itself writes none, because endpoints
//! are connectionless and address vectors complete at once, so most event queues stay empty.
//!
//! # Limits
//! A queue holds at most [`EVENTS_MAX`] (1,024) events (`-FI_EAGAIN` beyond) of at most
//! [`EVENT_BYTES_MAX`] (4,096) bytes (`-FI_EINVAL`). Writing needs `FI_WRITE` at the opening
//! (`-FI_EINVAL` without). A read into a buffer that is too short gives `-FI_ETOOSMALL` and leaves
//! the event. There are no error events: `fi_eq_readerr` always gives `-FI_EAGAIN`. The requested
//! size has no effect. Wait objects are `FI_WAIT_NONE`, `FI_WAIT_UNSPEC`, `FI_WAIT_YIELD` and
//! `FI_WAIT_FD` (`-FI_EMFILE` if the process has no descriptor left); opening with another gives
//! `-FI_ENOSYS`, as does a blocking read with `FI_WAIT_NONE`. A read of an empty queue gives
//! `-FI_EAGAIN`, a blocking read the same at its time-out. Only `FI_WAIT_FD` has a descriptor
//! (`FI_GETWAIT` otherwise gives `-FI_ENOSYS`). Several threads may use a queue, which has its own
//! lock; events are read in the order of writing, each by one thread. Closing drops unread events;
//! no thread may wait then.
//!
//! # Place
//! `fabric` opens event queues; they belong to no domain. A domain, endpoint or address vector may
//! be bound to a queue, and the queue gets no events from it.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::fabric_object::HeldFabric;
use crate::abi::*;
use crate::errno;
use crate::limits::{EVENT_BYTES_MAX, EVENTS_MAX};

/// An event: its number and its bytes.
type QueuedEvent = (u32, Vec<u8>);

/// An event queue that an application opened.
#[derive(Debug)]
#[repr(C)]
pub struct EventQueue {
    fid: FidEq,
    /// The fabric, which stays open until the queue is closed.
    fabric: HeldFabric,
    /// The flags of the opening; `FI_WRITE` permits writing.
    flags: u64,
    /// The requested wait object.
    wait_obj: u32,
    /// Unread events, oldest first.
    events: Mutex<VecDeque<QueuedEvent>>,
    /// Notified for each new event.
    changed: Condvar,
    /// An eventfd that is readable while there are events, for `FI_WAIT_FD`.
    wait_fd: Option<OwnedFd>,
}

static OPS: Ops = Ops { close, control, ..Ops::NONE };
/// The functions in the table of an event queue.
static EQ_OPS: OpsEq = OpsEq { read, readerr, write, sread, strerror, ..OpsEq::NONE };

/// Opens an event queue (`fi_ops_fabric.eq_open`).
///
/// # Safety
/// The fabric was opened here; other pointers are as the interface requires.
pub unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attr: *mut FiEqAttr,
    eq: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    if fabric.is_null() || eq.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller passes NULL or attributes.
    let (flags, wait_obj) =
        unsafe { attr.as_ref() }.map_or((0, FI_WAIT_NONE), |attr| (attr.flags, attr.wait_obj));
    let wait_fd = match wait_obj {
        FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_YIELD => None,
        FI_WAIT_FD => match new_wait_fd() {
            Some(wait_fd) => Some(wait_fd),
            None => return -FI_EMFILE,
        },
        _ => return -FI_ENOSYS,
    };
    // SAFETY: the fabric was opened here.
    let fabric = unsafe { HeldFabric::new(fabric) };
    let opened = EventQueue {
        fid: FidEq { fid: Fid { fclass: FI_CLASS_EQ, context, ops: &OPS }, ops: &EQ_OPS },
        fabric,
        flags,
        wait_obj,
        events: Mutex::default(),
        changed: Condvar::new(),
        wait_fd,
    };
    // SAFETY: the caller passes a place for the queue.
    unsafe { eq.write(Box::into_raw(Box::new(opened)).cast()) };
    0
}

/// Creates the eventfd of a queue; `None` if the process has too many descriptors.
fn new_wait_fd() -> Option<OwnedFd> {
    // SAFETY: the call only creates a descriptor.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: the descriptor was created above, and no other value owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

impl EventQueue {
    /// Returns the queue of a fid.
    ///
    /// # Safety
    /// The queue was opened here and stays open while the reference lives.
    unsafe fn of<'a>(fid: *const FidEq) -> &'a Self {
        // SAFETY: guaranteed by the caller; a queue begins with its fid.
        unsafe { &*fid.cast::<Self>() }
    }

    /// Locks the events.
    fn events(&self) -> MutexGuard<'_, VecDeque<QueuedEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event and wakes a reader.
    ///
    /// # Errors
    /// `FI_EINVAL` above [`EVENT_BYTES_MAX`] (4,096), `FI_EAGAIN` if the queue is full.
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
            self.set_readable(true);
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Makes the eventfd readable after the first event, or clears it after the last.
    fn set_readable(&self, readable: bool) {
        let Some(wait_fd) = &self.wait_fd else { return };
        let mut count = 1_u64;
        let at = (&raw mut count).cast();
        // SAFETY: the call reads or writes the eight bytes of `count`; the descriptor belongs to
        // the queue.
        unsafe {
            match readable {
                true => libc::write(wait_fd.as_raw_fd(), at, size_of::<u64>()),
                false => libc::read(wait_fd.as_raw_fd(), at, size_of::<u64>()),
            }
        };
    }

    /// Removes or peeks at the first event if it fits `len` bytes.
    fn take(
        &self,
        events: &mut VecDeque<QueuedEvent>,
        len: usize,
        peek: bool,
    ) -> Result<QueuedEvent, i32> {
        let first = events.front().ok_or(FI_EAGAIN)?;
        if first.1.len() > len {
            return Err(FI_ETOOSMALL);
        }
        if peek {
            return Ok(first.clone());
        }
        let taken = events.pop_front().ok_or(FI_EAGAIN)?;
        if events.is_empty() {
            self.set_readable(false);
        }
        Ok(taken)
    }

    /// As [`Self::take`], but waits for an event: `timeout` milliseconds, or without limit if it is
    /// negative.
    fn wait(&self, timeout: c_int, len: usize, peek: bool) -> Result<QueuedEvent, i32> {
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

/// Writes an event to the caller's memory.
///
/// # Safety
/// The caller's memory has room for the event; its length was checked.
unsafe fn write_event(taken: Result<QueuedEvent, i32>, event: *mut u32, buf: *mut c_void) -> isize {
    let (kind, bytes) = match taken {
        Ok(taken) => taken,
        Err(code) => return failed_size(code),
    };
    // SAFETY: guaranteed by the caller.
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
    // SAFETY: the caller passes a queue that was opened here.
    let eq = unsafe { EventQueue::of(eq) };
    let taken = eq.take(&mut eq.events(), len, flags & FI_PEEK != 0);
    // SAFETY: the caller passes room for `len` bytes.
    unsafe { write_event(taken, event, buf) }
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
    // SAFETY: the caller passes a queue that was opened here.
    let eq = unsafe { EventQueue::of(eq) };
    if eq.wait_obj == FI_WAIT_NONE {
        return failed_size(FI_ENOSYS);
    }
    let taken = eq.wait(timeout, len, flags & FI_PEEK != 0);
    // SAFETY: the caller passes room for `len` bytes.
    unsafe { write_event(taken, event, buf) }
}

/// There are no error events: each call reports its failure itself.
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
    // SAFETY: the caller passes a queue that was opened here.
    let eq = unsafe { EventQueue::of(eq) };
    if eq.flags & FI_WRITE == 0 || (buf.is_null() && len > 0) || len > EVENT_BYTES_MAX {
        return failed_size(FI_EINVAL);
    }
    let bytes = match buf.is_null() {
        true => &[],
        // SAFETY: the caller passes `len` bytes.
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
    // SAFETY: the caller passes room for `len` bytes, or NULL.
    unsafe { errno::describe_into(number, buf, len) }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: the caller passes a queue that was opened here.
    let eq = unsafe { EventQueue::of(fid.cast()) };
    if arg.is_null() {
        return -FI_EINVAL;
    }
    match (command, &eq.wait_fd) {
        (FI_GETWAIT, Some(wait_fd)) => {
            // SAFETY: for this command the caller passes room for a descriptor.
            unsafe { arg.cast::<c_int>().write(wait_fd.as_raw_fd()) };
            0
        }
        (FI_GETWAITOBJ, _) => {
            // SAFETY: for this command the caller passes room for the kind.
            unsafe { arg.cast::<u32>().write(eq.wait_obj) };
            0
        }
        _ => -FI_ENOSYS,
    }
}

/// Returns 0 if the application may sleep on the queue's descriptor, or `-FI_EAGAIN` if there are
/// events.
///
/// # Safety
/// `fid` is an open event queue that was opened here.
pub unsafe fn may_sleep(fid: *const Fid) -> c_int {
    // SAFETY: guaranteed by the caller.
    let eq = unsafe { EventQueue::of(fid.cast()) };
    if eq.events().is_empty() { 0 } else { -FI_EAGAIN }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a queue that was opened here, once; it begins with its fid.
    drop(unsafe { Box::from_raw(fid.cast::<EventQueue>()) });
    0
}

#[cfg(test)]
mod tests;
