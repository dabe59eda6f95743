//! Tenants with work that is expensive for the dispatcher, beside which another tenant is measured.
//!
//! `isolation` attaches one of [`ALL`] to the rig, in a group of its own, and calls its [`Work`]
//! from the attacker's thread, in steps. The tenants break no rule: they send what a guest may
//! send, in a step as much as their rings hold, at most 64 frames or 1,024 connection requests.
//! Frames and answers that come back are discarded. An error of a tenant's frontend, such as a
//! broken ring, counts as no work, and the attacker's thread goes on. A vsock port that cannot
//! attach fails the row; a net port ends the benchmark with a panic (`rig`).

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetPort, VsockOptions, VsockPort};
use causeway_model::{PortKind, VsockSpec};
use causeway_wire::ethernet::BROADCAST;
use causeway_wire::virtio_net::{
    GSO_TCPV4, HDR_F_NEEDS_CSUM, Header, VIRTIO_NET_F_CSUM, VIRTIO_NET_F_HOST_TSO4,
};
use causeway_wire::vsock::{self, Op, Type};

use super::attacks::OTHERS;
use super::ethernet::{frame, options};
use crate::rig::{Rig, leave, mac};

/// Takes what arrived and, if its argument is true, queues more. Returns whether work is queued.
pub type Work = Box<dyn FnMut(bool) -> bool + Send>;
/// Attaches a tenant in a group of its own.
pub type Make = fn(&Rig) -> Result<Work, String>;

/// All tenants, with the name of their work.
pub const ALL: [(&str, Make); 5] = [
    ("bulk of 60 KB frames", bulk),
    ("TSO frames of 1,875 pieces", segmentation),
    ("TSO broadcasts of 1,875 pieces", segmented_broadcasts),
    ("broadcasts of 64 B to 31 ports", broadcasts),
    ("vsock connects to a host without listener", connects),
];

/// The net ports of the tenant.
const FROM: u8 = 11;
const TO: u8 = 12;
/// Ports that receive broadcasts, from [`TO`] on.
const RECEIVERS: u8 = 31;
const CID: u32 = 3;
/// The host's CID (virtio 1.3, 5.10.4).
const HOST: u64 = 2;
/// Ethernet, IPv4 and TCP, in bytes.
const HEADERS_BYTES: usize = 54;
const PAYLOAD_BYTES: usize = 60_000;
/// Payload of a piece, in bytes.
const GSO_BYTES: u16 = 32;
/// Receive buffers for pieces: the receiver has room while the dispatcher works, so that no piece
/// is dropped early.
const PIECES_ROOM: u16 = 32_768;
/// A receive buffer that holds a piece, in bytes.
const PIECE_BUFFER_BYTES: u32 = 128;
/// Frames, and connects, queued at most in a step.
const FRAMES: u16 = 64;
const CONNECTS: u16 = 1024;

fn failed(error: NativeError) -> String {
    error.to_string()
}

/// A port that sends the same frame again and again, and ports that discard it.
fn sender(
    mut from: NetPort,
    mut to: Vec<NetPort>,
    header: [u8; NET_HEADER_BYTES],
    frame: &[u8],
) -> Result<Work, String> {
    let first = to.first_mut().ok_or("a sender without receivers")?;
    leave(&mut from, first, &header, frame).map_err(failed)?;
    let len = u32::try_from(NET_HEADER_BYTES + frame.len()).map_err(|error| error.to_string())?;
    Ok(Box::new(move |more| {
        let mut step = || {
            for port in &mut to {
                port.discard_all(0)?;
            }
            if more {
                from.queue_each_as_is(0, len, FRAMES)?;
                from.flush(0)?;
            }
            from.is_idle(0)
        };
        step().is_ok_and(|is_idle| !is_idle)
    }))
}

