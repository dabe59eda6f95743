//! Cases of a socket device: packets, valid and invalid.
//!
//! The peer is a CID with a listener on port 9000, and without one on 9999. A case initialises the
//! device, opens a connection where it needs one, and sends its packets. A case with a connection
//! expects a reset of it within 5 s, but for a second connect of a connection; the flood of
//! connects expects a reset of each. [`Kind::settle`] waits 200 ms and reports no link.
//! [`Kind::talks`] initialises the device and expects a reset from the port without a listener. A
//! case that is unknown here is `None`.

use super::Kind;
use super::device::{BUFFERS, Device, FEATURES, SIZE, WRITE};
use super::pci::Part;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const RX: u16 = 0;
const TX: u16 = 1;
/// Bytes of a packet's header (virtio 1.3, section 5.10.6).
const HEADER: usize = 44;
const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const RESET: u16 = 3;
const SHUTDOWN: u16 = 4;
const DATA: u16 = 5;
const CREDIT_UPDATE: u16 = 6;
const RECEIVE: u16 = 16;
const SEND: usize = 20;
/// A port on which the peer accepts connections, and a port without a listener.
const OPEN: u32 = 9000;
const SHUT: u32 = 9999;
/// Time limit of an expected answer: the peer may share the processors with other tests.
const ANSWER: Duration = Duration::from_secs(5);
/// Time after which a full transmit queue counts as stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// CIDs of the device and of its peer.
#[derive(Debug)]
pub struct Vsock {
    own: u64,
    peer: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packet {
    from: (u64, u32),
    to: (u64, u32),
    len: u32,
    kind: u16,
    op: u16,
    flags: u32,
    buf_alloc: u32,
    fwd_cnt: u32,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(self.from.0.to_le_bytes());
        bytes.extend(self.to.0.to_le_bytes());
        for word in [self.from.1, self.to.1, self.len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.op.to_le_bytes());
        for word in [self.flags, self.buf_alloc, self.fwd_cnt] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// Returns a header's destination port and operation.
    fn destination_and_op(bytes: &[u8; HEADER]) -> (u32, u16) {
        let port = [bytes[20], bytes[21], bytes[22], bytes[23]];
        (u32::from_le_bytes(port), u16::from_le_bytes([bytes[30], bytes[31]]))
    }
}

impl Kind for Vsock {
    const NUMBERS: &'static [&'static str] = &["0x1053"];
    const FEATURES: u64 = FEATURES;

    fn new(device: &mut Device, peer: &str) -> io::Result<Self> {
        let own = u32::from_le_bytes(device.pci.read(Part::Device, 0)?);
        let peer = peer.parse().map_err(|_| io::Error::other(format!("{peer} is no CID")))?;
        Ok(Self { own: own.into(), peer })
    }

    fn case(&self, device: &mut Device, name: &str) -> Option<io::Result<()>> {
        Some(match name {
            "unknown_operations" => {
                self.each(device, [0, 8, 99, u16::MAX], |p, op| Packet { op, ..p })
            }
            "unknown_types" => {
                self.each(device, [0, 3, 9, u16::MAX], |p, kind| Packet { kind, ..p })
            }
            "packets_of_no_connection" => {
                let ops = [RESPONSE, RESET, SHUTDOWN, DATA, CREDIT_UPDATE, 7];
                self.each(device, ops, |p, op| Packet { op, ..p })
            }
            "destinations_that_nobody_has" => {
                let cids = [0, 1, self.own, 55_555, u64::from(u32::MAX), u64::MAX];
                self.each(device, cids, |p, cid| Packet { to: (cid, SHUT), ..p })
            }
            "shutdown_flags_of_no_meaning" => {
                self.connected(device, 501, |p| Packet { op: SHUTDOWN, flags: u32::MAX, ..p })
            }
            "credit_for_what_never_came" => {
                self.connected(device, 502, |p| Packet { op: CREDIT_UPDATE, fwd_cnt: 1000, ..p })
            }
            "second_connect_of_a_connection" => {
                // A driver that lost a connection's state reuses its port numbers. The peer's
                // kernel ignores the request while the socket of the old connection exists.
                self.answered(device, 503, &[], |p| Packet { op: REQUEST, ..p })
            }
            "type_changed_on_a_connection" => {
                self.connected(device, 504, |p| Packet { kind: 2, ..p })
            }
            "flood_of_connects" => self.flood(device),
            "resets_never_taken" => self.never_taken(device),
            "forged_source" => self.one(device, |p| Packet { from: (self.peer, OPEN), ..p }),
            "length_that_lies" => self.one(device, |p| Packet { len: u32::MAX, ..p }),
            _ => return None,
        })
    }

    fn settle(&self, _: &mut Device) -> io::Result<bool> {
        thread::sleep(Duration::from_millis(200));
        Ok(false)
    }

    fn talks(&self, device: &mut Device) -> io::Result<bool> {
        let mut seen = 0;
        self.start(device)?;
        self.send(device, 0, &self.packet(77, SHUT))?;
        self.expect(device, &mut seen, 77, &[RESET])
    }
}

