//! Frames in datagrams, one in each, between networks with routers (`udp = {…}`).
//!
//! Datagrams are accepted from configured addresses only; others, frames in the name of a NIC at
//! another address, frames in the name of this NIC except those of discovery, and frames of fewer
//! than 14 or of 16,384 bytes or more are dropped. The NICs behind an address are
//! learnt from received frames ([`super::address_table`]). Broadcasts, and frames to unknown NICs,
//! are sent to all addresses, and are sent if one of them took the frame: for others, which had no
//! room or failed, the frame is lost. Nothing is encrypted: a node on the path can read and forge
//! frames.
//!
//! # Budget
//! One system call for a batch of frames of one length (the last may be shorter) to one NIC, up to
//! the segments of the kernel or `SEND_BYTES` (65,000) bytes; after a failed batch the next
//! `SINGLE_BATCHES` (4,096) datagrams to the address leave singly. One for a received batch from a
//! host.
//!
//! The carrier neither retransmits nor limits its rate: a lost datagram is a lost frame, and the
//! engine retransmits. Frames longer than the path MTU are fragmented by IP. Without room in the
//! socket buffer, frames wait in the engine's batch. Jumbo frames are not used.
//!
//! The engine's batch has a clone of [`UdpOutput`]. Both share the address table, behind a lock
//! that only the NIC's dispatcher takes. Called by `mx::network::carrier`.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::BufferPool;
use causeway_fabric::udp::{Burst, Fragmentation, Udp as Socket, UdpReceiver, is_batch_refusal};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::send::OutgoingFrame;
use causeway_mxoe::discovery::Discovery;
use causeway_mxoe::driver::limits::FRAME_ROOM;
use causeway_wire::mxoe::{Header, HostQuery, PEER_UNKNOWN, Packet, emit};
use rustix::io::Errno;

use super::address_table::{AddressTable, SourceCheck};
use super::carrier::ReceiveResult;
use crate::limits::SEND_BYTES;

/// Length of an Ethernet header in bytes.
const HEADER_LEN: usize = 14;

/// The output of a socket.
#[derive(Debug, Clone)]
pub struct UdpOutput {
    socket: Arc<Socket>,
    /// The addresses of NICs.
    addresses: Arc<Mutex<AddressTable>>,
}

