//! Filters of packet sockets: classic BPF programs that the kernel runs before it queues a frame.
//!
//! A program is a sequence of [`BpfInstruction`]s. A test continues with the next step for a frame
//! that may pass and ends the program for any other; so programs are concatenated, and the last
//! step is an [end](BpfInstruction::end). A filter accepts or drops whole frames; it changes none.
//!
//! [`crate::net::socket`] attaches programs when it opens a socket, before the first frame; MX NICs
//! build the programs of their endpoints with it (`mx::network::endpoint_filter`), and replace the
//! program of an open socket when their endpoints change (`mx::network::interface`). This module
//! neither verifies nor runs programs: the kernel verifies a program when it is attached, refuses
//! long programs (4096 instructions), and runs it per frame. Jumps are forward only, at most 255
//! instructions for a branch. Frames that were queued before the attachment stay in the queue. The
//! functions run in the caller's thread; all but [`attach`] and [`lock`] are pure.

use std::io;
use std::os::fd::BorrowedFd;

use crate::net::option::set_at;

/// Offset of the EtherType in a frame, in bytes.
const ETHERTYPE: u32 = 12;

/// A BPF instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfInstruction {
    /// Operation and addressing mode (linux/bpf_common.h).
    code: u32,
    /// The operand.
    k: u32,
    /// Instructions to skip if the condition holds, and if it does not.
    jumps: (u8, u8),
}

/// The source of a load. Offsets are in bytes from the beginning of the frame; a shorter frame is
/// dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfLoad {
    /// Four bytes at an offset, the first most significant.
    Word(u32),
    /// Two bytes at an offset, the first most significant.
    Half(u32),
    /// The byte at an offset.
    Byte(u32),
    /// A constant.
    Value(u32),
    /// The value that [`BpfOperation::Keep`] stored.
    Kept,
    /// The EtherType that the kernel read from the frame.
    Protocol,
    /// The kernel's class of the frame's destination (packet(7), `sll_pkttype`).
    PacketType,
    /// The index of the interface that received the frame.
    Interface,
    /// 1 if the kernel removed a VLAN tag, else 0.
    Tagged,
}

/// A condition on the accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfCondition {
    /// The accumulator equals the value.
    Is(u32),
    /// The accumulator is at least the value.
    AtLeast(u32),
    /// The accumulator has a bit of the value.
    Has(u32),
}

/// An operation on the accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BpfOperation {
    /// Keeps these bits and clears the others.
    And(u32),
    /// Inverts these bits.
    Xor(u32),
    /// Shifts right by a constant.
    Shift(u32),
    /// Shifts right by the index register.
    ShiftBy,
    /// Stores the accumulator in scratch memory.
    Keep,
    /// Copies the accumulator to the index register, which [`Self::ShiftBy`] reads.
    Beside,
}

impl BpfInstruction {
    /// Returns an instruction without jumps.
    const fn plain(code: u32, k: u32) -> Self {
        Self { code, k, jumps: (0, 0) }
    }

    /// Returns an instruction that loads a value into the accumulator.
    pub const fn load(what: BpfLoad) -> Self {
        match what {
            BpfLoad::Word(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_W, at),
            BpfLoad::Half(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_H, at),
            BpfLoad::Byte(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_B, at),
            BpfLoad::Value(value) => Self::plain(libc::BPF_LD | libc::BPF_IMM, value),
            BpfLoad::Kept => Self::plain(libc::BPF_LD | libc::BPF_MEM, 0),
            BpfLoad::Protocol => Self::ancillary(libc::SKF_AD_PROTOCOL),
            BpfLoad::PacketType => Self::ancillary(libc::SKF_AD_PKTTYPE),
            BpfLoad::Interface => Self::ancillary(libc::SKF_AD_IFINDEX),
            BpfLoad::Tagged => Self::ancillary(libc::SKF_AD_VLAN_TAG_PRESENT),
        }
    }

    /// Returns an instruction that loads an ancillary value, which the kernel knows beside the
    /// bytes.
    const fn ancillary(what: libc::c_int) -> Self {
        let at = libc::SKF_AD_OFF.wrapping_add(what).cast_unsigned();
        Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_W, at)
    }

    /// Returns an instruction that calculates with the accumulator.
    pub const fn calculate(what: BpfOperation) -> Self {
        const ALU: u32 = libc::BPF_ALU;
        match what {
            BpfOperation::And(bits) => Self::plain(ALU | libc::BPF_AND | libc::BPF_K, bits),
            BpfOperation::Xor(bits) => Self::plain(ALU | libc::BPF_XOR | libc::BPF_K, bits),
            BpfOperation::Shift(by) => Self::plain(ALU | libc::BPF_RSH | libc::BPF_K, by),
            BpfOperation::ShiftBy => Self::plain(ALU | libc::BPF_RSH | libc::BPF_X, 0),
            BpfOperation::Keep => Self::plain(libc::BPF_ST, 0),
            BpfOperation::Beside => Self::plain(libc::BPF_MISC | libc::BPF_TAX, 0),
        }
    }

    /// Returns a branch: skips the next `so` instructions if the condition holds, the next `not` if
    /// it does not.
    pub const fn branch(condition: BpfCondition, so: u8, not: u8) -> Self {
        let (code, k) = match condition {
            BpfCondition::Is(k) => (libc::BPF_JEQ, k),
            BpfCondition::AtLeast(k) => (libc::BPF_JGE, k),
            BpfCondition::Has(k) => (libc::BPF_JSET, k),
        };
        Self { code: libc::BPF_JMP | libc::BPF_K | code, k, jumps: (so, not) }
    }

    /// Returns a jump that skips the next `count` instructions.
    pub const fn skip(count: u32) -> Self {
        Self::plain(libc::BPF_JMP | libc::BPF_JA, count)
    }

    /// Returns an instruction that ends the program: the frame is accepted or dropped.
    pub const fn end(takes: bool) -> Self {
        Self::plain(libc::BPF_RET | libc::BPF_K, if takes { u32::MAX } else { 0 })
    }
}

