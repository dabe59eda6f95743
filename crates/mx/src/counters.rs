//! Names and meanings of the counters of a NIC, for the registration of the service.
//!
//! The values come from `crate::network` and `crate::service`; those of the NIC side and their
//! meanings from `causeway_mxoe`. A name that ends in `_total` is a counter since the NIC was
//! created, which wraps at 2^64; any other name is a present number. [`SERVICE`](crate::SERVICE)
//! registers the tables; the daemon prints them in views of ports and as metrics. A value that has
//! no entry here is not shown with a meaning.

use causeway_model::{CounterDefinition, CounterTable};
use causeway_mxoe::{EndpointCounters, NicCounters, PeerCounters};

/// Values of the service.
const SERVICE: &[CounterDefinition] = &[
    ("processes", "Processes that use the NIC."),
    ("endpoints", "Open endpoints."),
    ("endpoints_opened_total", "Endpoints that were opened."),
    ("ways_total", "Channels that processes of this NIC requested."),
    ("refused_total", "Processes and endpoints that were refused."),
    ("asked_total", "Requests of processes that were answered."),
];

/// Values of NICs with an adapter.
const GUEST: &[CounterDefinition] = &[
    ("guest_sessions", "Processes of the guest that use the NIC."),
    ("guest_sessions_begun_total", "Sessions of processes of the guest that began."),
    ("guest_sessions_refused_total", "Sessions of processes of the guest that were refused."),
    (
        "guest_sessions_failed_total",
        "Sessions that ended because the process broke a rule or read no messages.",
    ),
    (
        "guest_forged_requests_total",
        "Requests and doorbells that named an endpoint of another process of the guest.",
    ),
    ("guest_memory_bytes", "Registered memory of the guest that rings and regions use."),
    ("guest_mirrored_bytes", "Bytes of this memory that are mapped once more, as rings."),
    ("guest_revocations_total", "Rings and regions that the guest deregistered while in use."),
];

/// Values of the network side.
const NETWORK: &[CounterDefinition] = &[
    ("frames_left_total", "Frames that left by the interface or the UDP socket."),
    ("send_calls_total", "System calls that sent frames."),
    ("lent_bytes_copied_total", "Bytes of lent memory that were copied before they were sent."),
    ("names_contested_total", "Announcements of a hostname that another NIC has."),
    ("addresses_contested_total", "Announcements of this NIC's address by another host."),
    ("endpoints_bypassing_total", "Endpoints that were opened in direct mode."),
    ("endpoints_outlived", "Endpoints in direct mode that survived a daemon."),
    ("boards_known", "NICs of other hosts that this NIC knows."),
    ("interface_ups_total", "Changes of the interface's state to up."),
    ("interface_lost_total", "Frames that the kernel dropped before the NIC received them."),
    ("drop_interface_full_total", "Frames that the interface or socket had no room for."),
    ("drop_interface_down_total", "Frames for an interface that was down."),
    ("drop_memory_gone_total", "Frames whose payload's memory was gone."),
    ("drop_unknown_address_total", "Datagrams from addresses of no peer."),
    ("drop_board_elsewhere_total", "Datagrams of a NIC from another address than its own."),
    ("drop_malformed_total", "Frames that are not valid packets."),
    ("drop_not_ours_total", "Frames to another NIC."),
    ("drop_unknown_board_total", "Frames of unknown NICs."),
    ("drop_not_served_total", "Packets of types that are not served."),
    ("drop_no_endpoint_total", "Packets for endpoints that are not open."),
    ("drop_session_total", "Packets for another session."),
    ("drop_key_total", "Connect requests with another key."),
    ("drop_stranger_total", "Packets of NICs and endpoints that are not peers."),
    ("drop_number_total", "Packets with a number far outside the window."),
    ("drop_no_room_total", "Packets of messages beyond a limit."),
    ("drop_window_total", "Pulls of a window of another peer, or beyond its end."),
    ("drop_handle_total", "Frames of blocks with an invalid handle."),
    ("drop_refusal_total", "Refusals of packets that were not sent."),
    ("drop_odd_total", "Frames of the interface that are not readable."),
];

/// All tables.
pub(crate) const TABLES: &[CounterTable] = &[
    CounterTable::of_ports(SERVICE),
    CounterTable::of_ports(GUEST),
    CounterTable::of_ports(NETWORK),
    CounterTable::of_ports(NicCounters::COUNTERS),
    CounterTable::of_ports(EndpointCounters::COUNTERS),
    CounterTable::of_ports(PeerCounters::COUNTERS),
];
