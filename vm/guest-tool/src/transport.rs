//! Transports of the traffic: TCP, SMC, AF_VSOCK, Unix sockets, and AF_VSOCK reached from the host
//! by the Unix-socket convention (`CONNECT <port>`, `OK <n>`).
//!
//! A socket of [`Target::connect`] has a limit of 30 s for each read and write ([`STALL`]), an
//! accepted socket only after [`prepare`]. A connect has 10 s over TCP, 30 s at a Unix path, and
//! the kernel's limits otherwise. `smc` needs a kernel with SMC, which falls back to TCP without an
//! error. `hybrid` targets connect only, and the answer of the host socket must begin with `OK `;
//! at most 64 bytes of its line are read. Listening at a Unix path first removes the file there, a
//! socket in use included. Nothing is retried. [`client`](crate::client), [`serve`](crate::serve),
//! [`flood`](crate::flood) and `shell` open their sockets here.

use crate::limits::{CONNECT, STALL};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The wildcard CID of a listener.
pub const CID_ANY: u32 = u32::MAX;

/// The address family of SMC (Linux `AF_SMC`), with the addresses of TCP.
const AF_SMC: i32 = 43;

/// An address to connect to or to listen on, written as `tcp:10.0.0.1:7001`, `smc:10.0.0.1:7001`,
/// `vsock:4:7001`, `seqpacket:4:7002`, `unix:/path` or `hybrid:/path:7001` (connect only).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// TCP that the kernels carry over RDMA (SMC-R), over IPv4.
    Smc(SocketAddr),
    /// AF_VSOCK stream: CID, port.
    Vsock(u32, u32),
    /// AF_VSOCK messages: CID, port.
    SeqPacket(u32, u32),
    /// A Unix stream socket.
    Unix(PathBuf),
    /// A guest's AF_VSOCK port, through the host's Unix socket for that guest.
    Hybrid(PathBuf, u32),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(a) => write!(f, "tcp:{a}"),
            Self::Smc(a) => write!(f, "smc:{a}"),
            Self::Vsock(cid, port) => write!(f, "vsock:{cid}:{port}"),
            Self::SeqPacket(cid, port) => write!(f, "seqpacket:{cid}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Hybrid(path, port) => write!(f, "hybrid:{}:{port}", path.display()),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "target '{text}': expected tcp:ADDRESS:PORT, smc:ADDRESS:PORT, vsock:CID:PORT, \
                 seqpacket:CID:PORT, unix:PATH or hybrid:PATH:PORT"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let pair = || {
            let (cid, port) = rest.split_once(':')?;
            Some((cid.parse().ok()?, port.parse().ok()?))
        };
        match kind {
            "tcp" => rest.parse().map(Self::Tcp).map_err(|_| wrong()),
            "smc" => rest.parse().map(Self::Smc).map_err(|_| wrong()),
            "vsock" => pair().map(|(c, p)| Self::Vsock(c, p)).ok_or_else(wrong),
            "seqpacket" => pair().map(|(c, p)| Self::SeqPacket(c, p)).ok_or_else(wrong),
            "unix" if !rest.is_empty() => Ok(Self::Unix(rest.into())),
            "hybrid" => {
                let (path, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
                Ok(Self::Hybrid(path.into(), port.parse().map_err(|_| wrong())?))
            }
            _ => Err(wrong()),
        }
    }
}

impl Target {
    fn socket(&self) -> io::Result<(Socket, SockAddr)> {
        Ok(match self {
            Self::Tcp(a) => {
                (Socket::new(Domain::for_address(*a), Type::STREAM, None)?, SockAddr::from(*a))
            }
            Self::Smc(a) => {
                (Socket::new(Domain::from(AF_SMC), Type::STREAM, None)?, SockAddr::from(*a))
            }
            Self::Vsock(cid, port) => {
                (Socket::new(Domain::VSOCK, Type::STREAM, None)?, SockAddr::vsock(*cid, *port))
            }
            Self::SeqPacket(cid, port) => {
                (Socket::new(Domain::VSOCK, Type::SEQPACKET, None)?, SockAddr::vsock(*cid, *port))
            }
            Self::Unix(path) | Self::Hybrid(path, _) => {
                (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?)
            }
        })
    }

    /// Connects, with [`STALL`] as the limit of every later read and write.
    ///
    /// # Errors
    /// The operating system's error, or the host socket's answer if it is not `OK`.
    pub fn connect(&self) -> io::Result<Socket> {
        let (socket, address) = self.socket()?;
        prepare(self, &socket)?;
        match self {
            Self::Tcp(_) => socket.connect_timeout(&address, CONNECT)?,
            _ => socket.connect(&address)?,
        }
        if let Self::Hybrid(_, port) = self {
            handshake(&socket, *port)?;
        }
        Ok(socket)
    }

    /// Listens, with a backlog of 16; a file at the same Unix path is replaced.
    ///
    /// # Errors
    /// The operating system's error, as for a folder at the Unix path; `InvalidInput` for `hybrid`,
    /// which has the path of the daemon's socket.
    pub fn listen(&self) -> io::Result<Socket> {
        if let Self::Hybrid(..) = self {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "hybrid targets only connect; listen on unix:PATH_PORT instead",
            ));
        }
        if let Self::Unix(path) = self {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let (socket, address) = self.socket()?;
        if let Self::Tcp(_) = self {
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address)?;
        socket.listen(16)?;
        Ok(socket)
    }
}

/// Sets the time limits of a socket, and disables Nagle's algorithm on TCP.
///
/// # Errors
/// The operating system's error.
pub fn prepare(target: &Target, socket: &Socket) -> io::Result<()> {
    socket.set_read_timeout(Some(STALL))?;
    socket.set_write_timeout(Some(STALL))?;
    if let Target::Tcp(_) = target {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(())
}

fn handshake(mut socket: &Socket, port: u32) -> io::Result<()> {
    socket.write_all(format!("CONNECT {port}\n").as_bytes())?;
    // Reads byte by byte: the bytes after the line belong to the connection.
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') && line.len() < 64 {
        if socket.read(&mut byte)? == 0 {
            break;
        }
        line.extend_from_slice(&byte);
    }
    if line.starts_with(b"OK ") {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&line);
    Err(io::Error::new(
        io::ErrorKind::ConnectionRefused,
        format!("CONNECT {port} was answered with '{}'", said.trim_end()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_parses_its_own_text() {
        for text in [
            "tcp:10.1.2.3:7001",
            "tcp:[fe80::1]:80",
            "smc:10.1.2.3:7001",
            "vsock:3:7001",
            "seqpacket:4294967295:7002",
            "unix:/a/b:c",
            "hybrid:/tmp/vm1.vsock:7001",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "tcp:", "vsock:3", "vsock:x:1", "hybrid:/path", "unix:", "http:x:1"] {
            assert!(text.parse::<Target>().unwrap_err().contains("expected tcp:"), "{text}");
        }
    }
}
