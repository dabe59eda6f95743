//! UDP sockets with batched I/O: `sendmsg` with UDP GSO, `recvmsg` with UDP GRO.
//!
//! Links and the MX service send and receive their datagrams here: a service watches the socket as
//! a source ([`Context::watch_source`](crate::Context::watch_source)) and drains it by
//! [`UdpReceiver::receive`]; a carrier sends in the thread of the sending shard, and a link also
//! from its own shard. The module knows addresses, lengths and traffic classes, and never the
//! content of a datagram.
//!
//! No call waits. A send without room returns an error and keeps nothing: the caller drops the
//! datagrams. A [`Udp`] may be shared between threads; a [`UdpReceiver`] may not. The kernel may
//! lose, duplicate and reorder datagrams. Without GSO or GRO in the kernel the calls carry single
//! datagrams ([`Udp::batch`] is 1).
//!
//! # Budget
//! One system call for up to 64 datagrams of one size out, or 64 KiB in from one flow, and an empty
//! call when the socket is drained. On reception the kernel reports the segment size (GRO) and, if
//! the caller enabled the reports, the traffic class ([`Udp::report_classes`]) and the destination
//! address ([`Udp::report_destinations`]). A polled socket
//! costs no call for [`UDP_REST_TURNS`] (2) polls after it was drained, in which its datagrams are
//! delivered and often answered; if datagrams arrive singly, as answers do, the empty call is saved
//! too.
//!
//! Reporting the traffic class takes some 60 ns a call, beside 550 ns for a datagram of 64 B, and
//! has no measurable cost beside 64 KiB. Sending a class other than 0 takes some 100 ns a call, as
//! a control message; `setsockopt` would take another call, and does not suit sockets that threads
//! share. (Linux 6.18 in a virtual machine.)

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use causeway_host::net::send::{OutgoingFrame, send_segmented};
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt as more,
};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use crate::carrier::{BufferPool, PooledBuffer};
use crate::limits::{
    UDP_BATCH_MAX, UDP_RECEIVE_BYTES, UDP_RECEIVES_MAX, UDP_REST_TURNS, UDP_SOCKET_BYTES,
};
use crate::socket_buffers::{set_receive_buffer, set_send_buffer};

/// A non-blocking UDP socket, with [`UDP_SOCKET_BYTES`] (4 MiB) of buffer in each direction as far
/// as the host allows.
#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    /// Datagrams that the kernel segments from one call; 1 without GSO.
    batch: usize,
    /// The socket is of IPv6 and takes datagrams of IPv4 as well.
    is_dual_stack: bool,
}

/// Policy of IP fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragmentation {
    /// IP fragments datagrams that are longer than the path carries.
    Allowed,
    /// Datagrams that are longer than the interface carries are refused.
    Refused,
}

impl Udp {
    /// Binds a socket to one address.
    ///
    /// # Errors
    /// The address is in use, or does not belong to this host.
    pub fn bind(local: SocketAddr, cut: Fragmentation) -> io::Result<Self> {
        Self::bind_as(local, cut, false)
    }

