//! The sockets of peers: connected streams (Unix, TCP) and datagram sockets (Unix, UDP).
//!
//! A socket is shared between the shard that reads it and the thread of the forwarding service that
//! writes it ([`crate::output`]); no call blocks or waits. Unix peers may send no file descriptors:
//! the kernel refuses them, or (before Linux 6.16) receiving one ends a stream and drops a
//! datagram. A Unix socket with unread data is closed in another thread, because the data may hold
//! descriptors. Options of TCP that the kernel refuses are no error: they cost latency, or delay
//! the detection of a lost peer. A full backlog of a Unix listener fails the attempt. Nothing is
//! retried here; [`crate::connector`], [`crate::stream_end`] and [`crate::datagram_end`] open the
//! sockets and decide about errors. A TCP peer that answers no keepalive for 30 s, or leaves sent
//! bytes unacknowledged as long, loses its connection by the kernel.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use causeway_fabric::socket_buffers::{set_receive_buffer, set_send_buffer};
use causeway_host::fd::receive::{self, ReceivedDatagram, UntrustedSocket};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::limits::{
    KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_TRIES, OUTPUT_BYTES_MAX, UNTAKEN_MS_MAX,
};

/// A connected stream socket.
#[derive(Debug)]
pub(crate) enum StreamSocket {
    Unix(UntrustedSocket),
    Tcp(TcpStream),
}

impl StreamSocket {
    /// Connects to the Unix listener at `path`. A full backlog fails with `EAGAIN`.
    pub fn connect_unix(path: &Path) -> Result<Self, Errno> {
        let socket = unix_socket(SocketType::STREAM)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self::Unix(socket))
    }

    /// Begins to connect to a TCP listener; the socket becomes writable when it is connected, or
    /// failed.
    pub fn begin_tcp(remote: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(remote);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM.nonblocking(), None)?;
        match socket.connect(&remote.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(Self::tcp(socket.into())),
        }
    }

    /// Returns a non-blocking TCP socket with its options set. Options that fail cost latency, or
    /// delay the detection of a peer that is gone.
    pub fn tcp(socket: TcpStream) -> Self {
        let _ = socket.set_nodelay(true);
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_TRIES);
        let _ = sockopt::set_tcp_user_timeout(&socket, UNTAKEN_MS_MAX);
        Self::Tcp(socket)
    }

    /// Returns whether a TCP socket is connected by now.
    ///
    /// # Errors
    /// The connection failed.
    pub fn is_connected(&self) -> io::Result<bool> {
        let Self::Tcp(socket) = self else { return Ok(true) };
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        Ok(socket.peer_addr().is_ok())
    }

    /// Receives bytes. `Ok(0)`: the peer closed the stream.
    pub fn receive(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Unix(socket) => receive::receive_bytes(socket, room),
            Self::Tcp(socket) => {
                rustix::net::recv(socket, room, RecvFlags::DONTWAIT).map(|(len, _)| len)
            }
        }
    }

    /// Sends a part of `bytes`. Returns the length of the part.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(self, bytes, flags)
    }

    /// Ends both directions: the reader finds the end of the stream.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(self, Shutdown::Both);
    }

    /// Enlarges the send buffer of a Unix socket, as far as the host allows. TCP adapts its own.
    pub fn enlarge(&self) {
        if let Self::Unix(socket) = self {
            set_send_buffer(socket, OUTPUT_BYTES_MAX);
        }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// Returns a non-blocking Unix socket that takes no descriptors.
fn unix_socket(kind: SocketType) -> Result<UntrustedSocket, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    receive::refuse_descriptors(&socket);
    Ok(UntrustedSocket::from(socket))
}

/// A datagram socket.
#[derive(Debug)]
pub(crate) enum DatagramSocket {
    /// Bound to the path of the port.
    Unix(UntrustedSocket),
    /// Bound to the local, and connected to the remote address.
    Udp(UdpSocket),
}

impl DatagramSocket {
    /// Binds a Unix socket at `path`, where no file is.
    pub fn bind_unix(path: &Path) -> Result<Self, Errno> {
        let socket = unix_socket(SocketType::DGRAM)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        set_send_buffer(&socket, OUTPUT_BYTES_MAX);
        Ok(Self::Unix(socket))
    }

    /// Binds and connects a UDP socket.
    pub fn bind_udp(local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        let domain = socket2::Domain::for_address(local);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM.nonblocking(), None)?;
        if local.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&local.into())?;
        socket.connect(&remote.into())?;
        let socket = UdpSocket::from(socket);
        set_receive_buffer(&socket, OUTPUT_BYTES_MAX);
        set_send_buffer(&socket, OUTPUT_BYTES_MAX);
        Ok(Self::Udp(socket))
    }

    /// Receives a datagram; one without a sender's address came from the remote address of UDP, or
    /// from a socket without a name.
    pub fn receive(&self, room: &mut [u8]) -> Result<ReceivedDatagram, Errno> {
        match self {
            Self::Unix(socket) => receive::receive_datagram(socket, room),
            Self::Udp(socket) => {
                let most = room.len();
                let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
                let (bytes, whole) = rustix::net::recv(socket, room, flags)?;
                Ok(ReceivedDatagram { bytes, is_odd: whole > most, from: None })
            }
        }
    }

    /// Returns whether the socket is of UDP.
    pub const fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(_))
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// Returns whether no process has a datagram socket at `address` any more.
pub(crate) fn is_gone(address: &SocketAddrUnix) -> bool {
    let Ok(socket) = unix_socket(SocketType::DGRAM) else { return false };
    let connected = rustix::net::connect(&socket, address);
    matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT))
}
