//! Capabilities: the groups of QUERY_HCA_CAP.
//!
//! The command's modifier selects the group and the present or largest values ([`Query`]). The
//! output has a header of [`OUTPUT_OFFSET`] (16) bytes and a block of [`BLOCK_LEN`] (4,096) bytes.
//!
//! The device (`mlx5::command::capability`) parses the modifier and emits
//! [`Capabilities::FUNCTION`], with the numbers of objects lowered to the limits of the port. Guest
//! drivers read the blocks and keep to them; the device enforces its own limits in each command.
//! Unknown groups, the groups for on-demand paging, IPoIB and the eswitch, and flow tables for sent
//! frames are all zeroes: the device has none of these. Present and largest values are the same;
//! the device accepts SET_HCA_CAP and ignores the driver's choice. The module checks no value;
//! [`Capabilities::emit`] fails only if the block is too short. The device runs in the dispatcher's
//! turn.

use super::field::{at, codes, layout};
use crate::Truncated;

pub use super::general::{General, PORT_ETHERNET, PORT_INFINIBAND};

/// Offset of the block in the output of QUERY_HCA_CAP and in the input of SET_HCA_CAP.
pub const OUTPUT_OFFSET: usize = 0x10;
/// Length of the block, in bytes.
pub const BLOCK_LEN: usize = 4096;
/// Offset of [`FlowTable`] for received frames in the block of [`Group::FlowTable`].
pub const FLOW_TABLE_RECEIVE: usize = 0x40;
/// Offset of [`FlowTable`] for sent frames in the block of [`Group::FlowTable`].
pub const FLOW_TABLE_TRANSMIT: usize = 0x100;

codes! {
    /// A group of capabilities.
    pub enum Group: u16 {
        /// [`General`].
        General = 0x0 "general",
        /// [`Ethernet`].
        Ethernet = 0x1 "Ethernet offloads",
        /// Paging on demand.
        OnDemandPaging = 0x2 "on-demand paging",
        /// [`Atomic`].
        Atomic = 0x3 "atomic operations",
        /// [`Roce`].
        Roce = 0x4 "RoCE",
        /// IP over InfiniBand.
        Ipoib = 0x5 "IPoIB offloads",
        /// [`FlowTable`].
        FlowTable = 0x7 "flow table",
        /// Switch between functions.
        Eswitch = 0x9 "eswitch",
    }
}

/// The modifier of QUERY_HCA_CAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Query {
    /// Group, or `None` if the number is not known.
    pub group: Option<Group>,
    /// The present values; false for the largest.
    pub is_current: bool,
}

impl Query {
    /// Returns the meaning of a modifier.
    pub const fn parse(modifier: u16) -> Self {
        Self { group: Group::from_raw(modifier >> 1), is_current: modifier & 1 != 0 }
    }
}

impl Group {
    /// Returns the modifier that asks for the group.
    pub const fn modifier(self, is_current: bool) -> u16 {
        (self.raw() << 1) | is_current as u16
    }
}

layout! {
    /// Offloads of Ethernet queues. A driver makes no network interface without checksums,
    /// segmentation, VLAN tags and tables of receive queues.
    pub struct Ethernet("Ethernet capabilities", 0x40) {
        /// Checksums are written and verified.
        has_checksum: bool = at(0x00, 0, 1),
        /// VLAN tags are removed.
        has_vlan: bool = at(0x00, 1, 1),
        /// Received segments are merged (LRO).
        has_merge: bool = at(0x00, 2, 1),
        /// VLAN tags are inserted.
        has_vlan_insert: bool = at(0x00, 7, 1),
        /// Loopback may be blocked per transport interface.
        has_loopback_control: bool = at(0x01, 0, 1),
        /// Binary logarithm of the largest payload that the device cuts, in bytes.
        log_max_segmentation: u8 = at(0x01, 3, 5),
        /// Entries with several packets; 0 none.
        multi_packet: u8 = at(0x02, 0, 2),
        /// Headers that send queue entries contain: 1 as the virtual port's context states.
        inline_mode: u8 = at(0x02, 2, 2),
        /// Binary logarithm of the entries of a table of receive queues.
        log_max_receive_table: u8 = at(0x02, 4, 4),
        /// Send queues may change memory keys.
        has_update: bool = at(0x03, 0, 1),
        /// Frames may keep their check sequence.
        has_fcs: bool = at(0x03, 1, 1),
    }
}

impl Ethernet {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        has_checksum: true,
        has_vlan: true,
        has_merge: false,
        has_vlan_insert: true,
        has_loopback_control: true,
        log_max_segmentation: 16,
        multi_packet: 0,
        inline_mode: 1,
        log_max_receive_table: 7,
        has_update: false,
        has_fcs: false,
    };
}

