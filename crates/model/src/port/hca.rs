//! Ports of kind `hca`: host channel adapters, which give a guest RDMA verbs and an Ethernet
//! interface through one PCI function.
//!
//! The HCA service reads the options in its shard's thread when the port is added. The frontend
//! attaches by vfio-user (QEMU 10.1 or later) and sees a ConnectX virtual function, for which
//! guests have the drivers `mlx5_core` and `mlx5_ib`. The limits bound the objects of one guest:
//! beyond a limit the guest's command to create an object fails, and other guests are not affected.
//! Objects without an option have fixed limits (`causeway_mlx5::limits`). QEMU does not reconnect
//! this device, so that the holder keeps its frontend over a restart of the daemon.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    DeviceInfo, FrontendProtocol, GUEST_FIELDS, KindDefinition, PortContext, PortOptions, unicast,
};
use crate::Mac;
use crate::group::weight_default;
use crate::limits::{
    HCA_BYTE_RATE_MAX, HCA_COMPLETION_QUEUES_MAX, HCA_IDLE_POLL_US_DEFAULT, HCA_IDLE_POLL_US_MAX,
    HCA_MESSAGE_RATE_MAX, HCA_MTU_MAX, HCA_OBJECTS_MAX, HCA_QUEUE_PAIRS_MAX,
    HCA_REGISTERED_MIB_MAX, MTU_MIN, WEIGHT_MAX,
};
use crate::schema::{DefaultValue, ValueType, table};

/// Host channel adapters of guests.
pub static HCA: KindDefinition = KindDefinition::new::<HcaSpec>(
    "hca",
    "An RDMA adapter with an Ethernet interface (ConnectX, by vfio-user)",
    &[HCA_FIELDS, GUEST_FIELDS],
)
.on_network()
.losing_frontend();

/// Returns the type of a number of objects, at most `max`.
const fn objects(max: u32) -> ValueType {
    ValueType::Integer { min: 1, max: max as u64, unit: "N" }
}

table! {
    /// A host channel adapter.
    pub struct HcaSpec, pub const HCA_FIELDS {
        /// Address of the Ethernet interface, by which queue pairs of other guests reach the
        /// adapter too.
        mac: Mac => unicast(),
            DefaultValue::Derived("derived from the machine, the group and the name"), .unique();
        /// Largest payload of an Ethernet frame that the guest may configure, in bytes.
        mtu_max: u16 => ValueType::Integer { min: MTU_MIN as u64, max: HCA_MTU_MAX as u64, unit: "BYTES" },
            DefaultValue::Number(HCA_MTU_MAX as u64);
        /// Most queue pairs of the guest.
        queue_pairs_max: u32 => objects(HCA_QUEUE_PAIRS_MAX), DefaultValue::Number(4096);
        /// Most completion queues of the guest.
        completion_queues_max: u32 => objects(HCA_COMPLETION_QUEUES_MAX),
            DefaultValue::Number(4096);
        /// Most memory regions of the guest.
        regions_max: u32 => objects(HCA_OBJECTS_MAX), DefaultValue::Number(65536);
        /// Most memory that the guest may register, in MiB; memory in two regions counts twice.
        registered_max: u32 => ValueType::Integer { min: 1, max: HCA_REGISTERED_MIB_MAX as u64, unit: "MIB" },
            DefaultValue::Number(1 << 20);
        /// Most reliable requests of the guest that wait for their receivers; a further request fails
        /// at once, as after all retries.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiting_requests_max: Option<u32> => objects(HCA_OBJECTS_MAX),
            DefaultValue::NoneMeans("as many as queue pairs");
        /// Longest time after which an idle adapter is polled, in microseconds: the first message
        /// after a pause waits as long. Shorter times cost processor time while the guest is idle.
        idle_poll_us: u32 => ValueType::Integer { min: 10, max: HCA_IDLE_POLL_US_MAX as u64, unit: "US" },
            DefaultValue::Number(HCA_IDLE_POLL_US_DEFAULT as u64);
        /// How the guest's posted work is found: poll (its memory is polled, no VM exit) or trap
        /// (each post is a VM exit, and an idle adapter is not polled).
        #[serde(default)]
        doorbell: HcaDoorbell => ValueType::Word(&HcaDoorbell::NAMES), DefaultValue::Text("poll");
        /// Share of the group's time while other adapters of the group are busy: 2 gets twice as
        /// much as 1.
        #[serde(default = "weight_default")]
        weight: u32 => ValueType::Integer { min: 1, max: WEIGHT_MAX as u64, unit: "N" },
            DefaultValue::Number(weight_default() as u64);
        /// Most bytes a second that the guest's requests and frames move; further work waits in
        /// the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        byte_rate_max: Option<u64> => rate(HCA_BYTE_RATE_MAX, "BYTES"),
            DefaultValue::NoneMeans("no limit");
        /// Most requests and frames a second of the guest; further work waits in the guest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message_rate_max: Option<u64> => rate(HCA_MESSAGE_RATE_MAX, "N"),
            DefaultValue::NoneMeans("no limit");
    }
}

/// Returns the type of a rate a second.
const fn rate(max: u64, unit: &'static str) -> ValueType {
    ValueType::Integer { min: 1, max, unit }
}

/// How the daemon finds the work that a guest posts to its adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HcaDoorbell {
    /// Doorbell records in guest memory are polled; posting causes no VM exit.
    #[default]
    Poll,
    /// Writes to doorbell pages are trapped and wake the adapter; an idle adapter is not polled.
    Trap,
}

impl HcaDoorbell {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 2] = ["poll", "trap"];

    /// Returns the name, as operators write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Trap => "trap",
        }
    }
}

impl PortOptions for HcaSpec {
    fn kind() -> &'static KindDefinition {
        &HCA
    }

    fn complete(values: &mut Map<String, Value>, port: &PortContext<'_>) {
        values.entry("mac").or_insert_with(|| json!(port.derived_mac()));
    }

    fn device(&self) -> Option<DeviceInfo> {
        let (protocol, identity) = (FrontendProtocol::VfioUser, format!("hca {}", self.mac));
        Some(DeviceInfo { protocol, queues: 0, ring_size_max: 0, identity })
    }
}
