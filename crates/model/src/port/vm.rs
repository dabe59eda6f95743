//! The VM to which a port belongs.
//!
//! Tools group ports by VM: one machine has a network device, a socket device and an adapter, each
//! a port. The key `vm` names the machine. Without the key, [`vm_name`] derives the name from the
//! port's: `vm1-net`, `vm1-net2` and `vm1-vsock` belong to `vm1`. In the daemon the socket service
//! alone reads the key, for forwards that name a VM. Ports of several groups may belong to a VM.

use crate::Name;
use crate::schema::{DefaultValue, Field, text};

/// The key that names the VM of a port.
pub const VM_KEY: &str = "vm";

/// The key of ports with a guest.
pub(super) const VM_FIELD: Field = Field::new(
    VM_KEY,
    "VM of the port, by which `causeway vm` groups ports.",
    text::<Name>("VM"),
    DefaultValue::NoneMeans("the port's name without -net, -eth, -vsock, -hca or -rdma at its end"),
);

/// Ends of port names that name a device and not a VM.
const DEVICES: [&str; 5] = ["net", "eth", "vsock", "hca", "rdma"];

/// Returns the VM of a port: the value of its key `vm`, or else its name without a device, which
/// may have a number, at its end.
pub fn vm_name<'a>(port: &'a str, vm: Option<&'a str>) -> &'a str {
    let derived = port.rsplit_once('-').filter(|(_, end)| {
        let device = end.trim_end_matches(|c: char| c.is_ascii_digit());
        DEVICES.contains(&device)
    });
    vm.or(derived.map(|(machine, _)| machine)).unwrap_or(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vm_of_a_port_is_its_key_or_its_name_without_the_device() {
        for (port, vm) in [
            ("vm1-net", "vm1"),
            ("vm1-net2", "vm1"),
            ("vm1-vsock", "vm1"),
            ("web-1-rdma", "web-1"),
            ("web-1-hca0", "web-1"),
            ("web-1", "web-1"),
            ("vm1", "vm1"),
            ("net", "net"),
            ("vm1-internet", "vm1-internet"),
            ("vm1-5", "vm1-5"),
        ] {
            assert_eq!(vm_name(port, None), vm, "{port}");
            assert_eq!(vm_name(port, Some("other")), "other", "{port}");
        }
    }
}
