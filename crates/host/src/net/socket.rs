//! Packet sockets on an interface of this host (packet(7)): where frames of `raw` links and of MX
//! NICs enter and leave the process.
//!
//! A header of ten bytes precedes each frame (`PACKET_VNET_HDR`, in the host's byte order): it
//! describes a checksum or segmentation that is left to the receiver. Protocols without either open
//! the socket bare ([`PacketSocket::open_bare`]), which is cheaper. Frames that this host sends by
//! the interface are not received. A VLAN tag that the kernel removed is reported beside the frame.
//! The socket adds, removes and checks no other header.
//!
//! The interface is put into promiscuous mode while the socket is open: frames to all addresses
//! arrive, unless a filter ([`crate::net::bpf`]) drops them. Receiving and sending do not block:
//! without a frame or room the call returns EAGAIN or ENOBUFS, and frames that find the receive
//! queue full are lost. Opening takes the kernel's lock of network interfaces, and needs
//! CAP_NET_RAW. The MTU is read once, when the socket is opened. A socket does not notice that an
//! interface returns: the caller opens another. [`crate::net::receiver`] receives from the socket;
//! the carriers of `raw` links and `mxoe::driver` (for `mx::network`, and for endpoints in direct
//! mode) send by it, each in its caller's thread: a dispatcher's, or the application's.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::fd::control::ControlMessages;
use crate::net::bpf::{BpfInstruction, GROUPS, attach, to_address};
use crate::net::option::set_at;
use crate::net::send::{OutgoingFrame, send_each};

/// Length of the header before each frame, in bytes.
pub const VNET_HEADER_BYTES: usize = 10;
/// EtherType of an IEEE 802.1Q tag.
const TAG_ETHERTYPE: u16 = 0x8100;

/// A socket on an interface. Its sends and receives do not block.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// The interface's MTU when the socket was opened, in bytes; 0 if unknown.
    mtu: usize,
    /// Length of the header before each frame, in bytes.
    header_bytes: usize,
}

/// A received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// Length of header and frame in bytes; more than the buffer has if the frame was cut.
    pub len: usize,
    /// The VLAN tag that the kernel removed: its EtherType and its value.
    pub tag: Option<(u16, u16)>,
}

/// The reason why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("there is no interface {0}")]
    None(String),
    /// The interface is down.
    #[error("interface {0} is down: run `ip link set {0} up`")]
    Down(String),
    /// The process lacks CAP_NET_RAW.
    #[error("interface {0} cannot be opened: the process needs the capability CAP_NET_RAW")]
    Denied(String),
    /// Another error of the kernel.
    #[error("interface {0}: {1}")]
    Host(String, io::Error),
}

/// Returns the error of a system call that failed.
fn check(done: libc::c_int) -> io::Result<()> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of packet sockets.
pub(crate) fn set<T: Copy>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(libc::SOL_PACKET, fd, option, value)
}

/// Returns the number of frames that the kernel dropped at the socket since the last call.
pub(crate) fn drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::tpacket_stats>()).unwrap_or(0);
    let (option, value) = (libc::PACKET_STATISTICS, (&raw mut stats).cast());
    // SAFETY: `value` points to `len` writable bytes, numbers that may have any value.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, value, &raw mut len)
    })?;
    Ok(stats.tp_drops)
}

/// Queries an interface by a request that the kernel overwrites with the answer.
fn query(fd: BorrowedFd<'_>, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: an all-zero request is valid: an empty name and numbers.
    let mut answer: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero and ends the name.
    let room = answer.ifr_name.iter_mut().take(libc::IFNAMSIZ.saturating_sub(1));
    for (to, from) in room.zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the requests used here read the name and write the rest of the structure.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut answer) })?;
    Ok(answer)
}

