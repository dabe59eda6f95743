//! Queries of counters, and the numbers of flow counters.
//!
//! The driver's request to clear counters is ignored: drivers of a virtual function compute
//! differences. An unknown set of counters reads zeros. Flow counters are numbers that flow entries
//! may name; they count nothing, and their query answers zeros (`crate::command::dispatch`). At
//! most 1,024 exist (*limit exceeded*); an unknown number is *bad resource*. The handlers run in
//! the dispatcher's turn.

use causeway_verbs::Adapter;
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::counters::{QueueInput, QueueOutput, Traffic, VportOutput};

use crate::command::{Input, Outcome, Output, short};
use crate::ethernet::counters;
use crate::function::Function;

/// Returns a counter in the driver's format.
fn traffic(own: counters::Traffic) -> Traffic {
    Traffic { packets: own.frames, bytes: own.bytes }
}

/// Answers the counters of the virtual port: frames, and the messages of queue pairs.
pub(crate) fn query_vport_counter(
    adapter: &mut Adapter<Function>,
    _: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let rdma = adapter.counters();
    let ethernet = adapter.queues().objects.ethernet.counters();
    let (sent, received) = (ethernet.sent, ethernet.received);
    let errors = [ethernet.too_long, ethernet.lost, ethernet.failed_receives];
    let errors = errors.iter().fold(0_u64, |sum, count| sum.wrapping_add(*count));
    let counters = VportOutput {
        receive_errors: Traffic { packets: errors, bytes: 0 },
        transmit_errors: Traffic { packets: ethernet.refused_sends, bytes: 0 },
        received_rdma: Traffic { packets: rdma.received, bytes: rdma.received_bytes },
        transmitted_rdma: Traffic { packets: rdma.requests, bytes: rdma.request_bytes },
        received_broadcast: traffic(received.broadcast),
        transmitted_broadcast: traffic(sent.broadcast),
        received_unicast: traffic(received.unicast),
        transmitted_unicast: traffic(sent.unicast),
        received_multicast: traffic(received.multicast),
        transmitted_multicast: traffic(sent.multicast),
        ..VportOutput::default()
    };
    output.put_truncated(0, &counters.to_bytes());
    Ok(())
}

/// Answers the counters of a set: of its receive queues, those of frames without an entry.
pub(crate) fn query_queue_counter(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let query = QueueInput::parse(input.bytes()).map_err(short)?;
    let count = f.objects.ethernet.out_of_buffer.get(usize::from(query.set));
    let out_of_buffer = count.copied().unwrap_or(0);
    let counters = QueueOutput { out_of_buffer, ..QueueOutput::default() };
    output.put_truncated(0, &counters.to_bytes());
    Ok(())
}

/// Executes ALLOC_FLOW_COUNTER.
pub(crate) fn allocate_flow_counter(
    f: &mut Function,
    _: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let number = f.objects.ethernet.flow_counters.insert(());
    output.put_number(number.map_err(|_| Status::ExceededLimit)?)
}

/// Executes DEALLOC_FLOW_COUNTER.
pub(crate) fn deallocate_flow_counter(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    f.objects.ethernet.flow_counters.remove(input.number()?).ok_or(Status::BadResource)
}