    /// Binds a socket to a port of all addresses, of IPv6 and IPv4; of IPv4 alone on a host without
    /// IPv6.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub fn bind_both(port: u16, cut: Fragmentation) -> io::Result<Self> {
        let all = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
        match Self::bind_as(all, cut, true) {
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
                ) =>
            {
                Self::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), cut)
            }
            bound => bound,
        }
    }

    /// Binds a socket; a dual-stack socket takes datagrams of IPv4 as well.
    fn bind_as(local: SocketAddr, cut: Fragmentation, is_dual_stack: bool) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(local);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        if local.is_ipv6() {
            socket.set_only_v6(!is_dual_stack)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&local.into())?;
        let socket = UdpSocket::from(socket);
        may_cut(&socket, local.ip(), cut)?;
        if is_dual_stack {
            may_cut(&socket, IpAddr::V4(Ipv4Addr::UNSPECIFIED), cut)?;
        }
        // Without GRO and GSO in the kernel, datagrams are received and sent one by one.
        let _ = setsockopt(&socket, more::UdpGroSegment, &true);
        // A probe with an arbitrary length; 0 leaves the length to each call.
        let cuts = setsockopt(&socket, more::UdpGsoSegment, &1400)
            .and_then(|()| setsockopt(&socket, more::UdpGsoSegment, &0));
        set_receive_buffer(&socket, UDP_SOCKET_BYTES);
        set_send_buffer(&socket, UDP_SOCKET_BYTES);
        Ok(Self { socket, batch: if cuts.is_ok() { UDP_BATCH_MAX } else { 1 }, is_dual_stack })
    }

    /// Binds a socket that only sends, to an unused port.
    ///
    /// # Errors
    /// As for [`Self::bind`].
    pub fn bind_to_send(local: IpAddr, cut: Fragmentation) -> io::Result<Self> {
        let udp = Self::bind(SocketAddr::new(local, 0), cut)?;
        // The socket is never read: the kernel keeps as little as it can.
        let _ = sockopt::set_socket_recv_buffer_size(&udp.socket, 0);
        Ok(udp)
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// The host fails.
    pub fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts datagrams over IPv6 without a checksum (RFC 6935).
    ///
    /// # Errors
    /// The host fails.
    pub fn accept_zero_checksum(&self) -> io::Result<()> {
        causeway_host::net::udp::accept_zero_checksum(self.as_fd())
    }

    /// Returns an address in the socket's address family.
    fn native(&self, to: SocketAddr) -> SocketAddr {
        match to {
            SocketAddr::V4(v4) if self.is_dual_stack => {
                SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port())
            }
            _ => to,
        }
    }

    /// Returns how many datagrams a call may send, 1 to [`UDP_BATCH_MAX`] (64).
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Sends datagrams that are contiguous in `bytes`, each of `segment` bytes except the last,
    /// which may be shorter; at most [`Self::batch`] datagrams and 65,000 bytes. Never waits.
    ///
    /// # Errors
    /// The kernel has no room, or refuses the address or the length. No datagram was sent then.
    pub fn send(&self, to: SocketAddr, bytes: &[u8], segment: usize) -> io::Result<()> {
        self.send_as(to, Origin::default(), bytes, segment)
    }

    /// As [`Self::send`], with an origin of the caller's choice.
    ///
    /// # Errors
    /// As for [`Self::send`], or the source address does not belong to this host.
    pub fn send_as(
        &self,
        to: SocketAddr,
        Origin { from, class }: Origin,
        bytes: &[u8],
        segment: usize,
    ) -> io::Result<()> {
        let is_ipv4 = to.is_ipv4();
        let to = self.native(to);
        let cut = bytes.len() > segment;
        if !cut && from.is_none() && class == 0 {
            rustix::net::sendto(&self.socket, bytes, SendFlags::DONTWAIT, &to)?;
            return Ok(());
        }
        let segment = u16::try_from(segment).or(if cut { Err(Errno::MSGSIZE) } else { Ok(0) })?;
        let (v4, v6) = (from_v4(from), from_v6(from));
        let origin = v4.as_ref().map(ControlMessage::Ipv4PacketInfo);
        let origin = origin.or(v6.as_ref().map(ControlMessage::Ipv6PacketInfo));
        let pieces = cut.then_some(ControlMessage::UdpGsoSegments(&segment));
        let class_v6 = i32::from(class);
        let marked = match (class, is_ipv4) {
            (0, _) => None,
            (_, true) => Some(ControlMessage::Ipv4Tos(&class)),
            (_, false) => Some(ControlMessage::Ipv6TClass(&class_v6)),
        };
        let (iov, to) = ([IoSlice::new(bytes)], SockaddrStorage::from(to));
        let fd = self.socket.as_raw_fd();
        let send = |asked: &[ControlMessage<'_>]| {
            sendmsg(fd, &iov, asked, MsgFlags::MSG_DONTWAIT, Some(&to))
        };
        match (origin, pieces, marked) {
            (Some(a), Some(b), Some(c)) => send(&[a, b, c]),
            (Some(a), Some(b), None) | (Some(a), None, Some(b)) | (None, Some(a), Some(b)) => {
                send(&[a, b])
            }
            (Some(only), None, None) | (None, Some(only), None) | (None, None, Some(only)) => {
                send(&[only])
            }
            (None, None, None) => send(&[]),
        }?;
        Ok(())
    }

    /// Enables the report of destination addresses, if the socket is bound to the wildcard address
    /// and the host has several addresses.
    pub fn report_destinations(&self) {
        let Ok(local) = self.local() else { return };
        if !local.ip().is_unspecified() || !has_several(local.is_ipv4()) {
            return;
        }
        // Without the report, the kernel chooses the source address of answers.
        let _ = match local {
            SocketAddr::V4(_) => setsockopt(&self.socket, more::Ipv4PacketInfo, &true),
            SocketAddr::V6(_) => setsockopt(&self.socket, more::Ipv6RecvPacketInfo, &true),
        };
    }

    /// Enables the report of traffic classes. If the host refuses, all datagrams count as unmarked.
    pub fn report_classes(&self) {
        let is_ipv6 = self.local().is_ok_and(|local| local.is_ipv6());
        if self.is_dual_stack || !is_ipv6 {
            let _ = setsockopt(&self.socket, more::IpRecvTos, &true);
        }
        if is_ipv6 {
            let _ = setsockopt(&self.socket, more::Ipv6RecvTClass, &true);
        }
    }

    /// As [`Self::send`], for frames that are gathered from their buffers, each as long as the
    /// first except the last, which may be shorter.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_frames<'a>(
        &self,
        to: SocketAddr,
        frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
    ) -> io::Result<()> {
        send_segmented(self.as_fd(), &self.native(to), frames)
    }

    /// Receives waiting datagrams of one flow into `room`, with `space` for control messages.
    fn receive(&self, room: &mut [u8], space: &mut [u8]) -> io::Result<Received> {
        let (mut iov, flags) = ([IoSliceMut::new(room)], MsgFlags::MSG_DONTWAIT);
        let fd = self.socket.as_raw_fd();
        let got = recvmsg::<SockaddrStorage>(fd, &mut iov, Some(space), flags)?;
        let (mut stride, mut to, mut class) = (None, None, 0);
        for message in got.cmsgs()? {
            match message {
                ControlMessageOwned::UdpGroSegments(bytes) => stride = usize::try_from(bytes).ok(),
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    to = Some(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr)).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    let called = IpAddr::from(info.ipi6_addr.s6_addr);
                    to = Some(called).filter(|ip| !ip.is_multicast());
                }
                ControlMessageOwned::Ipv4Tos(tos) => class = tos,
                ControlMessageOwned::Ipv6TClass(tclass) => {
                    class = u8::try_from(tclass).unwrap_or(0);
                }
                _ => {}
            }
        }
        let from = got.address.as_ref().and_then(address).ok_or(Errno::AFNOSUPPORT)?;
        let len = got.bytes;
        Ok(Received { from, to, class, len, stride: stride.unwrap_or(len) })
    }
}

