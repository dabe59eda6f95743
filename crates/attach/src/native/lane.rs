//! A ring with buffers of its own: slots of equal size, filled or drained by copies.

use std::os::fd::{AsFd as _, BorrowedFd};

use causeway_memory::{Map, Span};
use causeway_ring::driver::{Driver, DriverError, Layout};
use causeway_ring::{Doorbell, Notifier};

use super::error::NativeError;

/// Most pieces that one chain is cut into.
const PIECES_MAX: usize = 64;

/// One queue of a native port.
#[derive(Debug)]
pub struct Lane {
    driver: Driver,
    /// Rung towards the backend.
    kick: Notifier,
    /// Rung by the backend.
    call: Doorbell,
    slots: u64,
    slot_bytes: u32,
    /// Slot of each chain that the backend has, by its head.
    slot_of: Vec<u16>,
    free: Vec<u16>,
    /// Chains added since the last publish.
    unshown: u16,
    /// The doorbell is rung by [`Lane::ring`] only.
    quiet: bool,
    /// It would have been rung since the last time.
    due: bool,
}

impl Lane {
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
            slot_of: vec![0; usize::from(size)],
            free: (0..size).rev().collect(),
            unshown: 0,
            quiet: false,
            due: false,
        }
    }

    /// Bytes that one buffer holds.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes as usize
    }

    /// The backend's notification.
    pub fn call(&self) -> &Doorbell {
        &self.call
    }

    /// Where the ring lies.
    pub(super) fn layout(&self) -> &Layout {
        self.driver.layout()
    }

    /// The eventfds rung towards the backend and by it.
    pub(super) fn events(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.kick.as_fd(), self.call.as_fd())
    }

    /// Buffers that may be sent without waiting, as far as is known without looking.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    fn slot(&self, slot: u16) -> u64 {
        let offset = u64::from(slot).saturating_mul(u64::from(self.slot_bytes));
        self.slots.saturating_add(offset)
    }

    /// Shows the backend all that was added, and rings if it sleeps.
    pub fn flush(&mut self) -> Result<(), DriverError> {
        self.unshown = 0;
        if self.driver.publish()? {
            self.due = true;
            if !self.quiet {
                self.ring();
            }
        }
        Ok(())
    }

    /// Whether the doorbell is left to [`Self::ring`]: for those who delay or lose it.
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether the backend asked for its doorbell and has not been rung.
    pub fn ring_due(&self) -> bool {
        self.due
    }

    /// Rings the doorbell, whether the backend asked for it or not.
    pub fn ring(&mut self) {
        self.due = false;
        // The backend is trusted not to hold us up.
        let _ = self.kick.notify();
    }

    /// Gives every buffer to the backend, to be written.
    pub(super) fn post_all(&mut self, map: &Map) -> Result<(), DriverError> {
        while let Some(slot) = self.free.pop() {
            self.post(map, slot)?;
        }
        self.flush()
    }

    fn post(&mut self, map: &Map, slot: u16) -> Result<(), DriverError> {
        let span = Span { addr: self.slot(slot), len: self.slot_bytes };
        let head = self.driver.add(map, &[], &[span])?;
        self.hold(head, slot);
        Ok(())
    }

    fn hold(&mut self, head: u16, slot: u16) {
        if let Some(entry) = self.slot_of.get_mut(usize::from(head)) {
            *entry = slot;
        }
        self.unshown = self.unshown.saturating_add(1);
    }

    /// The next buffer that the backend has written: its slot and length. It stays ours until
    /// [`Self::give`].
    #[inline]
    pub(super) fn next_written(&mut self) -> Result<Option<(u16, u32)>, DriverError> {
        match self.driver.take()? {
            Some(used) => {
                let slot = self.slot_of.get(usize::from(used.head)).copied().unwrap_or(0);
                Ok(Some((slot, used.written)))
            }
            None => {
                // Nothing left to do: this is the moment to hand back what was read.
                if self.unshown > 0 {
                    self.flush()?;
                }
                Ok(None)
            }
        }
    }

    /// Copies from a written slot, from byte `at` on.
    #[inline]
    pub(super) fn read(
        &self,
        map: &Map,
        slot: u16,
        at: u32,
        into: &mut [u8],
    ) -> Result<(), NativeError> {
        Ok(map.read(self.slot(slot).saturating_add(u64::from(at)), into)?)
    }

    /// Gives a slot to the backend again; it is shown with others, a quarter of the ring at once.
    #[inline]
    pub(super) fn give(&mut self, map: &Map, slot: u16) -> Result<(), DriverError> {
        self.post(map, slot)?;
        if self.unshown >= self.driver.layout().size.div_ceil(4) {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds one chain of `parts` joined, cut into descriptors of `piece` bytes; `false` if there
    /// is no room. The backend sees it at the next flush.
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
        let Some(slot) = self.vacant()? else { return Ok(false) };
        let start = self.slot(slot);
        let mut at = start;
        for part in parts {
            map.write(at, part)?;
            at = at.saturating_add(part.len() as u64);
        }
        self.offer(map, slot, u32::try_from(len).unwrap_or(u32::MAX), piece)
    }

    /// As [`Self::send`], of the first `len` bytes that an earlier one left in the buffer.
    #[inline]
    pub(super) fn send_as_is(
        &mut self,
        map: &Map,
        len: u32,
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let Some(slot) = self.vacant()? else { return Ok(false) };
        self.offer(map, slot, len.min(self.slot_bytes), piece)
    }

    /// A buffer to send from.
    #[inline]
    fn vacant(&mut self) -> Result<Option<u16>, DriverError> {
        // Once a batch, so that the buffers used last, still in the cache, are used again.
        if self.unshown == 0 || self.free.is_empty() {
            self.reclaim()?;
        }
        Ok(self.free.pop())
    }

    #[inline]
    fn offer(
        &mut self,
        map: &Map,
        slot: u16,
        len: u32,
        piece: Option<u32>,
    ) -> Result<bool, NativeError> {
        let start = self.slot(slot);
        let added = match piece {
            None => self.driver.add(map, &[Span { addr: start, len }], &[]),
            Some(piece) => self.add_pieces(map, start, len, piece),
        };
        match added {
            Ok(head) => {
                self.hold(head, slot);
                Ok(true)
            }
            Err(error) => {
                self.free.push(slot);
                if error == DriverError::Full { Ok(false) } else { Err(error.into()) }
            }
        }
    }

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

    /// Takes sent buffers back; says how many.
    pub(super) fn reclaim(&mut self) -> Result<usize, DriverError> {
        let before = self.free.len();
        while let Some(used) = self.driver.take()? {
            let slot = self.slot_of.get(usize::from(used.head)).copied().unwrap_or(0);
            self.free.push(slot);
        }
        Ok(self.free.len().saturating_sub(before))
    }

    /// Whether every buffer that was sent came back.
    pub fn is_idle(&mut self) -> Result<bool, DriverError> {
        self.reclaim()?;
        Ok(self.driver.outstanding() == 0)
    }

    /// Asks for a notification once the backend uses another chain (of a sender's: half of
    /// them); says whether one is used already.
    pub fn arm(&mut self, sender: bool) -> Result<bool, DriverError> {
        self.call.drain();
        if self.unshown > 0 {
            self.flush()?;
        }
        let skip = if sender { self.driver.outstanding() / 2 } else { 0 };
        self.driver.arm_after(skip)
    }

    /// Asks for no notification.
    pub fn disarm(&mut self) -> Result<(), DriverError> {
        self.driver.disarm()
    }
}
