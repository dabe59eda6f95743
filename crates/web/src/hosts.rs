//! The header Host, against DNS rebinding: a name of a stranger that resolves to this address.
//!
//! A browser that follows such a name would let the stranger's page read the replies, as pages of
//! one origin. A request is therefore served only if its Host is an IP address, `localhost`, or a
//! name that the operator gave; the port is not compared, so that a forwarded port works. Names are
//! compared without case; a dot at the end of the Host is ignored. A request without the header is
//! refused.
//!
//! `site` asks for each request, in the thread of the connection, and answers a refused one with
//! 421. Nothing is looked up or kept. `WebServer::start` bounds the number of names
//! ([`HOST_NAMES_MAX`](crate::limits::HOST_NAMES_MAX), 64).

use std::net::{Ipv4Addr, Ipv6Addr};

/// The names by which browsers may address the server.
#[derive(Debug, Clone)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// Returns the policy with further names, which are compared without case.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Returns whether a request with this header Host is served.
    pub fn admits(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        if let Some(rest) = host.strip_prefix('[') {
            let Some((address, port)) = rest.split_once(']') else { return false };
            return address.parse::<Ipv6Addr>().is_ok() && is_port_or_empty(port);
        }
        let (name, port) = host.find(':').map_or((host, ""), |at| host.split_at(at));
        if !is_port_or_empty(port) {
            return false;
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        name.parse::<Ipv4Addr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns whether a text is empty, or a colon and a port number.
fn is_port_or_empty(text: &str) -> bool {
    let digits = text.strip_prefix(':').filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    text.is_empty() || digits.is_some_and(|digits| digits.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_addresses_and_known_names_are_admitted_only() {
        let names = HostNames::new(vec!["node-a.example".into()]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:8480",
            "10.0.0.7:80",
            "localhost:9000",
            "LOCALHOST",
            "localhost.",
            "[::1]",
            "[::1]:8480",
            "node-a.example:8480",
            "Node-A.example",
        ] {
            assert!(names.admits(Some(host)), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8480",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:x",
            "localhost:99999",
            "[::1",
            "[localhost]",
            "[::1]x",
            "127.0.0.1@evil.example",
            "::1",
        ] {
            assert!(!names.admits(Some(host)), "{host}");
        }
        assert!(!names.admits(None));
    }
}
