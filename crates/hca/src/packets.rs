//! The packets of RoCE version 2 that a message between two queue pairs would be.
//!
//! [`crate::capture`] calls [`Sequences::packets`] in the dispatcher's thread for each observed
//! message. [`Sequences`] makes the packets from an [`Observation`] of the engine: a request in
//! packets of the queue pair's MTU, then the acknowledgement or answer of a reliable responder.
//! Packet and message sequence numbers are kept by queue pair, from its first number on. IP
//! addresses are those of the GIDs: IPv4 if both are IPv4-mapped, else IPv6; a GID that is not
//! known stands for the link-local address of the Ethernet address. Source ports are made from the
//! queue pair numbers. Each packet is complete, with checksum and invariant CRC.
//!
//! A request of an extended reliable connection (XRC) names the shared receive queue in each
//! packet. The packets end where the observation has no further payload; the number of the omitted
//! packets is returned. The sequence numbers of at most [`SEQUENCES_MAX`] (65,536) queue pairs are
//! known; with so many, all begin again at the next message. No packet is sent, and nothing fails.

use std::collections::BTreeMap;

use causeway_verbs::work::{Operation as Work, Status};
use causeway_verbs::{Endpoint, Kind, Observation};
use causeway_wire::roce::{
    self, Atomic, BaseHeader, Datagram, Headers, Opcode, Operation, Remote, Transport,
};
use causeway_wire::{checksum, ethernet};

use crate::limits::SEQUENCES_MAX;

/// Syndrome of an acknowledgement without a count of receive work requests.
const ACKNOWLEDGED: u32 = 0x1f;
/// Syndromes of refusals.
const INVALID_REQUEST: u32 = 0x61;
const ACCESS_ERROR: u32 = 0x62;
const OPERATION_ERROR: u32 = 0x63;
/// Bits of sequence numbers.
const NUMBER_MASK: u32 = 0xff_ffff;
const IPV4_LEN: usize = 20;
const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// First source port of RoCE (annex A17.4.4: 0xc000 to 0xffff).
const SOURCE_PORT_MIN: u16 = 0xc000;

/// The sequence numbers of a queue pair.
#[derive(Debug, Clone, Copy)]
struct Next {
    packet: u32,
    message: u32,
}

/// A packet in an Ethernet frame; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct PacketFrame(Vec<u8>);

/// The sequence numbers of all queue pairs that sent a message, by address and number.
#[derive(Debug, Default)]
pub(crate) struct Sequences(BTreeMap<([u8; 6], u32), Next>);

/// A message that is written as packets.
struct Message<'a> {
    of: &'a Observation,
    transport: Transport,
    /// Sequence number of the first packet.
    first: u32,
    /// Number of packets of the payload.
    count: u64,
    mtu: u64,
}

impl Sequences {
    /// Calls `write` with each packet of a message: whether the requester sends the packet, and the
    /// frame. Returns the number of packets that are omitted for lack of their payload.
    pub(crate) fn packets(
        &mut self,
        of: &Observation,
        frame: &mut PacketFrame,
        mut write: impl FnMut(bool, &[u8]),
    ) -> u64 {
        if self.0.len() >= SEQUENCES_MAX {
            self.0.clear();
        }
        let mtu = u64::from(of.mtu.max(1));
        let is_atomic = matches!(of.operation, Work::CompareSwap { .. } | Work::FetchAdd { .. });
        let count = if is_atomic { 1 } else { of.total.div_ceil(mtu).max(1) };
        let first = Next { packet: of.requester.sequence, message: 0 };
        let key = (of.requester.mac, of.requester.queue_pair);
        let next = self.0.entry(key).or_insert(first);
        let first = next.packet;
        next.packet = next.packet.wrapping_add(count as u32) & NUMBER_MASK;
        next.message = next.message.wrapping_add(1) & NUMBER_MASK;
        let transport = match of.kind {
            Kind::Rc => Transport::Reliable,
            Kind::Uc => Transport::Unreliable,
            Kind::Ud | Kind::Gsi => Transport::Datagram,
            Kind::XrcInitiator => Transport::Extended,
            Kind::XrcTarget | Kind::Registration => return count,
        };
        let message = Message { of, transport, first, count, mtu };
        let mut emit = |is_request: bool, headers: Option<Headers>, payload: &[u8]| {
            if let Some(headers) = headers {
                frame.build(of, is_request, headers, payload);
                write(is_request, &frame.0);
            }
        };
        let omitted = message.request(&mut emit);
        if message.is_reliable() {
            omitted.saturating_add(message.answer(next.message, &mut emit))
        } else {
            omitted
        }
    }
}

