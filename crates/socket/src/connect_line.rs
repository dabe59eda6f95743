//! The handshake line by which a host process chooses a port of a guest. Free of I/O.
//!
//! `host/listeners.rs` reads the line, at most
//! [`HANDSHAKE_BYTES_MAX`](crate::limits::HANDSHAKE_BYTES_MAX) (32) bytes, in the thread of the
//! shard, and passes it here without its newline. The answer `OK <port>` is written by
//! `crate::host`. Other commands do not exist: for them the caller answers `ERR` with a reason, and
//! closes the stream.

/// Parses `CONNECT <port>`, case-insensitively and with any white space, as Firecracker and Cloud
/// Hypervisor do. Returns the port number, or `None` for any other text.
pub(crate) fn parse_connect(line: &[u8]) -> Option<u32> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (word, port, end) = (words.next()?, words.next()?, words.next());
    let proper = word.eq_ignore_ascii_case("CONNECT") && end.is_none();
    proper.then(|| port.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::parse_connect;

    #[test]
    fn connect_line_is_parsed_leniently() {
        assert_eq!(parse_connect(b"CONNECT 1024"), Some(1024));
        assert_eq!(parse_connect(b"CONNECT 1024\r"), Some(1024));
        // Firecracker and Cloud Hypervisor accept these as well.
        for line in [&b"connect 1024"[..], b"Connect  1024 ", b"  CONNECT\t1024"] {
            assert_eq!(parse_connect(line), Some(1024));
        }
        for bad in [
            &b"CONNECT"[..],
            b"CONNECT ",
            b"CONNECT x",
            b"CONNECT 1 2",
            b"CONNECTED 1",
            b"CONNECT 4294967296",
            b"\xff",
        ] {
            assert_eq!(parse_connect(bad), None);
        }
    }
}
