//! Filters of packet sockets: classic BPF programs that the kernel runs before it queues a frame. The
//! kernel verifies a program before it accepts it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::net::socket::set_at;

/// Where a frame says its EtherType, in bytes from its beginning.
const ETHERTYPE: u32 = 12;

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    code: u32,
    k: u32,
    /// Instructions that are left out where the condition holds, and where it does not.
    jumps: (u8, u8),
}

/// What of a frame is looked at, at so many bytes from its beginning. Frames that are shorter are not
/// taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Four bytes, the first most significant.
    Word(u32),
    /// Two.
    Half(u32),
    /// One.
    Byte(u32),
    /// None: this value.
    Value(u32),
    /// None: what was kept.
    Kept,
    /// None: the EtherType that the host reads from the frame.
    Protocol,
    /// None: for whom the host takes the frame to be (packet(7), `sll_pkttype`).
    PacketType,
    /// None: the index of the interface that the frame came by.
    Interface,
    /// None: 1 if the host took a VLAN tag off, else 0.
    Tagged,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum If {
    /// It is that.
    Is(u32),
    /// It is that, or more.
    AtLeast(u32),
    /// It has one of these bits.
    Has(u32),
}

/// What is calculated with what was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Do {
    /// These bits alone.
    And(u32),
    /// These bits the other way.
    Xor(u32),
    /// Shifted right by so many.
    Shift(u32),
    /// Shifted right by what was put beside.
    ShiftBy,
    /// It is kept.
    Keep,
    /// It is put beside.
    Beside,
}

impl Step {
    const fn plain(code: u32, k: u32) -> Self {
        Self { code, k, jumps: (0, 0) }
    }

    /// Loads.
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

    /// Loads what the host knows of the frame besides its bytes.
    const fn ancillary(what: libc::c_int) -> Self {
        let at = libc::SKF_AD_OFF.wrapping_add(what).cast_unsigned();
        Self::plain(libc::BPF_LD | libc::BPF_ABS | libc::BPF_W, at)
    }

    /// Calculates.
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

    /// Leaves the next `so` instructions out where the condition holds, the next `not` where not.
    pub const fn branch(condition: If, so: u8, not: u8) -> Self {
        let (code, k) = match condition {
            If::Is(k) => (libc::BPF_JEQ, k),
            If::AtLeast(k) => (libc::BPF_JGE, k),
            If::Has(k) => (libc::BPF_JSET, k),
        };
        Self { code: libc::BPF_JMP | libc::BPF_K | code, k, jumps: (so, not) }
    }

    /// Leaves the next ones out.
    pub const fn skip(count: u32) -> Self {
        Self::plain(libc::BPF_JMP | libc::BPF_JA, count)
    }

    /// The end: the frame is taken, or it is not.
    pub const fn end(takes: bool) -> Self {
        Self::plain(libc::BPF_RET | libc::BPF_K, if takes { u32::MAX } else { 0 })
    }
}

/// Only what is loaded and has this value is looked at by what follows.
pub const fn only(what: Load, value: u32) -> [Step; 3] {
    [Step::load(what), Step::branch(If::Is(value), 1, 0), Step::end(false)]
}

/// Only frames that came by this interface, untagged and of this EtherType are looked at by what
/// follows, and none that this host sends. Whoever has the socket may bind it anew, to another
/// protocol or interface, but hears no more by that.
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

/// Frames to this address alone are looked at by what follows.
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

/// Frames to groups are taken; others are looked at by what follows.
pub const GROUPS: [Step; 3] =
    [Step::load(Load::Byte(0)), Step::branch(If::Has(1), 0, 1), Step::end(true)];

/// Of all frames a socket takes only what the program takes, from now on.
///
/// # Errors
/// The host does not take the program: it does not end, or is too long.
pub fn attach(fd: BorrowedFd<'_>, program: &[Step]) -> io::Result<()> {
    let narrow = |Step { code, k, jumps: (jt, jf) }: &Step| {
        let code = u16::try_from(*code).unwrap_or(u16::MAX);
        libc::sock_filter { code, jt: *jt, jf: *jf, k: *k }
    };
    let mut steps: Vec<_> = program.iter().map(narrow).collect();
    let len = libc::c_ushort::try_from(steps.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    // What it points to outlives the call.
    set_at(libc::SOL_SOCKET, fd, libc::SO_ATTACH_FILTER, &filter)
}

/// Whoever has the socket cannot change what it takes any more.
///
/// # Errors
/// The host cannot do that.
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
