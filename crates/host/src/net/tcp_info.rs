//! The kernel's state of a TCP connection (tcp(7), `TCP_INFO`), and the bound on its unsent bytes.
//!
//! Stream links show the state and decide by it: the length of a connection's queue by the delivery
//! rate, and whether an older connection still answers (`link::io::stream`). The module keeps none
//! of it: each call is a system call that does not block, and its answer may be old when it is
//! used. On a kernel that does not report the delivery rate, it is 0; on a kernel that reports
//! fewer fields, the state is `None`. Counters begin with the connection. The state of sockets
//! other than TCP is `None`. The calls run in the caller's thread, the dispatcher's of the shard of
//! links or of a sending group.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The state of a connection, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpState {
    /// Smoothed round-trip time; `None` before the first measurement.
    pub round_trip: Option<Duration>,
    /// The longest IP packet that crosses the path unfragmented, in bytes.
    pub path_mtu: u32,
    /// Segments with data that were sent since the connection began, retransmits included.
    pub sent: u32,
    /// Segments that were retransmitted since the connection began.
    pub sent_again: u32,
    /// Whether the connection is established and no segment and no keepalive probe is
    /// unacknowledged after a time-out.
    pub answers: bool,
    /// The last measured rate of delivery to the peer, in bytes per second; 0 before the first
    /// measurement.
    pub delivery_rate: u64,
}

/// `TCP_ESTABLISHED` of the kernel's tcp_states.h.
const ESTABLISHED: u8 = 1;

/// Returns the state of a connection, or `None` for a socket that is not TCP and on a kernel that
/// does not report all fields up to the number of segments with data.
pub fn connection(socket: BorrowedFd<'_>) -> Option<TcpState> {
    // SAFETY: an all-zero answer is valid: numbers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    let (fd, room) = (socket.as_raw_fd(), (&raw mut info).cast());
    // SAFETY: `room` points to `len` writable bytes, which may hold any values afterwards.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, room, &raw mut len) };
    // The length up to the last required field; older kernels report fewer.
    let required = offset_of!(libc::tcp_info, tcpi_data_segs_out).saturating_add(size_of::<u32>());
    let rated = offset_of!(libc::tcp_info, tcpi_delivery_rate).saturating_add(size_of::<u64>());
    (done == 0 && len as usize >= required).then(|| TcpState {
        round_trip: (info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into())),
        path_mtu: info.tcpi_pmtu,
        sent: info.tcpi_data_segs_out,
        sent_again: info.tcpi_total_retrans,
        answers: info.tcpi_state == ESTABLISHED
            && info.tcpi_retransmits == 0
            && info.tcpi_probes == 0,
        delivery_rate: if len as usize >= rated { info.tcpi_delivery_rate } else { 0 },
    })
}

/// Bounds the bytes that the kernel accepts from the sender and has not sent yet
/// (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// The socket is not a TCP socket.
pub fn bound_unsent(socket: BorrowedFd<'_>, bytes: u32) -> std::io::Result<()> {
    let (fd, value) = (socket.as_raw_fd(), (&raw const bytes).cast());
    let len = libc::socklen_t::try_from(size_of::<u32>()).unwrap_or(4);
    // SAFETY: `value` points to `len` readable bytes, which the call only reads.
    let done =
        unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, value, len) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn tcp_info_is_read_of_connections_only() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(b"one").unwrap();
        peer.read_exact(&mut [0; 3]).unwrap();
        let known = connection(stream.as_fd()).unwrap();
        assert!(known.round_trip.is_some_and(|rtt| rtt < Duration::from_secs(10)), "{known:?}");
        // The MTU of the loopback interface.
        assert!(known.path_mtu >= 65_535, "{known:?}");
        assert!(known.sent >= 1 && known.sent_again < known.sent, "{known:?}");
        assert!(known.answers, "{known:?}");
        drop(peer);
        let since = std::time::Instant::now();
        while connection(stream.as_fd()).unwrap().answers {
            assert!(since.elapsed() < Duration::from_secs(20), "the peer has closed it");
        }
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(connection(other.as_fd()), None);
    }
}
