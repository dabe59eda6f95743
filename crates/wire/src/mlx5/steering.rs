//! Steering of received frames: transport interfaces, tables of receive queues, flow tables, flow
//! groups and flow entries, as far as drivers of a virtual function use their fields.
//!
//! A flow entry sends frames that match to a transport interface (TIR), which names a receive queue
//! or a table of receive queues (RQT). An entry matches those header bits that the group's criteria
//! select ([`MatchHeaders`]).
//!
//! Guests write the inputs; the device parses them (`mlx5::ethernet::command::flow` and
//! `interface`) and keeps and searches the rules (`mlx5::ethernet::flow`). This module checks
//! lengths only, and `destinations` and `table_entries` omit entries behind the end of the input.
//! The device bounds an entry to 32 destinations and a table of receive queues to 1,024. It
//! searches tables of [`TableType::Receive`] by [`CRITERIA_OUTER`] alone: tables of other types
//! have no effect, groups with other criteria match nothing, and counters of entries do not count
//! (a query of a flow counter answers zero). It refuses an interface that asks for merging of
//! segments. The device runs in the dispatcher's turn.

use super::field::{at, codes, layout};

/// Offset of the context in the input of CREATE and MODIFY commands of transport interfaces and
/// tables of receive queues, and in the output of QUERY commands.
pub const CONTEXT: usize = 0x20;

codes! {
    /// Destination of a transport interface for receive.
    pub enum Dispatch: u8 {
        /// A receive queue.
        Direct = 0 "direct",
        /// A table of receive queues, by hash.
        Indirect = 1 "indirect",
    }
}

codes! {
    /// Hash that selects an entry of a table of receive queues.
    pub enum HashFunction: u8 {
        /// None.
        None = 0 "none",
        /// Exclusive or of the fields.
        Xor = 1 "xor",
        /// Toeplitz.
        Toeplitz = 2 "Toeplitz",
    }
}

/// Bit of [`ReceiveInterface::hash_fields`]: source IP address.
pub const HASH_SOURCE_IP: u32 = 1 << 0;
/// Bit of [`ReceiveInterface::hash_fields`]: destination IP address.
pub const HASH_DESTINATION_IP: u32 = 1 << 1;
/// Bit of [`ReceiveInterface::hash_fields`]: source port.
pub const HASH_SOURCE_PORT: u32 = 1 << 2;
/// Bit of [`ReceiveInterface::hash_fields`]: destination port.
pub const HASH_DESTINATION_PORT: u32 = 1 << 3;
/// Length of the key of the Toeplitz hash, in bytes.
pub const HASH_KEY_LEN: usize = 40;
/// Offset of the key in [`ReceiveInterface`].
pub const HASH_KEY: usize = 0x28;

layout! {
    /// Context of a transport interface for receive (TIR), without the hash's key.
    pub struct ReceiveInterface("TIR context", 0xf0) {
        /// Code of a [`Dispatch`].
        dispatch: u8 = at(0x04, 0, 4),
        /// Merging of segments: time-out.
        merge_timeout: u16 = at(0x10, 4, 16),
        /// Merging of segments: 1 IPv4, 2 IPv6.
        merge_mask: u8 = at(0x12, 4, 4),
        /// Merging of segments: largest payload, in units of 256 bytes.
        merge_max: u8 = at(0x13, 0, 8),
        /// Receive queue, for [`Dispatch::Direct`].
        receive_queue: u32 = at(0x1d, 0, 24),
        /// Both directions of a flow have the same hash.
        is_symmetric: bool = at(0x20, 0, 1),
        /// The hash covers headers inside of tunnels.
        has_tunnel_offload: bool = at(0x20, 2, 1),
        /// Table of receive queues, for [`Dispatch::Indirect`].
        table: u32 = at(0x21, 0, 24),
        /// Code of a [`HashFunction`].
        hash: u8 = at(0x24, 0, 4),
        /// Blocked loopback: 1 unicast, 2 multicast.
        loopback_block: u8 = at(0x24, 6, 2),
        /// Transport domain.
        domain: u32 = at(0x25, 0, 24),
        /// Layer 3 of the hash: false IPv4, true IPv6.
        hash_ipv6: bool = at(0x50, 0, 1),
        /// Layer 4 of the hash: false TCP, true UDP.
        hash_udp: bool = at(0x50, 1, 1),
        /// Sum of `HASH_` constants.
        hash_fields: u32 = at(0x50, 2, 30),
    }
}

