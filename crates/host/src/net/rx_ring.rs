//! The receive ring of a packet socket (packet(7), `PACKET_RX_RING`, version 2): no system call per
//! frame, nor any while no frame arrives.
//!
//! Slots are short, so that many small frames fit. The kernel queues a frame longer than a slot in
//! the socket as well; its slot marks that and keeps the order. The slots show neither the state of
//! the interface nor lost frames; [`crate::net::receiver`], the caller, queries the socket for the
//! state and [`PacketRing::lost`] for the frames.
//!
//! Frames arrive in the order of the kernel. When all slots are full the kernel drops new frames
//! and counts them ([`PacketRing::lost`]); a frame that is held keeps its slot. The kernel writes
//! the slots, so the ring trusts their headers only as far as the slot reaches. A ring belongs to
//! one thread at a time, takes 4 to 16 MiB of kernel memory ([`Slots`]), and must not outlive its
//! socket.
//!
//! # Budget
//! A frame of a slot costs a read of the slot's status, a store that returns the slot, and at most
//! a copy. A longer frame costs a system call in addition.

use std::io;
use std::mem::size_of;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::net::socket::{PacketSocket, ReceivedPacket, drops, set, tag_of};

/// The geometry of a ring: the length and the number of its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Length of a slot, in bytes: the kernel's header and a frame.
    bytes: usize,
    /// Slots per block. The kernel allocates the ring in blocks, here of about 256 KiB.
    of_block: usize,
    /// Number of blocks.
    blocks: usize,
}

impl Slots {
    /// For frames of 1500 bytes and their headers.
    pub const SHORT: Self = Self::new(2048, 128, 16);
    /// For frames of a 4 KiB page and their headers.
    pub const LONG: Self = Self::new(8192, 32, 32);
    /// For frames of 9000 bytes and their headers, where pages have 4 KiB.
    const JUMBO: Self = Self::new(9216, 28, 37);
    /// The same for larger pages: a block is a multiple of each page size.
    const JUMBO_OF_LONG_PAGES: Self = Self::new(16_384, 16, 64);

    const fn new(bytes: usize, of_block: usize, blocks: usize) -> Self {
        Self { bytes, of_block, blocks }
    }

    /// Returns the slots for frames of 9000 bytes and their headers.
    pub fn jumbo() -> Self {
        let whole = Self::JUMBO.block_bytes().is_multiple_of(rustix::param::page_size());
        if whole { Self::JUMBO } else { Self::JUMBO_OF_LONG_PAGES }
    }

    /// Returns the number of slots.
    pub const fn count(self) -> usize {
        self.of_block.saturating_mul(self.blocks)
    }

    /// Returns the length of a block in bytes.
    const fn block_bytes(self) -> usize {
        self.bytes.saturating_mul(self.of_block)
    }

    /// Returns the length of the ring in bytes.
    const fn ring_bytes(self) -> usize {
        self.block_bytes().saturating_mul(self.blocks)
    }
}

/// The ring of a socket, which must live as long as the ring.
#[derive(Debug)]
pub struct PacketRing {
    /// The mapped slots; dangling after a failed replacement.
    memory: NonNull<u8>,
    slots: Slots,
    /// Length of the header before each frame, in bytes.
    header_bytes: usize,
    /// Index of the slot that the kernel fills next.
    next: usize,
    /// The frame of the next slot, while the caller reads it there.
    held: Option<HeldFrame>,
}

/// The offset and the length of a frame in its slot.
#[derive(Debug, Clone, Copy)]
struct HeldFrame {
    /// Offset of the frame, with its header, in the slot.
    from: usize,
    /// Length of header and frame, in bytes.
    len: usize,
}

// SAFETY: the mapping belongs to this ring alone and may be read from any thread; the kernel writes
// a slot only while its status permits that, which both sides access atomically.
unsafe impl Send for PacketRing {}

/// Requests a ring with these slots from the kernel, or without slots the removal of the current
/// ring.
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

