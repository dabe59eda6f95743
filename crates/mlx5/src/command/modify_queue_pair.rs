//! Commands that change the state of a queue pair.
//!
//! Each transition has attributes that the driver must give and others that a mask selects; fields
//! outside of both are void. A command that does not begin in the queue pair's state is refused
//! with *bad queue pair state*, a value out of range with *bad parameter*; then nothing has
//! changed. The engine checks the transition itself. The stored context follows the changes, for
//! the query command. Alternate paths, migration, rate limits and changes of queues are ignored. No
//! command asks the peer: a connection exists when both sides name each other. Every state may move
//! to reset, which forgets all work requests without completions, or to error, after which `poll`
//! flushes them. A reset in the middle of a message moves the queue pair that receives the message
//! to the error state. An unknown queue pair is *bad resource*.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_verbs::{AdapterId, Change, Kind, Peer, State, Subnet};
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::queue_pair::{
    AddressPath, CONTEXT, OPTIONAL_MASK, PathMtu, QueuePairContext, optional,
};

use super::queue_pair::{rights, status};
use super::{Input, Outcome, Output, short};
use crate::function::Function;

/// Executes the transitions of a queue pair that do not end in *reset* or *error*.
pub(crate) fn modify(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let opcode = Opcode::from_raw(input.u16(0)?).ok_or(Status::BadOperation)?;
    let new = QueuePairContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let mask = input.u32(OPTIONAL_MASK)?;
    let number = input.number()?;
    let owner = subnet.adapter(adapter).ok_or(Status::BadResource)?;
    let pair = owner.queue_pair(number).ok_or(Status::BadResource)?;
    let (from, to, kind) = (pair.state(), target(opcode)?, pair.kind());
    if !is_source(opcode, from) {
        return Err(Status::BadQueuePairState);
    }
    let queues = owner.queues().objects.queue_pairs.get(number).ok_or(Status::BadResource)?;
    let mut context = queues.context;
    apply_required(&mut context, &new, opcode);
    apply_optional(&mut context, &new, mask);
    let change = change(&context, kind, to)?;
    subnet.modify(adapter, number, to, &change).map_err(status)?;
    let function = super::function(subnet, adapter)?;
    if let Some(queues) = function.objects.queue_pairs.get_mut(number) {
        queues.context = context;
        queues.is_failed = false;
    }
    if to == State::ReadyToSend {
        function.activate(number);
    }
    Ok(())
}

/// Executes 2ERR_QP: moves a queue pair to the error state; all posted work requests are flushed.
pub(crate) fn to_error(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    subnet.modify(adapter, number, State::Error, &Change::default()).map_err(status)
}

/// Executes 2RST_QP: moves a queue pair to the reset state; all work requests are forgotten.
pub(crate) fn to_reset(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    subnet.modify(adapter, number, State::Reset, &Change::default()).map_err(status)?;
    let objects = &mut super::function(subnet, adapter)?.objects;
    objects.set_pending(number, false);
    if let Some(queues) = objects.queue_pairs.get_mut(number) {
        queues.reset();
    }
    Ok(())
}

/// Returns the state to which a command moves a queue pair.
fn target(opcode: Opcode) -> Result<State, Status> {
    Ok(match opcode {
        Opcode::ResetToInit | Opcode::ChangeInit => State::Init,
        Opcode::InitToReadyToReceive => State::ReadyToReceive,
        Opcode::ReadyToReceiveToReadyToSend
        | Opcode::ChangeReadyToSend
        | Opcode::SendQueueErrorToReadyToSend
        | Opcode::DrainedToReadyToSend => State::ReadyToSend,
        _ => return Err(Status::BadOperation),
    })
}

/// Returns whether a command may begin in a state.
fn is_source(opcode: Opcode, from: State) -> bool {
    match opcode {
        Opcode::ResetToInit => from == State::Reset,
        Opcode::ChangeInit | Opcode::InitToReadyToReceive => from == State::Init,
        Opcode::ReadyToReceiveToReadyToSend => from == State::ReadyToReceive,
        Opcode::ChangeReadyToSend => from == State::ReadyToSend,
        Opcode::SendQueueErrorToReadyToSend => from == State::SendQueueError,
        Opcode::DrainedToReadyToSend => from == State::Drained,
        _ => false,
    }
}

