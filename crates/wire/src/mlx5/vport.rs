//! Formats of the commands about the virtual port: addresses, MTU and link state of the function,
//! and its GID table (the RoCE source addresses).
//!
//! The device (`mlx5::command::vport`) parses the inputs and emits the outputs, in the dispatcher's
//! thread; drivers ([`super`]) are the other side. Link state, NIC context, RoCE addresses and
//! partition keys are served; [`HcaVportContext`] (InfiniBand links) is only described: the device
//! has RoCE alone and answers QUERY_HCA_VPORT_CONTEXT, MODIFY_HCA_VPORT_CONTEXT and
//! QUERY_HCA_VPORT_GID with *bad operation*.
//!
//! This module checks lengths only ([`Truncated`]). It does not check codes, MTUs, indices of GIDs
//! or whether a list has as many entries as its context counts. The device refuses with *bad
//! parameter* an unknown list type, more than 16 entries of a list (`VPORT_ADDRESSES_MAX`), an MTU
//! above the port's, another permanent address, and a GID entry with an Ethernet address other than
//! the port's (unless [`RoceAddress::is_deleted`]), and with *bad index* a GID index of 256
//! (`GIDS_MAX`) or more. It returns the MTU that the driver set, because a driver sizes its receive
//! buffers by the answer.

use super::field::{at, codes, layout};
use crate::Truncated;

/// Offset of [`NicVportContext`] in the output of QUERY_NIC_VPORT_CONTEXT.
pub const QUERY_NIC_CONTEXT: usize = 0x10;
/// Offset of [`NicVportContext`] in the input of MODIFY_NIC_VPORT_CONTEXT.
pub const MODIFY_NIC_CONTEXT: usize = 0x100;
/// Offset of the list of addresses in [`NicVportContext`].
pub const LIST: usize = 0x100;
/// Length of an entry of the list of addresses, in bytes.
pub const LIST_ENTRY: usize = 8;
/// Bytes that the MTU of the virtual port has more than that of the network interface: Ethernet
/// header, VLAN tag and frame check sequence.
pub const MTU_OVERHEAD: u16 = 22;
/// [`NicVportContext::min_inline_mode`]: the headers of layer 2 are in the entry.
pub const INLINE_L2: u8 = 1;

/// Fields that MODIFY_NIC_VPORT_CONTEXT changes, the argument of its header. The device ignores
/// [`select::CHANGE_EVENT`] and [`select::MIN_INLINE`].
pub mod select {
    /// [`super::NicVportContext::has_roce`].
    pub const ROCE: u32 = 1 << 1;
    /// The list of addresses.
    pub const LIST: u32 = 1 << 2;
    /// [`super::NicVportContext::permanent_mac`].
    pub const PERMANENT_MAC: u32 = 1 << 3;
    /// The promiscuous modes.
    pub const PROMISCUOUS: u32 = 1 << 4;
    /// The events on changes.
    pub const CHANGE_EVENT: u32 = 1 << 5;
    /// [`super::NicVportContext::mtu`].
    pub const MTU: u32 = 1 << 6;
    /// [`super::NicVportContext::min_inline_mode`].
    pub const MIN_INLINE: u32 = 1 << 7;
    /// [`super::NicVportContext::port_guid`].
    pub const PORT_GUID: u32 = 1 << 8;
    /// [`super::NicVportContext::node_guid`].
    pub const NODE_GUID: u32 = 1 << 9;
    /// [`super::NicVportContext::blocks_multicast_loopback`].
    pub const MULTICAST_LOOPBACK: u32 = 1 << 10;
    /// [`super::NicVportContext::blocks_unicast_loopback`].
    pub const UNICAST_LOOPBACK: u32 = 1 << 11;
}

codes! {
    /// Content of the list of addresses.
    pub enum ListType: u8 {
        /// Unicast addresses.
        Unicast = 0 "unicast",
        /// Multicast addresses.
        Multicast = 1 "multicast",
        /// VLAN identifiers.
        Vlan = 2 "VLAN",
    }
}