/// The parts of the IP header that a sender chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// Source address of this host; `None` leaves the choice to the kernel.
    pub from: Option<IpAddr>,
    /// Traffic class (DSCP and ECN) of all datagrams of a call.
    pub class: u8,
}

/// The outcome of a receive call: datagrams of one flow.
struct Received {
    /// Members as in [`Burst`].
    from: SocketAddr,
    to: Option<IpAddr>,
    class: u8,
    len: usize,
    stride: usize,
}

/// Returns the control message for an IPv4 source address.
fn from_v4(from: Option<IpAddr>) -> Option<libc::in_pktinfo> {
    let Some(IpAddr::V4(ip)) = from else { return None };
    let address = libc::in_addr { s_addr: u32::from(ip).to_be() };
    let any = libc::in_addr { s_addr: 0 };
    Some(libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: address, ipi_addr: any })
}

/// Returns the control message for an IPv6 source address.
fn from_v6(from: Option<IpAddr>) -> Option<libc::in6_pktinfo> {
    let Some(IpAddr::V6(ip)) = from else { return None };
    let address = libc::in6_addr { s6_addr: ip.octets() };
    Some(libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 })
}

/// Returns whether the host has several addresses of a family at which peers may reach it. Links
/// are reopened when a host gets a further address.
fn has_several(is_ipv4: bool) -> bool {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return true };
    let ours = all.filter_map(|one| one.address.as_ref().and_then(address)).map(|at| at.ip());
    let fits = |ip: &IpAddr| match ip {
        IpAddr::V4(_) => is_ipv4,
        IpAddr::V6(ip) => !is_ipv4 && !ip.is_unicast_link_local(),
    };
    ours.filter(|ip| fits(ip) && !ip.is_loopback()).nth(1).is_some()
}