/// Copies the fields that a transition requires.
fn apply_required(context: &mut QueuePairContext, new: &QueuePairContext, opcode: Opcode) {
    match opcode {
        Opcode::ResetToInit => {
            context.remote_read = new.remote_read;
            context.remote_write = new.remote_write;
            context.remote_atomic = new.remote_atomic;
            context.queue_key = new.queue_key;
            context.primary_path = new.primary_path;
            context.migration_state = new.migration_state;
        }
        Opcode::InitToReadyToReceive => {
            context.mtu = new.mtu;
            context.log_message_max = new.log_message_max;
            context.remote_number = new.remote_number;
            // The index of the partition key and the port were set by the transition before.
            context.primary_path = AddressPath {
                partition_key_index: context.primary_path.partition_key_index,
                port: context.primary_path.port,
                ..new.primary_path
            };
            context.next_receive_psn = new.next_receive_psn;
            context.log_responder_resources = new.log_responder_resources;
            context.min_rnr_timer = new.min_rnr_timer;
        }
        Opcode::ReadyToReceiveToReadyToSend => {
            context.retry_count = new.retry_count;
            context.rnr_retry = new.rnr_retry;
            context.primary_path.ack_timeout = new.primary_path.ack_timeout;
            context.next_send_psn = new.next_send_psn;
            context.log_requester_resources = new.log_requester_resources;
            context.log_ack_frequency = new.log_ack_frequency;
        }
        _ => {}
    }
}

/// Copies the fields that the mask selects.
fn apply_optional(context: &mut QueuePairContext, new: &QueuePairContext, mask: u32) {
    let selects = |field: u32| mask & field != 0;
    if selects(optional::REMOTE_READ) {
        context.remote_read = new.remote_read;
    }
    if selects(optional::REMOTE_WRITE) {
        context.remote_write = new.remote_write;
    }
    if selects(optional::REMOTE_ATOMIC) {
        context.remote_atomic = new.remote_atomic;
    }
    if selects(optional::QUEUE_KEY) {
        context.queue_key = new.queue_key;
    }
    if selects(optional::RNR_TIMEOUT) {
        context.min_rnr_timer = new.min_rnr_timer;
    }
    if selects(optional::RNR_RETRY) {
        context.rnr_retry = new.rnr_retry;
    }
    if selects(optional::RETRY_COUNT) {
        context.retry_count = new.retry_count;
    }
    if selects(optional::ACK_TIMEOUT) {
        context.primary_path.ack_timeout = new.primary_path.ack_timeout;
    }
    if selects(optional::PARTITION_KEY) {
        context.primary_path.partition_key_index = new.primary_path.partition_key_index;
    }
    if selects(optional::REQUESTER_RESOURCES) {
        context.log_requester_resources = new.log_requester_resources;
    }
    if selects(optional::RESPONDER_RESOURCES) {
        context.log_responder_resources = new.log_responder_resources;
    }
}

/// Returns the engine's attributes of a recorded context in a state.
pub(crate) fn recorded_change(context: &QueuePairContext, kind: Kind, state: State) -> Change {
    let to = match state {
        State::Reset => return Change::default(),
        State::Init | State::ReadyToReceive => state,
        _ => State::ReadyToSend,
    };
    // A queue pair may fail before it has a peer.
    change(context, kind, to).or_else(|_| change(context, kind, State::Init)).unwrap_or_default()
}

/// Returns the engine's attributes of a changed context.
fn change(context: &QueuePairContext, kind: Kind, to: State) -> Result<Change, Status> {
    let mut change = Change {
        rights: Some(rights(context)),
        queue_key: Some(context.queue_key),
        ..Change::default()
    };
    if to == State::Init {
        return Ok(change);
    }
    let mtu = PathMtu::from_raw(context.mtu).map(PathMtu::bytes);
    if kind.is_connected() {
        change.mtu = Some(mtu.ok_or(Status::BadParameter)?);
        change.peer = Some(Peer {
            mac: context.primary_path.destination_mac,
            queue_pair: context.remote_number,
            gid: context.primary_path.destination_gid,
        });
    } else {
        change.mtu = mtu;
    }
    change.receive_psn = Some(context.next_receive_psn);
    change.min_rnr_timer = Some(context.min_rnr_timer);
    change.max_peer_reads = Some(1 << context.log_responder_resources.min(7));
    if to == State::ReadyToSend {
        change.retry_count = Some(context.retry_count);
        change.rnr_retry = Some(context.rnr_retry);
        change.timeout = Some(context.primary_path.ack_timeout);
        change.send_psn = Some(context.next_send_psn);
        change.max_reads = Some(1 << context.log_requester_resources.min(7));
    }
    Ok(change)
}
