//! Streams to etcd: TCP, or TLS with certificates.
//!
//! [`Security`] reads the files of certificates once; `main` does so before the sandbox.
//! [`open`] resolves the host, connects to its addresses in turn, each within a time limit, and
//! sets the limit for reads and writes; it blocks the caller's thread. Resolving has no limit here.
//! The TLS handshake runs with the first write or read. TLS verifies the server by the given
//! authorities only, and presents a certificate if one is given.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{SockRef, TcpKeepalive};

use crate::limits::TCP_KEEPALIVE;

/// TCP port of etcd's clients, for an endpoint without a port.
const PORT: u16 = 2379;

/// Where etcd listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Whether connections use TLS.
    pub is_tls: bool,
}

impl std::str::FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?}: expected http://HOST:PORT or https://HOST:PORT, as of etcd");
        let (is_tls, rest) = match text.split_once("://").ok_or_else(wrong)? {
            ("http", rest) => (false, rest),
            ("https", rest) => (true, rest),
            _ => return Err(wrong()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            // Colons of an address are in brackets.
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                // A link-local address may have a zone.
                let address = host.split_once('%').map_or(host, |(address, _)| address);
                address.parse::<Ipv6Addr>().map_err(|_| wrong())?;
                (host, port)
            }
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        let port = match port {
            "" => PORT,
            port => port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?,
        };
        if host.is_empty() || host.contains(['/', '@', ' ']) || port == 0 {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port, is_tls })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

/// Files for TLS.
#[derive(Debug, Clone, Default)]
pub struct SecurityFiles {
    /// Authorities of etcd's certificate (PEM).
    pub authorities: Option<PathBuf>,
    /// Certificate of this host with its chain (PEM), and the file of its private key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The security of connections.
#[derive(Debug, Clone, Default)]
pub struct Security(Option<Arc<ClientConfig>>);

/// A file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {text}")]
pub struct SecurityError {
    path: PathBuf,
    text: String,
}

impl Security {
    /// Reads the files. Without authorities, no file is read, and [`open`] refuses `https`
    /// endpoints.
    ///
    /// # Errors
    /// A file cannot be read, or has no usable certificate or key.
    pub fn read(files: &SecurityFiles) -> Result<Self, SecurityError> {
        let Some(path) = &files.authorities else { return Ok(Self(None)) };
        let wrong = |path: &Path, text: String| SecurityError { path: path.to_owned(), text };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| wrong(path, error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(path, error.to_string()))?
            .with_root_certificates(roots);
        let config = match &files.certificate {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let private = PrivateKeyDer::from_pem_file(key);
                let private = private.map_err(|error| wrong(key, error.to_string()))?;
                config
                    .with_client_auth_cert(certificates(chain)?, private)
                    .map_err(|error| wrong(chain, error.to_string()))?
            }
        };
        Ok(Self(Some(Arc::new(config))))
    }
}

/// Reads all certificates of a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let wrong = |text: String| SecurityError { path: path.to_owned(), text };
    let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|error| wrong(error.to_string()))?;
    if all.is_empty() {
        return Err(wrong("the file has no certificate".into()));
    }
    Ok(all)
}

/// A connected stream.
#[derive(Debug)]
pub enum Stream {
    /// Without encryption.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        match self {
            Self::Plain(stream) => stream.read(out),
            Self::Tls(stream) => stream.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// Connects to an endpoint. Returns the stream, and a handle to its socket by which another thread
/// can set limits and end it.
///
/// # Errors
/// The name has no address, no address answers within `limit`, a socket option is refused, or TLS
/// is not configured.
pub fn open(
    at: &Endpoint,
    security: &Security,
    limit: Duration,
) -> Result<(Stream, TcpStream), Error> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (at.host.as_str(), at.port).to_socket_addrs()? {
        let socket = match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))?;
        let probe = TcpKeepalive::new()
            .with_time(TCP_KEEPALIVE)
            .with_interval(Duration::from_secs(3))
            .with_retries(3);
        SockRef::from(&socket).set_tcp_keepalive(&probe)?;
        let handle = socket.try_clone()?;
        if !at.is_tls {
            return Ok((Stream::Plain(socket), handle));
        }
        let config = security.0.clone().ok_or_else(|| {
            Error::other("TLS needs the authorities of etcd's certificate: give --etcd-ca FILE")
        })?;
        let name = ServerName::try_from(at.host.clone()).map_err(Error::other)?;
        let session = ClientConnection::new(config, name).map_err(Error::other)?;
        return Ok((Stream::Tls(Box::new(StreamOwned::new(session, socket))), handle));
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_prints_as_it_parses() {
        for text in ["http://127.0.0.1:2379", "https://etcd1.example:12379", "http://[::1]:2379"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for (short, long) in [
            ("http://etcd1/", "http://etcd1:2379"),
            ("https://192.0.2.1", "https://192.0.2.1:2379"),
            ("http://[::1]", "http://[::1]:2379"),
            ("https://[2001:db8::1]/", "https://[2001:db8::1]:2379"),
        ] {
            assert_eq!(short.parse::<Endpoint>().unwrap().to_string(), long);
        }
        for text in [
            "",
            "etcd1:2379",
            "ftp://x:1",
            "http://:1",
            "http://x:y",
            "http://x:",
            "http://x:0",
            "http://x:1:2",
            "http://a@b:1",
            "http://::1:2379",
            "http://[::1",
            "http://[::1]2379",
            "http://[x]:1",
            "http://[]:1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
