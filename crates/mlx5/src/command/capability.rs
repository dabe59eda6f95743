//! Commands of the driver's start: versions, capabilities, and the function's life.
//!
//! Present and largest capabilities are equal; a driver's choice of capabilities is accepted and
//! has no effect. The largest numbers of objects are those of the configuration, rounded down to
//! powers of two, and at most those of `General::FUNCTION`. Unknown groups of capabilities are
//! answered with zeros. Another interface version than 1 is refused with *bad parameter*.
//! ENABLE_HCA, DISABLE_HCA and TEARDOWN_HCA destroy all objects of the driver, also if repeated:
//! posted work gets no completions, and events that wait are dropped. INIT_HCA has no effect; no
//! command must precede another, and no state is checked. [`super::dispatch`] calls the handlers in
//! the dispatcher's turn.

use causeway_verbs::{AdapterId, Subnet};
use causeway_wire::mlx5::capability::{Capabilities, General, OUTPUT_OFFSET, Query};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::startup::{AdapterOutput, ISSI, IssiInput, IssiOutput, VENDOR_ID};

use super::{Input, Outcome, Output, short};
use crate::function::Function;
use crate::limits::{
    COMPLETION_QUEUE_LOG_MAX, EVENT_QUEUE_LOG_MAX, EVENT_QUEUES_MAX, WORK_QUEUE_LOG_MAX,
};

/// Executes QUERY_HCA_CAP.
pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let Some(group) = Query::parse(input.modifier()?).group else { return Ok(()) };
    let block = output.0.get_mut(OUTPUT_OFFSET..).ok_or(Status::BadOutputLength)?;
    let capabilities = Capabilities { general: general(f), ..Capabilities::FUNCTION };
    capabilities.emit(group, block).map_err(|_| Status::BadOutputLength)
}

/// Returns the general capabilities within the limits of the function.
fn general(f: &Function) -> General {
    let config = &f.config;
    let own = General::FUNCTION;
    let log = |max: usize| u8::try_from(max.max(1).ilog2()).unwrap_or(0);
    General {
        vhca_id: config.mac.last_chunk().map_or(0, |last| u16::from_be_bytes(*last)),
        log_max_queue_pairs: own.log_max_queue_pairs.min(log(config.queue_pairs_max)),
        log_max_completion_queues: own
            .log_max_completion_queues
            .min(log(config.completion_queues_max)),
        log_max_shared_receive_queues: own
            .log_max_shared_receive_queues
            .min(log(config.queue_pairs_max)),
        log_max_receive_pools: own.log_max_receive_pools.min(log(config.queue_pairs_max)),
        log_max_memory_keys: own.log_max_memory_keys.min(log(config.regions_max)),
        log_max_queue_pair_size: own.log_max_queue_pair_size.min(WORK_QUEUE_LOG_MAX),
        log_max_completion_size: own.log_max_completion_size.min(COMPLETION_QUEUE_LOG_MAX),
        log_max_event_size: own.log_max_event_size.min(EVENT_QUEUE_LOG_MAX),
        log_max_event_queues: log(EVENT_QUEUES_MAX),
        ..own
    }
}

/// Executes QUERY_ADAPTER.
pub(crate) fn adapter(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let adapter = AdapterOutput { vendor: VENDOR_ID, ..AdapterOutput::default() };
    output.put_truncated(0, &adapter.to_bytes());
    Ok(())
}

/// Executes QUERY_ISSI: version 1 of the software interface alone.
pub(crate) fn query_issi(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let issi = IssiOutput { current: ISSI, supported: 1 << ISSI };
    output.put(0, &issi.to_bytes())
}

/// Executes SET_ISSI.
pub(crate) fn set_issi(_: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let issi = IssiInput::parse(input.bytes()).map_err(short)?;
    if issi.version == ISSI { Ok(()) } else { Err(Status::BadParameter) }
}

/// Executes ENABLE_HCA, DISABLE_HCA and TEARDOWN_HCA: begins or ends the driver's use of the
/// function, and destroys all objects.
pub(crate) fn restart(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    _: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    crate::reset(subnet, adapter);
    Ok(())
}
