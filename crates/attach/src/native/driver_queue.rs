//! A queue of a native port: the driver side of a ring, with a buffer of fixed size for each chain.
//!
//! [`super::Frontend`] creates the queues; [`super::NetPort`] and [`super::VsockPort`] send and
//! receive through them. Payload is copied into and out of the buffers. Buffers that return to the
//! backend are published together: a quarter of the ring at once, the others when no written buffer
//! is left, or before a wait. A doorbell rings only if the backend asks for it.
//!
//! The module knows no packet format and waits for nothing: a full ring returns `false`, an empty
//! ring `None`. Sent data is visible to the backend only after [`DriverQueue::flush`]. A chain is
//! cut into at most [`PIECES_MAX`] (64) descriptors, which are longer than requested if the data
//! needs more. Data longer than a buffer is not sent: the call returns [`NativeError::Long`]. The
//! port gives a received buffer back before it takes the next. One thread at a time uses a queue;
//! after a [`DriverError`] its port must be dropped.

use std::os::fd::{AsFd as _, BorrowedFd};

use causeway_memory::{Map, Span};
use causeway_ring::driver::{Driver, DriverError, Layout};
use causeway_ring::{Doorbell, Notifier};

use super::error::NativeError;

/// Most descriptors that one chain is cut into.
const PIECES_MAX: usize = 64;

/// One queue of a native port, with its buffers.
#[derive(Debug)]
pub struct DriverQueue {
    /// The ring.
    driver: Driver,
    /// The doorbell towards the backend.
    kick: Notifier,
    /// The backend's notification.
    call: Doorbell,
    /// Guest address of the first buffer.
    slots: u64,
    /// Bytes of each buffer.
    slot_bytes: u32,
    /// Chains added since the last publish, and the number of returned buffers that are published
    /// together.
    unpublished: u16,
    batch: u16,
    /// Set if only [`DriverQueue::ring`] rings the doorbell.
    is_quiet: bool,
    /// Set if the backend asked for a doorbell since the last ring.
    due: bool,
}

impl DriverQueue {
    /// Returns a queue of empty buffers of `slot_bytes` each, the first at guest address `slots`.
    /// Nothing is posted yet.
    pub(super) fn new(
        driver: Driver,
        kick: Notifier,
        call: Doorbell,
        slots: u64,
        slot_bytes: u32,
    ) -> Self {
        let size = driver.layout().size;
        Self {
            driver,
            kick,
            call,
            slots,
            slot_bytes,
            batch: size.div_ceil(4),
            unpublished: 0,
            is_quiet: false,
            due: false,
        }
    }

    /// Returns the bytes that one buffer holds.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// Returns the descriptor by which the backend notifies the port.
    pub fn call(&self) -> &Doorbell {
        &self.call
    }

    /// Returns the layout of the ring.
    pub(super) fn layout(&self) -> &Layout {
        self.driver.layout()
    }