/// Returns the key of the Toeplitz hash in the context of a transport interface, or `None` if the
/// context is incomplete.
pub fn hash_key(context: &[u8]) -> Option<[u8; HASH_KEY_LEN]> {
    context.get(HASH_KEY..)?.first_chunk().copied()
}

layout! {
    /// Context of a transport interface for send (TIS).
    pub struct SendInterface("TIS context", 0xa0) {
        /// Priority.
        priority: u8 = at(0x01, 4, 4),
        /// Transport domain.
        transport_domain: u32 = at(0x25, 0, 24),
        /// Protection domain.
        domain: u32 = at(0x2d, 0, 24),
    }
}

/// Offset of the list in [`ReceiveQueueTable`].
pub const TABLE_LIST: usize = 0xf0;
/// Length of an entry of the list, in bytes.
pub const TABLE_ENTRY: usize = 4;

layout! {
    /// Context of a table of receive queues (RQT), without the list.
    pub struct ReceiveQueueTable("RQT context", 0xf0) {
        /// Type of the entries; 0 receive queues.
        list_type: u8 = at(0x14, 5, 3),
        /// Capacity.
        capacity: u16 = at(0x16, 0, 16),
        /// Number of entries.
        len: u16 = at(0x1a, 0, 16),
    }
}

/// Returns the receive queues of the table whose context begins at `context`, as the context counts
/// them. Missing entries are omitted.
pub fn table_entries(context: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let count = ReceiveQueueTable::parse(context).map_or(0, |table| usize::from(table.len));
    let (entries, _) = context.get(TABLE_LIST..).unwrap_or(&[]).as_chunks::<TABLE_ENTRY>();
    entries.iter().take(count).map(|entry| u32::from_be_bytes(*entry) & 0xff_ffff)
}

/// Writes the list of receive queues to a table's context. Returns the number of entries written.
pub fn emit_table_entries(queues: &[u32], context: &mut [u8]) -> usize {
    let list = context.get_mut(TABLE_LIST..).unwrap_or_default();
    let (entries, _) = list.as_chunks_mut::<TABLE_ENTRY>();
    for (entry, queue) in entries.iter_mut().zip(queues) {
        *entry = (queue & 0xff_ffff).to_be_bytes();
    }
    entries.len().min(queues.len())
}

codes! {
    /// Direction of a flow table.
    pub enum TableType: u8 {
        /// Frames that the function receives.
        Receive = 0x0 "NIC receive",
        /// Frames that the function sends.
        Transmit = 0x1 "NIC transmit",
        /// Received frames, for packet capture.
        SnifferReceive = 0x5 "sniffer receive",
        /// Sent frames, for packet capture.
        SnifferTransmit = 0x6 "sniffer transmit",
        /// RoCE packets that the function receives.
        RdmaReceive = 0x7 "RDMA receive",
        /// RoCE packets that the function sends.
        RdmaTransmit = 0x8 "RDMA transmit",
    }
}

layout! {
    /// The input of CREATE_FLOW_TABLE.
    pub struct TableInput("CREATE_FLOW_TABLE input", 0x40) {
        /// Code of a [`TableType`].
        table_type: u8 = at(0x10, 0, 8),
        /// Destination of frames without a match: 0 the default, 1 [`Self::miss_table`].
        miss_action: u8 = at(0x18, 4, 4),
        /// Level; a table sends frames to higher levels only.
        level: u8 = at(0x19, 0, 8),
        /// Binary logarithm of the number of entries.
        log_size: u8 = at(0x1b, 0, 8),
        /// Table for frames without a match.
        miss_table: u32 = at(0x1d, 0, 24),
    }
}

