//! Links of the kind `raw`: the local network behind an interface of this host.
//!
//! Frames cross as they are, with checksums and segments unfinished where the host finishes them.
//! Taken is what is for everyone, for groups, or for one of our addresses: those of running ports,
//! which the group tells, and those whose frames left by this link. What comes *from* an address of
//! a running port is our own and went in a circle: it is dropped. The host's own traffic by the
//! interface is neither heard nor reached.
//!
//! # Budget
//! One copy of a frame out, and one system call for up to [`RAW_FRAMES_MAX`]; one system call for
//! each that comes, which writes it where it is handed on.

use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{
    Arrival, Arrivals, Buffer, Carrier, OFFLOAD_BYTES, Outgoing, Refusal, Standing,
};
use causeway_fabric::{Context, LogLimit, Progress, Served, ServiceWatch};
use causeway_memory::packet::{FINISH_BYTES, Packet, PacketError, PacketSocket};
use causeway_wire::ethernet::{self, is_group};
use causeway_wire::virtio_net::{HDR_F_NEEDS_CSUM, Header};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sockopt};

use super::inbox::Inbox;
use super::limits::{
    FRAME_MIN, RAW_ADDRESSES_MAX, RAW_AGAIN_NS, RAW_BYTES, RAW_FRAME_ROOM, RAW_FRAMES_MAX,
    SEND_BYTES, SOCKET_BYTES, TAG_BYTES, TAGGED_HEADER,
};
use super::tally::{Loss, Tally};
use crate::limits::FRAME_BYTES_MAX;

/// What the shards share.
#[derive(Debug, Default)]
struct Shared {
    /// None while the interface is down or gone.
    socket: Option<Arc<PacketSocket>>,
    /// Addresses whose frames left.
    left: HashSet<u64>,
}

type Outlet = Arc<Mutex<Shared>>;

fn shared(outlet: &Outlet) -> MutexGuard<'_, Shared> {
    outlet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link.
#[derive(Debug)]
pub struct RawLink {
    inbox: Inbox,
    interface: String,
    source: u32,
    socket: Option<(Arc<PacketSocket>, ServiceWatch)>,
    outlet: Outlet,
    /// Addresses of running ports.
    ours: HashSet<u64>,
    started: bool,
    again_ns: Option<u64>,
    reason: String,
    log: LogLimit,
    /// How often it came up.
    pub ups: u64,
    /// Frames that were for others.
    pub not_ours: u64,
    /// Frames that came from an address of ours.
    pub circled: u64,
    /// Frames that the host could not hand over.
    pub unreadable: u64,
}

impl RawLink {
    /// A link on an interface, which may be down.
    ///
    /// # Errors
    /// There is no such interface, or we may not use it.
    pub fn open(
        cx: &Context<'_>,
        inbox: Inbox,
        interface: &str,
        source: u32,
    ) -> Result<Self, PacketError> {
        let mut link = Self {
            inbox,
            interface: interface.to_owned(),
            source,
            socket: None,
            outlet: Outlet::default(),
            ours: HashSet::new(),
            started: false,
            again_ns: None,
            reason: String::new(),
            log: LogLimit::default(),
            ups: 0,
            not_ours: 0,
            circled: 0,
            unreadable: 0,
        };
        match link.bind(cx) {
            Err(PacketError::Down(_)) | Ok(()) => Ok(link),
            Err(error) => Err(error),
        }
    }

    /// The way out.
    pub fn carrier(&self) -> RawCarrier {
        RawCarrier {
            outlet: self.outlet.clone(),
            tally: self.inbox.tally.clone(),
            bytes: vec![0; SEND_BYTES.saturating_add(RAW_FRAME_ROOM)],
            ends: Vec::with_capacity(RAW_FRAMES_MAX),
            socket: None,
            told: HashSet::new(),
        }
    }

    /// Why it carries nothing; nothing if it does.
    pub fn trouble(&self) -> Option<&str> {
        self.socket.is_none().then_some(&*self.reason)
    }

    /// The longest packet, in bytes.
    pub fn mtu(&self) -> Option<usize> {
        self.socket.as_ref().map(|(socket, _)| socket.mtu())
    }

    /// An address is at one of our ports now, or no longer.
    pub fn announce(&mut self, mac: [u8; 6], here: bool) {
        let number = ethernet::number(mac);
        if here {
            self.ours.insert(number);
        } else {
            self.ours.remove(&number);
        }
    }

