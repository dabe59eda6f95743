//! Sources of VNET connections: the unit by which clients are limited.
//!
//! A source is an IPv4 address, an IPv6 /64 network, or, for a client on this host, a user.
//! [`ClientSource::of`] finds the user in the kernel's tables of TCP sockets, of which it reads at
//! most [`TCP_TABLE_BYTES_MAX`] (16 MiB) each. If the user is not found (a larger table, a
//! hidden /proc, a socket closed meanwhile), the address alone is the source, and local users share
//! its limits.
//!
//! A source is no identity: it grants nothing, and hosts behind a NAT share a source.
//! [`super::server`] determines the source on the acceptor thread after `accept`;
//! `causeway_http::slots` and [`super::password`] count by it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::limits::TCP_TABLE_BYTES_MAX;

/// The tables of the host's TCP sockets, proc_net_tcp(5).
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// A host, or a user of this host. Limits on failed passwords and silent connections apply per
/// source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientSource {
    /// The address; for IPv6 the /64 network, because a host can use any address in it.
    pub address: IpAddr,
    /// The user, if the client runs on this host, so that a local user cannot lock out others.
    pub uid: Option<u32>,
}

impl From<IpAddr> for ClientSource {
    fn from(address: IpAddr) -> Self {
        let address = match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        };
        Self { address, uid: None }
    }
}

impl std::fmt::Display for ClientSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "{} (user {uid})", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl ClientSource {
    /// Returns the source of an accepted connection.
    pub fn of(stream: &TcpStream, from: SocketAddr) -> Self {
        let local = stream.local_addr().ok().filter(|local| {
            let (ours, theirs) = (local.ip().to_canonical(), from.ip().to_canonical());
            ours == theirs || theirs.is_loopback()
        });
        Self { uid: local.and_then(|local| user_of(from, local)), ..from.ip().into() }
    }
}

/// Returns the user of this host's socket that is bound to `local` and connected to `remote`.
fn user_of(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    TABLES.iter().find_map(|table| {
        let table = BufReader::new(File::open(table).ok()?.take(TCP_TABLE_BYTES_MAX));
        let ends = [local, remote];
        table.lines().map_while(Result::ok).find_map(|line| user_in(&line, ends))
    })
}

/// Returns the user in a line of the table, if the line is that of the socket between these ends.
fn user_in(line: &str, [local, remote]: [SocketAddr; 2]) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let is = |field: Option<&str>, end: SocketAddr| {
        let (address, port) = field?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (address_of(address)? == end.ip().to_canonical() && port == end.port()).then_some(())
    };
    is(fields.next(), local)?;
    is(fields.next(), remote)?;
    // Skips state, queues, timer and retransmits.
    fields.nth(4)?.parse().ok()
}

/// Parses an address of the table: words of 32 bits in the host's byte order.
fn address_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at..at.checked_add(8)?)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.as_flattened().try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn vnet_local_connections_are_of_their_user() {
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|address| TcpListener::bind(address).ok());
        for listener in listeners.into_iter().flatten() {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, from) = listener.accept().unwrap();
            let source = ClientSource::of(&stream, from);
            assert_eq!(source.uid, Some(rustix::process::geteuid().as_raw()), "{source}");
            assert_eq!(
                source.address,
                ClientSource::from(client.local_addr().unwrap().ip()).address
            );
        }
    }

    #[test]
    fn vnet_other_hosts_have_no_user_here() {
        let ends = ["10.0.0.1:80", "10.0.0.2:90"].map(|end| end.parse().unwrap());
        assert_eq!(user_in("  sl  local_address rem_address   st", ends), None);
        assert_eq!(user_in("1: 0100000A:0050 0200000A:005B 01 0:0 0:0 0 7 0 1", ends), None);
        if cfg!(target_endian = "little") {
            let line = "1: 0100000A:0050 0200000A:005A 01 0:0 0:0 0 7 0 1";
            assert_eq!(user_in(line, ends), Some(7));
        }
    }
}
