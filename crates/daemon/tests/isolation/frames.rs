//! Attackers that send frames.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort};
use causeway_wire::ethernet::BROADCAST;
use causeway_wire::virtio_net::{
    GSO_TCPV4, HDR_F_NEEDS_CSUM, Header, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4,
};

use crate::attacker::{Attacker, wait};
use crate::daemon::{Daemon, RED, RED_NET_PORTS, mac};

/// Payload of a large frame, in bytes.
const PAYLOAD_BYTES: usize = 60_000;
/// Payload of each piece of a segmented frame, in bytes: 1,875 pieces.
const GSO_BYTES: u16 = 32;
/// Receive buffers for pieces: the receiver has room while the dispatcher works, so that no piece
/// is dropped early.
const PIECES_ROOM: u16 = 32_768;
/// A receive buffer that holds a piece, in bytes.
const PIECE_BUFFER_BYTES: u32 = 128;
/// Ethernet, IPv4 and TCP.
const HEADERS_BYTES: usize = 54;
/// A receive buffer that holds the largest frame, in bytes.
const RECEIVE_BYTES: u32 = 65_600;
/// The transmit queue of the first pair (virtio 1.3, 5.1.2).
const TRANSMIT: usize = 1;
/// Large frames queued at most.
const LARGE_QUEUED: u16 = 64;
/// Small frames queued at most.
const SMALL_QUEUED: u16 = 256;
const SMALL_BYTES: usize = 64;

/// One port sends the same frame again and again; others receive it.
pub struct Sender {
    from: NetPort,
    to: Vec<NetPort>,
    /// Length of the frame and its virtio_net_hdr.
    len: u32,
    queued: u16,
    arrived: u64,
}

impl Sender {
    /// Attaches the ports and sends the frame once from each buffer, so that later frames need no
    /// copy.
    fn attach(
        daemon: &Daemon,
        receivers: u8,
        options: (NetOptions, NetOptions),
        header: [u8; NET_HEADER_BYTES],
        frame: &[u8],
    ) -> Self {
        let attach = |n, options| attach(&daemon.socket(&format!("red-{n}")), options);
        let (sending, receiving) = options;
        let len = u32::try_from(NET_HEADER_BYTES + frame.len()).unwrap();
        let queued = sending.ring_size;
        let from = attach(0, &sending);
        let to = (1..=receivers).map(|n| attach(n, &receiving)).collect();
        let mut sender = Self { from, to, len, queued, arrived: 0 };
        while sender.from.queue(0, &header, frame).unwrap() {}
        sender.from.flush(0).unwrap();
        wait(|| sender.drain(), "the first frames are not taken");
        sender
    }

    /// Returns the eventfd that reports sent frames.
    pub fn transmit_call(&mut self) -> OwnedFd {
        let (_, lane) = self.from.frontend().driver_queue(TRANSMIT).unwrap();
        lane.call().as_fd().try_clone_to_owned().unwrap()
    }

    /// Requests a notification when the daemon has taken frames.
    pub fn arm(&mut self) -> Result<(), NativeError> {
        self.from.frontend().driver_queue(TRANSMIT)?.1.arm(true)?;
        Ok(())
    }

    /// As [`Attacker::step`]. Fails when the daemon detached a port.
    pub fn try_step(&mut self) -> Result<(), NativeError> {
        self.receive()?;
        self.from.queue_each_as_is(0, self.len, self.queued)?;
        self.from.flush(0)
    }

    fn receive(&mut self) -> Result<(), NativeError> {
        for port in &mut self.to {
            self.arrived += port.discard_all(0)? as u64;
        }
        Ok(())
    }
}

/// Attaches a port. While the previous frontend detaches, a port accepts no other.
fn attach(path: &Path, options: &NetOptions) -> NetPort {
    let mut port = None;
    let attached = || {
        port = NetPort::attach(path, options.clone()).ok();
        port.is_some()
    };
    wait(attached, "the port accepts no frontend");
    port.unwrap()
}

impl Attacker for Sender {
    fn step(&mut self) {
        self.try_step().unwrap();
    }

    fn drain(&mut self) -> bool {
        self.receive().unwrap();
        self.from.is_idle(0).unwrap()
    }

    fn arrived(&self) -> u64 {
        self.arrived
    }
}

fn options(ring_size: u16, receive_bytes: u32, features: u64) -> NetOptions {
    let features = NetOptions::default().features | features;
    NetOptions { ring_size, receive_bytes, features, ..NetOptions::default() }
}

/// Returns a TCP segment over IPv4, with zeros in fields that the daemon ignores.
fn segment(to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, mac(RED, 0)].concat();
    frame.resize(HEADERS_BYTES + PAYLOAD_BYTES, 0);
    let total = u16::try_from(frame.len() - 14).unwrap();
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
    frame
}

/// A virtio_net_hdr that asks for segmentation (virtio 1.3, 5.1.6).
fn gso_header() -> [u8; NET_HEADER_BYTES] {
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: HEADERS_BYTES as u16,
        gso_size: GSO_BYTES,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    header.emit()
}

fn segmented(daemon: &Daemon, to: [u8; 6]) -> Box<dyn Attacker> {
    let tso = 1 << VIRTIO_NET_F_CSUM | 1 << VIRTIO_NET_F_HOST_TSO4;
    let sending = options(LARGE_QUEUED, 4096, tso);
    let receiving = options(PIECES_ROOM, PIECE_BUFFER_BYTES, 0);
    Box::new(Sender::attach(daemon, 1, (sending, receiving), gso_header(), &segment(to)))
}

/// Frames of 60 KB without offloads.
pub fn bulk(daemon: &Daemon) -> Box<dyn Attacker> {
    let each = options(LARGE_QUEUED, RECEIVE_BYTES, 0);
    let frame = segment(mac(RED, 1));
    Box::new(Sender::attach(daemon, 1, (each.clone(), each), [0; NET_HEADER_BYTES], &frame))
}

/// TSO frames for a sibling that takes no offloads.
pub fn segmentation(daemon: &Daemon) -> Box<dyn Attacker> {
    segmented(daemon, mac(RED, 1))
}

/// TSO frames for all.
pub fn segmented_broadcast(daemon: &Daemon) -> Box<dyn Attacker> {
    segmented(daemon, BROADCAST)
}

/// Small broadcasts that each of the other ports of the group receives.
pub fn broadcast_flood(daemon: &Daemon) -> Box<dyn Attacker> {
    let each = options(SMALL_QUEUED, 2048, 0);
    Box::new(small_to(daemon, BROADCAST, RED_NET_PORTS - 1, each))
}

/// Small frames for one other port.
pub fn small(daemon: &Daemon, each: NetOptions) -> Sender {
    small_to(daemon, mac(RED, 1), 1, each)
}

fn small_to(daemon: &Daemon, to: [u8; 6], receivers: u8, each: NetOptions) -> Sender {
    let mut frame = [to, mac(RED, 0)].concat();
    frame.extend([0x88, 0xb5]);
    frame.resize(SMALL_BYTES, 0);
    Sender::attach(daemon, receivers, (each.clone(), each), [0; NET_HEADER_BYTES], &frame)
}