    fn bind(&mut self, cx: &Context<'_>) -> Result<(), PacketError> {
        let opened = PacketSocket::open(&self.interface).and_then(|socket| {
            let watch = cx.watch_source(socket.as_fd(), self.source);
            let watch = watch.map_err(|e| PacketError::Host(self.interface.clone(), e))?;
            Ok((Arc::new(socket), watch))
        });
        match opened {
            Ok((socket, watch)) => {
                // Beyond the limit for all where we may, else up to it.
                if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
                    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
                }
                let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
                self.again_ns = None;
                self.ups = self.ups.saturating_add(1);
                shared(&self.outlet).socket = Some(socket.clone());
                self.socket = Some((socket, watch));
                Ok(())
            }
            Err(error) => {
                self.reason = error.to_string();
                self.again_ns = Some(cx.now_ns.saturating_add(RAW_AGAIN_NS));
                Err(error)
            }
        }
    }

    fn stands(&self) {
        if self.started {
            self.inbox.stands(Standing { up: self.socket.is_some(), rtt_ns: None });
        }
    }

    /// The group hears of it from now on.
    pub fn start(&mut self) {
        self.started = true;
        self.stands();
    }

    /// When [`Self::tick`] is to be called.
    pub fn deadline(&self) -> u64 {
        self.again_ns.unwrap_or(u64::MAX)
    }

    /// Tries the interface again.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        if self.again_ns.is_some_and(|at| at <= cx.now_ns) && self.bind(cx).is_ok() {
            self.stands();
            let (link, interface) = (self.inbox.name.as_str(), self.interface.as_str());
            log::info!(link, interface; "link is up");
            cx.wake_source(self.source);
        }
    }

    fn down(&mut self, now_ns: u64, error: &io::Error) {
        self.reason = format!("interface {}: {error}", self.interface);
        self.socket = None;
        shared(&self.outlet).socket = None;
        self.again_ns = Some(now_ns.saturating_add(RAW_AGAIN_NS));
        self.stands();
        if let Some(more) = self.log.admit(now_ns) {
            let (link, reason) = (self.inbox.name.as_str(), self.reason.as_str());
            log::warn!(link, reason, suppressed = more; "link is down");
        }
    }

    /// Takes what came, about `budget` frames.
    pub fn serve(&mut self, now_ns: u64, budget: usize) -> Served {
        let Some(socket) = self.socket.as_ref().map(|(socket, _)| socket.clone()) else {
            return Served { progress: Progress::Parked, count: 0 };
        };
        let mut batch = Batch::new(&self.inbox);
        let (mut count, mut progress) = (0_u32, Progress::Worked);
        while (count as usize) < budget {
            match socket.receive(batch.room()) {
                Ok(packet) => {
                    count = count.saturating_add(1);
                    if let Some((frame, offload)) = batch.frame(packet) {
                        if self.is_taken(batch.bytes.get(frame.clone()).unwrap_or(&[])) {
                            batch.keep(frame, offload, &self.inbox);
                        }
                    } else {
                        let cut = packet.len > RAW_FRAME_ROOM;
                        self.inbox.tally.lost(if cut { Loss::TooBig } else { Loss::Runt }, 1);
                    }
                }
                Err(error) => match rustix::io::Errno::from_io_error(&error) {
                    Some(rustix::io::Errno::AGAIN) => {
                        progress = Progress::Idle;
                        break;
                    }
                    Some(
                        rustix::io::Errno::NETDOWN
                        | rustix::io::Errno::NODEV
                        | rustix::io::Errno::NXIO,
                    ) => {
                        self.down(now_ns, &error);
                        progress = Progress::Parked;
                        break;
                    }
                    // One frame whose finishing has no name in virtio.
                    _ => {
                        count = count.saturating_add(1);
                        self.unreadable = self.unreadable.saturating_add(1);
                    }
                },
            }
        }
        batch.put(&self.inbox);
        Served { progress, count }
    }

    fn is_taken(&mut self, frame: &[u8]) -> bool {
        let Some((destination, from, _)) = ethernet::numbers(frame) else { return false };
        if self.ours.contains(&from) {
            self.circled = self.circled.saturating_add(1);
            return false;
        }
        let ours = is_group(ethernet::address(destination))
            || self.ours.contains(&destination)
            || shared(&self.outlet).left.contains(&destination);
        self.not_ours = self.not_ours.saturating_add(u64::from(!ours));
        ours
    }
}

impl Drop for RawLink {
    fn drop(&mut self) {
        shared(&self.outlet).socket = None;
    }
}

/// Frames that came one after the other, where they lie.
struct Batch {
    bytes: Buffer,
    used: usize,
    frames: Vec<Arrival>,
}

impl Batch {
    fn new(inbox: &Inbox) -> Self {
        Self { bytes: inbox.pool.take(RAW_BYTES), used: 0, frames: Vec::new() }
    }

    /// Where the next one may lie, with what stands before it.
    fn room(&mut self) -> &mut [u8] {
        let end = self.used.saturating_add(RAW_FRAME_ROOM);
        self.bytes.get_mut(self.used..end).unwrap_or(&mut [])
    }