fn bulk(rig: &Rig) -> Result<Work, String> {
    rig.group(OTHERS);
    let len = HEADERS_BYTES + PAYLOAD_BYTES;
    let mut each = options(len);
    each.ring_size = FRAMES;
    let [from, to] = [FROM, TO].map(|number| rig.net_in(OTHERS, number, false, each.clone()));
    sender(from, vec![to], [0; NET_HEADER_BYTES], &frame(mac(FROM), mac(TO), len))
}

fn segmentation(rig: &Rig) -> Result<Work, String> {
    segmented(rig, mac(TO))
}

fn segmented_broadcasts(rig: &Rig) -> Result<Work, String> {
    segmented(rig, BROADCAST)
}

fn segmented(rig: &Rig, destination: [u8; 6]) -> Result<Work, String> {
    rig.group(OTHERS);
    let mut sending = options(64);
    sending.ring_size = FRAMES;
    sending.features |= 1 << VIRTIO_NET_F_CSUM | 1 << VIRTIO_NET_F_HOST_TSO4;
    let from = rig.net_in(OTHERS, FROM, false, sending);
    let mut receiving = options(64);
    (receiving.ring_size, receiving.receive_bytes) = (PIECES_ROOM, PIECE_BUFFER_BYTES);
    let to = rig.net_in(OTHERS, TO, false, receiving);
    let header = Header {
        flags: HDR_F_NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: HEADERS_BYTES as u16,
        gso_size: GSO_BYTES,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    };
    sender(from, vec![to], header.emit(), &segment(destination))
}

fn broadcasts(rig: &Rig) -> Result<Work, String> {
    rig.group(OTHERS);
    let attach = |number| rig.net_in(OTHERS, number, false, options(64));
    let from = attach(FROM);
    let to = (TO..TO + RECEIVERS).map(attach).collect();
    sender(from, to, [0; NET_HEADER_BYTES], &frame(mac(FROM), BROADCAST, 64))
}

/// Returns a TCP segment over IPv4, with zeros in fields that the dispatcher does not read.
fn segment(destination: [u8; 6]) -> Vec<u8> {
    let mut segment = frame(mac(FROM), destination, HEADERS_BYTES + PAYLOAD_BYTES);
    let total = (segment.len() - 14) as u16;
    let fields: [(usize, &[u8]); 6] = [
        (12, &[0x08, 0x00]),
        (14, &[0x45]),
        (16, &total.to_be_bytes()),
        (22, &[64, 6]),
        (26, &[10, 0, 0, 1, 10, 0, 0, 2]),
        (46, &[0x50, 0x10]),
    ];
    for (at, bytes) in fields {
        segment[at..at + bytes.len()].copy_from_slice(bytes);
    }
    segment
}

fn connects(rig: &Rig) -> Result<Work, String> {
    rig.group(OTHERS);
    let name = format!("v{CID}");
    let host_socket = Some(rig.socket("host"));
    rig.add(
        OTHERS,
        &name,
        PortKind::of(VsockSpec { cid: CID, guest_cid: None, host_socket, processes: false }),
    );
    let options = VsockOptions { ring_size: CONNECTS, ..VsockOptions::default() };
    let mut port = VsockPort::attach(&rig.socket(&name), options).map_err(failed)?;
    rig.wait_running(&name);
    let (mut from, mut data) = (1024, Vec::new());
    Ok(Box::new(move |more| {
        let mut step = || {
            while port.receive(&mut data)?.is_some() {}
            while more && port.queue(&request(from), &[])? {
                from = from.wrapping_add(1);
            }
            port.flush()?;
            port.is_idle()
        };
        step().is_ok_and(|is_idle| !is_idle)
    }))
}

fn request(from: u32) -> vsock::Header {
    vsock::Header {
        src_cid: u64::from(CID),
        dst_cid: HOST,
        src_port: from,
        dst_port: 7777,
        len: 0,
        kind: Type::Stream.raw(),
        op: Op::Request.raw(),
        flags: 0,
        buf_alloc: 1 << 20,
        fwd_cnt: 0,
    }
}