layout! {
    /// The input of commands on an existing flow table: MODIFY_FLOW_TABLE, DESTROY_FLOW_TABLE,
    /// SET_FLOW_TABLE_ROOT, DESTROY_FLOW_GROUP and DELETE_FLOW_TABLE_ENTRY.
    pub struct TableReference("flow table input", 0x40) {
        /// Fields to change (MODIFY_FLOW_TABLE): 1 the table for frames without a match.
        select: u16 = at(0x0e, 0, 16),
        /// Code of a [`TableType`].
        table_type: u8 = at(0x10, 0, 8),
        /// Number of the table.
        table: u32 = at(0x15, 0, 24),
        /// Number of the group (DESTROY_FLOW_GROUP).
        group: u32 = at(0x18, 0, 32),
        /// Index of the entry (DELETE_FLOW_TABLE_ENTRY).
        index: u32 = at(0x20, 0, 32),
    }
}

/// Offset of the criteria in the input of CREATE_FLOW_GROUP.
pub const GROUP_CRITERIA: usize = 0x40;
/// Bit of [`GroupInput::criteria`]: the outer headers, the first [`MatchHeaders`].
pub const CRITERIA_OUTER: u8 = 1 << 0;
/// Bit of [`GroupInput::criteria`]: miscellaneous fields.
pub const CRITERIA_MISC: u8 = 1 << 1;
/// Bit of [`GroupInput::criteria`]: the headers inside of a tunnel.
pub const CRITERIA_INNER: u8 = 1 << 2;

layout! {
    /// The input of CREATE_FLOW_GROUP. The bits of [`Self::outer`] that are set must be equal in
    /// frames and entries.
    pub struct GroupInput("CREATE_FLOW_GROUP input", 0x240) {
        /// Code of a [`TableType`].
        table_type: u8 = at(0x10, 0, 8),
        /// Number of the table.
        table: u32 = at(0x15, 0, 24),
        /// Index of the group's first entry.
        first: u32 = at(0x1c, 0, 32),
        /// Index of the group's last entry.
        last: u32 = at(0x24, 0, 32),
        /// Sum of `CRITERIA_` constants.
        criteria: u8 = at(0x3f, 0, 8),
        /// Criteria of the outer headers.
        outer: MatchHeaders = at(0x40, 0, 512),
    }
}

layout! {
    /// Fields of the headers of a frame that a flow entry matches: values, or a mask.
    pub struct MatchHeaders("flow match headers", 0x40) {
        /// Source Ethernet address.
        source_mac: [u8; 6] = at(0x00, 0, 48),
        /// EtherType, behind VLAN tags.
        ether_type: u16 = at(0x06, 0, 16),
        /// Destination Ethernet address.
        destination_mac: [u8; 6] = at(0x08, 0, 48),
        /// Priority of the VLAN tag.
        vlan_priority: u8 = at(0x0e, 0, 3),
        /// Drop eligible bit of the VLAN tag.
        is_drop_eligible: bool = at(0x0e, 3, 1),
        /// VLAN identifier.
        vlan: u16 = at(0x0e, 4, 12),
        /// IP protocol.
        protocol: u8 = at(0x10, 0, 8),
        /// Differentiated services code point.
        dscp: u8 = at(0x11, 0, 6),
        /// Explicit congestion notification.
        ecn: u8 = at(0x11, 6, 2),
        /// The frame has a VLAN tag of EtherType 0x8100.
        has_customer_vlan: bool = at(0x12, 0, 1),
        /// The frame has a VLAN tag of EtherType 0x88a8.
        has_service_vlan: bool = at(0x12, 1, 1),
        /// The packet is an IP fragment.
        is_fragment: bool = at(0x12, 2, 1),
        /// IP version: 4 or 6.
        ip_version: u8 = at(0x12, 3, 4),
        /// TCP flags; 9 bits.
        tcp_flags: u16 = at(0x12, 7, 9),
        /// TCP source port.
        tcp_source: u16 = at(0x14, 0, 16),
        /// TCP destination port.
        tcp_destination: u16 = at(0x16, 0, 16),
        /// IPv4 time to live, or IPv6 hop limit.
        hop_limit: u8 = at(0x1b, 0, 8),
        /// UDP source port.
        udp_source: u16 = at(0x1c, 0, 16),
        /// UDP destination port.
        udp_destination: u16 = at(0x1e, 0, 16),
        /// Source IP address; IPv4 in the last 4 bytes.
        source_ip: [u8; 16] = at(0x20, 0, 128),
        /// Destination IP address; IPv4 in the last 4 bytes.
        destination_ip: [u8; 16] = at(0x30, 0, 128),
    }
}

