//! Names of NICs for which the operator gives none.
//!
//! [`crate::port::read()`] calls [`derived_nic_name`] when it fills in the defaults of a port of
//! kind `mx`. The name is `HOST:PORT`: the first label of the kernel's host name, and the port's
//! name, so that ports of the same name on two hosts differ, as far as the hosts' names do. If the
//! host has no usable name, or the whole is longer than [`HOSTNAME_BYTES_MAX`] (79) bytes, the name
//! is the port's alone. The host name is read once per process: a later change of it takes effect
//! at the daemon's next start. Names of other hosts are not known here; `mxoe::discovery` detects
//! a name that two NICs have, and keeps it for the first.

use std::sync::OnceLock;

use crate::Name;
use crate::draft::mac::HOST_NAME;
use crate::limits::HOSTNAME_BYTES_MAX;

/// Returns the name by which peers find the NIC of port `name`: `HOST:PORT`.
pub fn derived_nic_name(name: &Name) -> String {
    static HOST: OnceLock<String> = OnceLock::new();
    let host = HOST.get_or_init(|| std::fs::read_to_string(HOST_NAME).unwrap_or_default());
    derive(host, name)
}

fn derive(host: &str, name: &Name) -> String {
    let host = host.trim().split('.').next().unwrap_or_default();
    let whole = format!("{host}:{name}");
    let is_usable = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
        && whole.len() <= HOSTNAME_BYTES_MAX;
    if is_usable { whole } else { name.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_nic_names_have_the_host_and_fit() {
        let port: Name = "mx0".parse().unwrap();
        assert_eq!(derive("host-a\n", &port), "host-a:mx0");
        assert_eq!(derive("host-a.example.net\n", &port), "host-a:mx0");
        let long = "h".repeat(HOSTNAME_BYTES_MAX - 4);
        assert_eq!(derive(&long, &port).len(), HOSTNAME_BYTES_MAX);
        for unusable in ["", "\n", ".local", "a b", "a:b", "h\u{e9}", &format!("{long}h")] {
            assert_eq!(derive(unusable, &port), "mx0", "{unusable:?}");
        }
    }
}
