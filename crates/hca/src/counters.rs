//! Counters of an adapter by name, as `causeway stats` and `port show` print them.
//!
//! [`crate::service`] and [`crate::view`] call [`of`] in the dispatcher's thread when the operator
//! asks. Names with `_total` are sums since the port was added, which a reset by the guest keeps;
//! but those of register accesses begin anew with each frontend, and those of sessions when a
//! service opens the sessions of the port. Other names are present values. Counters cover messages,
//! datagrams, Ethernet frames, commands, completions, events and trapped accesses to registers; a
//! frame that several reasons drop at several interfaces counts more than once. The frames dropped
//! for their source address are added by [`crate::adapter_port`]; `causeway hca` also shows those
//! that the forwarding service dropped (`crate::control`). A lost record (`record_losses_total`)
//! means that the next causewayd cannot continue the adapter until its driver starts again;
//! [`crate::adapter_port`] adds those that could not begin, and those that were not restored
//! (`record_quarantines_total`).

use std::collections::BTreeMap;

use causeway_mlx5::{Function, Record};
use causeway_model::{CounterDefinition, CounterTable};
use causeway_verbs::Adapter;

/// Names and meanings of the counters, in the order of [`values`].
const COUNTERS: &[CounterDefinition] = &[
    ("requests_total", "Send work requests that ended with success."),
    ("request_bytes_total", "Payload bytes of the send work requests that ended with success."),
    ("received_messages_total", "Receive work requests that ended with success."),
    ("received_bytes_total", "Payload bytes of the receive work requests that ended with success."),
    (
        "request_errors_total",
        "Send and receive work requests that ended with an error other than a flush.",
    ),
    ("flushed_requests_total", "Flushed work requests."),
    (
        "waits_for_receive_total",
        "Messages that waited for a receive work request of their responder.",
    ),
    ("waits_for_responder_total", "Messages that waited for a responder."),
    (
        "not_waited_requests_total",
        "Messages that failed because as many waited as the adapter permits.",
    ),
    ("drop_datagrams_total", "Datagrams for this adapter that were dropped."),
    ("unroutable_datagrams_total", "Datagrams that were sent to no adapter of the group."),
    ("refused_requests_total", "Requests of peers that this adapter refused."),
    ("sent_frames_total", "Ethernet frames that the guest sent."),
    ("sent_frame_bytes_total", "Bytes of the Ethernet frames that the guest sent."),
    ("received_frames_total", "Ethernet frames delivered to the guest."),
    ("received_frame_bytes_total", "Bytes of the Ethernet frames delivered to the guest."),
    ("drop_offload_frames_total", "Frames of the guest with an offload that is not supported."),
    ("drop_no_buffer_frames_total", "Frames for the guest without a receive buffer."),
    ("drop_too_long_frames_total", "Frames that are longer than the interface carries."),
    ("drop_filtered_frames_total", "Frames that the guest's address filter does not admit."),
    ("drop_down_frames_total", "Frames for an interface that is down."),
    (
        "drop_lost_frames_total",
        "Frames that were lost because memory could not be read or written.",
    ),
    ("failed_receive_queues_total", "Receive queues that failed."),
    ("drop_over_limit_frames_total", "Frames beyond a limit of the adapter."),
    (
        "throttled_datagrams_total",
        "Datagrams to general service interfaces beyond the rate of this adapter.",
    ),
    ("commands_total", "Commands of the driver that were executed."),
    ("failed_commands_total", "Commands that ended with a status other than success."),
    ("unknown_commands_total", "Commands that were answered with \"bad operation\"."),
    ("undelivered_commands_total", "Commands that could not be read or answered."),
    ("completions_total", "Completions."),
    (
        "completion_overruns_total",
        "Completions that were lost because a queue had no room, or was broken.",
    ),
    ("events_total", "Entries of event queues."),
    ("lost_events_total", "Events that no event queue reports, or that its queue lost."),
    ("interrupts_total", "Interrupts."),
    ("malformed_entries_total", "Work queue entries that could not be read."),
    ("record_losses_total", "Records that the next causewayd cannot continue."),
    ("register_reads_total", "Reads of registers, each with an exit to the hypervisor."),
    ("register_writes_total", "Writes of registers, each with an exit to the hypervisor."),
];

/// Counters that [`crate::adapter_port`] adds.
const OF_PORT: &[CounterDefinition] = &[
    ("drop_spoofed_frames_total", "Frames of the guest with another source address than its own."),
    ("rate_pauses_total", "Pauses of the adapter at its byte or message rate."),
    ("uplink_frames_total", "Frames that the guest sent to ports and links of other services."),
    ("uplink_waits_total", "Pauses of the adapter because the uplink had no room."),
    (
        "record_quarantines_total",
        "Records that were not restored because they had ended causewayd.",
    ),
];

/// Counters of the sessions of a port's processes, which [`crate::sessions`] adds.
const OF_SESSIONS: &[CounterDefinition] = &[
    ("sessions", "Queue pairs with a session with a service of the daemon."),
    ("sessions_begun_total", "Sessions that began."),
    ("sessions_refused_total", "Sessions that were refused because the port has the maximum."),
    ("session_requests_total", "Requests of processes by their sessions."),
    ("session_doorbells_total", "Doorbells of processes by their sessions."),
    ("session_answers_total", "Answers and events that processes received by their sessions."),
    ("session_offers_made_total", "Offers of registered memory to the service."),
    ("session_offers", "Offers of registered memory that the service uses."),
    ("session_offered_bytes", "Bytes of these offers."),
    ("session_offered_ranges", "Ranges of guest memory of these offers."),
];

/// Names and meanings of all counters, for the registration of the service.
pub(crate) const TABLES: &[CounterTable] = &[
    CounterTable::of_ports(COUNTERS),
    CounterTable::of_ports(OF_PORT),
    CounterTable::of_ports(OF_SESSIONS),
];

/// Returns the values of [`COUNTERS`].
fn values(adapter: &Adapter<Function>) -> [u64; COUNTERS.len()] {
    let (verbs, function) = (adapter.counters(), adapter.queues().counters());
    let frames = adapter.queues().ethernet_counters();
    let (register_reads, register_writes) = adapter.queues().register_accesses();
    [
        verbs.requests,
        verbs.request_bytes,
        verbs.received,
        verbs.received_bytes,
        verbs.errors,
        verbs.flushed,
        verbs.not_ready,
        verbs.unanswered,
        verbs.not_waited,
        verbs.dropped,
        verbs.unroutable,
        verbs.refused,
        frames.sent.total().frames,
        frames.sent.total().bytes,
        frames.received.total().frames,
        frames.received.total().bytes,
        frames.refused_sends,
        frames.out_of_buffer,
        frames.too_long,
        frames.filtered,
        frames.down,
        frames.lost,
        frames.failed_receives,
        frames.over_limit,
        verbs.throttled,
        function.commands,
        function.failed_commands,
        function.unknown_commands,
        function.undelivered_commands,
        function.completions,
        function.overruns,
        function.events,
        function.lost_events,
        function.interrupts,
        function.malformed_entries,
        adapter.queues().record().map_or(0, Record::losses),
        register_reads,
        register_writes,
    ]
}

/// Returns the counters of an adapter and of its function, and the number of its sessions.
pub(crate) fn of(adapter: &Adapter<Function>) -> BTreeMap<String, u64> {
    let named = COUNTERS.iter().zip(values(adapter));
    let named = named.map(|((name, _), value)| ((*name).to_owned(), value));
    named.chain([("sessions".to_owned(), adapter.session_count() as u64)]).collect()
}
