//! Packet filters (BPF) of a NIC with endpoints in direct mode: each packet socket gets the frames
//! of its endpoint, and the daemon gets the other frames to the NIC or to groups.
//!
//! In direct mode a process runs the NIC side of its endpoint itself, on a packet socket that the
//! daemon opened. This module builds classic BPF programs from the MXoE header layout;
//! `network::interface` attaches them, and locks those of the processes' sockets. The kernel runs
//! them for each received MXoE frame of the interface. The filters divide received frames only: a
//! process with a packet socket can send any frame. They check destination address, packet type and
//! endpoint, and those of processes interface and EtherType too; sessions and keys they do not
//! check. Announcements, name queries and their answers go to the daemon alone. The kernel drops a
//! frame that ends before a field that the filter loads.
//!
//! [`DirectEndpoints`] is a bit set over endpoint numbers 0 to 255, of which 255 is never open.
//!
//! The module does no system call and cannot fail. If the kernel refuses a filter at the start of
//! direct mode, `network::interface` does not open the endpoint in direct mode, and the daemon
//! serves it. All calls come from `network::interface`, on the dispatcher's thread.

use causeway_host::net::bpf::{
    BpfCondition, BpfInstruction, BpfLoad, BpfOperation, GROUPS, from_interface, to_address,
};
use causeway_wire::mxoe::{ETHER_TYPE, HEADER_LEN, Kind};

/// Offset of the packet type in a frame.
const KIND: u32 = HEADER_LEN as u32;
/// Offsets of the destination endpoint: in most packets, in refusals, and in the last byte of the
/// magic of answers to a pull.
const ENDPOINT: u32 = KIND + 1;
const REFUSED: u32 = KIND + 9;
const MAGIC: u32 = KIND + 15;
/// The last byte of a magic is the endpoint XOR this value ([`causeway_mxoe`]).
const MAGIC_BIT: u32 = 0x80;
/// Packets of lower types are for NICs: of mappers, and name queries with their answers.
const FIRST_OF_ENDPOINTS: u32 = Kind::Truc as u32;

/// Endpoints in direct mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectEndpoints([u32; 8]);

impl DirectEndpoints {
    fn place(&mut self, endpoint: u8) -> Option<(&mut u32, u32)> {
        let word = self.0.get_mut(usize::from(endpoint / 32))?;
        Some((word, 1_u32.wrapping_shl(u32::from(endpoint % 32))))
    }

    /// Adds an endpoint.
    pub fn add(&mut self, endpoint: u8) {
        if let Some((word, bit)) = self.place(endpoint) {
            *word |= bit;
        }
    }

