//! The receive ring of a packet socket (packet(7), `PACKET_RX_RING`, version 2): no system call per
//! frame, nor any while no frame arrives.
//!
//! Slots are short, so that many small frames fit. A frame longer than a slot lies in the socket's
//! own queue in addition; its slot marks that and keeps the order.
//!
//! # Budget
//! A frame of a slot costs one read of the slot's status, one store that returns the slot, and one
//! copy or none. A longer frame costs a system call in addition.

use std::io;
use std::mem::size_of;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::net::socket::{Packet, PacketSocket, drops, set, tag_of};

/// How long the slots of a ring are, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    bytes: usize,
    /// Slots of each piece that the host makes the ring of, which is some 256 KiB long.
    of_block: usize,
    blocks: usize,
}

impl Slots {
    /// For frames of 1500 bytes and all that stands before them.
    pub const SHORT: Self = Self::new(2048, 128, 16);
    /// For frames of a page and all that stands before them.
    pub const LONG: Self = Self::new(8192, 32, 32);
    /// For frames of 9000 bytes and all that stands before them, where pages have 4 KiB.
    const JUMBO: Self = Self::new(9216, 28, 37);
    /// The same, of which as many are a piece in pages of any length.
    const JUMBO_OF_LONG_PAGES: Self = Self::new(16_384, 16, 64);

    const fn new(bytes: usize, of_block: usize, blocks: usize) -> Self {
        Self { bytes, of_block, blocks }
    }

    /// For frames of 9000 bytes and all that stands before them.
    pub fn jumbo() -> Self {
        let whole = Self::JUMBO.block_bytes().is_multiple_of(rustix::param::page_size());
        if whole { Self::JUMBO } else { Self::JUMBO_OF_LONG_PAGES }
    }

    /// How many frames wait there at most.
    pub const fn count(self) -> usize {
        self.of_block.saturating_mul(self.blocks)
    }

    const fn block_bytes(self) -> usize {
        self.bytes.saturating_mul(self.of_block)
    }

    /// Length of the ring, in bytes.
    const fn ring_bytes(self) -> usize {
        self.block_bytes().saturating_mul(self.blocks)
    }
}

/// The ring of one socket, which is to live as long.
#[derive(Debug)]
pub struct PacketRing {
    memory: NonNull<u8>,
    slots: Slots,
    /// How many bytes stand before each frame.
    before: usize,
    /// Below the number of slots.
    next: usize,
    /// The frame of the next slot, which is read there.
    held: Option<Held>,
}

/// A frame in its slot: where it begins, and how long it is there.
#[derive(Debug, Clone, Copy)]
struct Held {
    from: usize,
    len: usize,
}

// SAFETY: the mapping is this ring's alone and may be read from any thread; the host writes a slot
// only while its status says so, which is read and written atomically.
unsafe impl Send for PacketRing {}

/// Asks the host for a ring of such slots, or to give up the one that it has.
fn request(socket: &PacketSocket, slots: Option<Slots>) -> io::Result<()> {
    let number = |value: usize| libc::c_uint::try_from(value).unwrap_or(0);
    let request = libc::tpacket_req {
        tp_block_size: slots.map_or(0, |slots| number(slots.block_bytes())),
        tp_block_nr: slots.map_or(0, |slots| number(slots.blocks)),
        tp_frame_size: slots.map_or(0, |slots| number(slots.bytes)),
        tp_frame_nr: slots.map_or(0, |slots| number(slots.count())),
    };
    set(socket.as_fd(), libc::PACKET_RX_RING, &request)
}

