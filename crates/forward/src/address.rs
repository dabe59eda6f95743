//! Addresses of sources and targets: their text form, and the sockets behind AF_VSOCK ports.
//!
//! `tcp:HOST:PORT`, `unix:PATH`, `vsock:NAME:PORT` and `vsock:/PATH:PORT`. A `vsock` address names
//! a port of causewayd, or the path of its host socket (a text with a `/`), and the port number in
//! the guest. [`Address::resolve`] turns an address into a [`SocketAddress`], once, before the
//! process enters its sandbox: names of hosts are resolved then, and not again.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::ForwardError;

/// An address as an operator writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An AF_VSOCK port of a guest.
    Vsock {
        /// The name of causewayd's port, or the path of its host socket.
        guest: String,
        /// The port number in the guest.
        port: u32,
    },
}

/// An address whose names are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketAddress {
    /// The addresses of a host, at least one, in the order in which they are tried.
    Tcp(Vec<SocketAddr>),
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An AF_VSOCK port behind a host socket.
    Vsock {
        /// The host socket.
        host_socket: PathBuf,
        /// The port number in the guest.
        port: u32,
    },
}

impl FromStr for Address {
    type Err = ForwardError;
    fn from_str(text: &str) -> Result<Self, ForwardError> {
        let wrong = |why| ForwardError::address(text, why);
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("it has no kind"))?;
        match kind {
            "tcp" => match rest.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(rest.to_owned()))
                }
                _ => Err(wrong("it has no host, or no port from 0 to 65535")),
            },
            "unix" if rest.is_empty() => Err(wrong("it has no path")),
            "unix" => Ok(Self::Unix(rest.into())),
            "vsock" => match rest.rsplit_once(':') {
                Some((guest, port)) if !guest.is_empty() => {
                    let port = port.parse().ok().filter(|port| *port != u32::MAX);
                    let port =
                        port.ok_or_else(|| wrong("the port is no number below 4294967295"))?;
                    Ok(Self::Vsock { guest: guest.to_owned(), port })
                }
                _ => Err(wrong("it has no guest, or no port")),
            },
            _ => Err(wrong("the kind is unknown")),
        }
    }
}

impl Address {
    /// Returns the name of causewayd's port that must be looked up, if the address has one.
    pub fn port_name(&self) -> Option<&str> {
        match self {
            Self::Vsock { guest, .. } if !guest.contains('/') => Some(guest),
            _ => None,
        }
    }

    /// Resolves names. `host_socket` returns the host socket of a port of causewayd. Blocks while
    /// the C library resolves the name of a host.
    ///
    /// # Errors
    /// [`ForwardError::Resolve`], or [`ForwardError::HostSocket`] if `host_socket` returned none.
    pub fn resolve(
        &self,
        host_socket: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<SocketAddress, ForwardError> {
        match self {
            Self::Tcp(text) => {
                let failed = |error| ForwardError::Resolve { host: text.clone(), error };
                let all: Vec<_> = text.to_socket_addrs().map_err(failed)?.collect();
                if all.is_empty() {
                    return Err(failed(std::io::Error::other("the name has no address")));
                }
                Ok(SocketAddress::Tcp(all))
            }
            Self::Unix(path) => Ok(SocketAddress::Unix(path.clone())),
            Self::Vsock { guest, port } => {
                let path = match self.port_name() {
                    None => Some(PathBuf::from(guest)),
                    Some(name) => host_socket(name),
                };
                let none = || ForwardError::HostSocket(format!("port {guest} has no host socket"));
                Ok(SocketAddress::Vsock { host_socket: path.ok_or_else(none)?, port: *port })
            }
        }
    }
}

impl SocketAddress {
    /// Returns the path of the Unix socket at which connections from this address arrive; `None`
    /// for TCP. A guest's connection to port P of the host arrives at `<host socket>_P`.
    pub(crate) fn listening_path(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path.clone()),
            Self::Vsock { host_socket, port } => {
                let mut path = host_socket.as_os_str().to_owned();
                path.push(format!("_{port}"));
                Some(path.into())
            }
        }
    }

    /// Returns the path of the Unix socket to connect to; `None` for TCP.
    pub(crate) fn connecting_path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) | Self::Vsock { host_socket: path, .. } => Some(path),
        }
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(all) => match all.first() {
                Some(first) => write!(f, "tcp:{first}"),
                None => write!(f, "tcp:"),
            },
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Vsock { host_socket, port } => {
                write!(f, "vsock:{}:{port}", host_socket.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_addresses_are_parsed() {
        let of = |text: &str| text.parse::<Address>();
        assert_eq!(of("tcp:[::1]:22").unwrap(), Address::Tcp("[::1]:22".into()));
        assert_eq!(of("unix:/run/x:y.sock").unwrap(), Address::Unix("/run/x:y.sock".into()));
        let vsock = |guest: &str, port| Address::Vsock { guest: guest.into(), port };
        assert_eq!(of("vsock:vm1:22").unwrap(), vsock("vm1", 22));
        assert_eq!(of("vsock:/run/a:b.vsock:4294967294").unwrap().port_name(), None);
        assert_eq!(of("vsock:vm1:22").unwrap().port_name(), Some("vm1"));
        for bad in [
            "",
            "tcp",
            "tcp:",
            "tcp::22",
            "tcp:host",
            "tcp:host:65536",
            "tcp:host:",
            "unix:",
            "vsock:vm1",
            "vsock::22",
            "vsock:vm1:4294967295",
            "vsock:vm1:-1",
            "vsock:vm1:x",
            "udp:host:1",
        ] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains("expected tcp:HOST:PORT"), "{bad}: {error}");
        }
    }

    #[test]
    fn forward_vsock_addresses_name_a_host_socket() {
        let address: Address = "vsock:vm1:5000".parse().unwrap();
        let found = address.resolve(|name| Some(format!("/run/{name}.vsock").into())).unwrap();
        assert_eq!(found.listening_path().unwrap(), Path::new("/run/vm1.vsock_5000"));
        assert_eq!(found.connecting_path().unwrap(), Path::new("/run/vm1.vsock"));
        let error = address.resolve(|_| None).unwrap_err().to_string();
        assert!(error.contains("vm1 has no host socket"), "{error}");
    }
}
