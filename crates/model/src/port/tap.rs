//! Ports of kind `tap`: TAP interfaces of this host as members of a group.
//!
//! The TAP service reads the options in its shard's thread when the port is added, and opens the
//! interface. A frame that the kernel sends by the interface is a frame that the port sends, and
//! the reverse: the host, a container, or a program behind a bridge or a traffic control rule is
//! then a member of the group. A port of this kind has no guest, no socket and no queue. The checks
//! do not open the interface and do not compare with interfaces of other ports: the kernel gives an
//! interface to one program only.

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
        // The kernel takes a percent sign as a pattern, and would choose another name.
        if self.interface.contains(['%', ':']) {
            return Err(format!("interface: {:?}: expected no % and no :", self.interface));
        }
        RawSpec::check_interface(&self.interface).map_err(|text| {
            format!("interface: {text} (without the key, the name of the port is used)")
        })
    }
}