layout! {
    /// Atomic operations. All values are needed for operations on the whole adapter.
    pub struct Atomic("atomic capabilities", 0x40) {
        /// Byte order of operands: 1 the host's.
        endianness_mode: u8 = at(0x08, 0, 2),
        /// Operands of 8 bytes may have the host's byte order.
        has_host_endianness: bool = at(0x08, 6, 1),
        /// Operations: 1 compare and swap, 2 fetch and add.
        operations: u16 = at(0x12, 0, 16),
        /// Sum of the sizes of operands, in bytes.
        queue_pair_sizes: u16 = at(0x16, 0, 16),
        /// Sum of the sizes of operands of dynamic connections, in bytes.
        dynamic_sizes: u16 = at(0x1a, 0, 16),
    }
}

impl Atomic {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        endianness_mode: 1,
        has_host_endianness: true,
        operations: 3,
        queue_pair_sizes: 8,
        dynamic_sizes: 0,
    };
}

layout! {
    /// RoCE.
    pub struct Roce("RoCE capabilities", 0x20) {
        /// Types of addresses: 2 IPv4, 4 IPv6. Drivers need both.
        layer3: u8 = at(0x11, 4, 4),
        /// Versions of RoCE: 1 version 1, 4 version 2.
        versions: u8 = at(0x13, 0, 8),
        /// Destination UDP port.
        udp_port: u16 = at(0x16, 0, 16),
        /// Largest source UDP port.
        max_udp_source_port: u16 = at(0x18, 0, 16),
        /// Smallest source UDP port.
        min_udp_source_port: u16 = at(0x1a, 0, 16),
        /// Size of the GID table.
        address_table_size: u16 = at(0x1e, 0, 16),
    }
}

impl Roce {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        layer3: 6,
        versions: 5,
        udp_port: 4791,
        max_udp_source_port: 0xffff,
        min_udp_source_port: 0xc000,
        address_table_size: 256,
    };
}

layout! {
    /// Flow tables of one direction.
    pub struct FlowTable("flow table capabilities", 0x40) {
        /// Flow tables exist in this direction.
        is_supported: bool = at(0x00, 0, 1),
        /// Entries may be changed.
        has_modify: bool = at(0x00, 3, 1),
        /// The first table may be changed.
        has_modify_root: bool = at(0x00, 4, 1),
        /// A table names the next for frames without a match.
        has_miss_table: bool = at(0x00, 5, 1),
        /// Tables may be changed.
        has_table_modify: bool = at(0x00, 6, 1),
        /// Binary logarithm of the entries of a table.
        log_max_size: u8 = at(0x04, 2, 6),
        /// Number of levels; drivers need 3.
        max_level: u8 = at(0x07, 0, 8),
        /// Binary logarithm of the number of tables.
        log_max_tables: u8 = at(0x0f, 0, 8),
        /// Binary logarithm of the destinations of an entry.
        log_max_destinations: u8 = at(0x13, 0, 8),
        /// Binary logarithm of the number of entries.
        log_max_entries: u8 = at(0x17, 0, 8),
        /// Header fields that an entry may match.
        fields: [u8; 16] = at(0x20, 0, 128),
        /// Header fields that an entry may match under a mask.
        masked_fields: [u8; 16] = at(0x30, 0, 128),
    }
}

/// The fields of [`super::steering::MatchHeaders`], as capabilities of flow tables name them: those
/// of the outer headers, without the second VLAN tag, the flow label and tunnels.
pub const MATCH_FIELDS: [u8; 16] = [0xff, 0x0f, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl FlowTable {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        is_supported: true,
        has_modify: true,
        has_modify_root: true,
        has_miss_table: true,
        has_table_modify: true,
        log_max_size: 16,
        max_level: 64,
        log_max_tables: 12,
        log_max_destinations: 5,
        log_max_entries: 14,
        fields: MATCH_FIELDS,
        masked_fields: MATCH_FIELDS,
    };
}

/// All capabilities of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Limits and features.
    pub general: General,
    /// Offloads of Ethernet queues.
    pub ethernet: Ethernet,
    /// Atomic operations.
    pub atomic: Atomic,
    /// RoCE.
    pub roce: Roce,
    /// Flow tables of received frames.
    pub flow_table: FlowTable,
}

impl Capabilities {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        general: General::FUNCTION,
        ethernet: Ethernet::FUNCTION,
        atomic: Atomic::FUNCTION,
        roce: Roce::FUNCTION,
        flow_table: FlowTable::FUNCTION,
    };

    /// Writes the block of a group. `block` is zero before; groups without values stay zero.
    ///
    /// # Errors
    /// [`Truncated`] if `block` is too short for the group's values.
    pub fn emit(&self, group: Group, block: &mut [u8]) -> Result<(), Truncated> {
        match group {
            Group::General => self.general.emit(block),
            Group::Ethernet => self.ethernet.emit(block),
            Group::Atomic => self.atomic.emit(block),
            Group::Roce => self.roce.emit(block),
            Group::FlowTable => {
                self.flow_table.emit(block.get_mut(FLOW_TABLE_RECEIVE..).unwrap_or_default())
            }
            Group::OnDemandPaging | Group::Ipoib | Group::Eswitch => Ok(()),
        }
    }
}