/// Sets the fragmentation policy of a socket bound to `local`.
fn may_cut(socket: &UdpSocket, local: IpAddr, cut: Fragmentation) -> io::Result<()> {
    match (local, cut) {
        (IpAddr::V4(_), Fragmentation::Allowed) => {
            sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DONT)?;
        }
        (IpAddr::V4(_), Fragmentation::Refused) => {
            sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?;
        }
        (IpAddr::V6(_), Fragmentation::Allowed) => {
            sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DONT)?;
        }
        (IpAddr::V6(_), Fragmentation::Refused) => {
            sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?;
            // The option above concerns the path, this option the interface.
            setsockopt(socket, more::Ipv6DontFrag, &true)?;
        }
    }
    Ok(())
}

/// Returns an IP address and port; `None` for another family.
fn address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|from| SocketAddrV4::from(*from).into());
    v4.or_else(|| address.as_sockaddr_in6().map(|from| SocketAddrV6::from(*from).into()))
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Datagrams of one flow, contiguous and of one length except the last.
#[derive(Debug)]
pub struct Burst {
    /// Source address.
    pub from: SocketAddr,
    /// Destination address, if reported ([`Udp::report_destinations`]).
    pub to: Option<IpAddr>,
    /// Traffic class of their IP headers, if reported ([`Udp::report_classes`]), or 0. GRO does not
    /// merge datagrams that differ in it.
    pub class: u8,
    /// Bytes of the datagrams, from the start of the buffer.
    pub buffer: PooledBuffer,
    /// Bytes of all datagrams.
    pub len: usize,
    /// Bytes of each datagram; the last may be shorter.
    pub stride: usize,
}

impl Burst {
    /// Returns the range of each datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (len, stride) = (self.len, self.stride.max(1));
        (0..len).step_by(stride).map(move |at| at..at.saturating_add(stride).min(len))
    }
}

/// The receive state of a socket.
#[derive(Debug)]
pub struct UdpReceiver {
    pool: BufferPool,
    /// Buffer of the next call.
    buffer: Option<PooledBuffer>,
    /// Buffer for control messages.
    space: Vec<u8>,
    /// Polls for which the drained socket is still skipped.
    skips: u8,
    /// The last call found nothing: the next datagram probably arrives alone.
    is_sparse: bool,
}

impl UdpReceiver {
    /// Makes a receiver that takes its buffers from `pool`.
    pub fn new(pool: BufferPool) -> Self {
        Self {
            pool,
            buffer: None,
            space: nix::cmsg_space!(i32, libc::in6_pktinfo, i32),
            skips: 0,
            is_sparse: false,
        }
    }

    /// Receives waiting datagrams, at most `most` bursts and [`UDP_RECEIVES_MAX`] (8), and appends
    /// them to `out`. Returns whether more may wait; if not, the caller waits for the socket's
    /// event, or calls again soon if the socket is `polled`. Never waits.
    ///
    /// # Errors
    /// An ICMP error of an earlier datagram, reported once, or the host fails. `out` has the bursts
    /// received before; more may wait, so the caller calls again.
    pub fn receive(
        &mut self,
        udp: &Udp,
        out: &mut Vec<Burst>,
        polled: bool,
        most: usize,
    ) -> io::Result<bool> {
        if let (true, Some(rest)) = (polled, self.skips.checked_sub(1)) {
            self.skips = rest;
            return Ok(false);
        }
        self.skips = 0;
        let alone = polled && std::mem::take(&mut self.is_sparse);
        for nth in 0..most.clamp(1, UDP_RECEIVES_MAX) {
            let mut buffer =
                self.buffer.take().unwrap_or_else(|| self.pool.take(UDP_RECEIVE_BYTES));
            let received = udp.receive(buffer.as_mut_slice(), &mut self.space);
            let Received { from, to, class, len, stride } = match received {
                Ok(received) => received,
                Err(error) => {
                    self.buffer = Some(buffer);
                    if error.kind() != io::ErrorKind::WouldBlock {
                        return Err(error);
                    }
                    self.is_sparse = nth == 0;
                    self.skips = if self.is_sparse { 0 } else { UDP_REST_TURNS };
                    return Ok(false);
                }
            };
            let len = len.min(buffer.len());
            out.push(Burst { from: canonical(from), to, class, buffer, len, stride });
            if alone && len <= stride {
                self.skips = UDP_REST_TURNS;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns whether the host refused a batch as such: it is longer than the kernel segments at once,
/// or the interface cannot segment. Single datagrams may still be sent.
pub fn is_batch_refusal(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MSGSIZE | Errno::INVAL | Errno::IO))
}

/// Returns an IPv4-mapped IPv6 address as an IPv4 address. A link-local address keeps its interface
/// number, without which it is not reachable.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(full), IpAddr::V6(ip)) => {
            SocketAddr::V6(SocketAddrV6::new(ip, full.port(), 0, full.scope_id()))
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(udp: &Udp) {
        let mut fds = [rustix::event::PollFd::new(udp, rustix::event::PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&second)).unwrap(), 1);
    }