/// Has the host make a ring, and maps it.
fn map(socket: &PacketSocket, slots: Slots) -> io::Result<NonNull<u8>> {
    request(socket, Some(slots))?;
    // SAFETY: a new mapping at a place of the host's choice; nothing else is there.
    let mapped = unsafe {
        mmap(
            std::ptr::null_mut(),
            slots.ring_bytes(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            socket.as_fd(),
            0,
        )
    };
    let memory = mapped.ok().and_then(|memory| NonNull::new(memory.cast()));
    if let Some(memory) = memory {
        // A core dump must not contain frames of guests.
        // SAFETY: the range was mapped above; this advice leaves its contents as they are.
        let _ = unsafe {
            madvise(NonNull::<u8>::as_ptr(memory).cast(), slots.ring_bytes(), Advice::LinuxDontDump)
        };
    }
    if memory.is_none() {
        // What came would be in a ring that nobody reads.
        request(socket, None)?;
    }
    memory.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl PacketRing {
    /// Has what comes to the socket put into a ring from now on; to be made before anything was
    /// received.
    ///
    /// # Errors
    /// The host has no room, or no such rings.
    pub fn new(socket: &PacketSocket, slots: Slots) -> io::Result<Self> {
        let fd = socket.as_fd();
        set(fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        // From which length on a frame that does not fit its slot is queued besides: from any.
        set(fd, libc::PACKET_COPY_THRESH, &1_i32)?;
        let before = socket.before();
        Ok(Self { memory: map(socket, slots)?, slots, before, next: 0, held: None })
    }

    /// How many frames the host could not put into the ring since this was last asked. A frame
    /// that it cannot describe (a segment of a kind that has no name in virtio) keeps the slot
    /// that was meant for it for ever, and all frames after it are lost too: where some were lost
    /// and nothing is in the ring, [`Self::renew`] it.
    ///
    /// # Errors
    /// The host fails us.
    pub fn lost(&self, socket: &PacketSocket) -> io::Result<u32> {
        drops(socket.as_fd())
    }

    /// Begins with a new ring. What is in this one is lost.
    ///
    /// # Errors
    /// The host gives no other: then this one is of no use, and the socket is to be closed.
    pub fn renew(&mut self, socket: &PacketSocket) -> io::Result<()> {
        self.held = None;
        self.unmap();
        request(socket, None)?;
        (self.memory, self.next) = (map(socket, self.slots)?, 0);
        Ok(())
    }

    fn unmap(&mut self) {
        let memory = std::mem::replace(&mut self.memory, NonNull::dangling());
        if memory != NonNull::dangling() {
            // SAFETY: `map` made this mapping; what referred to it is gone, as `self` is borrowed.
            let _ = unsafe { munmap(memory.as_ptr().cast(), self.slots.ring_bytes()) };
        }
    }

    /// The slot that is filled next.
    fn slot(&self) -> *mut u8 {
        // SAFETY: `next` is less than the number of slots, so this stays inside the mapping.
        unsafe { self.memory.as_ptr().add(self.next.wrapping_mul(self.slots.bytes)) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first word of a slot is its status: aligned, mapped as long as `self`, and
        // only ever touched atomically by both sides.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    /// Receives one frame, behind the bytes that stand before it. Never waits,
    /// and asks the host nothing while nothing has come.
    ///
    /// # Errors
    /// Nothing is there, or a frame that did not fit its slot was not to be had otherwise: ENOBUFS
    /// where the host had no room to queue it.
    pub fn receive(&mut self, socket: &PacketSocket, room: &mut [u8]) -> io::Result<Packet> {
        let packet = self.look(socket, room)?;
        if let Some(frame) = self.held() {
            let len = frame.len().min(room.len());
            if let (Some(to), Some(from)) = (room.get_mut(..len), frame.get(..len)) {
                to.copy_from_slice(from);
            }
            self.give_back();
        }
        Ok(packet)
    }

    /// As [`Self::receive`], but a frame that fits its slot stays there, until the next look or
    /// [`Self::give_back`]: see [`Self::held`]. Others are put into `room`.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn look(&mut self, socket: &PacketSocket, room: &mut [u8]) -> io::Result<Packet> {
        if self.memory == NonNull::dangling() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.give_back();
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        if status & libc::TP_STATUS_COPY == 0 {
            return self.hold(status);
        }
        // It was queued before its slot was filled.
        let gone = |e: io::Error| match e.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::InvalidData.into(),
            _ => e,
        };
        let packet = socket.receive(room).map_err(gone);
        self.next_slot();
        packet
    }

    /// Whether a look may find something.
    #[inline]
    pub fn comes(&self) -> bool {
        if self.held.is_some() || self.memory == NonNull::dangling() {
            return true;
        }
        self.status().load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    /// The frame that the last look found, with what stands before it, if it is read in its slot.
    pub fn held(&self) -> Option<&[u8]> {
        let Held { from, len } = self.held?;
        // SAFETY: `hold` checked that both lie inside the slot. It is ours, so that the host does
        // not write to it, until `give_back`, which cannot be called while this is borrowed.
        Some(unsafe { std::slice::from_raw_parts(self.slot().add(from), len) })
    }

    /// What [`Self::held`] gave is not read any more: the host may fill its slot again.
    pub fn give_back(&mut self) {
        if self.held.take().is_some() {
            self.next_slot();
        }
    }

    /// The slot is the host's again.
    fn next_slot(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        let next = self.next.wrapping_add(1);
        self.next = if next < self.slots.count() { next } else { 0 };
    }

    /// As if the host had lost its place: the slot that it fills next is not its own, nor ours.
    #[cfg(test)]
    pub(crate) fn lose_place(&self) {
        self.status().store(libc::TP_STATUS_LOSING, Ordering::Release);
    }

    /// Holds the frame of the next slot, which is ours now.
    fn hold(&mut self, status: u32) -> io::Result<Packet> {
        // SAFETY: a slot begins with its header; the host does not write it while it is ours.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        let from = usize::from(header.tp_mac).saturating_sub(self.before);
        let from = from.max(size_of::<libc::tpacket2_hdr>());
        let whole = (header.tp_snaplen as usize).saturating_add(self.before);
        // One that was cut although its slot does not say so was not queued: there was no room.
        let told = (header.tp_len as usize).saturating_add(self.before);
        if whole < told || from.saturating_add(whole) > self.slots.bytes {
            self.next_slot();
            return Err(rustix::io::Errno::NOBUFS.into());
        }
        self.held = Some(Held { from, len: whole });
        let tag = tag_of(status, header.tp_vlan_tpid, header.tp_vlan_tci);
        Ok(Packet { len: whole, tag })
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        self.unmap();
    }
}