    /// A frame that was received: where it lies, and how it is to be finished.
    fn frame(&mut self, packet: Packet) -> Option<(std::ops::Range<usize>, [u8; OFFLOAD_BYTES])> {
        let start = self.used.saturating_add(FINISH_BYTES);
        let frame = start..self.used.checked_add(packet.len)?;
        if frame.len() < FRAME_MIN || packet.len > RAW_FRAME_ROOM {
            return None;
        }
        let before: [u8; FINISH_BYTES] = *self.bytes.get(self.used..)?.first_chunk()?;
        let mut header = native(&before);
        let Some((kind, value)) = packet.tag else { return Some((frame, emit(&header))) };
        // Put the tag back, between the addresses and the rest, which stays where it is.
        let tagged = start.saturating_sub(TAG_BYTES)..frame.end;
        let bytes = self.bytes.get_mut(tagged.clone())?;
        bytes.copy_within(TAG_BYTES..TAGGED_HEADER, 0);
        let [a, b] = kind.to_be_bytes();
        let [c, d] = value.to_be_bytes();
        bytes
            .get_mut(TAGGED_HEADER.saturating_sub(TAG_BYTES)..TAGGED_HEADER)?
            .copy_from_slice(&[a, b, c, d]);
        if header.flags != 0 {
            header.csum_start = header.csum_start.saturating_add(TAG_BYTES as u16);
        }
        if header.gso_type != 0 {
            header.hdr_len = header.hdr_len.saturating_add(TAG_BYTES as u16);
        }
        Some((tagged, emit(&header)))
    }

    /// Keeps the frame that was received last.
    fn keep(&mut self, at: std::ops::Range<usize>, offload: [u8; OFFLOAD_BYTES], inbox: &Inbox) {
        self.used = at.end;
        self.frames.push(Arrival { at, offload, hops: 1 });
        if self.bytes.len().saturating_sub(self.used) < RAW_FRAME_ROOM {
            std::mem::replace(self, Self::new(inbox)).put(inbox);
        }
    }

    fn put(self, inbox: &Inbox) {
        let Self { bytes, frames, .. } = self;
        inbox.put(Arrivals { link: inbox.id, bytes, frames });
    }
}

/// What stands before a frame, in the host's byte order. Of its flags only one asks for something.
fn native(bytes: &[u8; FINISH_BYTES]) -> Header {
    let [flags, gso_type, a, b, c, d, e, f, g, h] = *bytes;
    Header {
        flags: flags & HDR_F_NEEDS_CSUM,
        gso_type,
        hdr_len: u16::from_ne_bytes([a, b]),
        gso_size: u16::from_ne_bytes([c, d]),
        csum_start: u16::from_ne_bytes([e, f]),
        csum_offset: u16::from_ne_bytes([g, h]),
        num_buffers: 0,
    }
}

/// The other way round.
fn to_native(header: &Header) -> [u8; FINISH_BYTES] {
    let [a, b] = header.hdr_len.to_ne_bytes();
    let [c, d] = header.gso_size.to_ne_bytes();
    let [e, f] = header.csum_start.to_ne_bytes();
    let [g, h] = header.csum_offset.to_ne_bytes();
    [header.flags, header.gso_type, a, b, c, d, e, f, g, h]
}

fn emit(header: &Header) -> [u8; OFFLOAD_BYTES] {
    let full = header.emit();
    full.first_chunk().copied().unwrap_or_default()
}

/// The way out of one link, for one shard.
#[derive(Debug)]
pub struct RawCarrier {
    outlet: Outlet,
    tally: Arc<Tally>,
    /// Frames one behind the other, each behind what says how it is to be finished.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// The socket, as it was at the batch's first frame.
    socket: Option<Arc<PacketSocket>>,
    /// Addresses that are known to have left.
    told: HashSet<u64>,
}

impl RawCarrier {
    fn used(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Notes that an address is on our side.
    fn note(&mut self, from: u64) {
        if self.told.contains(&from) || self.told.len() >= RAW_ADDRESSES_MAX {
            return;
        }
        self.told.insert(from);
        let mut shared = shared(&self.outlet);
        if shared.left.len() < RAW_ADDRESSES_MAX {
            shared.left.insert(from);
        }
    }

    fn refuse(&self, loss: Loss, refusal: Refusal) -> Result<(), Refusal> {
        self.tally.lost(loss, 1);
        Err(refusal)
    }

    /// Sends the frames from number `from` on. Says how many left, if any did.
    fn send(&self, socket: &PacketSocket, from: usize) -> io::Result<usize> {
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; RAW_FRAMES_MAX] =
            std::array::from_fn(|_| SendAncillaryBuffer::default());
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let slices: Vec<_> = starts
            .zip(&self.ends)
            .skip(from)
            .map(|(start, end)| [IoSlice::new(self.bytes.get(start..*end).unwrap_or(&[]))])
            .collect();
        let messages = slices.iter().zip(&mut controls);
        let mut messages: Vec<_> =
            messages.map(|(slice, control)| MMsgHdr::new(slice, control)).collect();
        Ok(sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)?)
    }
}