    #[test]
    fn udp_reports_the_destination_and_answers_from_it() {
        for (any, called) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
            let udp = Udp::bind(any.parse().unwrap(), Fragmentation::Allowed).unwrap();
            let called: IpAddr = called.parse().unwrap();
            match called {
                IpAddr::V4(_) => setsockopt(&udp.socket, more::Ipv4PacketInfo, &true).unwrap(),
                IpAddr::V6(_) => setsockopt(&udp.socket, more::Ipv6RecvPacketInfo, &true).unwrap(),
            }
            let port = udp.local().unwrap().port();
            let peer = UdpSocket::bind(any).unwrap();
            peer.send_to(b"hello", (called, port)).unwrap();
            let (mut receiver, mut bursts) = (UdpReceiver::new(BufferPool::default()), Vec::new());
            while bursts.is_empty() {
                receiver.receive(&udp, &mut bursts, false, usize::MAX).unwrap();
            }
            assert_eq!(bursts[0].to, Some(called));
            let mut from = bursts[0].from;
            from.set_ip(if called.is_ipv4() { "127.0.0.1".parse().unwrap() } else { called });
            let origin = Origin { from: Some(called), class: 0 };
            udp.send_as(from, origin, &[7; 300], 100).unwrap();
            for _ in 0..3 {
                let (len, origin) = peer.recv_from(&mut [0; 500]).unwrap();
                assert_eq!((len, origin.ip()), (100, called));
            }
            let none = Some("192.0.2.7".parse().unwrap());
            if called.is_ipv4() {
                udp.send_as(from, Origin { from: none, class: 0 }, b"x", 1).unwrap_err();
            }
        }
    }

    #[test]
    fn udp_sends_and_reports_traffic_classes_of_both_families() {
        for (local, is_dual_stack) in
            [("127.0.0.1:0", false), ("[::1]:0", false), ("127.0.0.1:0", true)]
        {
            let local: SocketAddr = local.parse().unwrap();
            let bind = || match is_dual_stack {
                true => Udp::bind_both(0, Fragmentation::Refused).unwrap(),
                false => Udp::bind(local, Fragmentation::Refused).unwrap(),
            };
            let (a, b) = (bind(), bind());
            b.report_classes();
            let to = SocketAddr::new(local.ip(), b.local().unwrap().port());
            let (mut receiver, mut bursts) = (UdpReceiver::new(BufferPool::default()), Vec::new());
            // A single datagram, several of one size, and several with a source address.
            for (class, count, from) in (0..=255).step_by(7).flat_map(|class| {
                [(class, 1, None), (class, 3, None), (class, 3, Some(local.ip()))]
            }) {
                let bytes = vec![7; count * 100];
                a.send_as(to, Origin { from, class }, &bytes, 100).unwrap();
                let mut came = 0;
                while came < bytes.len() {
                    wait(&b);
                    receiver.receive(&b, &mut bursts, false, usize::MAX).unwrap();
                    for burst in bursts.drain(..) {
                        assert_eq!(burst.class, class, "{local} {is_dual_stack} {class}");
                        came += burst.len;
                    }
                }
            }
        }
    }

    #[test]
    fn udp_address_has_one_form_and_keeps_its_interface() {
        let one = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(one("[::ffff:10.0.0.1]:7"), "10.0.0.1:7");
        assert_eq!(one("10.0.0.1:7"), "10.0.0.1:7");
        assert_eq!(one("[fe80::2%3]:7"), "[fe80::2%3]:7");
    }

    fn exchange(local: &str) {
        let local: SocketAddr = local.parse().unwrap();
        let (a, b) = (
            Udp::bind(local, Fragmentation::Allowed).unwrap(),
            Udp::bind(local, Fragmentation::Refused).unwrap(),
        );
        let to = b.local().unwrap();
        let sent: Vec<u8> = (0..10 * 1000 + 500_u32).map(|i| i as u8).collect();
        a.send(to, &sent, 1000).unwrap();
        let mut receiver = UdpReceiver::new(BufferPool::default());
        let (mut bursts, mut got, mut count) = (Vec::new(), Vec::new(), 0);
        while count < 11 {
            wait(&b);
            receiver.receive(&b, &mut bursts, false, usize::MAX).unwrap();
            for burst in bursts.drain(..) {
                assert_eq!(burst.from.port(), a.local().unwrap().port());
                for at in burst.datagrams() {
                    got.extend_from_slice(&burst.buffer[at]);
                    count += 1;
                }
            }
        }
        assert_eq!(got, sent);
        assert!(!receiver.receive(&b, &mut bursts, false, usize::MAX).unwrap(), "nothing is left");
        assert!(bursts.is_empty());
    }

    #[test]
    fn udp_many_datagrams_cross_in_one_call() {
        exchange("127.0.0.1:0");
    }

    #[test]
    fn udp_many_datagrams_cross_in_one_call_over_ipv6() {
        exchange("[::1]:0");
    }

    #[test]
    fn udp_drained_polled_socket_is_skipped_and_loses_nothing() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (a, b) = (
            Udp::bind(local, Fragmentation::Allowed).unwrap(),
            Udp::bind(local, Fragmentation::Refused).unwrap(),
        );
        let to = b.local().unwrap();
        let (mut receiver, mut bursts) = (UdpReceiver::new(BufferPool::default()), Vec::new());
        let mut look = |polled| {
            bursts.clear();
            assert!(!receiver.receive(&b, &mut bursts, polled, usize::MAX).unwrap());
            bursts.first().map(|burst| burst.len)
        };
        assert_eq!(look(true), None, "nothing has come");
        for bytes in [&[][..], &[1], &[1; 2]] {
            a.send(to, bytes, 1400).unwrap();
            wait(&b);
            assert_eq!(look(false), Some(bytes.len()));
        }
        a.send(to, &[1; 3], 1400).unwrap();
        wait(&b);
        for _ in 0..UDP_REST_TURNS {
            assert_eq!(look(true), None, "it has just given all");
        }
        assert_eq!(look(true), Some(3));
        a.send(to, &[1; 4], 1400).unwrap();
        wait(&b);
        assert_eq!(look(false), Some(4), "an event is followed by a call");
    }

    #[test]
    fn udp_ipv6_fragments_beyond_the_path_mtu_if_allowed() {
        let local: SocketAddr = "[::1]:0".parse().unwrap();
        let to = Udp::bind(local, Fragmentation::Allowed).unwrap();
        // With its headers longer than the MTU of the loopback device.
        let sent = vec![7; 65_507];
        let whole = Udp::bind(local, Fragmentation::Refused).unwrap();
        assert!(whole.send(to.local().unwrap(), &sent, sent.len()).is_err());
        let cut = Udp::bind(local, Fragmentation::Allowed).unwrap();
        cut.send(to.local().unwrap(), &sent, sent.len()).unwrap();
        wait(&to);
        let mut bursts = Vec::new();
        UdpReceiver::new(BufferPool::default())
            .receive(&to, &mut bursts, false, usize::MAX)
            .unwrap();
        let from: Vec<_> = bursts.iter().map(|burst| (burst.from, burst.len)).collect();
        assert_eq!(from, [(cut.local().unwrap(), sent.len())]);
    }
}
