//! The handshake line by which a host process chooses a port of a guest, and at the host socket of a
//! port for processes also the CID of the guest. Free of I/O.
//!
//! `host/listeners.rs` reads the line, at most
//! [`HANDSHAKE_BYTES_MAX`](crate::limits::HANDSHAKE_BYTES_MAX) (32) bytes, in the thread of the
//! shard, and passes it here without its newline. The answer `OK <port>` is written by
//! `crate::host`. Other commands do not exist: for them the caller answers `ERR` with a reason, and
//! closes the stream.

/// The destination of a `CONNECT` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectLine {
    /// CID of the guest, if the line has one.
    pub(crate) cid: Option<u32>,
    /// Port number in the guest.
    pub(crate) port: u32,
}

/// Parses `CONNECT <port>` or `CONNECT <CID>:<port>`, case-insensitively and with any white space, as
/// Firecracker and Cloud Hypervisor do. Returns `None` for any other text.
pub(crate) fn parse_connect(line: &[u8]) -> Option<ConnectLine> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (word, to, end) = (words.next()?, words.next()?, words.next());
    if !word.eq_ignore_ascii_case("CONNECT") || end.is_some() {
        return None;
    }
    let (cid, port) = match to.split_once(':') {
        Some((cid, port)) => (Some(cid.parse().ok()?), port),
        None => (None, to),
    };
    Some(ConnectLine { cid, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::{ConnectLine, parse_connect};

    #[test]
    fn connect_line_is_parsed_leniently() {
        let to = |cid, port| Some(ConnectLine { cid, port });
        assert_eq!(parse_connect(b"CONNECT 1024"), to(None, 1024));
        assert_eq!(parse_connect(b"CONNECT 1024\r"), to(None, 1024));
        assert_eq!(parse_connect(b"CONNECT 4:1024"), to(Some(4), 1024));
        // Firecracker and Cloud Hypervisor accept these as well.
        for line in [&b"connect 1024"[..], b"Connect  1024 ", b"  CONNECT\t1024"] {
            assert_eq!(parse_connect(line), to(None, 1024));
        }
        for bad in [
            &b"CONNECT"[..],
            b"CONNECT ",
            b"CONNECT x",
            b"CONNECT 1 2",
            b"CONNECT :1",
            b"CONNECT 1:",
            b"CONNECT 1:2:3",
            b"CONNECT 4294967296:1",
            b"CONNECTED 1",
            b"CONNECT 4294967296",
            b"\xff",
        ] {
            assert_eq!(parse_connect(bad), None);
        }
    }
}
