//! What comes to a packet socket, by a ring that the host shares (packet(7), `PACKET_RX_RING`,
//! version 2): no system call per frame, nor any while nothing comes.
//!
//! Slots are short, so that many small frames find room. A frame that is longer than a slot lies
//! in the socket's own queue besides; its slot says so and keeps its place among the others.
//!
//! # Budget
//! A frame of a slot: one look at the slot, one copy, one store that gives the slot back. A longer
//! one: a system call as well.

use std::io;
use std::mem::size_of;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::packet::{FINISH_BYTES, Packet, PacketSocket, drops, set, tag_of};

/// Length of a slot, in bytes: a frame of 1500 bytes and all that stands before it.
const SLOT_BYTES: usize = 2048;
/// How many there are.
const SLOTS: usize = 2048;
/// Length of the pieces that the host makes the ring of, in bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// Length of the ring, in bytes.
const RING_BYTES: usize = SLOTS * SLOT_BYTES;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(SLOT_BYTES));
const _: () = assert!(RING_BYTES.is_multiple_of(BLOCK_BYTES));

/// The ring of one socket, which is to live as long.
#[derive(Debug)]
pub struct PacketRing {
    memory: NonNull<u8>,
    /// Below [`SLOTS`].
    next: usize,
}

// SAFETY: the mapping is this ring's alone and may be read from any thread; the host writes a slot
// only while its status says so, which is read and written atomically.
unsafe impl Send for PacketRing {}

/// Asks the host for a ring of that many slots, or to give up the one that it has.
fn request(socket: &PacketSocket, slots: usize) -> io::Result<()> {
    let bytes = slots.saturating_mul(SLOT_BYTES);
    let whole = slots > 0;
    let request = libc::tpacket_req {
        tp_block_size: if whole { BLOCK_BYTES as libc::c_uint } else { 0 },
        tp_block_nr: (bytes / BLOCK_BYTES) as libc::c_uint,
        tp_frame_size: if whole { SLOT_BYTES as libc::c_uint } else { 0 },
        tp_frame_nr: slots as libc::c_uint,
    };
    set(socket.as_fd(), libc::PACKET_RX_RING, &request)
}

/// Has the host make a ring, and maps it.
fn map(socket: &PacketSocket) -> io::Result<NonNull<u8>> {
    request(socket, SLOTS)?;
    // SAFETY: a new mapping at a place of the host's choice; nothing else is there.
    let mapped = unsafe {
        mmap(
            std::ptr::null_mut(),
            RING_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            socket.as_fd(),
            0,
        )
    };
    let memory = mapped.ok().and_then(|memory| NonNull::new(memory.cast()));
    if memory.is_none() {
        // What came would be in a ring that nobody reads.
        request(socket, 0)?;
    }
    memory.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl PacketRing {
    /// Has what comes to the socket put into a ring from now on; to be made before anything was
    /// received.
    ///
    /// # Errors
    /// The host has no room, or no such rings.
    pub fn new(socket: &PacketSocket) -> io::Result<Self> {
        let fd = socket.as_fd();
        set(fd, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        // From which length on a frame that does not fit its slot is queued besides: from any.
        set(fd, libc::PACKET_COPY_THRESH, &1_i32)?;
        Ok(Self { memory: map(socket)?, next: 0 })
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
        self.unmap();
        request(socket, 0)?;
        (self.memory, self.next) = (map(socket)?, 0);
        Ok(())
    }

    fn unmap(&mut self) {
        let memory = std::mem::replace(&mut self.memory, NonNull::dangling());
        if memory != NonNull::dangling() {
            // SAFETY: `map` made this mapping; what referred to it is gone, as `self` is borrowed.
            let _ = unsafe { munmap(memory.as_ptr().cast(), RING_BYTES) };
        }
    }

    /// The slot that is filled next.
    fn slot(&self) -> *mut u8 {
        // SAFETY: `next` is less than SLOTS, so this stays inside the mapping.
        unsafe { self.memory.as_ptr().add(self.next.wrapping_mul(SLOT_BYTES)) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first word of a slot is its status: aligned, mapped as long as `self`, and
        // only ever touched atomically by both sides.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    /// Receives one frame, behind the ten bytes that say how it is to be finished. Never waits,
    /// and asks the host nothing while nothing has come.
    ///
    /// # Errors
    /// Nothing is there, or a frame that did not fit its slot was not to be had otherwise.
    pub fn receive(&mut self, socket: &PacketSocket, room: &mut [u8]) -> io::Result<Packet> {
        if self.memory == NonNull::dangling() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return Err(rustix::io::Errno::AGAIN.into());
        }
        let packet = if status & libc::TP_STATUS_COPY != 0 {
            // It was queued before its slot was filled.
            let gone = |e: io::Error| match e.kind() {
                io::ErrorKind::WouldBlock => io::ErrorKind::InvalidData.into(),
                _ => e,
            };
            socket.receive(room).map_err(gone)
        } else {
            Ok(self.copy(status, room))
        };
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = self.next.wrapping_add(1) % SLOTS;
        packet
    }

    /// Copies the frame of the next slot, which is ours now.
    fn copy(&self, status: u32, room: &mut [u8]) -> Packet {
        // SAFETY: a slot begins with its header; the host does not write it while it is ours.
        let header = unsafe { self.slot().cast::<libc::tpacket2_hdr>().read() };
        let from = usize::from(header.tp_mac).saturating_sub(FINISH_BYTES);
        let whole = (header.tp_snaplen as usize).saturating_add(FINISH_BYTES);
        let room_len = SLOT_BYTES.saturating_sub(from.max(size_of::<libc::tpacket2_hdr>()));
        let len = whole.min(room_len).min(room.len());
        // SAFETY: `from + len` is at most SLOT_BYTES, inside the slot, and `len` at most the
        // length of `room`, which is not part of the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.slot().add(from), room.as_mut_ptr(), len) };
        // A frame that was cut although its slot did not say so is told by its length.
        let told = (header.tp_len as usize).saturating_add(FINISH_BYTES);
        let tag = tag_of(status, header.tp_vlan_tpid, header.tp_vlan_tci);
        Packet { len: if len == told { len } else { told.max(room.len().saturating_add(1)) }, tag }
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        self.unmap();
    }
}