    /// Returns the eventfds towards the backend and from it.
    pub(super) fn events(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.kick.as_fd(), self.call.as_fd())
    }

    /// Returns a function from chain heads to buffers of `len` bytes, at most the buffer size.
    #[inline]
    fn spans(&self, len: u32) -> impl Fn(u16) -> Span + use<> {
        let (slots, slot_bytes) = (self.slots, self.slot_bytes);
        move |head| {
            let offset = u64::from(head).wrapping_mul(u64::from(slot_bytes));
            Span { addr: slots.wrapping_add(offset), len: len.min(slot_bytes) }
        }
    }

    /// Returns the address of the buffer of chain `head`.
    #[inline]
    fn slot(&self, head: u16) -> u64 {
        self.spans(0)(head).addr
    }

    /// Publishes added chains, and rings the doorbell if the backend asks for it.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn flush(&mut self) -> Result<(), DriverError> {
        self.unpublished = 0;
        if self.driver.publish()? {
            self.due = true;
            if !self.is_quiet {
                self.ring();
            }
        }
        Ok(())
    }

    /// Sets whether only [`Self::ring`] rings the doorbell: for tests that delay or lose doorbells.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.is_quiet = quiet;
    }

    /// Returns whether the backend asked for a ring that is outstanding.
    pub fn ring_due(&self) -> bool {
        self.due
    }

    /// Rings the doorbell unconditionally.
    pub fn ring(&mut self) {
        self.due = false;
        // The backend is trusted not to block its eventfd.
        let _ = self.kick.notify();
    }

    /// Posts every buffer to the backend for writing.
    pub(super) fn post_all(&mut self) -> Result<(), DriverError> {
        self.driver.add_each(u16::MAX, true, self.spans(self.slot_bytes))?;
        self.unpublished = self.batch;
        self.flush()
    }

    /// Returns head and length of the next written buffer. The buffer belongs to the caller until
    /// [`Self::give_back`], before which no other may be taken.
    #[inline]
    pub(super) fn next_written(&mut self) -> Result<Option<(u16, u32)>, DriverError> {
        match self.driver.take()? {
            Some(used) => Ok(Some((used.head, used.written))),
            None => {
                // No work is left, so returned buffers are published now.
                if self.unpublished > 0 {
                    self.flush()?;
                }
                Ok(None)
            }
        }
    }

    /// Copies from a written buffer, from byte `at` on.
    #[inline]
    pub(super) fn read(
        &self,
        map: &Map,
        head: u16,
        at: u32,
        into: &mut [u8],
    ) -> Result<(), NativeError> {
        Ok(map.read(self.slot(head).saturating_add(u64::from(at)), into)?)
    }

    /// Posts the buffer of chain `head`, which was taken last. Returned buffers are published
    /// together, a quarter of the ring at once.
    #[inline]
    pub(super) fn give_back(&mut self, head: u16) -> Result<(), DriverError> {
        debug_assert_eq!(self.driver.next_head(), Some(head), "heads are reused in LIFO order");
        self.driver.add_one(self.spans(self.slot_bytes)(head), true)?;
        self.unpublished = self.unpublished.wrapping_add(1);
        if self.unpublished >= self.batch {
            self.flush()?;
        }
        Ok(())
    }

    /// Takes written buffers, at most a ring full, and posts them unread; returns their number.
    /// They are published a quarter of the ring at once, the last buffers by the next call that
    /// finds none, or before a wait.
    pub(super) fn discard(&mut self) -> Result<usize, DriverError> {
        let mut all = 0_usize;
        while all < usize::from(self.layout().size) {
            let most = self.batch.saturating_sub(self.unpublished).max(1);
            let count = self.driver.renew(most, self.spans(self.slot_bytes))?;
            self.unpublished = self.unpublished.wrapping_add(count);
            all = all.wrapping_add(usize::from(count));
            if self.unpublished >= self.batch || all == 0 && self.unpublished > 0 {
                self.flush()?;
            }
            if count < most {
                break;
            }
        }
        Ok(all)
    }

    /// Adds a chain with the concatenation of `parts`, cut into descriptors of `piece` bytes;
    /// returns `false` if the ring is full. The backend sees it after the next flush.
    #[inline]
    pub(super) fn send(
        &mut self,
        map: &Map,
        parts: &[&[u8]],
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let room = self.slot_bytes();
        if len > room {
            return Err(NativeError::Long { len, room });
        }
        let Some(head) = self.next_free_head()? else { return Ok(false) };
        let start = self.slot(head);
        let mut at = start;
        for part in parts {
            map.write(at, part)?;
            at = at.saturating_add(part.len() as u64);
        }
        self.add_chain(map, start, u32::try_from(len).unwrap_or(u32::MAX), piece)
    }

    /// As [`Self::send`], with the first `len` bytes that the buffer still holds from an earlier
    /// send, at most the buffer.
    #[inline]
    pub(super) fn send_as_is(
        &mut self,
        map: &Map,
        len: u32,
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let Some(head) = self.next_free_head()? else { return Ok(false) };
        self.add_chain(map, self.slot(head), len.min(self.slot_bytes), piece)
    }

    /// As [`Self::send_as_is`], with `len` bytes behind `head`, which is written.
    ///
    /// # Errors
    /// `head` and `len` are longer than a buffer, or the ring is broken.
    #[inline]
    pub(super) fn send_headed_as_is(
        &mut self,
        map: &Map,
        head: &[u8],
        len: u32,
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let (len, room) = (head.len().saturating_add(len as usize), self.slot_bytes());
        if len > room {
            return Err(NativeError::Long { len, room });
        }
        let Some(free) = self.next_free_head()? else { return Ok(false) };
        let start = self.slot(free);
        map.write(start, head)?;
        self.add_chain(map, start, u32::try_from(len).unwrap_or(u32::MAX), piece)
    }

    /// As [`Self::send_as_is`], for as many buffers as there is room for, at most `most`, each in
    /// one descriptor. Returns their number.
    pub(super) fn send_each_as_is(&mut self, len: u32, most: u16) -> Result<u16, DriverError> {
        self.next_free_head()?;
        let mut count = self.driver.add_each(most, false, self.spans(len))?;
        if count < most {
            self.reclaim()?;
            let more = most.wrapping_sub(count);
            count = count.wrapping_add(self.driver.add_each(more, false, self.spans(len))?);
        }
        self.unpublished = self.unpublished.wrapping_add(count);
        Ok(count)
    }

    /// Returns the head of the next chain, whose buffer is free.
    #[inline]
    fn next_free_head(&mut self) -> Result<Option<u16>, DriverError> {
        // Only once a batch, so that the buffers used last, still in the cache, are used again.
        if self.unpublished == 0 || self.driver.next_head().is_none() {
            self.reclaim()?;
        }
        Ok(self.driver.next_head())
    }

    /// Adds the next chain with the content of its buffer at `start`.
    #[inline]
    fn add_chain(
        &mut self,
        map: &Map,
        start: u64,
        len: u32,
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let added = match piece {
            None => self.driver.add_one(Span { addr: start, len }, false),
            Some(piece) => self.add_pieces(map, start, len, piece),
        };
        match added {
            Ok(_) => {
                self.unpublished = self.unpublished.wrapping_add(1);
                Ok(true)
            }
            Err(DriverError::Full) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a chain of several descriptors.
    fn add_pieces(
        &mut self,
        map: &Map,
        start: u64,
        len: u32,
        piece: u32,
    ) -> Result<u16, DriverError> {
        let piece = piece.max(len.div_ceil(PIECES_MAX as u32)).max(1);
        let mut spans = [Span::default(); PIECES_MAX];
        let (mut at, mut left, mut count) = (start, len, 0_usize);
        for span in &mut spans {
            if left == 0 {
                break;
            }
            *span = Span { addr: at, len: left.min(piece) };
            at = at.saturating_add(u64::from(span.len));
            left = left.saturating_sub(span.len);
            count = count.saturating_add(1);
        }
        self.driver.add(map, spans.get(..count).unwrap_or_default(), &[])
    }

    /// Takes used buffers back.
    fn reclaim(&mut self) -> Result<(), DriverError> {
        self.driver.take_all()
    }

    /// Returns whether the backend has used every sent buffer.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn is_idle(&mut self) -> Result<bool, DriverError> {
        self.reclaim()?;
        Ok(self.driver.outstanding() == 0)
    }

    /// Requests a notification after the backend uses another chain (for a sender: half of the
    /// outstanding chains). Returns whether a used chain is available already.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn arm(&mut self, sender: bool) -> Result<bool, DriverError> {
        self.call.drain();
        if self.unpublished > 0 {
            self.flush()?;
        }
        let skip = if sender { self.driver.outstanding() / 2 } else { 0 };
        self.driver.arm_after(skip)
    }

    /// Requests no notification.
    ///
    /// # Errors
    /// Returns an error if the ring is broken.
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        self.driver.disarm()
    }
}
