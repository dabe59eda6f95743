//! Counters of a port by name, as `causeway stats` and `port show` print them. Directions are the
//! peer's, as at a `net` port: "transmit" counts frames that the peer sent.
//!
//! The shard of the port owns [`TransmitCounters`]; [`ReceiveCounters`] stand behind the lock of
//! [`crate::output`]. The values start at 0 with the port, survive reconnects of the peer, and
//! wrap. A dropped frame is counted under one reason only; a datagram that the kernel refuses
//! counts as `receive_drop_down_total`. Datagrams from other sockets, and datagrams that are too
//! long, are not among the packets that the peer sent; frames that were queued for a peer and then
//! lost with its connection stay among those that it received. Frames that the forwarding service
//! drops behind the port (no route, unknown destination) are not counted here.

use std::collections::BTreeMap;

use causeway_model::{CounterDefinition, CounterTable};

/// Counters of frames from the peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransmitCounters {
    pub packets: u64,
    pub bytes: u64,
    pub runt: u64,
    pub too_big: u64,
    pub spoofed: u64,
    pub foreign: u64,
    pub waits: u64,
}

/// Counters of frames to the peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReceiveCounters {
    pub packets: u64,
    pub bytes: u64,
    pub calls: u64,
    pub down: u64,
    pub no_buffer: u64,
    pub too_big: u64,
    pub sender_fault: u64,
}

/// Names and meanings, in the order of [`by_name`].
const COUNTERS: &[CounterDefinition] = &[
    ("receive_packets_total", "Frames queued for the peer."),
    ("receive_bytes_total", "Bytes of the frames queued for the peer."),
    ("receive_calls_total", "System calls that sent frames to the peer."),
    ("transmit_packets_total", "Frames that the peer sent, dropped frames included."),
    ("transmit_bytes_total", "Bytes of the frames that the peer sent."),
    (
        "transmit_waits_total",
        "Times at which frames of the peer began to wait in the socket, because the group had no room for them.",
    ),
    (
        "receive_drop_down_total",
        "Frames for the peer while it was not connected, or that were not sent when its connection ended.",
    ),
    ("receive_drop_no_room_total", "Frames for a peer that read too slowly."),
    (
        "receive_drop_too_big_total",
        "Frames for the peer that were longer than the MTU of the port.",
    ),
    (
        "receive_drop_sender_fault_total",
        "Frames for the peer that could not be read from their sender's memory.",
    ),
    ("transmit_drop_runt_total", "Frames of the peer without a whole Ethernet header."),
    (
        "transmit_drop_too_big_total",
        "Datagrams of the peer that were longer than the MTU of the port, or that carried descriptors.",
    ),
    (
        "transmit_drop_spoofed_source_total",
        "Frames of the peer with another source address than the port's.",
    ),
    ("transmit_drop_foreign_sender_total", "Datagrams from other sockets than the peer's."),
    (
        "refused_connections_total",
        "Connections that were refused because the port had a peer, because their user may not attach, or because they came too fast.",
    ),
];

/// The tables of the service's registration.
pub(crate) const TABLES: &[CounterTable] = &[CounterTable::of_ports(COUNTERS)];

/// Returns the counters of a port by name.
pub(crate) fn by_name(
    receive: &ReceiveCounters,
    transmit: &TransmitCounters,
    refused: u64,
) -> BTreeMap<String, u64> {
    let values = [
        receive.packets,
        receive.bytes,
        receive.calls,
        transmit.packets,
        transmit.bytes,
        transmit.waits,
        receive.down,
        receive.no_buffer,
        receive.too_big,
        receive.sender_fault,
        transmit.runt,
        transmit.too_big,
        transmit.spoofed,
        transmit.foreign,
        refused,
    ];
    COUNTERS.iter().zip(values).map(|((name, _), value)| ((*name).to_owned(), value)).collect()
}
