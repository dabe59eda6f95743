//! Ports of kind `tap`: TAP interfaces of this host as members of a group.
//!
//! The TAP service reads the options in its shard's thread when the port is added, and opens the
//! interface. A frame that the kernel sends by the interface is a frame that the port sends, and
//! the reverse: the host, a container, or a program behind a bridge or a traffic control rule is
//! then a member of the group. A port of this kind has no guest, no socket and no queue. The checks
//! do not open the interface and do not compare with interfaces of other ports: the kernel gives an
//! interface to one program only.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{KindDefinition, MTU_DEFAULT, PortContext, PortOptions, unicast};
use crate::limits::MTU_MIN;
use crate::schema::{DefaultValue, Form, ValueType, table};
use crate::{Mac, RawSpec};

/// TAP interfaces.
pub static TAP: KindDefinition = KindDefinition::new::<TapSpec>(
    "tap",
    "A TAP interface of this host: for the host itself, containers, Firecracker",
    &[TAP_FIELDS],
)
.without_frontend()
.on_network();

table! {
    /// A TAP interface.
    pub struct TapSpec, pub const TAP_FIELDS {
        /// TAP interface of this host. The daemon creates the interface if it is missing and the
        /// daemon has CAP_NET_ADMIN; otherwise it waits for the interface.
        interface: String =>
            ValueType::Text(Form { placeholder: "NAME", check: RawSpec::check_interface }),
            DefaultValue::Derived("the name of the port, if it has at most 15 bytes");
        /// Address of the interface, which the daemon sets. Frames from other source addresses are
        /// dropped unless learn is set; the interface then keeps its own address.
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// IP address of the interface with the length of its prefix, as 10.0.0.1/24: the host is a
        /// member of the group by this address. The daemon sets the address when it opens an
        /// interface that does not have it, which takes CAP_NET_ADMIN.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String> => ValueType::Text(Form { placeholder: "IP/PREFIX", check: check_address }),
            DefaultValue::NoneMeans("the addresses of the interface stay as they are");
        /// Largest payload of a frame, in bytes; the MTU of an interface that the daemon creates.
        mtu: u16 => ValueType::Integer { min: MTU_MIN as u64, max: u16::MAX as u64, unit: "BYTES" },
            DefaultValue::Derived("1500, or less if the links of the group carry less");
        /// Accept and learn other source addresses, for a bridge that the interface is a member of.
        #[serde(default)]
        learn: bool => ValueType::Boolean, DefaultValue::Boolean(false);
        /// Whether frames cross the interface with unfinished checksums and segments: all, or none
        /// for programs that cannot finish them (XDP programs, packet filters without offloads).
        #[serde(default)]
        offloads: TapOffloads => ValueType::Word(&TapOffloads::NAMES), DefaultValue::Text("all");
        /// Keep an interface that the daemon created when the daemon ends or the port is deleted,
        /// so that addresses, routes and connections of the host outlive a restart.
        #[serde(default = "is_persistent")]
        persistent: bool => ValueType::Boolean, DefaultValue::Boolean(true);
    }
}

/// Parses an IP address with the length of its prefix.
fn parse_address(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, prefix) = text.split_once('/')?;
    let (ip, prefix) = (ip.parse::<IpAddr>().ok()?, prefix.parse::<u8>().ok()?);
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let fits = !ip.is_unspecified() && !ip.is_multicast() && (1..=longest).contains(&prefix);
    fits.then_some((ip, prefix))
}

fn check_address(text: &str) -> Result<(), String> {
    let wrong =
        || format!("{text:?}: expected an IP address and the length of its prefix, as 10.0.0.1/24");
    parse_address(text).map(drop).ok_or_else(wrong)
}

impl TapSpec {
    /// Returns the IP address of the interface and the length of its prefix in bits, if the daemon
    /// sets one.
    pub fn ip_address(&self) -> Option<(IpAddr, u8)> {
        self.address.as_deref().and_then(parse_address)
    }
}

/// Returns the default of [`TapSpec::persistent`].
const fn is_persistent() -> bool {
    true
}

/// The offloads of a TAP interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TapOffloads {
    /// All that the kernel has, in both directions.
    #[default]
    All,
    /// None: each frame is complete, with its checksum.
    None,
}

impl TapOffloads {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["all", "none"];
}

impl PortOptions for TapSpec {
    fn kind() -> &'static KindDefinition {
        &TAP
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("interface").or_insert_with(|| json!(port.name));
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
        values.entry("mtu").or_insert_with(|| json!(MTU_DEFAULT.min(port.links_mtu)));
    }

    fn check(&self) -> Result<(), String> {
        if let Some(address) = &self.address {
            check_address(address).map_err(|text| format!("address: {text}"))?;
        }
        // The kernel takes a percent sign as a pattern, and would choose another name.
        if self.interface.contains(['%', ':']) {
            return Err(format!("interface: {:?}: expected no % and no :", self.interface));
        }
        RawSpec::check_interface(&self.interface).map_err(|text| {
            format!("interface: {text} (without the key, the name of the port is used)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tap_addresses_have_a_prefix_and_are_unicast() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(parse_address("10.0.0.1/24"), Some((ip("10.0.0.1"), 24)));
        assert_eq!(parse_address("fd00::1/64"), Some((ip("fd00::1"), 64)));
        for text in [
            "10.0.0.1",
            "10.0.0.1/0",
            "10.0.0.1/33",
            "::1/129",
            "0.0.0.0/8",
            "224.0.0.1/4",
            "a/8",
            "",
        ] {
            assert!(check_address(text).unwrap_err().contains("as 10.0.0.1/24"), "{text}");
        }
    }
}