impl UdpOutput {
    fn addresses(&self) -> MutexGuard<'_, AddressTable> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the first of `frames`, as many to one NIC as one call can send. Returns their number.
    ///
    /// # Errors
    /// The first frame was not sent. A frame to all addresses: to none of them.
    pub fn send<'a>(
        &self,
        frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
    ) -> io::Result<usize> {
        let mut addresses = self.addresses();
        let Some(one) = frames.clone().next() else { return Ok(0) };
        let alone = || std::iter::once(one);
        let Some(to) = mac(one.head).and_then(|mac| addresses.place(mac)) else {
            let sent = addresses.peers().iter().map(|peer| self.socket.send_frames(*peer, alone()));
            // A frame that is sent again would reach the addresses that took it twice.
            let joined = sent.reduce(|one, other| one.or(other));
            return joined.unwrap_or(Ok(())).map(|()| 1);
        };
        let together = addresses.may_batch(to);
        let count = if together { self.batch_len(one, frames.clone()) } else { 1 };
        match self.socket.send_frames(to, frames.take(count)) {
            Ok(()) => Ok(count),
            Err(error) if count > 1 && is_batch_refusal(&error) => {
                addresses.send_singly(to);
                self.socket.send_frames(to, alone()).map(|()| 1)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the number of frames for one call.
    fn batch_len<'a>(
        &self,
        one: OutgoingFrame<'a>,
        frames: impl Iterator<Item = OutgoingFrame<'a>>,
    ) -> usize {
        let (len, mut bytes, mut count) = (one.len().max(1), 0_usize, 0_usize);
        for frame in frames.take(self.socket.batch()) {
            bytes = bytes.saturating_add(frame.len());
            let fits = bytes <= SEND_BYTES && frame.len() <= len;
            if count > 0 && !(fits && mac(frame.head) == mac(one.head)) {
                break;
            }
            count = count.saturating_add(1);
            if frame.len() < len {
                // Only the last datagram of a batch may be shorter.
                break;
            }
        }
        count.max(1)
    }
}

/// Returns the destination of a frame.
fn mac(frame: &[u8]) -> Option<[u8; 6]> {
    frame.first_chunk().copied()
}

/// Received datagrams.
#[derive(Debug)]
struct Datagrams {
    receiver: UdpReceiver,
    /// Batches taken from the kernel that are not completely processed.
    bursts: VecDeque<Burst>,
    /// Range of the latest datagram in the first batch.
    last: Option<Range<usize>>,
    /// The kernel had no more datagrams: it is not asked again in this pass.
    drained: bool,
}

impl Datagrams {
    fn new() -> Self {
        let receiver = UdpReceiver::new(BufferPool::default());
        Self { receiver, bursts: VecDeque::new(), last: None, drained: false }
    }

    /// Advances to the next datagram. Returns its source.
    fn next(&mut self, socket: &Socket) -> io::Result<Option<SocketAddr>> {
        let mut at = 0;
        if let (Some(last), Some(burst)) = (self.last.take(), self.bursts.front()) {
            at = last.end;
            if at >= burst.len {
                self.bursts.pop_front();
                at = 0;
            }
        }
        if self.bursts.is_empty() {
            if std::mem::take(&mut self.drained) {
                return Ok(None);
            }
            let mut came = Vec::new();
            self.drained = !self.receiver.receive(socket, &mut came, false, usize::MAX)?;
            self.bursts.extend(came);
        }
        let Some(burst) = self.bursts.front() else {
            self.drained = false;
            return Ok(None);
        };
        let end = at.saturating_add(burst.stride.max(1)).min(burst.len);
        self.last = Some(at..end);
        Ok(Some(burst.from))
    }

    /// Returns the latest datagram.
    fn last(&self) -> &[u8] {
        let (burst, last) = (self.bursts.front(), self.last.clone());
        burst.zip(last).and_then(|(burst, last)| burst.buffer.get(last)).unwrap_or(&[])
    }
}

/// The UDP socket of a NIC.
#[derive(Debug)]
pub struct UdpCarrier {
    output: UdpOutput,
    /// MAC of the NIC.
    own: [u8; 6],
    watch: ServiceWatch,
    /// The socket is polled and does not wake the dispatcher.
    is_polled: bool,
    datagrams: Datagrams,
    /// Number by which the socket is served.
    pub source: u32,
    /// Number of datagrams from addresses that are not configured.
    pub unknown_addresses: u64,
    /// Number of frames in the name of this NIC or of a NIC at another address, or of a NIC beyond
    /// the limit of an address.
    pub foreign_frames: u64,
}

impl UdpCarrier {
    /// Binds a socket.
    ///
    /// # Errors
    /// The address is in use or is not an address of this host, or the kernel has no descriptors
    /// left.
    pub fn bind(
        cx: &Context<'_>,
        listen: SocketAddr,
        peers: Vec<SocketAddr>,
        own: [u8; 6],
        source: u32,
    ) -> io::Result<Self> {
        // Frames may exceed the path MTU: IP fragments them.
        let socket = Socket::bind(listen, Fragmentation::Allowed)?;
        let watch = cx.watch_source(socket.as_fd(), source)?;
        let addresses = Arc::new(Mutex::new(AddressTable::new(peers)));
        let output = UdpOutput { socket: Arc::new(socket), addresses };
        Ok(Self {
            output,
            own,
            watch,
            is_polled: false,
            datagrams: Datagrams::new(),
            source,
            unknown_addresses: 0,
            foreign_frames: 0,
        })
    }

    /// Returns the output.
    pub fn output(&self) -> UdpOutput {
        self.output.clone()
    }

    /// Ends a pass without frames: see [`super::interface::NicInterface::end_pass`].
    pub fn end_pass(&mut self, polled: bool) -> bool {
        super::interface::end_pass(&self.watch, &mut self.is_polled, polled)
    }

    /// Starts a pass. The socket wakes the dispatcher once for datagrams since the previous pass.
    pub fn begin_pass(&mut self) {
        self.datagrams.drained = false;
    }

    /// Returns the frame that was received last.
    pub fn frame(&self) -> &[u8] {
        self.datagrams.last()
    }

    /// Receives a frame.
    pub fn receive(&mut self, now_ns: u64) -> ReceiveResult {
        let from = match self.datagrams.next(&self.output.socket) {
            Ok(Some(from)) => from,
            Ok(None) => return ReceiveResult::Empty,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => ReceiveResult::Empty,
                    _ => ReceiveResult::Invalid,
                };
            }
        };
        let mut addresses = self.output.addresses();
        if !addresses.knows(&from) {
            drop(addresses);
            self.unknown_addresses = self.unknown_addresses.wrapping_add(1);
            return ReceiveResult::Invalid;
        }
        let frame = self.datagrams.last();
        let source = frame.get(6..HEADER_LEN).and_then(|rest| rest.first_chunk::<6>()).copied();
        let Some(source) = source.filter(|_| frame.len() < FRAME_ROOM) else {
            return ReceiveResult::Invalid;
        };
        let heard = match source == self.own {
            // An announcement from this NIC's address belongs to another NIC with the same address.
            true if Discovery::takes(frame) => SourceCheck::Valid,
            true => SourceCheck::Foreign,
            false => {
                addresses.check_source(source, from, frame, now_ns, causeway_mxoe::driver::random)
            }
        };
        drop(addresses);
        match heard {
            SourceCheck::Valid => return ReceiveResult::Frame,
            SourceCheck::Foreign => {}
            SourceCheck::Query { both, magic } => {
                let query = HostQuery { index_of_destination: PEER_UNKNOWN, magic };
                let header =
                    Header { destination: source, source: self.own, peer_index: PEER_UNKNOWN };
                let (head, _) = emit(&header, &Packet::HostQuery(query));
                for to in both {
                    // A lost query is repeated.
                    let _ = self.output.socket.send(to, head.bytes(), head.bytes().len());
                }
            }
        }
        self.foreign_frames = self.foreign_frames.wrapping_add(1);
        ReceiveResult::Invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 60;

    /// Returns a socket, and a function that sends datagrams to it.
    fn pair() -> (Socket, impl Fn(usize, usize)) {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bind = || Socket::bind(local, Fragmentation::Allowed).unwrap();
        let (ours, theirs) = (bind(), bind());
        let to = ours.local().unwrap();
        let send = move |count: usize, len: usize| {
            theirs.send(to, &vec![7; count * len], len.max(1)).unwrap();
        };
        (ours, send)
    }

    /// Receives at most `most` datagrams, and returns their lengths.
    fn take(came: &mut Datagrams, socket: &Socket, most: usize) -> Vec<usize> {
        let mut one = || came.next(socket).unwrap().map(|_| came.last().len());
        std::iter::from_fn(&mut one).take(most).collect()
    }

    #[test]
    fn datagrams_between_two_passes_are_received() {
        let ((socket, send), mut came) = (pair(), Datagrams::new());
        send(60, LEN);
        send(60, LEN);
        // More than the budget of a pass. The kernel reports the end before the next pass.
        assert_eq!(take(&mut came, &socket, 64), [LEN; 64]);
        assert!(came.drained);
        send(1, 1);
        // A wake-up during the pass: there is no further one.
        came.drained = false;
        let rest = take(&mut came, &socket, 64);
        assert_eq!(rest, [&[LEN; 56][..], &[1]].concat());
        send(1, 2);
        assert_eq!(take(&mut came, &socket, 64), [2], "an empty pass precedes the datagram");
    }

    #[test]
    fn datagrams_are_read_once_in_a_pass() {
        let ((socket, send), mut came) = (pair(), Datagrams::new());
        send(2, LEN);
        assert_eq!(take(&mut came, &socket, 2), [LEN; 2]);
        send(1, 1);
        assert_eq!(take(&mut came, &socket, 9), [0; 0], "the next pass reads it");
        assert_eq!(take(&mut came, &socket, 9), [1]);
    }

    #[test]
    fn frame_to_all_addresses_is_sent_once_if_one_takes_it() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let [ours, theirs] = [(); 2].map(|()| Socket::bind(local, Fragmentation::Allowed).unwrap());
        // A socket of IPv4 sends nothing to an address of IPv6.
        let peers = vec![theirs.local().unwrap(), "[::1]:9".parse().unwrap()];
        let addresses = Arc::new(Mutex::new(AddressTable::new(peers)));
        let output = UdpOutput { socket: Arc::new(ours), addresses };
        let head = [0xff; LEN];
        let frame = OutgoingFrame { head: &head, body: None };
        assert_eq!(output.send(std::iter::once(frame)).unwrap(), 1);
        assert_eq!(take(&mut Datagrams::new(), &theirs, 9), [LEN]);
    }

    #[test]
    fn hostile_datagrams_empty_or_too_long_are_taken_singly() {
        let ((socket, send), mut came) = (pair(), Datagrams::new());
        send(1, LEN);
        send(1, 0);
        send(1, 5000);
        send(1, 1);
        assert_eq!(take(&mut came, &socket, 9), [LEN, 0, 5000, 1]);
    }
}