impl Message<'_> {
    /// Returns whether the responder answers.
    fn is_reliable(&self) -> bool {
        matches!(self.transport, Transport::Reliable | Transport::Extended)
    }

    /// Returns the headers of a packet of the message; `None` if the transport has no such packet.
    fn headers(&self, operation: Operation, is_request: bool, index: u64) -> Option<Headers> {
        let opcode = Opcode::message(self.transport, operation)?;
        let to = if is_request { self.of.responder } else { self.of.requester };
        let sequence = self.first.wrapping_add(index as u32) & NUMBER_MASK;
        let mut headers = Headers::new(BaseHeader::new(opcode, to.queue_pair, sequence));
        if self.transport == Transport::Datagram {
            let source = self.of.requester.queue_pair;
            headers.datagram = Some(Datagram { queue_key: self.of.queue_key, source });
        }
        if self.transport == Transport::Extended && is_request {
            headers.xrc_queue = Some(self.of.xrc_queue);
        }
        Some(headers)
    }

    /// Returns the payload of a packet, or `None` if the observation does not have all of it.
    fn payload(&self, index: u64) -> Option<&[u8]> {
        let start = index.checked_mul(self.mtu)?;
        let end = start.saturating_add(self.mtu).min(self.of.total);
        self.of.payload.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    /// Writes the request. Returns the number of omitted packets.
    fn request(&self, emit: &mut impl FnMut(bool, Option<Headers>, &[u8])) -> u64 {
        let len = u32::try_from(self.of.total).unwrap_or(u32::MAX);
        match &self.of.operation {
            Work::Read(at) => {
                let headers = self.headers(Operation::ReadRequest, true, 0);
                let remote = Remote { address: at.address, key: at.key, len };
                emit(true, headers.map(|own| Headers { remote: Some(remote), ..own }), &[]);
            }
            Work::CompareSwap { remote: at, compare, swap } => {
                let atomic = Atomic {
                    address: at.address,
                    key: at.key,
                    swap_or_add: *swap,
                    compare: *compare,
                };
                let headers = self.headers(Operation::CompareSwap, true, 0);
                emit(true, headers.map(|own| Headers { atomic: Some(atomic), ..own }), &[]);
            }
            Work::FetchAdd { remote: at, add } => {
                let (address, key) = (at.address, at.key);
                let atomic = Atomic { address, key, swap_or_add: *add, compare: 0 };
                let headers = self.headers(Operation::FetchAdd, true, 0);
                emit(true, headers.map(|own| Headers { atomic: Some(atomic), ..own }), &[]);
            }
            Work::Nop | Work::Invalidate(_) | Work::Register(_) => {}
            _ => return self.parts(len, emit),
        }
        0
    }

    /// Writes the packets of a send or write. Returns the number of omitted packets.
    fn parts(&self, len: u32, emit: &mut impl FnMut(bool, Option<Headers>, &[u8])) -> u64 {
        let last = self.count.saturating_sub(1);
        for index in 0..self.count {
            let Some(payload) = self.payload(index) else {
                return self.count.saturating_sub(index);
            };
            let place = (index == 0, index == last);
            let operation = part_of(&self.of.operation, place);
            let mut headers = self.headers(operation, true, index);
            if let Some(headers) = &mut headers {
                if let Work::Write(at) | Work::WriteImmediate(at, _) = &self.of.operation
                    && operation.has_remote()
                {
                    headers.remote = Some(Remote { address: at.address, key: at.key, len });
                }
                headers.immediate = match self.of.operation {
                    Work::SendImmediate(data) | Work::WriteImmediate(_, data) if place.1 => {
                        Some(data)
                    }
                    _ => None,
                };
                headers.invalidated = match self.of.operation {
                    Work::SendInvalidate(key) if place.1 => Some(key),
                    _ => None,
                };
                headers.base.is_solicited = place.1 && self.of.is_solicited;
                headers.base.wants_acknowledgement = place.1 && self.is_reliable();
            }
            emit(true, headers, payload);
        }
        0
    }

    /// Writes the answer of a reliable responder. Returns the number of omitted packets.
    fn answer(&self, message: u32, emit: &mut impl FnMut(bool, Option<Headers>, &[u8])) -> u64 {
        let syndrome = match self.of.status {
            Status::RemoteInvalidRequest => INVALID_REQUEST,
            Status::RemoteAccess => ACCESS_ERROR,
            Status::RemoteOperation => OPERATION_ERROR,
            _ => ACKNOWLEDGED,
        };
        let acknowledgement = Some(syndrome << 24 | message);
        let is_refused = syndrome != ACKNOWLEDGED;
        let with = |headers: Option<Headers>| {
            headers.map(|headers| Headers { acknowledgement, ..headers })
        };
        match self.of.operation {
            Work::Read(_) if !is_refused => {
                let last = self.count.saturating_sub(1);
                for index in 0..self.count {
                    let Some(payload) = self.payload(index) else {
                        return self.count.saturating_sub(index);
                    };
                    let operation = match (index == 0, index == last) {
                        (true, true) => Operation::ReadResponseOnly,
                        (true, false) => Operation::ReadResponseFirst,
                        (false, true) => Operation::ReadResponseLast,
                        (false, false) => Operation::ReadResponseMiddle,
                    };
                    emit(false, with(self.headers(operation, false, index)), payload);
                }
            }
            Work::CompareSwap { .. } | Work::FetchAdd { .. } if !is_refused => {
                let value = self.of.payload.first_chunk().copied().unwrap_or_default();
                let headers = with(self.headers(Operation::AtomicAcknowledge, false, 0));
                let original = Some(u64::from_le_bytes(value));
                emit(false, headers.map(|headers| Headers { original, ..headers }), &[]);
            }
            _ => {
                let last = if is_refused { 0 } else { self.count.saturating_sub(1) };
                emit(false, with(self.headers(Operation::Acknowledge, false, last)), &[]);
            }
        }
        0
    }
}

