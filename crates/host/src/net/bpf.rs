//! Filters of packet sockets: classic BPF programs that the kernel runs before it queues a frame.
//! The kernel verifies a program before it accepts it.
//!
//! A program is a sequence of [`Step`]s. A test continues with the next step for a frame that may
//! pass and ends the program for any other; so programs are concatenated, and the last step is an
//! [end](Step::end). This module does not verify programs and does not run them.

use std::io;
use std::os::fd::BorrowedFd;

use crate::net::socket::set_at;

/// Offset of the EtherType in a frame, in bytes.
const ETHERTYPE: u32 = 12;

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    code: u32,
    k: u32,
    /// Instructions to skip if the condition holds, and if it does not.
    jumps: (u8, u8),
}

/// The source of a load. Offsets are in bytes from the beginning of the frame; a shorter frame is
/// dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Four bytes at an offset, the first most significant.
    Word(u32),
    /// Two bytes at an offset, the first most significant.
    Half(u32),
    /// The byte at an offset.
    Byte(u32),
    /// A constant.
    Value(u32),
    /// The value that [`Do::Keep`] stored.
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
pub enum If {
    /// The accumulator equals the value.
    Is(u32),
    /// The accumulator is at least the value.
    AtLeast(u32),
    /// The accumulator has a bit of the value.
    Has(u32),
}

/// An operation on the accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
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
    /// Copies the accumulator to the index register.
    Beside,
}

impl Step {
    const fn plain(code: u32, k: u32) -> Self {
        Self { code, k, jumps: (0, 0) }
    }

    /// Returns an instruction that loads a value into the accumulator.
    pub const fn load(what: Load) -> Self {
        match what {
            Load::Word(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_W, at),
            Load::Half(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_H, at),
            Load::Byte(at) => Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_B, at),
            Load::Value(value) => Self::plain(libc::BPF_LD | libc::BPF_IMM, value),
            Load::Kept => Self::plain(libc::BPF_LD | libc::BPF_MEM, 0),
            Load::Protocol => Self::ancillary(libc::SKF_AD_PROTOCOL),
            Load::PacketType => Self::ancillary(libc::SKF_AD_PKTTYPE),
            Load::Interface => Self::ancillary(libc::SKF_AD_IFINDEX),
            Load::Tagged => Self::ancillary(libc::SKF_AD_VLAN_TAG_PRESENT),
        }
    }

    /// Returns an instruction that loads an ancillary value, which the kernel knows beside the
    /// bytes.
    const fn ancillary(what: libc::c_int) -> Self {
        let at = libc::SKF_AD_OFF.wrapping_add(what).cast_unsigned();
        Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_W, at)
    }

    /// Returns an instruction that calculates with the accumulator.
    pub const fn calculate(what: Do) -> Self {
        const ALU: u32 = libc::BPF_ALU;
        match what {
            Do::And(bits) => Self::plain(ALU | libc::BPF_AND | libc::BPF_K, bits),
            Do::Xor(bits) => Self::plain(ALU | libc::BPF_XOR | libc::BPF_K, bits),
            Do::Shift(by) => Self::plain(ALU | libc::BPF_RSH | libc::BPF_K, by),
            Do::ShiftBy => Self::plain(ALU | libc::BPF_RSH | libc::BPF_X, 0),
            Do::Keep => Self::plain(libc::BPF_ST, 0),
            Do::Beside => Self::plain(libc::BPF_MISC | libc::BPF_TAX, 0),
        }
    }

    /// Returns a branch: skips the next `so` instructions if the condition holds, the next `not` if
    /// it does not.
    pub const fn branch(condition: If, so: u8, not: u8) -> Self {
        let (code, k) = match condition {
            If::Is(k) => (libc::BPF_JEQ, k),
            If::AtLeast(k) => (libc::BPF_JGE, k),
            If::Has(k) => (libc::BPF_JSET, k),
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
pub const fn only(what: Load, value: u32) -> [Step; 3] {
    [Step::load(what), Step::branch(If::Is(value), 1, 0), Step::end(false)]
}

/// Returns steps that drop frames unless they arrived by this interface, untagged and with this
/// EtherType; frames that this host sends are dropped as well. A process that has the socket may
/// bind it to another protocol or interface, but receives no further frames by that.
pub fn came_by(interface: u32, protocol: u16) -> Vec<Step> {
    let sent = [
        Step::load(Load::PacketType),
        Step::branch(If::AtLeast(libc::PACKET_OUTGOING.into()), 0, 1),
        Step::end(false),
    ];
    let all = [
        only(Load::Protocol, protocol.into()),
        only(Load::Interface, interface),
        only(Load::Tagged, 0),
        sent,
        only(Load::Half(ETHERTYPE), protocol.into()),
    ];
    all.concat()
}

/// Returns steps that drop frames to any address but this.
pub const fn to_address([a, b, c, d, e, f]: [u8; 6]) -> [Step; 6] {
    [
        Step::load(Load::Word(0)),
        Step::branch(If::Is(u32::from_be_bytes([a, b, c, d])), 1, 0),
        Step::end(false),
        Step::load(Load::Half(4)),
        Step::branch(If::Is(u32::from_be_bytes([0, 0, e, f])), 1, 0),
        Step::end(false),
    ]
}

/// Steps that accept multicast and broadcast frames; the next step sees the others.
pub const GROUPS: [Step; 3] =
    [Step::load(Load::Byte(0)), Step::branch(If::Has(1), 0, 1), Step::end(true)];

/// Attaches a program to a socket: from now on the socket queues only frames that the program
/// accepts.
///
/// # Errors
/// The kernel refuses the program, because a path does not end or it is too long.
pub fn attach(fd: BorrowedFd<'_>, program: &[Step]) -> io::Result<()> {
    let encode = |Step { code, k, jumps: (jt, jf) }: &Step| {
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
        let program = [&GROUPS[..], &to_address(own), &[Step::end(true)]].concat();
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
        assert!(attach(other.as_fd(), &[Step::end(true)]).is_err());
        assert!(attach(one.as_fd(), &[Step::load(Load::Byte(0))]).is_err(), "it does not end");
        let long = [Step::end(true)].repeat(70_000);
        assert!(attach(one.as_fd(), &long).is_err());
    }
}
