//! Options of UDP sockets (udp(7)): datagrams without a checksum.
//!
//! VXLAN peers may send IPv6 datagrams without a UDP checksum (RFC 7348, section 5), which Linux
//! drops by default. `fabric::udp` sets the option for the sockets of VXLAN links before they
//! receive; IPv4 sockets need no option. The sockets themselves belong to the fabric. The option
//! concerns receiving only: this host sends checksums. The call runs in the caller's thread, a
//! dispatcher's, does not block, and returns the kernel's error; a repeated call has no effect.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// UDP_NO_CHECK6_RX of linux/udp.h.
const NO_CHECK6_RX: libc::c_int = 102;

/// Makes the kernel accept IPv6 datagrams without a checksum, as RFC 6935 allows for tunnels.
///
/// # Errors
/// The socket is not a UDP socket.
pub fn accept_zero_checksum(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    let (fd, value) = (socket.as_raw_fd(), (&raw const on).cast());
    let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(4);
    // SAFETY: `value` points to `len` readable bytes, which the call only reads.
    let done = unsafe { libc::setsockopt(fd, libc::IPPROTO_UDP, NO_CHECK6_RX, value, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// UDP_NO_CHECK6_TX of linux/udp.h.
    const NO_CHECK6_TX: libc::c_int = 101;

    #[test]
    fn datagrams_without_checksum_come_where_they_are_taken() {
        let [from, to] = [(); 2].map(|()| std::net::UdpSocket::bind("[::1]:0").unwrap());
        let on: libc::c_int = 1;
        let (fd, value) = (from.as_raw_fd(), (&raw const on).cast());
        // SAFETY: `value` points to the 4 readable bytes of an integer.
        let done = unsafe { libc::setsockopt(fd, libc::IPPROTO_UDP, NO_CHECK6_TX, value, 4) };
        assert_eq!(done, 0);
        to.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        let at = to.local_addr().unwrap();
        from.send_to(b"one", at).unwrap();
        to.recv(&mut [0; 8]).unwrap_err();
        accept_zero_checksum(to.as_fd()).unwrap();
        to.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
        from.send_to(b"other", at).unwrap();
        assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
    }

    #[test]
    fn udp_option_is_refused_by_other_sockets() {
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        accept_zero_checksum(udp.as_fd()).unwrap();
        let (other, _) = std::os::unix::net::UnixStream::pair().unwrap();
        accept_zero_checksum(other.as_fd()).unwrap_err();
    }
}
