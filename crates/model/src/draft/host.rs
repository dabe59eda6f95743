//! Hosts as an operator writes them: a name or an address, with an optional port; and their
//! resolution.
//!
//! [`crate::draft::LinkDraft`] parses the peer's host by [`HostPort`] and resolves it by a
//! [`Resolver`] of its caller. Only `causewayd` resolves; `causeway` sends the text as given.
//!
//! | resolver | caller |
//! |---|---|
//! | [`resolve`] | threads of the control socket and the VNET language; the start, for a VNET file; threads of the link service (`link::io::names`) |
//! | [`resolve_later`] | the start, for the links of the configuration file and the state file; comparisons with them |
//! | [`assume_resolved`] | [`crate::draft::LinkDraft::problems`], which needs any address to check |
//!
//! The link service resolves the names of its links again at intervals, except while the peer
//! answers.
//!
//! [`resolve`] blocks for as long as the system's resolver needs, so it must not run in a
//! dispatcher; it returns at most [`RESOLVED_MAX`] (16) addresses and caches none. If it fails, the
//! command is refused, or the start of the daemon fails. A host has at most [`HOST_BYTES_MAX`]
//! (253) bytes. Service names in place of port numbers, and port 0, are errors of the parser.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use crate::limits::{HOST_BYTES_MAX, RESOLVED_MAX};

/// Resolves a host and a port to addresses, the preferred one first. The error states the reason.
pub type Resolver = fn(&str, u16) -> Result<Vec<SocketAddr>, String>;

/// `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port, if given.
    pub port: Option<u16>,
}

impl FromStr for HostPort {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected HOST, HOST:PORT or [IPV6]:PORT");
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, behind) = rest.split_once(']').ok_or_else(wrong)?;
            if !host.contains(':') {
                return Err(wrong());
            }
            match behind.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if behind.is_empty() => (host, None),
                None => return Err(wrong()),
            }
        } else if text.matches(':').count() > 1 {
            (text, None)
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = port.map(port_number).transpose().map_err(|()| wrong())?;
        if !is_host(host) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Reads a port number: decimal digits only, not 0.
fn port_number(text: &str) -> Result<u16, ()> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0).ok_or(())
}

/// Returns whether a text is a well-formed host name or address.
pub fn is_host(text: &str) -> bool {
    if text.is_empty() || text.len() > HOST_BYTES_MAX {
        return false;
    }
    if text.contains(':') {
        let (address, zone) = text.split_once('%').unwrap_or((text, "0"));
        let zone_ok = zone.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        return address.parse::<Ipv6Addr>().is_ok() && !zone.is_empty() && zone_ok;
    }
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl HostPort {
    /// Returns the address, or `None` if the host is a name.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.split('%').next().and_then(|address| address.parse().ok())
    }
}

/// Resolves a host with the system's resolver. Blocks the calling thread.
///
/// # Errors
/// The host that cannot be resolved, and the reason.
pub fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = (host, port).to_socket_addrs();
    let found = found.map_err(|error| format!("host {host:?} cannot be resolved: {error}"))?;
    let found: Vec<SocketAddr> = found.take(RESOLVED_MAX).collect();
    if found.is_empty() { Err(format!("host {host:?} has no address")) } else { Ok(found) }
}

/// Replaces [`resolve`] during the daemon's start, when the network may not be up yet: a name gets
/// an unspecified address, which [`crate::LinkSpec::is_unresolved`] recognises.
///
/// # Errors
/// Never fails; the signature is that of a [`Resolver`].
pub fn resolve_later(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let v4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let v6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let all = host.parse::<IpAddr>().map_or(vec![v6, v4], |one| vec![one]);
    Ok(all.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

/// Replaces [`resolve`] where a draft is only checked: each name gets an address of each family.
///
/// # Errors
/// Never fails; the signature is that of a [`Resolver`].
pub fn assume_resolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let address = host.split('%').next().and_then(|host| host.parse::<IpAddr>().ok());
    // Documentation addresses, which no host has (RFC 5737, RFC 3849).
    let v4 = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let v6 = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let all = address.map_or(vec![v4, v6], |one| vec![one]);
    Ok(all.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_parses_and_prints() {
        for (text, host, port) in [
            ("vm-host_2.example.org", "vm-host_2.example.org", None),
            ("10.0.0.2:4789", "10.0.0.2", Some(4789)),
            ("[fd00::2]:9000", "fd00::2", Some(9000)),
            ("[fe80::1%eth0]:1", "fe80::1%eth0", Some(1)),
        ] {
            let host_port: HostPort = text.parse().unwrap();
            assert_eq!((host_port.host.as_str(), host_port.port), (host, port));
            assert_eq!(host_port.to_string(), text);
        }
        assert_eq!("fd00::2".parse::<HostPort>().unwrap().to_string(), "[fd00::2]");
        for bad in [
            "",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a b",
            "-a",
            "[a]:1",
            "[fd00::2",
            "[]",
            "[fd00::2]x",
            "fd00::2%",
            "1:2:3",
            "a/b",
            "é",
            "[fe80::1%e/0]",
            &"x".repeat(254),
        ] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }

    #[test]
    fn host_addresses_need_no_resolver() {
        assert_eq!(resolve("10.0.0.2", 7).unwrap(), ["10.0.0.2:7".parse().unwrap()]);
        assert_eq!(assume_resolved("fd00::2", 7).unwrap(), ["[fd00::2]:7".parse().unwrap()]);
        assert_eq!(assume_resolved("anyone", 7).unwrap().len(), 2);
    }
}