layout! {
    /// Context of the virtual port, without the list of addresses.
    pub struct NicVportContext("NIC vport context", 0x100) {
        /// Headers that send queue entries must contain; [`INLINE_L2`].
        min_inline_mode: u8 = at(0x00, 5, 3),
        /// Multicast frames do not return to the function.
        blocks_multicast_loopback: bool = at(0x03, 5, 1),
        /// Unicast frames do not return to the function.
        blocks_unicast_loopback: bool = at(0x03, 6, 1),
        /// RoCE is on.
        has_roce: bool = at(0x03, 7, 1),
        /// Events on changes are armed.
        is_armed: bool = at(0x04, 0, 1),
        /// Changes that make an event: MTU, promiscuous mode, VLANs, multicast, unicast.
        change_events: u8 = at(0x07, 3, 5),
        /// Largest frame, in bytes: that of the interface plus [`MTU_OVERHEAD`].
        mtu: u16 = at(0x26, 0, 16),
        /// Identifier of the system (EUI-64).
        system_guid: u64 = at(0x28, 0, 64),
        /// Identifier of the port.
        port_guid: u64 = at(0x30, 0, 64),
        /// Identifier of the adapter.
        node_guid: u64 = at(0x38, 0, 64),
        /// Number of datagrams with a wrong queue key.
        queue_key_violations: u16 = at(0x68, 0, 16),
        /// All unicast frames are received.
        is_promiscuous_unicast: bool = at(0xf0, 0, 1),
        /// All multicast frames are received.
        is_promiscuous_multicast: bool = at(0xf0, 1, 1),
        /// All frames are received.
        is_promiscuous: bool = at(0xf0, 2, 1),
        /// Code of a [`ListType`].
        list_type: u8 = at(0xf0, 5, 3),
        /// Number of entries of the list.
        list_len: u16 = at(0xf2, 4, 12),
        /// Ethernet address.
        permanent_mac: [u8; 6] = at(0xf6, 0, 48),
    }
}

layout! {
    /// An entry of the list of unicast or multicast addresses.
    pub struct MacEntry("list of Ethernet addresses", 8) {
        /// Address.
        mac: [u8; 6] = at(0x02, 0, 48),
    }
}

layout! {
    /// An entry of the list of VLANs.
    pub struct VlanEntry("list of VLANs", 8) {
        /// VLAN identifier.
        vlan: u16 = at(0x02, 4, 12),
    }
}

layout! {
    /// The input of QUERY_NIC_VPORT_CONTEXT.
    pub struct QueryNicInput("QUERY_NIC_VPORT_CONTEXT input", 16) {
        /// Another function's port is meant.
        is_other: bool = at(0x08, 0, 1),
        /// Number of the virtual port.
        vport: u16 = at(0x0a, 0, 16),
        /// Code of a [`ListType`].
        list_type: u8 = at(0x0c, 5, 3),
    }
}

/// Returns the entries of the list of addresses whose context begins at `context`, as the context
/// counts them (`list_len`, up to 4,095; 0 if the context is truncated). Entries behind the end of
/// `context` are omitted.
pub fn list_entries(context: &[u8]) -> impl Iterator<Item = [u8; LIST_ENTRY]> + '_ {
    let count = NicVportContext::parse(context).map_or(0, |value| usize::from(value.list_len));
    let (entries, _) = context.get(LIST..).unwrap_or(&[]).as_chunks::<LIST_ENTRY>();
    entries.iter().take(count).copied()
}

layout! {
    /// The output of QUERY_VPORT_STATE.
    pub struct VportStateOutput("QUERY_VPORT_STATE output", 16) {
        /// State that the operator selects: 0 down, 1 up, 2 follows the physical port.
        admin: u8 = at(0x0f, 0, 4),
        /// Present state: 0 down, 1 up.
        state: u8 = at(0x0f, 4, 4),
    }
}

codes! {
    /// Type of packets that an entry of the GID table sends.
    pub enum RoceVersion: u8 {
        /// RoCE version 1.
        V1 = 0 "RoCE v1",
        /// RoCE version 2, over UDP.
        V2 = 2 "RoCE v2",
    }
}

/// [`RoceAddress::layer3`]: IPv4; the address is in the last 4 bytes.
pub const L3_IPV4: u8 = 0;
/// [`RoceAddress::layer3`]: IPv6.
pub const L3_IPV6: u8 = 1;
/// Offset of [`RoceAddress`] in the input of SET_ROCE_ADDRESS and the output of QUERY_ROCE_ADDRESS.
pub const ROCE_ADDRESS: usize = 0x10;

