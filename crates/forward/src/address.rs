//! Resolved addresses of sources and targets, and the sockets behind AF_VSOCK ports.
//!
//! [`Address`] is the text form, by the model. [`SocketAddress::resolve`] turns an address into a
//! [`SocketAddress`], once, before the process enters its sandbox: names of hosts are resolved
//! then, and not again. A later change of the name has no effect on a forward that runs. A further
//! call resolves the name anew. Nothing here opens a socket or checks that a path exists.
//!
//! `causeway forward` (`commands::forward` of the crate `cli`) calls [`SocketAddress::resolve`] for
//! the source and the target of each forward, and for the target of `--stdio`, in the main thread.
//! It requests the host socket of a named port or VM from causewayd before the call, and passes the
//! path in by `host_socket`.
//!
//! `SocketAddress::listening_path` is used by `listener`, and by [`crate::sandbox`], which permits
//! the removal of that file; `SocketAddress::connecting_path` is used by `dial`, for each
//! connection. For TCP both are `None`, and the caller uses the addresses.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use causeway_model::ForwardAddress as Address;

use crate::ForwardError;

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
        /// The CID of the guest, if the host socket is one for processes.
        cid: Option<u32>,
        /// The port number in the guest.
        port: u32,
    },
}

impl SocketAddress {
    /// Resolves the names of an address. `host_socket` returns the host socket of a port of
    /// causewayd by the name of the port. It is called only for an AF_VSOCK address that names a
    /// port: an address with a path (`vsock:/path:5000`) has its host socket itself. Blocks while
    /// the C library resolves the name of a host.
    ///
    /// # Errors
    /// [`ForwardError::Resolve`], or [`ForwardError::HostSocket`] if `host_socket` returned none.
    pub fn resolve(
        address: &Address,
        host_socket: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Self, ForwardError> {
        match address {
            Address::Tcp(text) => {
                let failed = |error| ForwardError::Resolve { host: text.clone(), error };
                let all: Vec<_> = text.to_socket_addrs().map_err(failed)?.collect();
                if all.is_empty() {
                    return Err(failed(std::io::Error::other("the name has no address")));
                }
                Ok(Self::Tcp(all))
            }
            Address::Unix(path) => Ok(Self::Unix(path.clone())),
            Address::Vsock { guest, cid, port } => {
                let path = match address.port_name() {
                    None => Some(PathBuf::from(guest)),
                    Some(name) => host_socket(name),
                };
                let none = || ForwardError::HostSocket(format!("port {guest} has no host socket"));
                Ok(Self::Vsock { host_socket: path.ok_or_else(none)?, cid: *cid, port: *port })
            }
        }
    }

    /// Returns the path of the Unix socket at which connections from this address arrive; `None`
    /// for TCP, and for a guest that is named by its CID: it is a target only. A guest's connection to
    /// port P of the host arrives at `<host socket>_P`.
    pub(crate) fn listening_path(&self) -> Option<PathBuf> {
        match self {
            Self::Tcp(_) | Self::Vsock { cid: Some(_), .. } => None,
            Self::Unix(path) => Some(path.clone()),
            Self::Vsock { host_socket, port, .. } => {
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
            Self::Vsock { host_socket, cid, port } => {
                write!(f, "vsock:")?;
                cid.map_or(Ok(()), |cid| write!(f, "{cid}@"))?;
                write!(f, "{}:{port}", host_socket.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forward_vsock_addresses_name_a_host_socket() {
        let address: Address = "vsock:vm1:5000".parse().unwrap();
        let socket = |name: &str| Some(format!("/run/{name}.vsock").into());
        let found = SocketAddress::resolve(&address, socket).unwrap();
        assert_eq!(found.listening_path().unwrap(), Path::new("/run/vm1.vsock_5000"));
        assert_eq!(found.connecting_path().unwrap(), Path::new("/run/vm1.vsock"));
        let by_cid = SocketAddress::resolve(&"vsock:4@apps:22".parse().unwrap(), socket).unwrap();
        assert_eq!(by_cid.to_string(), "vsock:4@/run/apps.vsock:22");
        assert_eq!(by_cid.connecting_path().unwrap(), Path::new("/run/apps.vsock"));
        assert!(by_cid.listening_path().is_none());
        let error = SocketAddress::resolve(&address, |_| None).unwrap_err().to_string();
        assert!(error.contains("vm1 has no host socket"), "{error}");
    }
}