impl MatchHeaders {
    /// Returns true if a frame with the header fields `frame` has the values `self` in all bits of
    /// `mask`.
    pub fn matches(&self, mask: &Self, frame: &Self) -> bool {
        let (value, mask, frame) = (self.to_bytes(), mask.to_bytes(), frame.to_bytes());
        let mut bytes = value.iter().zip(mask).zip(frame);
        bytes.all(|((value, mask), frame)| (value ^ frame) & mask == 0)
    }
}

/// Bit of [`EntryInput::action`]: frames pass.
pub const ACTION_ALLOW: u16 = 1 << 0;
/// Bit of [`EntryInput::action`]: frames are dropped.
pub const ACTION_DROP: u16 = 1 << 1;
/// Bit of [`EntryInput::action`]: frames go to the destinations.
pub const ACTION_FORWARD: u16 = 1 << 2;
/// Bit of [`EntryInput::action`]: frames are counted.
pub const ACTION_COUNT: u16 = 1 << 3;
/// Offset of the list of destinations in the input of SET_FLOW_TABLE_ENTRY; counters follow.
pub const ENTRY_DESTINATIONS: usize = 0x340;

layout! {
    /// The input of SET_FLOW_TABLE_ENTRY, before the list of destinations. The operation's modifier
    /// is 0 for a new entry and 1 for a change.
    pub struct EntryInput("SET_FLOW_TABLE_ENTRY input", 0x340) {
        /// Code of a [`TableType`].
        table_type: u8 = at(0x10, 0, 8),
        /// Number of the table.
        table: u32 = at(0x15, 0, 24),
        /// Fields to change: 1 action, 2 tag, 4 destinations, 8 counters.
        select: u8 = at(0x1b, 0, 8),
        /// Index in the table.
        index: u32 = at(0x20, 0, 32),
        /// Number of the group.
        group: u32 = at(0x44, 0, 32),
        /// Tag that completions of received frames carry.
        tag: u32 = at(0x49, 0, 24),
        /// Sum of `ACTION_` constants.
        action: u16 = at(0x4e, 0, 16),
        /// Destinations have [`EXTENDED_DESTINATION_LEN`] bytes.
        has_extended_destinations: bool = at(0x50, 0, 1),
        /// Number of destinations.
        destinations: u32 = at(0x51, 0, 24),
        /// Number of counters behind the destinations.
        counters: u32 = at(0x55, 0, 24),
        /// Values of the outer headers.
        outer: MatchHeaders = at(0x80, 0, 512),
    }
}

codes! {
    /// Type of a flow entry's destination.
    pub enum DestinationType: u8 {
        /// Virtual port.
        Vport = 0x0 "vport",
        /// Flow table.
        FlowTable = 0x1 "flow table",
        /// Transport interface for receive.
        ReceiveInterface = 0x2 "TIR",
        /// Sampler.
        Sampler = 0x6 "flow sampler",
        /// Physical port.
        Uplink = 0x8 "uplink",
    }
}

/// Length of [`Destination`] if [`EntryInput::has_extended_destinations`] is set, in bytes.
pub const EXTENDED_DESTINATION_LEN: usize = 16;

layout! {
    /// A destination of a flow entry.
    pub struct Destination("flow destination", 8) {
        /// Code of a [`DestinationType`].
        destination_type: u8 = at(0x00, 0, 8),
        /// Number of the table, transport interface or port.
        number: u32 = at(0x01, 0, 24),
    }
}

/// Returns the destinations in the input of SET_FLOW_TABLE_ENTRY, as the input counts them. Missing
/// destinations are omitted.
pub fn destinations(input: &[u8]) -> impl Iterator<Item = Destination> + '_ {
    let entry = EntryInput::parse(input).unwrap_or_default();
    let len =
        if entry.has_extended_destinations { EXTENDED_DESTINATION_LEN } else { Destination::LEN };
    let list = input.get(ENTRY_DESTINATIONS..).unwrap_or(&[]);
    let count = usize::try_from(entry.destinations).unwrap_or(usize::MAX);
    list.chunks_exact(len).take(count).filter_map(|bytes| Destination::parse(bytes).ok())
}
