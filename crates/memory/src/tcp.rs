//! What the host knows of a TCP connection (tcp(7)). As [`crate::packet`], it is here because it is
//! reached by `unsafe` only.

use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The round trip of a connection, smoothed by the host; none before it was measured.
pub fn round_trip(socket: BorrowedFd<'_>) -> Option<Duration> {
    // SAFETY: an all-zero answer is valid: numbers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    let (fd, room) = (socket.as_raw_fd(), (&raw mut info).cast());
    // SAFETY: `room` points to `len` writable bytes, whatever they hold afterwards.
    let done =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, room, &raw mut len) };
    let told = offset_of!(libc::tcp_info, tcpi_rtt).saturating_add(size_of::<u32>());
    let known = done == 0 && len as usize >= told && info.tcpi_rtt > 0;
    known.then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn connections_have_round_trips_and_other_sockets_have_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(round_trip(stream.as_fd()).is_some_and(|rtt| rtt < Duration::from_secs(10)));
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(round_trip(other.as_fd()), None);
    }
}