impl Vsock {
    /// Returns a data packet without payload; its connection exists only if the case opens it.
    fn packet(&self, from: u32, to: u32) -> Packet {
        Packet {
            from: (self.own, from),
            to: (self.peer, to),
            len: 0,
            kind: 1,
            op: DATA,
            flags: 0,
            buf_alloc: 1 << 16,
            fwd_cnt: 0,
        }
    }

    fn start(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        for n in 0..RECEIVE {
            device.describe(RX, n, (device.buffer(usize::from(n)), 4096), WRITE, 0)?;
            device.offer(RX, n)?;
        }
        device.ring(RX)
    }

    /// Sends a packet by descriptor `n`.
    fn send(&self, device: &mut Device, n: u16, packet: &Packet) -> io::Result<()> {
        let page = SEND + usize::from(n % 10);
        device.fill(page, 0, &packet.bytes())?;
        device.describe(TX, n % SIZE, (device.buffer(page), HEADER as u32), 0, 0)?;
        device.offer(TX, n % SIZE)?;
        device.ring(TX)
    }

    /// Waits for a packet to `port` with one of the operations `ops`; returns whether it arrived.
    /// Used buffers are made available again.
    fn expect(
        &self,
        device: &mut Device,
        seen: &mut u16,
        port: u32,
        ops: &[u16],
    ) -> io::Result<bool> {
        let start = Instant::now();
        while start.elapsed() < ANSWER {
            while *seen != device.used(RX)? {
                let (head, _) = device.used_entry(RX, *seen)?;
                let head = head as u16 % RECEIVE;
                let mut bytes = [0; HEADER];
                device.pages.read(BUFFERS + usize::from(head), 0, &mut bytes)?;
                *seen = seen.wrapping_add(1);
                device.offer(RX, head)?;
                device.ring(RX)?;
                let (to, op) = Packet::destination_and_op(&bytes);
                if to == port && ops.contains(&op) {
                    return Ok(true);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }

    /// Sends a packet for each value, built by `what`.
    fn each<T: Copy, const N: usize>(
        &self,
        device: &mut Device,
        values: [T; N],
        what: impl Fn(Packet, T) -> Packet,
    ) -> io::Result<()> {
        self.start(device)?;
        for (n, value) in values.into_iter().enumerate() {
            self.send(device, n as u16, &what(self.packet(40 + n as u32, SHUT), value))?;
        }
        Ok(())
    }

    fn one(&self, device: &mut Device, what: impl Fn(Packet) -> Packet) -> io::Result<()> {
        self.each(device, [()], |p, ()| what(p))
    }

    /// Connects to the peer from port `from`, which is unique to the case, and sends the packets
    /// built by `what`; the peer must reset the connection.
    fn connected(
        &self,
        device: &mut Device,
        from: u32,
        what: impl Fn(Packet) -> Packet,
    ) -> io::Result<()> {
        self.answered(device, from, &[RESET], what)
    }

    /// As [`Self::connected`]; the answer must be among `answers` if that is not empty.
    fn answered(
        &self,
        device: &mut Device,
        from: u32,
        answers: &[u16],
        what: impl Fn(Packet) -> Packet,
    ) -> io::Result<()> {
        self.start(device)?;
        let mut seen = 0;
        let good = self.packet(from, OPEN);
        self.send(device, 0, &Packet { op: REQUEST, ..good })?;
        if !self.expect(device, &mut seen, from, &[RESPONSE])? {
            return Err(io::Error::other("the peer did not accept the connection"));
        }
        self.send(device, 1, &what(good))?;
        if answers.is_empty() || self.expect(device, &mut seen, from, answers)? {
            return Ok(());
        }
        Err(io::Error::other(format!("the peer answered with none of the operations {answers:?}")))
    }

    /// Sends two thousand requests to a port without a listener.
    fn flood(&self, device: &mut Device) -> io::Result<()> {
        self.start(device)?;
        let mut seen = 0;
        for n in 0..2000_u16 {
            let packet = Packet { op: REQUEST, ..self.packet(1000 + u32::from(n), SHUT) };
            self.send(device, n, &packet)?;
            if !self.expect(device, &mut seen, 1000 + u32::from(n), &[RESET])? {
                return Err(io::Error::other(format!("connect {n} was not answered")));
            }
        }
        Ok(())
    }

    /// Sends up to 1,000 packets of unknown connections, with no receive buffers for the resets;
    /// ends early, without an error, when the transmit queue stays full for [`STOPPED`].
    fn never_taken(&self, device: &mut Device) -> io::Result<()> {
        device.start(Self::FEATURES)?;
        for n in 0..1000 {
            // Waits while the ring is full: an overrun would be another case.
            let start = Instant::now();
            while n - device.used(TX)? >= SIZE {
                if start.elapsed() > STOPPED {
                    return Ok(());
                }
            }
            self.send(device, n, &self.packet(u32::from(n), SHUT))?;
        }
        Ok(())
    }
}