/// Returns the operation of a packet of a send or write, which is the first, the last, or both.
fn part_of(work: &Work, place: (bool, bool)) -> Operation {
    let is_write = matches!(work, Work::Write(_) | Work::WriteImmediate(..));
    match (place, is_write) {
        ((true, false), false) => Operation::SendFirst,
        ((false, false), false) => Operation::SendMiddle,
        ((true, false), true) => Operation::WriteFirst,
        ((false, false), true) => Operation::WriteMiddle,
        ((is_first, true), _) => match (work, is_first) {
            (Work::Write(_), true) => Operation::WriteOnly,
            (Work::Write(_), false) => Operation::WriteLast,
            (Work::WriteImmediate(..), true) => Operation::WriteOnlyImmediate,
            (Work::WriteImmediate(..), false) => Operation::WriteLastImmediate,
            (Work::SendImmediate(_), true) => Operation::SendOnlyImmediate,
            (Work::SendImmediate(_), false) => Operation::SendLastImmediate,
            (Work::SendInvalidate(_), true) => Operation::SendOnlyInvalidate,
            (Work::SendInvalidate(_), false) => Operation::SendLastInvalidate,
            (_, true) => Operation::SendOnly,
            (_, false) => Operation::SendLast,
        },
    }
}

/// Returns the IP address of an end, as a GID.
fn address(end: &Endpoint) -> [u8; 16] {
    if end.gid != [0; 16] {
        return end.gid;
    }
    let [a, b, c, d, e, f] = end.mac;
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns the IPv4 address of a GID that maps one.
fn ipv4_of(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let (prefix, address) = gid.split_last_chunk::<4>()?;
    (prefix == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then_some(*address)
}

impl PacketFrame {
    /// Builds the frame of a packet.
    fn build(&mut self, of: &Observation, is_request: bool, headers: Headers, payload: &[u8]) {
        let (from, to) = match is_request {
            true => (&of.requester, &of.responder),
            false => (&of.responder, &of.requester),
        };
        let padding = payload.len().wrapping_neg() & 3;
        let mut headers = headers;
        headers.base.padding = padding as u8;
        let (transport, len) = headers.emit();
        let transport = transport.get(..len).unwrap_or(&transport);
        let pad = [0; 3];
        let pad = pad.get(..padding).unwrap_or_default();
        let parts = [roce::UDP_LEN, len, payload.len(), padding, roce::CRC_LEN];
        let udp_len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(*part));
        let udp_len = u16::try_from(udp_len).unwrap_or(u16::MAX);
        let (source, destination) = (address(from), address(to));
        let mapped = ipv4_of(&source).zip(ipv4_of(&destination));
        let (network, ether_type) = match mapped {
            Some(addresses) => (ipv4_header(addresses, udp_len), ethernet::TYPE_IPV4),
            None => (ipv6_header((&source, &destination), udp_len), ethernet::TYPE_IPV6),
        };
        let mixed = of.requester.queue_pair ^ of.responder.queue_pair;
        let source_port = SOURCE_PORT_MIN | (mixed ^ mixed >> 14) as u16 & 0x3fff;
        let udp = udp_header(source_port, udp_len);
        let base: [u8; roce::BASE_LEN] = transport.first_chunk().copied().unwrap_or_default();
        let extended = transport.get(roce::BASE_LEN..).unwrap_or_default();
        let crc = roce::invariant_crc(&network, &udp, &base, &[extended, payload, pad]);
        self.0.clear();
        let ether_type = ether_type.to_be_bytes();
        let all: [&[u8]; 9] =
            [&to.mac, &from.mac, &ether_type, &network, &udp, transport, payload, pad, &crc];
        all.iter().for_each(|part| self.0.extend_from_slice(part));
    }
}

/// Returns a UDP header to the port of RoCE. The checksum is not used (annex A17.3.1.2).
fn udp_header(source: u16, len: u16) -> [u8; roce::UDP_LEN] {
    let header = causeway_wire::udp::Header { source, destination: roce::PORT, len, checksum: 0 };
    header.emit()
}

/// Returns an IPv4 header.
fn ipv4_header((source, destination): ([u8; 4], [u8; 4]), udp_len: u16) -> Vec<u8> {
    let len = udp_len.saturating_add(IPV4_LEN as u16);
    let with = |checksum: u16| {
        let parts: [&[u8]; 8] = [
            &[0x45, 0],
            &len.to_be_bytes(),
            &[0, 0],
            &DO_NOT_FRAGMENT.to_be_bytes(),
            &[HOP_LIMIT, PROTOCOL_UDP],
            &checksum.to_be_bytes(),
            &source,
            &destination,
        ];
        parts.concat()
    };
    with(checksum::of(&with(0)))
}

/// Returns an IPv6 header.
fn ipv6_header((source, destination): (&[u8; 16], &[u8; 16]), udp_len: u16) -> Vec<u8> {
    let parts: [&[u8]; 5] =
        [&[0x60, 0, 0, 0], &udp_len.to_be_bytes(), &[PROTOCOL_UDP, HOP_LIMIT], source, destination];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use causeway_verbs::work::RemoteAddress;
    use causeway_wire::roce::packet;

    use super::*;

    fn end(last: u8, gid: Option<[u8; 4]>) -> Endpoint {
        let mut whole = [0; 16];
        if let Some(address) = gid {
            whole[10..12].fill(0xff);
            whole[12..].copy_from_slice(&address);
        }
        let queue_pair = u32::from(last) * 0x100;
        Endpoint { mac: [2, 0, 0, 0, 0, last], gid: whole, queue_pair, sequence: 0xff_fffe }
    }

    fn observation(operation: Work, total: u64) -> Observation {
        Observation {
            kind: Kind::Rc,
            requester: end(1, Some([10, 0, 0, 1])),
            responder: end(2, Some([10, 0, 0, 2])),
            operation,
            mtu: 1024,
            queue_key: 0,
            xrc_queue: 0,
            is_solicited: false,
            status: Status::Success,
            total,
            payload: vec![7; usize::try_from(total.min(65_536)).unwrap()],
        }
    }

    /// Returns the frames of a message with their direction, and the number of omitted packets.
    fn frames(sequences: &mut Sequences, of: &Observation) -> (Vec<(bool, Vec<u8>)>, u64) {
        let mut all = Vec::new();
        let mut frame = PacketFrame::default();
        let omitted = sequences
            .packets(of, &mut frame, |is_request, bytes| all.push((is_request, bytes.to_vec())));
        (all, omitted)
    }

    /// Returns the direction, operation, sequence number and payload length of each packet.
    fn summary(all: &[(bool, Vec<u8>)]) -> Vec<(bool, Operation, u32, usize)> {
        let one = |(is_request, bytes): &(bool, Vec<u8>)| {
            let at = if bytes[12..14] == [8, 0] { 42 } else { 62 };
            let found = packet(&bytes[at..]).unwrap();
            let Opcode::Message(_, operation) = found.headers.base.opcode else { panic!() };
            (*is_request, operation, found.headers.base.sequence, found.payload.len())
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn capture_of_a_write_has_its_packets_and_an_acknowledgement() {
        let mut sequences = Sequences::default();
        let remote = RemoteAddress { address: 0x1234, key: 9 };
        let (all, omitted) = frames(&mut sequences, &observation(Work::Write(remote), 2500));
        assert_eq!(omitted, 0);
        assert_eq!(
            summary(&all),
            [
                (true, Operation::WriteFirst, 0xff_fffe, 1024),
                (true, Operation::WriteMiddle, 0xff_ffff, 1024),
                (true, Operation::WriteLast, 0, 452),
                (false, Operation::Acknowledge, 0, 0),
            ]
        );
        let first = packet(&all[0].1[42..]).unwrap().headers;
        assert_eq!(first.remote, Some(Remote { address: 0x1234, key: 9, len: 2500 }));
        assert_eq!(first.base.queue_pair, 0x200);
        let last = packet(&all[3].1[42..]).unwrap().headers;
        assert_eq!((last.base.queue_pair, last.acknowledgement), (0x100, Some(0x1f00_0001)));
        assert_eq!(all[3].1[..6], [2, 0, 0, 0, 0, 1], "to the requester");
        let (next, _) = frames(&mut sequences, &observation(Work::Send, 0));
        assert_eq!(summary(&next)[0], (true, Operation::SendOnly, 1, 0));
    }

    #[test]
    fn capture_of_a_read_has_its_answer() {
        let remote = RemoteAddress { address: 0x1234, key: 9 };
        let read = observation(Work::Read(remote), 1030);
        let (all, _) = frames(&mut Sequences::default(), &read);
        assert_eq!(
            summary(&all),
            [
                (true, Operation::ReadRequest, 0xff_fffe, 0),
                (false, Operation::ReadResponseFirst, 0xff_fffe, 1024),
                (false, Operation::ReadResponseLast, 0xff_ffff, 6),
            ]
        );
        let refused = Observation { status: Status::RemoteAccess, ..read };
        let (all, _) = frames(&mut Sequences::default(), &refused);
        assert_eq!(summary(&all)[1], (false, Operation::Acknowledge, 0xff_fffe, 0));
        let headers = packet(&all[1].1[42..]).unwrap().headers;
        assert_eq!(headers.acknowledgement, Some(ACCESS_ERROR << 24 | 1));
    }

    #[test]
    fn capture_of_an_extended_connection_names_the_queue_in_each_request() {
        let remote = RemoteAddress { address: 0x1234, key: 9 };
        let write = observation(Work::Write(remote), 2500);
        let write = Observation { kind: Kind::XrcInitiator, xrc_queue: 7, ..write };
        let atomic = Work::FetchAdd { remote, add: 1 };
        let (all, omitted) = frames(&mut Sequences::default(), &write);
        let (more, _) =
            frames(&mut Sequences::default(), &Observation { operation: atomic, ..write });
        assert_eq!((all.len(), more.len(), omitted), (4, 2, 0));
        for (is_request, bytes) in all.iter().chain(&more) {
            let found = packet(&bytes[42..]).unwrap();
            let Opcode::Message(transport, _) = found.headers.base.opcode else { panic!() };
            assert_eq!(transport, Transport::Extended);
            assert_eq!(found.headers.xrc_queue, is_request.then_some(7));
        }
        assert_eq!(summary(&all)[3].1, Operation::Acknowledge);
        assert_eq!(summary(&more)[1].1, Operation::AtomicAcknowledge);
    }

    #[test]
    fn capture_omits_packets_without_their_payload() {
        let long = observation(Work::Send, 70_000);
        let (all, omitted) = frames(&mut Sequences::default(), &long);
        assert_eq!((all.len(), omitted), (64 + 1, 5));
    }

    #[test]
    fn capture_of_a_datagram_has_no_answer() {
        let datagram = Observation {
            kind: Kind::Ud,
            requester: end(1, None),
            queue_key: 0x1111,
            ..observation(Work::SendImmediate(5), 100)
        };
        let (all, _) = frames(&mut Sequences::default(), &datagram);
        assert_eq!(summary(&all), [(true, Operation::SendOnlyImmediate, 0xff_fffe, 100)]);
        assert_eq!(all[0].1[12..14], [0x86, 0xdd], "not both addresses are IPv4");
        let headers = packet(&all[0].1[62..]).unwrap().headers;
        assert_eq!(headers.datagram, Some(Datagram { queue_key: 0x1111, source: 0x100 }));
        assert_eq!(headers.immediate, Some(5));
    }
}