/// Returns the MTU of an interface, in bytes.
fn mtu_of(fd: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    let answer = query(fd, name, libc::SIOCGIFMTU)?;
    // SAFETY: the answer to this request is the MTU.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Returns the name of the interface that a packet socket is bound to.
fn interface_of(fd: BorrowedFd<'_>) -> io::Result<String> {
    // SAFETY: an all-zero address is valid: numbers only.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: `address` has room for `len` bytes, which may have any values.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
    let index = u32::try_from(address.sll_ifindex).map_err(|_| rustix::io::Errno::NODEV)?;
    Ok(netdevice::index_to_name(fd, index)?)
}

/// Starts to receive frames of a protocol at an interface; sends go to that interface as well.
fn bind(fd: BorrowedFd<'_>, index: libc::c_int, protocol: u16) -> io::Result<()> {
    // SAFETY: an all-zero address is valid: numbers only.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index;
    let len = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or(0);
    // SAFETY: the address is a packet socket's, `len` bytes long.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })
}

impl PacketSocket {
    /// Opens a socket on an interface that is up, for frames to all addresses.
    ///
    /// # Errors
    /// [`InterfaceError`] with the remedy.
    pub fn open(name: &str) -> Result<Self, InterfaceError> {
        Self::open_for(name, libc::ETH_P_ALL as u16, None)
    }

    /// Opens a socket as [`Self::open`] does, for frames of an EtherType to `address`, or to
    /// multicast and broadcast addresses, only.
    ///
    /// # Errors
    /// [`InterfaceError`] with the remedy.
    pub fn open_for(
        name: &str,
        protocol: u16,
        address: Option<[u8; 6]>,
    ) -> Result<Self, InterfaceError> {
        let to =
            |address| [&GROUPS[..], &to_address(address), &[BpfInstruction::end(true)]].concat();
        let program = address.map(to).unwrap_or_default();
        Self::open_with(name, protocol, |_| program, VNET_HEADER_BYTES)
    }

    /// Opens a socket on an interface that is up, for frames of an EtherType that the program
    /// accepts, from the first frame on, without a header before each. `program` is called with the
    /// index of the interface.
    ///
    /// # Errors
    /// [`InterfaceError`] with the remedy.
    pub fn open_bare(
        name: &str,
        protocol: u16,
        program: impl FnOnce(u32) -> Vec<BpfInstruction>,
    ) -> Result<Self, InterfaceError> {
        Self::open_with(name, protocol, program, 0)
    }

    /// Opens a socket whose frames have a header of `before` bytes.
    fn open_with(
        name: &str,
        protocol: u16,
        program: impl FnOnce(u32) -> Vec<BpfInstruction>,
        before: usize,
    ) -> Result<Self, InterfaceError> {
        let host = |e: io::Error| match e.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => InterfaceError::Denied(name.to_owned()),
            Some(libc::ENODEV | libc::ENXIO) => InterfaceError::None(name.to_owned()),
            Some(libc::ENETDOWN) => InterfaceError::Down(name.to_owned()),
            _ => InterfaceError::Host(name.to_owned(), e),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol the socket receives nothing before it is bound.
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .map_err(|e| host(e.into()))?;
        let fd_ref = fd.as_fd();
        let index = netdevice::name_to_index(fd_ref, name).map_err(|e| host(e.into()))?;
        let program = program(index);
        let index = libc::c_int::try_from(index).unwrap_or(libc::c_int::MAX);
        let flags = query(fd_ref, name, libc::SIOCGIFFLAGS).map_err(host)?;
        // SAFETY: the answer to this request is the flags.
        let flags = unsafe { flags.ifr_ifru.ifru_flags };
        if libc::c_int::from(flags) & libc::IFF_UP == 0 {
            return Err(InterfaceError::Down(name.to_owned()));
        }
        let mtu = mtu_of(fd_ref, name).map_err(host)?;
        for option in [libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            set(fd_ref, option, &1_i32).map_err(host)?;
        }
        if before > 0 {
            set(fd_ref, libc::PACKET_VNET_HDR, &1_i32).map_err(host)?;
        }
        let all = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(fd_ref, libc::PACKET_ADD_MEMBERSHIP, &all).map_err(host)?;
        if !program.is_empty() {
            attach(fd_ref, &program).map_err(host)?;
        }
        bind(fd_ref, index, protocol).map_err(host)?;
        Ok(Self { fd, mtu, header_bytes: before })
    }

    /// Adopts a socket that another process opened by [`Self::open_bare`]. The MTU is zero if the
    /// kernel does not report it.
    ///
    /// # Errors
    /// The descriptor is not a packet socket.
    pub fn given(fd: OwnedFd) -> io::Result<Self> {
        // The option is already set; the call fails for other descriptors.
        set(fd.as_fd(), libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        let mtu = interface_of(fd.as_fd()).and_then(|name| mtu_of(fd.as_fd(), &name));
        let mtu = mtu.unwrap_or(0);
        Ok(Self { fd, mtu, header_bytes: 0 })
    }

    /// Sends frames to the interface's driver directly from now on: past the kernel's queueing
    /// discipline (tc(8)) and invisible to other listeners on this host. If the driver has no room,
    /// the frame is not sent.
    ///
    /// # Errors
    /// The kernel has no such option.
    pub fn skip_queues(&self) -> io::Result<()> {
        set(self.fd.as_fd(), libc::PACKET_QDISC_BYPASS, &1_i32)
    }

    /// Returns the length of the header before each frame, in both directions:
    /// [`VNET_HEADER_BYTES`] or 0.
    pub fn before(&self) -> usize {
        self.header_bytes
    }

    /// Returns the descriptor, for another process.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Returns the interface's MTU at the time when the socket was opened, in bytes (without the
    /// Ethernet header); 0 if unknown.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Receives a frame behind its header. Never blocks.
    ///
    /// # Errors
    /// `EAGAIN` without a frame; `ENETDOWN` if the interface is down, reported once; or an error of
    /// the kernel for an offload that it cannot describe.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<ReceivedPacket> {
        /// Aligned as control messages must be.
        #[repr(align(8))]
        struct Control([u8; 64]);
        let mut control = Control([0; 64]);
        let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: an all-zero msghdr is valid: no name, no data, no control.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the message names `room` and `control`, which are writable and outlive the call.
        let len = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
        let written = control.0.get(..message.msg_controllen as usize).unwrap_or_default();
        Ok(ReceivedPacket { len, tag: tag(written) })
    }

    /// Sends frames, each with its header, at most
    /// [`FRAMES_PER_CALL_MAX`](crate::limits::FRAMES_PER_CALL_MAX) (64). Returns the number that
    /// was sent. Never blocks.
    ///
    /// # Errors
    /// The first frame was not sent: the kernel has no room, the frame is too long, or the
    /// interface is down.
    pub fn send<'a>(&self, frames: impl Iterator<Item = OutgoingFrame<'a>>) -> io::Result<usize> {
        send_each(self.as_fd(), frames)
    }
}

