//! Event queues, opened as the core opens them.

use std::ptr::null_mut;

use super::*;
use crate::shell::fabric;

/// A fabric with an event queue.
struct OpenQueue {
    fabric: *mut FidFabric,
    eq: *mut FidEq,
}

fn close_fid(fid: *mut Fid) -> c_int {
    // SAFETY: the test opened the object and does not use it again.
    unsafe { ((*(*fid).ops).close)(fid) }
}

impl OpenQueue {
    fn new(flags: u64, wait_obj: u32) -> Self {
        let mut attr = FiFabricAttr {
            fabric: null_mut(),
            name: c"causeway".as_ptr().cast_mut(),
            prov_name: null_mut(),
            prov_version: 0,
            api_version: version(1, 17),
        };
        let mut wanted =
            FiEqAttr { size: 0, flags, wait_obj, signaling_vector: 0, wait_set: null_mut() };
        let (mut fabric, mut eq) = (null_mut(), null_mut());
        // SAFETY: all pointers are as the interface requires.
        unsafe {
            assert_eq!(fabric::open(&mut attr, &mut fabric, null_mut()), 0);
            assert_eq!(((*(*fabric).ops).eq_open)(fabric, &mut wanted, &mut eq, null_mut()), 0);
        }
        Self { fabric, eq }
    }

    fn write(&self, event: u32, bytes: &[u8]) -> isize {
        let ops = self.ops();
        // SAFETY: `bytes` has this length.
        unsafe { (ops.write)(self.eq, event, bytes.as_ptr().cast(), bytes.len(), 0) }
    }

    fn read(&self, len: usize, flags: u64) -> Result<(u32, Vec<u8>), isize> {
        let (mut event, mut bytes) = (77, vec![0; len]);
        let at = bytes.as_mut_ptr().cast();
        // SAFETY: `bytes` has room for `len` bytes.
        let count = unsafe { (self.ops().read)(self.eq, &mut event, at, len, flags) };
        bytes.truncate(usize::try_from(count).map_err(|_| count)?);
        Ok((event, bytes))
    }

    fn ops(&self) -> &OpsEq {
        // SAFETY: the queue is open, and its table is static.
        unsafe { &*(*self.eq).ops }
    }

    fn control<T>(&self, command: c_int, mut value: T) -> Result<T, c_int> {
        // SAFETY: the value has the type that the command requires.
        let code = unsafe {
            let fid = self.eq.cast::<Fid>();
            ((*(*fid).ops).control)(fid, command, (&raw mut value).cast())
        };
        if code == 0 { Ok(value) } else { Err(code) }
    }
}

impl Drop for OpenQueue {
    fn drop(&mut self) {
        assert_eq!(close_fid(self.fabric.cast()), -FI_EBUSY, "it has a queue");
        assert_eq!(close_fid(self.eq.cast()), 0);
        assert_eq!(close_fid(self.fabric.cast()), 0);
    }
}

const AGAIN: isize = -(FI_EAGAIN as isize);

#[test]
fn event_queue_is_empty_until_an_event_is_written() {
    let opened = OpenQueue::new(FI_WRITE, FI_WAIT_NONE);
    assert_eq!(opened.read(64, 0), Err(AGAIN));
    // SAFETY: the queue is open.
    assert_eq!(unsafe { (opened.ops().readerr)(opened.eq, null_mut(), 0) }, AGAIN);
    assert_eq!(opened.write(FI_NOTIFY, b"first"), 5);
    assert_eq!(opened.write(FI_AV_COMPLETE, b""), 0);
    assert_eq!(opened.read(4, 0), Err(-(FI_ETOOSMALL as isize)));
    assert_eq!(opened.read(64, FI_PEEK), Ok((FI_NOTIFY, b"first".to_vec())));
    assert_eq!(opened.read(64, 0), Ok((FI_NOTIFY, b"first".to_vec())));
    assert_eq!(opened.read(64, 0), Ok((FI_AV_COMPLETE, Vec::new())));
    assert_eq!(opened.read(64, 0), Err(AGAIN));
}

