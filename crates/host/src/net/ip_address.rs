//! IP addresses of network interfaces, by ioctl(2) (Linux netdevice(7)).
//!
//! `tap` calls [`set`] when it opens an interface of the calling thread's network namespace, in the
//! dispatcher's thread; each call takes the kernel's lock of network interfaces. An address that
//! the interface has is left as it is, which takes no capability; a change takes CAP_NET_ADMIN. An
//! IPv4 address replaces the first address of the interface, an IPv6 address is added. Addresses
//! are not removed, and routes are those that the kernel derives from the prefix.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::net::interface_request::{ioctl, request_for};

/// Gives an interface an IP address with a prefix of `prefix` bits.
///
/// # Errors
/// The kernel refuses the change: EPERM without CAP_NET_ADMIN.
pub(super) fn set(name: &str, ip: IpAddr, prefix: u8) -> io::Result<()> {
    match ip {
        IpAddr::V4(ip) => set_v4(name, ip, prefix),
        IpAddr::V6(ip) => set_v6(name, ip, prefix),
    }
}

fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Returns a request with an IPv4 address.
fn request_v4(name: &str, ip: Ipv4Addr) -> libc::ifreq {
    let mut request = request_for(name);
    let mut address = libc::sockaddr { sa_family: libc::AF_INET as u16, sa_data: [0; 14] };
    // Behind the port number, which is not used.
    for (to, from) in address.sa_data.iter_mut().skip(2).zip(ip.octets()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_addr = address;
    request
}

/// Reads an IPv4 address of an interface: `SIOCGIFADDR` or `SIOCGIFNETMASK`.
fn read_v4(fd: &OwnedFd, code: libc::Ioctl, name: &str) -> Option<Ipv4Addr> {
    let mut request = request_for(name);
    ioctl(fd.as_fd(), code, &mut request).ok()?;
    // SAFETY: the answers to these requests are addresses.
    let address = unsafe { request.ifr_ifru.ifru_addr };
    let [_, _, a, b, c, d, ..] = address.sa_data.map(|byte| byte as u8);
    Some(Ipv4Addr::new(a, b, c, d))
}

fn set_v4(name: &str, ip: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let fd = socket(AddressFamily::INET)?;
    let rest = 32_u32.saturating_sub(prefix.into());
    let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(rest).unwrap_or(0));
    let has_address = read_v4(&fd, libc::SIOCGIFADDR, name) == Some(ip);
    if has_address && read_v4(&fd, libc::SIOCGIFNETMASK, name) == Some(mask) {
        return Ok(());
    }
    ioctl(fd.as_fd(), libc::SIOCSIFADDR, &mut request_v4(name, ip))?;
    ioctl(fd.as_fd(), libc::SIOCSIFNETMASK, &mut request_v4(name, mask))
}

fn set_v6(name: &str, ip: Ipv6Addr, prefix: u8) -> io::Result<()> {
    if has_v6(name, ip, prefix) {
        return Ok(());
    }
    let fd = socket(AddressFamily::INET6)?;
    let mut request = request_for(name);
    ioctl(fd.as_fd(), libc::SIOCGIFINDEX, &mut request)?;
    let change = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: ip.octets() },
        ifr6_prefixlen: prefix.into(),
        // SAFETY: the answer to the request is the index.
        ifr6_ifindex: unsafe { request.ifr_ifru.ifru_ifindex },
    };
    // SAFETY: on a socket of this family the request reads one `in6_ifreq`.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFADDR, &raw const change) };
    match done {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether an interface has an IPv6 address with this prefix. The file has the addresses of
/// the process's first thread, whose network namespace all threads of a daemon share.
fn has_v6(name: &str, ip: Ipv6Addr, prefix: u8) -> bool {
    let found = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    found.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, length, _, _, interface] = words.as_slice() else { return false };
        u128::from_str_radix(address, 16) == Ok(ip.to_bits())
            && u8::from_str_radix(length, 16) == Ok(prefix)
            && *interface == name
    })
}
