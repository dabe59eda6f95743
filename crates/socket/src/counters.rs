//! Counters of a port. Directions are the guest's: "transmit" counts packets that the guest sent.
//!
//! The service counts, and reads the values, in the thread of the shard; `causeway port show` and
//! the statistics show the values by [`Counters::view`]. Counters start at 0 when the port is
//! added, are not kept over a restart of the daemon, and wrap at 2^64; nothing resets them. A
//! packet between two guests counts once at each. The numbers of open connections are not counters:
//! the service adds them to the view.

use std::collections::BTreeMap;

use causeway_model::{CounterDefinition, CounterTable};

/// Declares the counters with their names in `causeway port show`.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $field:ident => $name:literal),+ $(,)?) => {
        /// The counters of one vsock port.
        #[derive(Debug, Clone, Copy, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        /// Names and meanings of the counters.
        const COUNTERS: &[CounterDefinition] = &[$(($name, concat!($($doc),+))),+];

        impl Counters {
            /// Returns the counters by name.
            pub fn view(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$(($name.to_owned(), self.$field),)+])
            }
        }
    };
}

counters! {
    /// Packets that the guest sent.
    transmit_packets => "transmit_packets_total",
    /// Data bytes that the guest sent.
    transmit_bytes => "transmit_bytes_total",
    /// Empty messages of the guest to host processes; they are dropped.
    transmit_empty => "transmit_drop_empty_total",
    /// Packets put in the guest's buffers.
    receive_packets => "receive_packets_total",
    /// Data bytes put in the guest's buffers.
    receive_bytes => "receive_bytes_total",
    /// Empty messages of host processes to the guest; they are dropped.
    receive_empty => "receive_drop_empty_total",
    /// Connects from or to the guest that were admitted.
    connects => "connects_total",
    /// Connects refused because no port has the CID, the device of the port does not run, or no
    /// host process listens.
    refused_unknown => "reject_unknown_peer_total",
    /// Connects refused by a rule.
    refused_rule => "reject_rule_total",
    /// Connects refused because a limit on connections was reached.
    refused_limit => "reject_limit_total",
    /// Connects refused because the other side does not support the socket type.
    refused_type => "reject_type_total",
    /// Host processes refused during the handshake: no proper line, too late, too many.
    refused_handshake => "reject_handshake_total",
    /// Host processes refused because `host_allowed_users` (or `allowed_users`) lacks their user.
    refused_user => "reject_user_total",
    /// Pauses of the host socket, because processes connected too fast.
    host_pauses => "host_pauses_total",
    /// Packets that belong to no connection, answered with a reset.
    stray => "reset_stray_total",
    /// Connections reset because this guest violated the protocol or its credit.
    breach => "reset_breach_total",
    /// Connections reset because this guest did not take its data while a sender stood still.
    stalled => "reset_stalled_total",
    /// Connects that were never answered.
    unanswered => "reset_unanswered_total",
    /// Packets of this guest that were held in its own descriptors.
    held => "transmit_held_total",
    /// Packets of this guest that were staged.
    staged => "transmit_staged_total",
    /// Times that this guest's transmit ring was stopped for a receiver without room.
    waited => "transmit_waited_total",
}

/// Values of the view that are no counters.
const GAUGES: &[CounterDefinition] = &[
    ("connections", "Open connections of the guest."),
    ("host_connections", "Open connections of host processes at the host socket of the port."),
];

/// Names and meanings of the values that a shard adds to the view of a link, in the order of
/// `Peers::counters`.
pub(crate) const PEER_COUNTERS: &[CounterDefinition] = &[
    ("vsock_connects_total", "Connects of guests of this host to guests of the peer."),
    (
        "vsock_accepts_total",
        "Connects of guests of the peer that were passed to a guest of this host.",
    ),
    (
        "vsock_refused_total",
        "Connects of guests of the peer that were refused: unknown or foreign CID, rule, limit, socket type.",
    ),
    (
        "vsock_breaches_total",
        "Connections reset because the peer violated the protocol or its credit.",
    ),
    (
        "vsock_refused_cids_total",
        "CIDs of the peer that were not accepted: invalid, or beyond 4,096.",
    ),
    (
        "vsock_foreign_cids_total",
        "CIDs of the peer that a verified claim of the cluster gives to another host: not followed.",
    ),
    (
        "vsock_refused_datagrams_total",
        "Datagrams of sockets that had no effect: malformed, of an earlier session, or without room.",
    ),
    ("vsock_sessions_total", "Sessions that were agreed with the peer for sockets."),
    ("vsock_lost_total", "Packets of sockets that were lost and whose contents were sent again."),
    ("vsock_connections", "Open connections between guests of this host and of the peer."),
    ("vsock_cids", "CIDs of attached guests that the peer announced."),
    ("vsock_queued_bytes", "Bytes of connections that the peer has not acknowledged."),
    ("vsock_held_bytes", "Bytes of connections that wait for bytes before them."),
    (
        "vsock_rtt_us",
        "Round-trip time of sockets, in microseconds; 0 before the first measurement.",
    ),
];

/// Names and meanings of all values of the view, for the registration of the service.
pub(crate) const TABLES: &[CounterTable] = &[
    CounterTable::of_ports(COUNTERS),
    CounterTable::of_ports(GAUGES),
    CounterTable::of_links(PEER_COUNTERS),
    FORWARDS,
];

const FORWARDS: CounterTable = CounterTable::of_forwards(crate::forwards::COUNTERS);

/// Adds 1.
pub(crate) fn bump(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}

/// Adds `more`.
pub(crate) fn add(counter: &mut u64, more: u64) {
    *counter = counter.wrapping_add(more);
}