#[test]
fn event_queue_accepts_bounded_writes_with_the_flag_only() {
    let opened = OpenQueue::new(0, FI_WAIT_NONE);
    assert_eq!(opened.write(FI_NOTIFY, b"x"), -(FI_EINVAL as isize));
    let opened = OpenQueue::new(FI_WRITE, FI_WAIT_NONE);
    assert_eq!(opened.write(FI_NOTIFY, &[0; EVENT_BYTES_MAX + 1]), -(FI_EINVAL as isize));
    for _ in 0..EVENTS_MAX {
        assert_eq!(opened.write(FI_NOTIFY, b"x"), 1);
    }
    assert_eq!(opened.write(FI_NOTIFY, b"x"), AGAIN);
}

#[test]
fn event_queue_descriptor_is_readable_while_there_are_events() {
    let opened = OpenQueue::new(FI_WRITE, FI_WAIT_FD);
    assert_eq!(opened.control(FI_GETWAITOBJ, 0_u32), Ok(FI_WAIT_FD));
    let fd = opened.control(FI_GETWAIT, -1).unwrap();
    let readable = || {
        let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the call gets a descriptor.
        unsafe { libc::poll(&mut polled, 1, 0) == 1 }
    };
    let trywait = || {
        let mut fids = [opened.eq.cast::<Fid>()];
        // SAFETY: the call gets an open object.
        unsafe { ((*(*opened.fabric).ops).trywait)(opened.fabric, fids.as_mut_ptr(), 1) }
    };
    assert_eq!((readable(), trywait()), (false, 0));
    opened.write(FI_NOTIFY, b"1");
    opened.write(FI_NOTIFY, b"2");
    assert_eq!((readable(), trywait()), (true, -FI_EAGAIN));
    opened.read(8, 0).unwrap();
    assert_eq!((readable(), trywait()), (true, -FI_EAGAIN));
    opened.read(8, 0).unwrap();
    assert_eq!((readable(), trywait()), (false, 0));
}

#[test]
fn event_queue_waiter_is_woken_or_times_out() {
    let opened = OpenQueue::new(FI_WRITE, FI_WAIT_UNSPEC);
    let sread = |timeout| {
        let (mut event, mut bytes) = (77_u32, [0_u8; 8]);
        let (ops, at) = (opened.ops(), bytes.as_mut_ptr().cast());
        // SAFETY: `bytes` has room for 8 bytes.
        let count = unsafe { (ops.sread)(opened.eq, &mut event, at, 8, timeout, 0) };
        (count, event)
    };
    assert_eq!(sread(20), (AGAIN, 77));
    // SAFETY: the queue outlives the thread.
    let eq = unsafe { EventQueue::of(opened.eq) };
    let at = eq as *const EventQueue as usize;
    let writer = std::thread::spawn(move || {
        // SAFETY: the queue outlives the thread.
        unsafe { &*(at as *const EventQueue) }.push(FI_SHUTDOWN, b"bye")
    });
    assert_eq!(sread(-1), (3, FI_SHUTDOWN));
    assert_eq!(writer.join().unwrap(), Ok(()));
}

#[test]
fn event_queue_refuses_unsupported_wait_objects() {
    let opened = OpenQueue::new(0, FI_WAIT_NONE);
    assert_eq!(opened.control(FI_GETWAIT, -1), Err(-FI_ENOSYS));
    for kind in [FI_WAIT_SET, FI_WAIT_MUTEX_COND, FI_WAIT_POLLFD, 99] {
        let mut wanted = FiEqAttr {
            size: 0,
            flags: 0,
            wait_obj: kind,
            signaling_vector: 0,
            wait_set: null_mut(),
        };
        let mut eq = null_mut();
        // SAFETY: the fabric is open.
        let code = unsafe { open(opened.fabric, &mut wanted, &mut eq, null_mut()) };
        assert_eq!(code, -FI_ENOSYS);
    }
    // SAFETY: the fabric is open, and the functions do not follow the pointers.
    unsafe {
        let ops = &*(*opened.fabric).ops;
        assert_eq!((ops.wait_open)(opened.fabric, null_mut(), null_mut()), -FI_ENOSYS);
        assert_eq!((ops.passive_ep)(opened.fabric, null_mut(), null_mut(), null_mut()), -FI_ENOSYS);
    }
}