layout! {
    /// An entry of the GID table. All zeroes delete the entry.
    pub struct RoceAddress("RoCE address", 0x20) {
        /// GID: an IPv6 address, or an IPv4 address mapped to IPv6.
        gid: [u8; 16] = at(0x00, 0, 128),
        /// Packets have a VLAN tag.
        has_vlan: bool = at(0x10, 3, 1),
        /// VLAN identifier.
        vlan: u16 = at(0x10, 4, 12),
        /// Source Ethernet address.
        mac: [u8; 6] = at(0x12, 0, 48),
        /// [`L3_IPV4`] or [`L3_IPV6`].
        layer3: u8 = at(0x1a, 4, 4),
        /// Code of a [`RoceVersion`].
        version: u8 = at(0x1b, 0, 8),
    }
}

impl RoceAddress {
    /// Returns true if the entry is deleted: without GID and without Ethernet address. Drivers
    /// leave a version in deleted entries.
    pub fn is_deleted(&self) -> bool {
        self.gid == [0; 16] && self.mac == [0; 6]
    }
}

layout! {
    /// The input of SET_ROCE_ADDRESS and QUERY_ROCE_ADDRESS, before the address.
    pub struct RoceAddressInput("RoCE address input", 16) {
        /// Index in the GID table.
        index: u16 = at(0x08, 0, 16),
        /// Port.
        port: u8 = at(0x0b, 4, 4),
    }
}

/// Offset of [`HcaVportContext`] in the output of QUERY_HCA_VPORT_CONTEXT.
pub const QUERY_HCA_CONTEXT: usize = 0x10;

layout! {
    /// Context of the virtual port of an InfiniBand link. Neither parsed nor emitted by the device.
    pub struct HcaVportContext("HCA vport context", 0x200) {
        /// Packets need a global route header.
        requires_grh: bool = at(0x20, 3, 1),
        /// Physical state; 5 link up.
        physical_state: u8 = at(0x22, 0, 4),
        /// State of the virtual port; 4 active.
        state: u8 = at(0x23, 4, 4),
        /// Identifier of the system.
        system_guid: u64 = at(0x28, 0, 64),
        /// Identifier of the port.
        port_guid: u64 = at(0x30, 0, 64),
        /// Identifier of the adapter.
        node_guid: u64 = at(0x38, 0, 64),
        /// Capabilities of the port.
        capabilities: u32 = at(0x40, 0, 32),
        /// Local identifier.
        lid: u16 = at(0x60, 0, 16),
        /// Number of lower bits of the local identifier that select a path.
        lid_mask: u8 = at(0x63, 0, 3),
        /// Time-out of the subnet manager: 4.096 us times 2 to this power.
        subnet_timeout: u8 = at(0x63, 3, 5),
        /// Local identifier of the subnet manager.
        manager_lid: u16 = at(0x64, 0, 16),
        /// Service level of the subnet manager.
        manager_service_level: u8 = at(0x66, 0, 4),
    }
}

/// Offset of the first entry in the output of QUERY_HCA_VPORT_PKEY.
pub const PARTITION_KEYS: usize = 0x10;
/// Length of an entry of the partition table in that output, in bytes.
pub const PARTITION_KEY_LEN: usize = 4;
/// Partition key of full members of the default partition.
pub const DEFAULT_PARTITION: u16 = 0xffff;

/// Writes the output of QUERY_HCA_VPORT_PKEY for a table with the default partition alone.
///
/// # Errors
/// [`Truncated`] if there is no room for an entry.
pub fn emit_partition_table(output: &mut [u8]) -> Result<(), Truncated> {
    let have = output.len();
    let table = output.get_mut(PARTITION_KEYS..).unwrap_or(&mut []);
    let (entries, _) = table.as_chunks_mut::<PARTITION_KEY_LEN>();
    let Some((first, others)) = entries.split_first_mut() else {
        return Err(Truncated { what: "QUERY_HCA_VPORT_PKEY output", need: 20, have });
    };
    let [high, low] = DEFAULT_PARTITION.to_be_bytes();
    *first = [0, 0, high, low];
    others.fill([0; PARTITION_KEY_LEN]);
    Ok(())
}