    /// Removes an endpoint. Returns whether it was present.
    pub fn remove(&mut self, endpoint: u8) -> bool {
        let Some((word, bit)) = self.place(endpoint) else { return false };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

/// Returns the steps that load the destination endpoint. Packets for NICs are accepted if
/// `for_nic`.
fn endpoint(for_nic: bool) -> [BpfInstruction; 12] {
    let is = |kind: Kind, so| BpfInstruction::branch(BpfCondition::Is(kind as u32), so, 0);
    [
        BpfInstruction::load(BpfLoad::Byte(KIND)),
        BpfInstruction::branch(BpfCondition::AtLeast(FIRST_OF_ENDPOINTS), 1, 0),
        BpfInstruction::end(for_nic),
        is(Kind::PullReply, 4),
        is(Kind::PullNack, 3),
        is(Kind::Nack, 5),
        BpfInstruction::load(BpfLoad::Byte(ENDPOINT)),
        BpfInstruction::skip(4),
        BpfInstruction::load(BpfLoad::Byte(MAGIC)),
        BpfInstruction::calculate(BpfOperation::Xor(MAGIC_BIT)),
        BpfInstruction::skip(1),
        BpfInstruction::load(BpfLoad::Byte(REFUSED)),
    ]
}

/// Returns the filter of an endpoint: MXoE frames that arrived by the interface, with packets to
/// the endpoint. If the process binds its socket to another protocol or interface, the socket
/// receives nothing.
pub fn filter_of_endpoint(interface: u32, nic: [u8; 6], own: u8) -> Vec<BpfInstruction> {
    let mut program = from_interface(interface, ETHER_TYPE);
    program.extend(endpoint_steps(nic, own));
    program
}

/// Returns the steps that accept packets to an endpoint of a NIC.
fn endpoint_steps(nic: [u8; 6], own: u8) -> Vec<BpfInstruction> {
    let ours = [
        BpfInstruction::branch(BpfCondition::Is(own.into()), 0, 1),
        BpfInstruction::end(true),
        BpfInstruction::end(false),
    ];
    [&to_address(nic)[..], &endpoint(false), &ours].concat()
}

/// Returns the filter of the daemon: frames to the NIC or to groups, except those to endpoints
/// `direct`.
pub fn filter_of_daemon(nic: [u8; 6], direct: &DirectEndpoints) -> Vec<BpfInstruction> {
    let mut program = [&GROUPS[..], &to_address(nic)].concat();
    if *direct == DirectEndpoints::default() {
        program.push(BpfInstruction::end(true));
        return program;
    }
    program.extend(endpoint(true));
    // A lookup of one bit in eight words.
    program.extend([
        BpfInstruction::calculate(BpfOperation::Keep),
        BpfInstruction::calculate(BpfOperation::And(31)),
    ]);
    program.extend([
        BpfInstruction::calculate(BpfOperation::Beside),
        BpfInstruction::load(BpfLoad::Kept),
    ]);
    program.push(BpfInstruction::calculate(BpfOperation::Shift(5)));
    for (number, word) in (0_u32..).zip(direct.0) {
        let behind = 7_u32.saturating_sub(number).saturating_mul(3);
        program.push(BpfInstruction::branch(BpfCondition::Is(number), 0, 2));
        program.extend([BpfInstruction::load(BpfLoad::Value(word)), BpfInstruction::skip(behind)]);
    }
    program.extend([
        BpfInstruction::calculate(BpfOperation::ShiftBy),
        BpfInstruction::branch(BpfCondition::Has(1), 0, 1),
    ]);
    program.extend([BpfInstruction::end(false), BpfInstruction::end(true)]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_host::net::bpf::attach;
    use causeway_wire::mxoe::{
        Ack, Connect, ConnectBody, ConnectStatus, Eager, EndpointPair, Header, HostQuery, Nack,
        Packet, Pull, PullNack, PullReply, emit,
    };
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixDatagram;

    const NIC: [u8; 6] = [2, 0, 0, 0, 0, 9];

    /// Returns packets to an endpoint of each kind with a different position of the number.
    fn frames(to: u8) -> Vec<Vec<u8>> {
        let ends = EndpointPair { destination: to, source: 255 - to };
        let magic = 0x1234_5600 | u32::from(to ^ 0x80);
        let ack = Ack { ends, session: 1, acknowledged: 2, number: 3 };
        let greeting = ConnectBody::Reply { session: 9, answer: ConnectStatus::SUCCESS };
        let connect =
            Connect { ends, index_of_destination: 1, session: 2, expected: 3, number: 4, greeting };
        let eager = Eager {
            ends,
            data: b"data",
            sequence: 1,
            acknowledged: 2,
            match_info: u64::MAX,
            session: 4,
        };
        let pull = Pull {
            ends,
            session: 1,
            total_len: 70_000,
            window: 1,
            window_sequence: 2,
            offset: 3,
            handle: 4,
            magic: 0xffff_ffff,
            first_frame_offset: 0,
            block_len: 4096,
            frame_index: 0,
            wide: false,
        };
        let reply =
            PullReply { frame_sequence: 255 - to, offset: 0, handle: u32::MAX, magic, data: b"x" };
        let refusal = PullNack { source: 255 - to, reason: 1, handle: u32::MAX, magic };
        let nack = Nack { ends, reason: 1, peer_index: 0xffff, sequence: 3 };
        let all = [
            Packet::Ack(ack),
            Packet::Connect(connect),
            Packet::Tiny(eager),
            Packet::Pull(pull),
            Packet::PullReply(reply),
            Packet::PullNack(refusal),
            Packet::Nack(nack),
        ];
        all.iter().map(|packet| frame(NIC, packet)).collect()
    }

    fn frame(destination: [u8; 6], packet: &Packet<'_>) -> Vec<u8> {
        let header = Header { destination, source: [2; 6], peer_index: 7 };
        let (head, data) = emit(&header, packet);
        [head.bytes(), data].concat()
    }

    /// Returns a function that tests whether a program accepts a frame.
    fn taker(program: &[BpfInstruction]) -> impl Fn(&[u8]) -> bool + use<> {
        let (one, other) = UnixDatagram::pair().unwrap();
        for end in [&one, &other] {
            end.set_nonblocking(true).unwrap();
        }
        attach(other.as_fd(), program).unwrap();
        move |frame| {
            let _ = one.send(frame);
            other.recv(&mut [0; 256]).is_ok()
        }
    }

    #[test]
    fn filter_accepts_packets_at_exactly_one_socket() {
        let mut direct = DirectEndpoints::default();
        let apart = [0, 31, 32, 77, 200, 254];
        apart.into_iter().for_each(|endpoint| direct.add(endpoint));
        let daemon = taker(&filter_of_daemon(NIC, &direct));
        let processes: Vec<_> =
            apart.iter().map(|own| (*own, taker(&endpoint_steps(NIC, *own)))).collect();
        for to in 0..=254 {
            for frame in frames(to) {
                let kind = frame[16];
                assert_eq!(daemon(&frame), !apart.contains(&to), "{kind} to {to}");
                for (own, process) in &processes {
                    assert_eq!(process(&frame), *own == to, "{kind} to {to} at {own}");
                }
            }
        }
    }

    #[test]
    fn filter_packets_for_nics_reach_only_the_daemon() {
        let mut direct = DirectEndpoints::default();
        assert_eq!(filter_of_daemon(NIC, &direct).len(), 10, "the filter has no lookup");
        direct.add(3);
        let query = Packet::HostQuery(HostQuery { index_of_destination: 3, magic: 0x8383_8383 });
        let [daemon, process] = [filter_of_daemon(NIC, &direct), endpoint_steps(NIC, 3)];
        let (daemon, process) = (taker(&daemon), taker(&process));
        for to in [NIC, [0xff; 6]] {
            assert!(daemon(&frame(to, &query)) && !process(&frame(to, &query)));
        }
        let mut other = frames(3).swap_remove(2);
        other[5] ^= 1;
        assert!(!daemon(&other) && !process(&other));
        assert!(direct.remove(3) && !direct.remove(3));
        assert!(taker(&filter_of_daemon(NIC, &direct))(&frames(3)[0]));
    }
}