/// Returns steps that drop frames unless the loaded value equals `value`.
pub const fn only(what: BpfLoad, value: u32) -> [BpfInstruction; 3] {
    [
        BpfInstruction::load(what),
        BpfInstruction::branch(BpfCondition::Is(value), 1, 0),
        BpfInstruction::end(false),
    ]
}

/// Returns steps that drop frames unless they arrived by this interface, untagged and with this
/// EtherType; frames that this host sends are dropped as well. A process that has the socket may
/// bind it to another protocol or interface, but receives no further frames by that.
pub fn from_interface(interface: u32, protocol: u16) -> Vec<BpfInstruction> {
    let sent = [
        BpfInstruction::load(BpfLoad::PacketType),
        BpfInstruction::branch(BpfCondition::AtLeast(libc::PACKET_OUTGOING.into()), 0, 1),
        BpfInstruction::end(false),
    ];
    let all = [
        only(BpfLoad::Protocol, protocol.into()),
        only(BpfLoad::Interface, interface),
        only(BpfLoad::Tagged, 0),
        sent,
        only(BpfLoad::Half(ETHERTYPE), protocol.into()),
    ];
    all.concat()
}

/// Returns steps that drop frames to any address but this.
pub const fn to_address([a, b, c, d, e, f]: [u8; 6]) -> [BpfInstruction; 6] {
    [
        BpfInstruction::load(BpfLoad::Word(0)),
        BpfInstruction::branch(BpfCondition::Is(u32::from_be_bytes([a, b, c, d])), 1, 0),
        BpfInstruction::end(false),
        BpfInstruction::load(BpfLoad::Half(4)),
        BpfInstruction::branch(BpfCondition::Is(u32::from_be_bytes([0, 0, e, f])), 1, 0),
        BpfInstruction::end(false),
    ]
}

/// Steps that accept multicast and broadcast frames; the next step sees the others.
pub const GROUPS: [BpfInstruction; 3] = [
    BpfInstruction::load(BpfLoad::Byte(0)),
    BpfInstruction::branch(BpfCondition::Has(1), 0, 1),
    BpfInstruction::end(true),
];

/// Attaches a program to a socket: from now on the socket queues only frames that the program
/// accepts.
///
/// # Errors
/// The kernel refuses the program, because a path does not end or it has more than 4,096
/// instructions.
pub fn attach(fd: BorrowedFd<'_>, program: &[BpfInstruction]) -> io::Result<()> {
    let encode = |BpfInstruction { code, k, jumps: (jt, jf) }: &BpfInstruction| {
        let code = u16::try_from(*code).unwrap_or(u16::MAX);
        libc::sock_filter { code, jt: *jt, jf: *jf, k: *k }
    };
    let mut steps: Vec<_> = program.iter().map(encode).collect();
    let len = libc::c_ushort::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    // `steps`, to which the value points, outlives the call.
    set_at(libc::SOL_SOCKET, fd, libc::SO_ATTACH_FILTER, &filter)
}

/// Locks the filter of a socket: no process that has the socket can change it afterwards.
///
/// # Errors
/// The kernel's.
pub fn lock(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_at(libc::SOL_SOCKET, fd, libc::SO_LOCK_FILTER, &1_i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    use std::os::fd::AsFd as _;

    #[test]
    fn frames_are_taken_by_address_and_nobody_changes_that() {
        let own = [2, 3, 4, 5, 6, 7];
        let program = [&GROUPS[..], &to_address(own), &[BpfInstruction::end(true)]].concat();
        let flags = SocketFlags::NONBLOCK;
        let (one, other) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        attach(other.as_fd(), &program).unwrap();
        let takes = |frame: &[u8]| {
            let _ = rustix::net::send(&one, frame, SendFlags::empty());
            rustix::net::recv(&other, &mut [0; 64], RecvFlags::empty()).is_ok()
        };
        let to = |address: [u8; 6]| [&address[..], &[0; 20]].concat();
        assert!(takes(&to(own)) && takes(&to([0xff; 6])) && takes(&to([1, 0, 0, 0, 0, 0])));
        assert!(!takes(&to([2, 3, 4, 5, 6, 8])) && !takes(&to([2, 3, 4, 9, 6, 7])));
        assert!(!takes(&own[..5]), "cut off");
        lock(other.as_fd()).unwrap();
        assert!(attach(other.as_fd(), &[BpfInstruction::end(true)]).is_err());
        assert!(
            attach(one.as_fd(), &[BpfInstruction::load(BpfLoad::Byte(0))]).is_err(),
            "it does not end"
        );
        let long = [BpfInstruction::end(true)].repeat(70_000);
        assert!(attach(one.as_fd(), &long).is_err());
    }
}