/// Creates a ring in the kernel and maps it.
fn map(socket: &PacketSocket, slots: Slots) -> io::Result<NonNull<u8>> {
    request(socket, Some(slots))?;
    // SAFETY: a new mapping at an address of the kernel's choice.
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
        // Without a mapping, the kernel would put frames into a ring that no process reads.
        request(socket, None)?;
    }
    memory.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl PacketRing {
    /// Makes the kernel put frames into a ring from now on. No frame may have been received from
    /// the socket before.
    ///
    /// # Errors
    /// The kernel has no memory for the ring, or no such rings.
    pub fn new(socket: &PacketSocket, slots: Slots) -> io::Result<Self> {
        let fd = socket.as_fd();
        set(fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        // Queue any frame that does not fit its slot, from a length of 1 byte.
        set(fd, libc::PACKET_COPY_THRESH, &1_i32)?;
        let header_bytes = socket.before();
        Ok(Self { memory: map(socket, slots)?, slots, header_bytes, next: 0, held: None })
    }

    /// Returns the number of frames that the kernel dropped since the last call. A frame that the
    /// kernel cannot describe (a segment of a kind that virtio does not define) keeps its slot
    /// reserved without end, and all later frames are dropped as well. A caller that sees drops and
    /// an empty ring must [replace](Self::renew) the ring.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lost(&self, socket: &PacketSocket) -> io::Result<u32> {
        drops(socket.as_fd())
    }

    /// Replaces the ring. Frames in the old ring are lost.
    ///
    /// # Errors
    /// The kernel refuses another ring. Each receive then fails with
    /// [`io::ErrorKind::NotConnected`], and the socket must be closed.
    pub fn renew(&mut self, socket: &PacketSocket) -> io::Result<()> {
        self.held = None;
        self.unmap();
        request(socket, None)?;
        (self.memory, self.next) = (map(socket, self.slots)?, 0);
        Ok(())
    }

    /// Unmaps the slots, if they are mapped.
    fn unmap(&mut self) {
        let memory = std::mem::replace(&mut self.memory, NonNull::dangling());
        if memory != NonNull::dangling() {
            // SAFETY: `map` created this mapping; no reference into it is left, because `self` is
            // borrowed mutably.
            let _ = unsafe { munmap(memory.as_ptr().cast(), self.slots.ring_bytes()) };
        }
    }

    /// Returns the slot that the kernel fills next.
    fn slot(&self) -> *mut u8 {
        // SAFETY: `next` is less than the number of slots, so this stays inside the mapping.
        unsafe { self.memory.as_ptr().add(self.next.wrapping_mul(self.slots.bytes)) }
    }

    /// Returns the status word of that slot, which decides its owner: the kernel or this process.
    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first word of a slot is its status: aligned, mapped as long as `self`, and
        // accessed only atomically by both sides.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    /// Receives a frame with its header into `room`. Never blocks, and makes no system call while
    /// the ring is empty.
    ///
    /// # Errors
    /// `EAGAIN` if the ring is empty; `ENOBUFS` if the kernel had no room to queue a frame that did
    /// not fit its slot; or the socket's error for such a frame. A frame with an error is lost, and
    /// the next call continues with the next slot.
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        room: &mut [u8],
    ) -> io::Result<ReceivedPacket> {
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

    /// Receives as [`Self::receive`] does, but leaves a frame that fits its slot there until the
    /// next call or [`Self::give_back`]; [`Self::held`] returns it. Other frames are copied to
    /// `room`.
    ///
    /// # Errors
    /// Those of [`Self::receive`].
    pub fn look(&mut self, socket: &PacketSocket, room: &mut [u8]) -> io::Result<ReceivedPacket> {
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
        // The kernel queued the frame before it filled the slot.
        let gone = |e: io::Error| match e.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::InvalidData.into(),
            _ => e,
        };
        let packet = socket.receive(room).map_err(gone);
        self.next_slot();
        packet
    }

    /// Returns whether a frame may have arrived: [`Self::look`] may find it.
    #[inline]
    pub fn comes(&self) -> bool {
        if self.held.is_some() || self.memory == NonNull::dangling() {
            return true;
        }
        self.status().load(Ordering::Relaxed) & libc::TP_STATUS_USER != 0
    }

    /// Returns the frame that the last [`Self::look`] found, with its header, if it lies in its
    /// slot.
    pub fn held(&self) -> Option<&[u8]> {
        let HeldFrame { from, len } = self.held?;
        // SAFETY: `hold` checked that the range lies inside the slot. The slot belongs to this
        // process, so that the kernel does not write to it, until `give_back`, which cannot be
        // called during this borrow.
        Some(unsafe { std::slice::from_raw_parts(self.slot().add(from), len) })
    }

    /// Returns the slot of the held frame to the kernel, if there is one.
    pub fn give_back(&mut self) {
        if self.held.take().is_some() {
            self.next_slot();
        }
    }

    /// Returns the current slot to the kernel and advances to the next.
    fn next_slot(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        let next = self.next.wrapping_add(1);
        self.next = if next < self.slots.count() { next } else { 0 };
    }

    /// Simulates a kernel that lost its position: the slot that it fills next belongs to neither
    /// side.
    #[cfg(test)]
    pub(crate) fn lose_place(&self) {
        self.status().store(libc::TP_STATUS_LOSING, Ordering::Release);
    }

    /// Holds the frame of the current slot, which belongs to this process now.
    fn hold(&mut self, status: u32) -> io::Result<ReceivedPacket> {
        // SAFETY: a slot begins with its header; the kernel does not write it while it belongs to
        // this process.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        let from = usize::from(header.tp_mac).saturating_sub(self.header_bytes);
        let from = from.max(size_of::<libc::tpacket2_hdr>());
        let whole = (header.tp_snaplen as usize).saturating_add(self.header_bytes);
        // A frame that was cut without `TP_STATUS_COPY` was not queued, for lack of room.
        let original = (header.tp_len as usize).saturating_add(self.header_bytes);
        if whole < original || from.saturating_add(whole) > self.slots.bytes {
            self.next_slot();
            return Err(rustix::io::Errno::NOBUFS.into());
        }
        self.held = Some(HeldFrame { from, len: whole });
        let tag = tag_of(status, header.tp_vlan_tpid, header.tp_vlan_tci);
        Ok(ReceivedPacket { len: whole, tag })
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        self.unmap();
    }
}
