//! Ethernet addresses of ports for which the operator gives none.
//!
//! In `causewayd`, [`crate::port::read()`] calls [`derived_mac`] (by the port's kind) when it fills
//! in defaults. The address is a hash of the machine's identity, the group and the name: it is
//! stable over restarts, locally administered and unicast. Two ports of a group may get the same
//! address by chance; the second is then refused (in the configuration file a problem, so that the
//! daemon does not start), and the operator gives an address. The machine's identity is read once
//! per process; on a machine without an identity the address depends on the host name and changes
//! with it, and the daemon logs a warning at its start.

use std::path::Path;
use std::sync::OnceLock;

use crate::{Mac, Name};

use crate::limits::MACHINE_ID_BYTES_MAX;

/// Files with an identity that is unique to the machine and survives a restart: machine-id(5), and
/// the older file of D-Bus. The first readable file is used.
const IDENTITIES: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// File with the kernel's host name.
pub(super) const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Returns a locally administered unicast address, derived from this machine, the group and the
/// name. A guest keeps its address over restarts; the same names give another address on another
/// host. The service refuses a port whose address another port of its group has.
pub fn derived_mac(group: &Name, name: &Name) -> Mac {
    static MACHINE: OnceLock<String> = OnceLock::new();
    derive(MACHINE.get_or_init(machine), group, name)
}

/// Logs a warning if addresses depend on the host name because the machine has no identity.
pub fn warn_without_identity() {
    if own_identity().is_none() {
        log::warn!(
            "this machine has no /etc/machine-id: addresses of ports without the key \"mac\" are \
             derived from its host name and change with it; make one with systemd-machine-id-setup"
        );
    }
}

/// Returns the identity of this machine, or its host name if it has none.
fn machine() -> String {
    own_identity().unwrap_or_else(|| std::fs::read_to_string(HOST_NAME).unwrap_or_default())
}

fn own_identity() -> Option<String> {
    IDENTITIES.iter().find_map(|path| identity(Path::new(path)))
}

/// Returns the 32 hexadecimal digits in a file, or `None` if it is missing, empty or not set up
/// yet.
fn identity(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, MACHINE_ID_BYTES_MAX), &mut text)
        .ok()?;
    let id = text.trim();
    let is_set = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_set.then(|| id.to_ascii_lowercase())
}

/// FNV-1a over the three texts, separated by a byte that is invalid in names.
fn derive(machine: &str, group: &Name, name: &Name) -> Mac {
    let parts = [machine, "\0", group.as_str(), "\0", name.as_str()];
    let bytes = parts.iter().flat_map(|part| part.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The high bytes of a short FNV hash vary least: fold them into the low ones.
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    Mac([((a ^ g) & 0xfc) | 0x02, b ^ h, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const MACHINES: [&str; 2] =
        ["0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdee"];

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn derived_addresses_are_local_unicast_stable_and_differ() {
        let mut macs = HashSet::new();
        for machine in MACHINES {
            for group in ["blue", "red"] {
                for number in 0..500 {
                    macs.insert(derive(machine, &name(group), &name(&format!("vm{number}"))));
                }
            }
        }
        assert_eq!(macs.len(), 2000, "each machine, group and name has its own");
        assert!(macs.iter().all(|Mac([first, ..])| first & 3 == 2));
        let again = || derive(MACHINES[0], &name("blue"), &name("vm1"));
        assert_eq!(again(), again());
        // Guests keep their addresses over an upgrade: this value never changes.
        assert_eq!(again().to_string(), "a6:6f:51:8e:ce:08");
        assert_eq!(derived_mac(&name("a"), &name("b")), derived_mac(&name("a"), &name("b")));
    }

    #[test]
    fn derived_addresses_separate_the_names() {
        let of = |group, port| derive(MACHINES[0], &name(group), &name(port));
        assert_ne!(of("a", "bc"), of("ab", "c"));
    }

    #[test]
    fn derived_addresses_ignore_an_uninitialised_identity() {
        let path = std::env::temp_dir().join(format!("causeway-machine-id-{}", std::process::id()));
        for (text, expected) in [
            ("0123456789ABCDEF0123456789abcdef\n", Some(MACHINES[0])),
            ("uninitialized\n", None),
            ("", None),
            ("0123456789abcdef", None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(identity(&path).as_deref(), expected, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(identity(&path), None);
    }
}
