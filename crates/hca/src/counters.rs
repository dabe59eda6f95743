//! Counters of an adapter by name, as `causeway stats` and `port show` print them.
//!
//! [`crate::service`] and [`crate::view`] call [`of`] in the dispatcher's thread when the operator
//! asks. The values are sums since the port was added; a reset by the guest keeps them, and nothing
//! clears them. They cover messages, datagrams, Ethernet frames, commands, completions, events and
//! trapped accesses to registers; a frame that several reasons drop at several interfaces counts
//! more than once. The frames dropped for their source address are added by
//! [`crate::adapter_port`]; `causeway hca` also shows those that the forwarding service dropped
//! (`crate::control`). A lost record (`record_losses_total`) means that the next causewayd cannot
//! continue the adapter until its driver starts again; [`crate::adapter_port`] adds those that could
//! not begin, and those that were not restored (`record_quarantines_total`).

use std::collections::BTreeMap;

use causeway_mlx5::{Function, Record};
use causeway_verbs::Adapter;

/// Returns the counters of an adapter and of its function.
pub(crate) fn of(adapter: &Adapter<Function>) -> BTreeMap<String, u64> {
    let (verbs, function) = (adapter.counters(), adapter.queues().counters());
    let frames = adapter.queues().ethernet_counters();
    let (register_reads, register_writes) = adapter.queues().registers().accesses();
    [
        ("requests_total", verbs.requests),
        ("request_bytes_total", verbs.request_bytes),
        ("received_messages_total", verbs.received),
        ("received_bytes_total", verbs.received_bytes),
        ("request_errors_total", verbs.errors),
        ("flushed_requests_total", verbs.flushed),
        ("waits_for_receive_total", verbs.not_ready),
        ("waits_for_responder_total", verbs.unanswered),
        ("not_waited_requests_total", verbs.not_waited),
        ("drop_datagrams_total", verbs.dropped),
        ("unroutable_datagrams_total", verbs.unroutable),
        ("refused_requests_total", verbs.refused),
        ("sent_frames_total", frames.sent.total().frames),
        ("sent_frame_bytes_total", frames.sent.total().bytes),
        ("received_frames_total", frames.received.total().frames),
        ("received_frame_bytes_total", frames.received.total().bytes),
        ("drop_offload_frames_total", frames.refused_sends),
        ("drop_no_buffer_frames_total", frames.out_of_buffer),
        ("drop_too_long_frames_total", frames.too_long),
        ("drop_filtered_frames_total", frames.filtered),
        ("drop_down_frames_total", frames.down),
        ("drop_lost_frames_total", frames.lost),
        ("failed_receive_queues_total", frames.failed_receives),
        ("drop_over_limit_frames_total", frames.over_limit),
        ("throttled_datagrams_total", verbs.throttled),
        ("commands_total", function.commands),
        ("failed_commands_total", function.failed_commands),
        ("unknown_commands_total", function.unknown_commands),
        ("undelivered_commands_total", function.undelivered_commands),
        ("completions_total", function.completions),
        ("completion_overruns_total", function.overruns),
        ("events_total", function.events),
        ("lost_events_total", function.lost_events),
        ("interrupts_total", function.interrupts),
        ("malformed_entries_total", function.malformed_entries),
        ("record_losses_total", adapter.queues().record().map_or(0, Record::losses)),
        ("register_reads_total", register_reads),
        ("register_writes_total", register_writes),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
