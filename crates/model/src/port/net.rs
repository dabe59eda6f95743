//! Ports of kind `net`: virtio-net devices, or processes that send and receive Ethernet frames.
//!
//! The Ethernet service reads the options in its shard's thread when the port is added. An
//! operator's table gives them, with defaults from the group's links ([`PortContext::links_mtu`]).
//! The MTU (68 to 65,535) is offered to the guest, and 1 to [`QUEUE_PAIRS_MAX`] (8) queue pairs; a
//! guest may use fewer. A value out of range is refused when the table is read; the service refuses
//! a MAC address that another port of the group has; `guest_mac` may be the same for many ports.
//! Options of a port do not change while the port exists. Routes, groups and captures are not
//! options of a port.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{DeviceInfo, FrontendProtocol, KindDefinition, PortContext, PortOptions, unicast};
use crate::Mac;
use crate::limits::{MTU_MIN, QUEUE_PAIRS_MAX};
use crate::port::{GUEST_FIELDS, VHOST_USER_FIELDS};
use crate::schema::{DefaultValue, ValueType, table};

/// Default MTU of a port: largest payload of a frame, in bytes.
pub const MTU_DEFAULT: u16 = 1500;
/// Most entries of a virtqueue (virtio 1.3, 2.7). A frontend with a larger ring is disconnected.
const RING_SIZE_MAX: u16 = 32_768;

/// Ports that carry Ethernet frames.
pub static NET: KindDefinition = KindDefinition::new::<NetSpec>(
    "net",
    "A network interface (virtio-net)",
    &[NET_FIELDS, GUEST_FIELDS, VHOST_USER_FIELDS],
)
.on_network();

table! {
    /// A virtio-net port.
    pub struct NetSpec, pub const NET_FIELDS {
        /// Address of the guest. Frames from other source addresses are dropped unless learn is
        /// set.
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// Address that the guest has, if it differs from mac: for the clones of one snapshot. The
        /// daemon exchanges the two in each frame of the guest and for the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        guest_mac: Option<Mac> => unicast(), DefaultValue::NoneMeans("mac");
        /// Largest payload of a frame, in bytes.
        mtu: u16 => ValueType::Integer { min: MTU_MIN as u64, max: u16::MAX as u64, unit: "BYTES" },
            DefaultValue::Derived("1500, or less if the links of the group carry less");
        /// Queue pairs.
        queue_pairs: u16 => ValueType::Integer { min: 1, max: QUEUE_PAIRS_MAX as u64, unit: "N" },
            DefaultValue::Number(1);
        /// Accept and learn other source addresses, for a bridge or nested guests.
        learn: bool => ValueType::Boolean, DefaultValue::Boolean(false);
        /// Offloads of frames to the guest: all, or xdp for guests that attach XDP programs
        /// (AF_XDP, Cilium).
        #[serde(default)]
        offloads: Offloads => ValueType::Word(&Offloads::NAMES), DefaultValue::Text("all");
    }
}

impl NetSpec {
    /// Returns the address in the guest's configuration space.
    pub fn shown_mac(&self) -> Mac {
        self.guest_mac.unwrap_or(self.mac)
    }
}

impl PortOptions for NetSpec {
    fn kind() -> &'static KindDefinition {
        &NET
    }

    fn device(&self) -> Option<DeviceInfo> {
        Some(DeviceInfo {
            protocol: FrontendProtocol::VhostUser,
            queues: self.queue_pairs.saturating_mul(2),
            ring_size_max: RING_SIZE_MAX,
            identity: format!("net {} {} {}", self.shown_mac(), self.mtu, self.queue_pairs),
        })
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
        values.entry("mtu").or_insert_with(|| json!(MTU_DEFAULT.min(port.links_mtu)));
    }
}

/// The offloads that a net port offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offloads {
    /// All, in both directions.
    #[default]
    All,
    /// None towards the guest: each frame is complete, with its checksum. For guests that attach
    /// XDP programs: QEMU lets a guest turn offloads off at runtime without informing the backend,
    /// and the guest would drop frames that need further processing.
    Xdp,
}

impl Offloads {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["all", "xdp"];
}
