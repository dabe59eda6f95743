//! The capabilities of group [`super::capability::Group::General`].
//!
//! The values of [`General::FUNCTION`] let the drivers of Linux 6.1, 6.12 and 7.3 start a function
//! that is a network interface and an RDMA device. The device (`mlx5::command::capability`) emits
//! them in the answer to QUERY_HCA_CAP, with numbers of objects and queue sizes lowered to the
//! port's limits; guest drivers parse them. A field whose value is 0 or false is not offered. The
//! values are offers, not limits that this module enforces: the device's commands keep them, and a
//! test of `mlx5` compares the offers with the device's limits. Fields of InfiniBand links are
//! described for completeness: the port is Ethernet ([`PORT_ETHERNET`]). The device runs in the
//! dispatcher's turn.

#[cfg(doc)]
use super::capability::{Atomic, Ethernet, Roce};
use super::field::{at, layout};

/// [`General::port_type`]: InfiniBand.
pub const PORT_INFINIBAND: u8 = 0;
/// [`General::port_type`]: Ethernet.
pub const PORT_ETHERNET: u8 = 1;

layout! {
    /// Limits and features of the function.
    pub struct General("general capabilities", 0x100) {
        /// The device never asks for pages.
        has_no_page_requests: bool = at(0x00, 6, 1),
        /// Identifier of the function among those of the adapter; the function sets the field.
        vhca_id: u16 = at(0x06, 0, 16),
        /// Binary logarithm of the entries of a shared receive queue.
        log_max_shared_receive_size: u8 = at(0x10, 0, 8),
        /// Binary logarithm of the blocks of a queue pair. With 14, the NFS client of Linux cannot
        /// create its queue pairs.
        log_max_queue_pair_size: u8 = at(0x11, 0, 8),
        /// Binary logarithm of the number of queue pairs.
        log_max_queue_pairs: u8 = at(0x13, 3, 5),
        /// Binary logarithm of the number of shared receive queues.
        log_max_shared_receive_queues: u8 = at(0x15, 3, 5),
        /// Binary logarithm of the entries of a completion queue.
        log_max_completion_size: u8 = at(0x19, 0, 8),
        /// Binary logarithm of the number of completion queues.
        log_max_completion_queues: u8 = at(0x1b, 3, 5),
        /// Binary logarithm of the entries of an event queue.
        log_max_event_size: u8 = at(0x1c, 0, 8),
        /// Binary logarithm of the number of memory keys.
        log_max_memory_keys: u8 = at(0x1d, 2, 6),
        /// Binary logarithm of the number of event queues.
        log_max_event_queues: u8 = at(0x1f, 4, 4),
        /// Levels of memory keys over other memory keys.
        max_indirection: u8 = at(0x20, 0, 8),
        /// Memory keys may have ranges of equal length.
        has_fixed_buffer_size: bool = at(0x21, 0, 1),
        /// Binary logarithm of the length of a region, in bytes.
        log_max_region: u8 = at(0x21, 1, 7),
        /// The offset of a UMR work request has more than 16 bits.
        has_extended_translation_offset: bool = at(0x23, 0, 1),
        /// Binary logarithm of the entries of a list of ranges. Linux takes this for the longest
        /// page list of a fast registration.
        log_max_range_list: u8 = at(0x23, 2, 6),
        /// Binary logarithm of the outstanding reads and atomic operations of a requester.
        log_max_requester_resources: u8 = at(0x29, 2, 6),
        /// Binary logarithm of the outstanding reads and atomic operations of a responder.
        log_max_responder_resources: u8 = at(0x2b, 2, 6),
        /// Size of the GID table of an InfiniBand link: 8 times 2 to this power.
        gid_table_size: u16 = at(0x2e, 0, 16),
        /// Size of the partition table: 128 times 2 to this power.
        partition_table_size: u16 = at(0x32, 0, 16),
        /// The port is virtual (InfiniBand links).
        has_infiniband_vport: bool = at(0x34, 2, 1),
        /// Flow tables exist.
        has_flow_table: bool = at(0x34, 6, 1),
        /// Delay of acknowledgements: 4.096 us times 2 to this power.
        local_ack_delay: u8 = at(0x35, 3, 5),
        /// Link: [`PORT_ETHERNET`] or [`PORT_INFINIBAND`].
        port_type: u8 = at(0x36, 6, 2),
        /// Number of ports.
        ports: u8 = at(0x37, 0, 8),
        /// Binary logarithm of the length of a message, in bytes.
        log_max_message: u8 = at(0x38, 3, 5),
        /// Number of traffic classes.
        max_traffic_classes: u8 = at(0x39, 4, 4),
        /// Version of completion queue entries: 1 has user indices.
        completion_version: u8 = at(0x3f, 4, 4),
        /// Datagrams of InfiniBand links may have short destinations.
        has_compact_address_vector: bool = at(0x40, 0, 1),
        /// A UMR work request cannot change the page size. Linux then has no fast registration.
        has_no_entity_size_update: bool = at(0x40, 7, 1),
        /// A UMR work request cannot change the right of atomic operations.
        has_no_atomic_update: bool = at(0x41, 0, 1),
        /// A UMR work request cannot change keys over other keys.
        has_no_indirect_update: bool = at(0x41, 1, 1),
        /// Signatures of commands; 0 unused.
        command_checksum: u8 = at(0x42, 0, 2),
        /// The group [`Ethernet`] exists.
        has_ethernet_offloads: bool = at(0x43, 4, 1),
        /// The group [`Roce`] exists.
        has_roce: bool = at(0x43, 5, 1),
        /// The group [`Atomic`] exists.
        has_atomic: bool = at(0x43, 6, 1),
        /// Completion queues may ignore overruns.
        has_overrun_ignore: bool = at(0x44, 0, 1),
        /// Completion queues may be resized.
        has_completion_resize: bool = at(0x44, 1, 1),
        /// Events of completion queues may be moderated.
        has_completion_moderation: bool = at(0x44, 2, 1),
        /// The driver may set the begin of the moderation period, of which only the last event
        /// exists here. mlx5e refuses `ethtool -C` without.
        has_period_mode: bool = at(0x44, 3, 1),
        /// A queue pair may block its own multicast messages.
        has_multicast_loopback_block: bool = at(0x45, 0, 1),
        /// A queue pair may send under another number. On InfiniBand links, the driver then creates
        /// a queue pair for each partition key.
        has_datagram_source: bool = at(0x47, 0, 1),
        /// XRC exists. Drivers do not start without.
        has_extended_connection: bool = at(0x47, 4, 1),
        /// UD exists.
        has_unreliable_datagram: bool = at(0x47, 5, 1),
        /// UC exists.
        has_unreliable_connection: bool = at(0x47, 6, 1),
        /// RC exists.
        has_reliable_connection: bool = at(0x47, 7, 1),
        /// Binary logarithm of the smallest page, in bytes.
        log_page_size: u8 = at(0x4b, 0, 8),
        /// Work queue entries may be written to doorbell pages.
        has_blue_flame: bool = at(0x4c, 0, 1),
        /// Length of a send queue entry, in bytes.
        max_send_entry: u16 = at(0x52, 0, 16),
        /// Length of a receive queue entry, in bytes.
        max_receive_entry: u16 = at(0x56, 0, 16),
        /// Number of the function's queue pairs in a multicast group.
        max_multicast_members: u32 = at(0x5c, 7, 25),
        /// Binary logarithm of the number of multicast groups.
        log_max_multicast_groups: u8 = at(0x63, 0, 8),
        /// Binary logarithm of the number of transport domains.
        log_max_transport_domains: u8 = at(0x64, 3, 5),
        /// Binary logarithm of the number of protection domains.
        log_max_domains: u8 = at(0x65, 3, 5),
        /// Binary logarithm of the number of XRC domains.
        log_max_xrc_domains: u8 = at(0x67, 3, 5),
        /// Binary logarithm of the number of Ethernet receive queues.
        log_max_receive_queues: u8 = at(0x6c, 3, 5),
        /// Binary logarithm of the number of Ethernet send queues.
        log_max_send_queues: u8 = at(0x6d, 3, 5),
        /// Binary logarithm of the number of transport interfaces for receive.
        log_max_receive_interfaces: u8 = at(0x6e, 3, 5),
        /// Binary logarithm of the number of transport interfaces for send.
        log_max_send_interfaces: u8 = at(0x6f, 3, 5),
        /// Cyclic receive queues exist.
        has_cyclic_receive: bool = at(0x70, 0, 1),
        /// Binary logarithm of the number of receive pools.
        log_max_receive_pools: u8 = at(0x70, 3, 5),
        /// Binary logarithm of the number of tables of receive queues.
        log_max_receive_tables: u8 = at(0x71, 3, 5),
        /// Binary logarithm of the entries of such a table.
        log_max_receive_table_size: u8 = at(0x72, 3, 5),
        /// Binary logarithm of the transport interfaces of a send queue.
        log_max_interfaces_per_queue: u8 = at(0x73, 3, 5),
        /// Binary logarithm of the largest entry of a receive queue, in bytes.
        log_max_receive_stride: u8 = at(0x74, 3, 5),
        /// Binary logarithm of the smallest entry of a receive queue, in bytes.
        log_min_receive_stride: u8 = at(0x75, 3, 5),
        /// Binary logarithm of the largest block of a send queue, in bytes.
        log_max_send_stride: u8 = at(0x76, 3, 5),
        /// Binary logarithm of the smallest block of a send queue, in bytes.
        log_min_send_stride: u8 = at(0x77, 3, 5),
        /// Binary logarithm of the entries of a send or receive queue.
        log_max_queue_size: u8 = at(0x7b, 3, 5),
        /// Changes of the virtual port are reported by events.
        has_vport_change_event: bool = at(0x7c, 0, 1),
        /// Binary logarithm of the number of VLANs.
        log_max_vlan_list: u8 = at(0x7d, 3, 5),
        /// Binary logarithm of the number of multicast addresses.
        log_max_multicast_list: u8 = at(0x7e, 3, 5),
        /// Binary logarithm of the number of unicast addresses.
        log_max_unicast_list: u8 = at(0x7f, 3, 5),
        /// Number of event queues.
        max_event_queues: u16 = at(0x8e, 0, 16),
        /// Frequency of the device's clock; 0 disables time stamps.
        clock_khz: u32 = at(0x9c, 0, 32),
        /// Doorbell pages in a page of memory.
        uars_per_page: u32 = at(0xa4, 0, 32),
        /// Number of the function's port.
        native_port: u8 = at(0xc1, 0, 8),
    }
}

