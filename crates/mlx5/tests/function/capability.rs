//! The capabilities offer what the function keeps, and no more.

use causeway_mlx5::ethernet::limits as ethernet;
use causeway_mlx5::limits::*;
use causeway_verbs::limits as verbs;
use causeway_wire::mlx5::capability::{
    Atomic, Capabilities, Ethernet, FlowTable, General, Group, MATCH_FIELDS, Roce,
};
use causeway_wire::mlx5::steering::MatchHeaders;

/// Fails unless 2^`log` objects of a kind fit into a limit.
fn assert_within(name: &str, log: u8, limit: usize) {
    assert!(1_usize << log <= limit, "{name}: 2^{log} are offered, {limit} are kept");
}

#[test]
fn mlx5_capabilities_offer_no_more_objects_than_the_limits() {
    let offer = General::FUNCTION;
    for (name, log, limit) in [
        ("queue pairs", offer.log_max_queue_pairs, QUEUE_PAIRS_MAX),
        ("completion queues", offer.log_max_completion_queues, COMPLETION_QUEUES_MAX),
        ("event queues", offer.log_max_event_queues, EVENT_QUEUES_MAX),
        ("memory keys", offer.log_max_memory_keys, verbs::REGIONS_MAX),
        ("shared receive queues", offer.log_max_shared_receive_queues, RECEIVE_POOLS_MAX),
        ("receive pools", offer.log_max_receive_pools, RECEIVE_POOLS_MAX),
        ("protection domains", offer.log_max_domains, DOMAINS_MAX),
        ("transport domains", offer.log_max_transport_domains, DOMAINS_MAX),
        ("XRC domains", offer.log_max_xrc_domains, DOMAINS_MAX),
        ("send queues", offer.log_max_send_queues, ETHERNET_QUEUES_MAX),
        ("receive queues", offer.log_max_receive_queues, ETHERNET_QUEUES_MAX),
        ("receive interfaces", offer.log_max_receive_interfaces, ETHERNET_QUEUES_MAX),
        ("send interfaces", offer.log_max_send_interfaces, ETHERNET_QUEUES_MAX),
        ("receive tables", offer.log_max_receive_tables, ETHERNET_QUEUES_MAX),
        ("receive table", offer.log_max_receive_table_size, ethernet::TABLE_ENTRIES_MAX),
        ("unicast addresses", offer.log_max_unicast_list, VPORT_ADDRESSES_MAX),
        ("multicast addresses", offer.log_max_multicast_list, VPORT_ADDRESSES_MAX),
        ("page list of a key", offer.log_max_range_list, verbs::PAGES_PER_UPDATE_MAX as usize),
        ("message", offer.log_max_message, verbs::MESSAGE_BYTES_MAX as usize),
        ("region", offer.log_max_region, verbs::REGISTERED_BYTES_MAX as usize),
    ] {
        assert_within(name, log, limit);
    }
    let members = offer.max_multicast_members as usize;
    assert_eq!(members, verbs::MULTICAST_MEMBERS_MAX);
    assert!(members << offer.log_max_multicast_groups <= verbs::MEMBERSHIPS_PER_ADAPTER_MAX);
    assert_eq!(usize::from(offer.max_event_queues), EVENT_QUEUES_MAX);
}

#[test]
fn mlx5_capabilities_offer_no_longer_queues_than_the_limits() {
    let offer = General::FUNCTION;
    for (name, log, limit) in [
        ("completion queue", offer.log_max_completion_size, COMPLETION_QUEUE_LOG_MAX),
        ("event queue", offer.log_max_event_size, EVENT_QUEUE_LOG_MAX),
        ("queue pair", offer.log_max_queue_pair_size, WORK_QUEUE_LOG_MAX),
        ("shared receive queue", offer.log_max_shared_receive_size, WORK_QUEUE_LOG_MAX),
        ("Ethernet queue", offer.log_max_queue_size, WORK_QUEUE_LOG_MAX),
        ("receive entry", offer.log_max_receive_stride, *RECEIVE_STRIDE_LOG.end()),
    ] {
        assert!(log <= limit, "{name}: {log} is offered, {limit} is kept");
    }
    assert!(usize::from(offer.max_send_entry) <= SEND_BLOCKS_MAX * 64);
    assert!(usize::from(offer.max_receive_entry) <= RECEIVE_ENTRY_BYTES_MAX);
}

#[test]
fn mlx5_capabilities_offer_no_more_flows_than_the_limits() {
    let offer = FlowTable::FUNCTION;
    assert_within("flow tables", offer.log_max_tables, ethernet::FLOW_TABLES_MAX);
    assert_within("flow entries", offer.log_max_entries, ethernet::FLOW_ENTRIES_MAX);
    assert_within("destinations", offer.log_max_destinations, ethernet::FLOW_DESTINATIONS_MAX);
    assert!(offer.log_max_size <= ethernet::FLOW_TABLE_LOG_MAX);
    assert!(usize::from(offer.max_level) <= ethernet::FLOW_TABLES_PER_FRAME_MAX);
    // A bit for each field of the headers that are compared: 9 of the link and the VLAN tag with the
    // IP version and the hop limit, 4 addresses and codes of IP, 7 of IP and the ports.
    let bits: u32 = MATCH_FIELDS.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!((bits, MatchHeaders::LEN), (8 + 4 + 7, 0x40));
    assert_eq!(usize::from(Roce::FUNCTION.address_table_size), GIDS_MAX);
}

#[test]
fn mlx5_capabilities_let_drivers_moderate_events() {
    let general = General::FUNCTION;
    assert!(general.has_completion_moderation);
    // mlx5e refuses fixed values without.
    assert!(general.has_period_mode);
    let mut block = [0; 0x1000];
    Capabilities::FUNCTION.emit(Group::General, &mut block).unwrap();
    assert_eq!(block[0x44] & 0x30, 0x30);
}

#[test]
fn mlx5_capabilities_of_missing_features_are_off() {
    let general = General::FUNCTION;
    for (name, is_offered) in [
        ("keys over keys", general.max_indirection != 0),
        ("keys over ranges of equal length", general.has_fixed_buffer_size),
        ("updates of keys over keys", !general.has_no_indirect_update),
        ("InfiniBand link", general.has_infiniband_vport),
        ("ignored overruns", general.has_overrun_ignore),
        ("numbers of other queue pairs", general.has_datagram_source),
        ("entries in doorbell pages", general.has_blue_flame),
        ("signed commands", general.command_checksum != 0),
        ("events of the virtual port", general.has_vport_change_event),
        ("clock", general.clock_khz != 0),
        ("merged frames", Ethernet::FUNCTION.has_merge),
        ("several packets in an entry", Ethernet::FUNCTION.multi_packet != 0),
        ("memory keys of Ethernet queues", Ethernet::FUNCTION.has_update),
        ("check sequences of frames", Ethernet::FUNCTION.has_fcs),
        ("atomic operations of dynamic connections", Atomic::FUNCTION.dynamic_sizes != 0),
    ] {
        assert!(!is_offered, "{name} do not exist and are offered");
    }
}
