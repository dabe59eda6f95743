//! Completion queues, and the descriptor on which their events arrive.
//!
//! A queue reports the ends of work requests of the queue pairs that were created on it. After
//! [`CompletionQueue::arm`] one event arrives on the descriptor, for the next completion; the
//! caller polls, and arms again. The queue overruns if its users have more work requests than it
//! has entries: nothing here counts them. Only creating and destroying a queue blocks.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::abi;
use crate::adapter::{Adapter, Creator, Opened};
use crate::error::Error;

/// A completion queue with a channel of its own.
#[derive(Debug)]
pub(crate) struct Queue {
    pub opened: Arc<Opened>,
    channel: NonNull<abi::CompChannel>,
    pub cq: NonNull<abi::Cq>,
    creator: Creator,
}

// SAFETY: libibverbs permits calls for an object from any thread.
unsafe impl Send for Queue {}
// SAFETY: as for Send.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.creator.is_here() {
            let library = self.opened.library;
            // SAFETY: both were created once, and queue pairs on the queue hold this owner. Every event was
            // acknowledged when it was read, so that the first call does not wait.
            unsafe {
                (library.destroy_cq)(self.cq.as_ptr());
                (library.destroy_comp_channel)(self.channel.as_ptr());
            }
        }
    }
}

/// The end of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Identifier of the work request.
    pub id: u64,
    /// Whether the work request was a receive. Valid after success only.
    pub is_receive: bool,
    /// Bytes of a received message.
    pub len: u32,
    /// Immediate data of a received message.
    pub immediate: Option<u32>,
    /// Number of the error; `None` after success.
    status: Option<u32>,
}

impl Completion {
    /// Returns the text of the error; `None` after success.
    pub fn error(&self) -> Option<String> {
        let status = self.status?;
        let Ok(library) = crate::library::Library::load() else {
            return Some(format!("status {status}"));
        };
        // SAFETY: the function returns a constant string for any number.
        let text = unsafe { CStr::from_ptr((library.wc_status_str)(status)) };
        Some(text.to_string_lossy().into_owned())
    }

    fn of(wc: &abi::Wc) -> Self {
        let has_immediate = wc.wc_flags & abi::WC_WITH_IMM != 0;
        Self {
            id: wc.wr_id,
            is_receive: wc.opcode & abi::WC_RECV != 0,
            len: wc.byte_len,
            immediate: has_immediate.then(|| u32::from_be(wc.imm_data)),
            status: (wc.status != abi::WC_SUCCESS).then_some(wc.status),
        }
    }
}

/// A completion queue.
#[derive(Debug, Clone)]
pub struct CompletionQueue(pub(crate) Arc<Queue>);

impl CompletionQueue {
    /// Creates a queue of at least `entries` completions, at most 2^31 - 1. The users of the queue
    /// must not have more work requests than entries.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn new(adapter: &Adapter, entries: u32) -> Result<Self, Error> {
        let opened = Arc::clone(&adapter.0);
        let library = opened.library;
        // SAFETY: the context lives.
        let channel = unsafe { (library.create_comp_channel)(opened.context.as_ptr()) };
        let channel =
            NonNull::new(channel).ok_or_else(|| opened.error("ibv_create_comp_channel"))?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: context and channel live; vector 0 exists.
        let cq = unsafe {
            (library.create_cq)(
                opened.context.as_ptr(),
                entries,
                ptr::null_mut(),
                channel.as_ptr(),
                0,
            )
        };
        let Some(cq) = NonNull::new(cq) else {
            let error = opened.error("ibv_create_cq");
            // SAFETY: the channel was created above and has no user.
            unsafe { (library.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let queue = Self(Arc::new(Queue { opened, channel, cq, creator: Creator::now() }));
        let blocking = |errno: rustix::io::Errno| {
            crate::adapter::call("fcntl", &queue.0.opened.name, errno.into())
        };
        let flags = fcntl_getfl(queue.as_fd()).map_err(blocking)?;
        fcntl_setfl(queue.as_fd(), flags | OFlags::NONBLOCK).map_err(blocking)?;
        Ok(queue)
    }

    /// Moves the next completions into `into`, as many as its capacity has room for, at most 16.
    /// Returns their number.
    ///
    /// # Errors
    /// [`Error::Call`]: the queue has overrun, or is broken.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize, Error> {
        const BATCH: usize = 16;
        let mut all = [abi::Wc::default(); BATCH];
        let room = into.capacity().saturating_sub(into.len()).min(BATCH);
        let count = match self.0.opened.ops().poll_cq {
            // SAFETY: the queue lives, and `all` has room for as many completions.
            Some(poll) => unsafe { poll(self.0.cq.as_ptr(), room as i32, all.as_mut_ptr()) },
            None => -1,
        };
        let Ok(count) = usize::try_from(count) else {
            return Err(self.0.opened.error("ibv_poll_cq"));
        };
        into.extend(all.iter().take(count).map(Completion::of));
        Ok(count)
    }

    /// Requests an event for the next completion. The caller must poll afterwards: earlier
    /// completions raise none.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn arm(&self) -> Result<(), Error> {
        let result = match self.0.opened.ops().req_notify_cq {
            // SAFETY: the queue lives.
            Some(arm) => unsafe { arm(self.0.cq.as_ptr(), 0) },
            None => -1,
        };
        self.0.opened.check("ibv_req_notify_cq", result)
    }

    /// Takes an event from the descriptor, if there is one; never blocks. Returns whether there
    /// was.
    pub fn take_event(&self) -> bool {
        let library = self.0.opened.library;
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives, its descriptor does not block, and both results are written only.
        let result =
            unsafe { (library.get_cq_event)(self.0.channel.as_ptr(), &mut cq, &mut context) };
        if result != 0 {
            return false;
        }
        // SAFETY: the event is of the only queue of the channel, which lives.
        unsafe { (library.ack_cq_events)(self.0.cq.as_ptr(), 1) };
        true
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor and lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.0.channel.as_ptr()).fd) }
    }
}