/// Returns the tag that the kernel removed, if the status reports a tag: its EtherType and its
/// value.
pub(crate) fn tag_of(status: u32, kind: u16, value: u16) -> Option<(u16, u16)> {
    let typed = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if typed { kind } else { TAG_ETHERTYPE };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((kind, value))
}

/// Returns the tag that the kernel removed, if a control message reports a tag.
fn tag(control: &[u8]) -> Option<(u16, u16)> {
    let kind = (libc::SOL_PACKET, libc::PACKET_AUXDATA);
    let message = ControlMessages::of(control).find(|message| message.kind == kind)?;
    let bytes = message.value::<{ size_of::<libc::tpacket_auxdata>() }>(0)?;
    // SAFETY: these bytes are a value of the type, which consists of numbers only; no alignment is
    // assumed.
    let data = unsafe { bytes.as_ptr().cast::<libc::tpacket_auxdata>().read_unaligned() };
    tag_of(data.tp_status, data.tp_vlan_tpid, data.tp_vlan_tci)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_socket_error_names_the_missing_interface() {
        match PacketSocket::open("nowhere0") {
            Err(InterfaceError::None(name) | InterfaceError::Denied(name)) => {
                assert_eq!(name, "nowhere0");
            }
            other => panic!("{other:?}"),
        }
    }
}