impl General {
    /// The values that this device offers.
    pub const FUNCTION: Self = Self {
        has_no_page_requests: true,
        vhca_id: 0,
        log_max_shared_receive_size: 14,
        log_max_queue_pair_size: 15,
        log_max_queue_pairs: 14,
        log_max_shared_receive_queues: 14,
        log_max_completion_size: 20,
        log_max_completion_queues: 16,
        log_max_event_size: 16,
        log_max_memory_keys: 20,
        log_max_event_queues: 4,
        max_indirection: 0,
        has_fixed_buffer_size: false,
        log_max_region: 40,
        has_extended_translation_offset: true,
        log_max_range_list: 16,
        log_max_requester_resources: 4,
        log_max_responder_resources: 4,
        gid_table_size: 4,
        partition_table_size: 0,
        has_infiniband_vport: false,
        has_flow_table: true,
        local_ack_delay: 15,
        port_type: PORT_ETHERNET,
        ports: 1,
        log_max_message: 30,
        max_traffic_classes: 1,
        completion_version: 1,
        has_compact_address_vector: true,
        has_no_entity_size_update: false,
        has_no_atomic_update: false,
        has_no_indirect_update: true,
        command_checksum: 0,
        has_ethernet_offloads: true,
        has_roce: true,
        has_atomic: true,
        has_overrun_ignore: false,
        has_completion_resize: true,
        has_completion_moderation: true,
        has_period_mode: true,
        has_multicast_loopback_block: true,
        has_datagram_source: false,
        has_extended_connection: true,
        has_unreliable_datagram: true,
        has_unreliable_connection: true,
        has_reliable_connection: true,
        log_page_size: 12,
        has_blue_flame: false,
        max_send_entry: 1024,
        max_receive_entry: 512,
        max_multicast_members: 16,
        log_max_multicast_groups: 6,
        log_max_transport_domains: 8,
        log_max_domains: 16,
        log_max_xrc_domains: 16,
        log_max_receive_queues: 10,
        log_max_send_queues: 10,
        log_max_receive_interfaces: 10,
        log_max_send_interfaces: 10,
        has_cyclic_receive: true,
        log_max_receive_pools: 14,
        log_max_receive_tables: 8,
        log_max_receive_table_size: 8,
        log_max_interfaces_per_queue: 3,
        log_max_receive_stride: 11,
        log_min_receive_stride: 6,
        log_max_send_stride: 11,
        log_min_send_stride: 6,
        log_max_queue_size: 15,
        has_vport_change_event: false,
        log_max_vlan_list: 4,
        log_max_multicast_list: 4,
        log_max_unicast_list: 4,
        max_event_queues: 16,
        clock_khz: 0,
        uars_per_page: 1,
        native_port: 1,
    };
}