impl Carrier for RawCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        if self.ends.len() >= RAW_FRAMES_MAX || self.used() >= SEND_BYTES {
            self.flush();
        }
        if self.ends.is_empty() {
            self.socket = shared(&self.outlet).socket.clone();
        }
        let Some(mtu) = self.socket.as_ref().map(|socket| socket.mtu()) else {
            return self.refuse(Loss::Down, Refusal::Down);
        };
        let piece = frame.offload.piece_len(frame.len);
        if frame.len > FRAME_BYTES_MAX || piece > mtu.saturating_add(TAGGED_HEADER + 2) {
            return self.refuse(Loss::TooBig, Refusal::TooBig);
        }
        let start = self.used();
        let end = start.saturating_add(FINISH_BYTES).saturating_add(frame.len);
        let Some(room) = self.bytes.get_mut(start..end) else {
            return self.refuse(Loss::TooBig, Refusal::TooBig);
        };
        let (before, behind) = room.split_at_mut_checked(FINISH_BYTES).unwrap_or_default();
        before.copy_from_slice(&to_native(&frame.offload.to_header(0)));
        let read = frame.reader().read(behind);
        let from = ethernet::numbers(behind).map(|(_, from, _)| from);
        if read.is_err() {
            return self.refuse(Loss::SenderFault, Refusal::Lost);
        }
        from.into_iter().for_each(|from| self.note(from));
        self.ends.push(end);
        Ok(())
    }

    fn flush(&mut self) -> u64 {
        let (mut at, mut lost, mut calls) = (0_usize, 0_u64, 0_u64);
        if let Some(socket) = self.socket.take() {
            while at < self.ends.len() {
                calls = calls.saturating_add(1);
                let error = match self.send(&socket, at) {
                    Ok(sent) if sent > 0 => {
                        at = at.saturating_add(sent);
                        continue;
                    }
                    Ok(_) => None,
                    Err(error) => rustix::io::Errno::from_io_error(&error),
                };
                let why = match error {
                    Some(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Loss::NoRoom,
                    Some(rustix::io::Errno::MSGSIZE) => Loss::TooBig,
                    _ => Loss::Unreachable,
                };
                self.tally.lost(why, 1);
                (at, lost) = (at.saturating_add(1), lost.saturating_add(1));
            }
        }
        let sent = (self.ends.len() as u64).saturating_sub(lost);
        let bytes = self.used().saturating_sub(self.ends.len().saturating_mul(FINISH_BYTES));
        self.tally.transmitted(sent, if lost == 0 { bytes as u64 } else { 0 }, calls);
        self.ends.clear();
        lost
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_fabric::carrier::LinkId;
    use causeway_fabric::mailbox::mailbox;

    fn inbox() -> Inbox {
        let (to, _) = mailbox(1).unwrap();
        let name = "l".parse().unwrap();
        Inbox { id: LinkId(1), name, to, tally: Arc::default(), pool: Default::default() }
    }

    #[test]
    fn a_tag_is_put_back_where_it_was() {
        let mut batch = Batch::new(&inbox());
        let offload = Header {
            flags: HDR_F_NEEDS_CSUM,
            gso_type: 1,
            hdr_len: 54,
            gso_size: 1460,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 0,
        };
        let frame: Vec<u8> = (0..60).collect();
        let bytes = [&to_native(&offload)[..], &frame].concat();
        batch.room()[..bytes.len()].copy_from_slice(&bytes);
        let packet = Packet { len: bytes.len(), tag: Some((0x8100, 0x2005)) };
        let (at, told) = batch.frame(packet).unwrap();
        let tagged = [&frame[..12], &[0x81, 0, 0x20, 5], &frame[12..]].concat();
        assert_eq!(batch.bytes[at], tagged);
        let moved = Header { hdr_len: 58, csum_start: 38, ..offload };
        assert_eq!(told, emit(&moved));
    }

    #[test]
    fn hostile_lengths_make_no_frames() {
        let mut batch = Batch::new(&inbox());
        for len in [0, FINISH_BYTES, FINISH_BYTES + 13, RAW_FRAME_ROOM + 1, usize::MAX] {
            assert_eq!(batch.frame(Packet { len, tag: None }), None, "{len}");
        }
    }
}
