//! Commands that create, query and destroy queue pairs.
//!
//! Services are reliable, extended (XRC) and unreliable connections, datagrams, management
//! datagrams and memory registration; others are refused with *bad parameter*. An XRC queue pair
//! without a send queue is a target, which receives into the queues of its XRC domain; the shared
//! receive queue that drivers name for XRC queue pairs is not used. The completion queues, the
//! protection domain, the XRC domain of a target and the shared receive queue must exist (*bad
//! resource*); one that sends or receives nothing needs no completion queue for it, and one for
//! memory registration no protection domain. The queues and the XRC domain cannot be destroyed
//! while the queue pair names them; the protection domain can, and the queue pair keeps its number.
//! A queue pair has up to 2^15 blocks and entries; longer queues, an unaligned doorbell record and
//! too few pages are *bad parameter*. A queue pair beyond the adapter's number, or beyond the pages
//! of all queues, is refused with *limit exceeded*. A query returns the stored context with the
//! present state and positions. A destroyed queue pair gets no completions for its work requests;
//! `verbs::subnet` has the effect on its peer. An unknown queue pair is *bad resource*.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_verbs::region::Rights;
use causeway_verbs::{AdapterId, Attributes, Kind, QueuePairError, Receive, State, Subnet};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::queue_pair::{
    CONTEXT, PAGES, QueuePairContext, ReceiveQueueType, Service, State as WireState,
};

use super::{Input, Outcome, Output, short};
use crate::function::{Function, Objects};
use crate::limits::{DOORBELL_RECORD_ALIGNMENT, WORK_QUEUE_LOG_MAX};
use crate::page_list::PageList;
use crate::work_queues::WorkQueues;

/// Returns the status of an error of the engine.
pub(crate) fn status(error: QueuePairError) -> Status {
    match error {
        QueuePairError::NoAdapter | QueuePairError::NoQueuePair => Status::BadResource,
        QueuePairError::Limit => Status::ExceededLimit,
        QueuePairError::Transition { .. } => Status::BadQueuePairState,
        QueuePairError::Attribute(_) => Status::BadParameter,
    }
}

/// Returns the engine's kind of a service.
fn kind(context: &QueuePairContext) -> Result<Kind, Status> {
    match context.service() {
        Some(Service::ReliableConnection) => Ok(Kind::Rc),
        Some(Service::UnreliableConnection) => Ok(Kind::Uc),
        Some(Service::UnreliableDatagram) => Ok(Kind::Ud),
        Some(Service::GeneralServices) => Ok(Kind::Gsi),
        Some(Service::Registration) => Ok(Kind::Registration),
        Some(Service::ExtendedReliableConnection) if context.is_xrc_target() => Ok(Kind::XrcTarget),
        Some(Service::ExtendedReliableConnection) => Ok(Kind::XrcInitiator),
        _ => Err(Status::BadParameter),
    }
}

/// Returns the access rights of a context.
pub(crate) fn rights(context: &QueuePairContext) -> Rights {
    let all = [
        (context.remote_read, Rights::REMOTE_READ),
        (context.remote_write, Rights::REMOTE_WRITE),
        (context.remote_atomic, Rights::REMOTE_ATOMIC),
    ];
    let permitted = all.into_iter().filter(|(is_permitted, _)| *is_permitted);
    permitted.fold(Rights::empty(), |sum, (_, right)| sum.union(right))
}

/// Returns the source of receive work requests.
fn receive(objects: &Objects, context: &QueuePairContext) -> Result<Receive, Status> {
    match kind(context)? {
        Kind::XrcInitiator => return Ok(Receive::None),
        Kind::XrcTarget => {
            let domain = context.xrc_domain;
            let users = objects.xrc_domains.get(domain).ok_or(Status::BadResource);
            return users.map(|_| Receive::XrcDomain(domain));
        }
        _ => {}
    }
    match context.receive_queue_type() {
        Some(ReceiveQueueType::Own) => Ok(Receive::Own),
        Some(ReceiveQueueType::Shared) => {
            let number = context.shared_receive_queue;
            let pool = objects.receive_pools.get(number).ok_or(Status::BadResource)?;
            Ok(Receive::Shared { number, domain: pool.domain() })
        }
        Some(ReceiveQueueType::None) => Ok(Receive::None),
        _ => Err(Status::BadParameter),
    }
}

/// Checks the context of a new queue pair against the function's objects.
fn attributes(objects: &Objects, context: &QueuePairContext) -> Result<Attributes, Status> {
    let receive = receive(objects, context)?;
    let has_queue = |number| objects.completion_queues.contains(number);
    let has_send = context.has_no_send_queue || has_queue(context.send_completion_queue);
    let has_receive = receive == Receive::None || has_queue(context.receive_completion_queue);
    // The kernel's queue pair for registration names no protection domain.
    let has_domain = context.service() == Some(Service::Registration)
        || objects.domains.contains(context.domain);
    if !has_send || !has_receive || !has_domain {
        return Err(Status::BadResource);
    }
    if context.log_send_size > WORK_QUEUE_LOG_MAX
        || context.log_receive_size > WORK_QUEUE_LOG_MAX
        || !context.doorbell_record.is_multiple_of(DOORBELL_RECORD_ALIGNMENT)
    {
        return Err(Status::BadParameter);
    }
    Ok(Attributes {
        domain: context.domain,
        send_queue: context.send_completion_queue,
        receive_queue: context.receive_completion_queue,
        receive,
        can_register: context.has_fast_registration,
        blocks_own_multicast: context.blocks_multicast_loopback,
        queue_key: context.queue_key,
        ..Attributes::default()
    })
}

/// Executes CREATE_QP.
pub(crate) fn create(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let context = QueuePairContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let kind = kind(&context)?;
    let objects = &super::function(subnet, adapter)?.objects;
    let attributes = attributes(objects, &context)?;
    let list = input.0.get(PAGES..).unwrap_or(&[]);
    let position = (context.log_page_size, context.page_offset);
    let pages = PageList::new(&objects.page_quota, list, position, context.buffer_len())?;
    let number = subnet.create_queue_pair(adapter, kind, attributes).map_err(status)?;
    let objects = &mut super::function(subnet, adapter)?.objects;
    objects.queue_pairs.insert(number, WorkQueues::new(pages, context));
    count_users(objects, &context, |users| users.saturating_add(1));
    output.put_number(number)
}

/// Changes the numbers of users of the objects that a context names.
fn count_users(objects: &mut Objects, context: &QueuePairContext, change: impl Fn(u32) -> u32) {
    for number in [context.send_completion_queue, context.receive_completion_queue] {
        if let Some(queue) = objects.completion_queues.get_mut(number) {
            queue.users = change(queue.users);
        }
    }
    if context.is_xrc_target()
        && let Some(users) = objects.xrc_domains.get_mut(context.xrc_domain)
    {
        *users = change(*users);
    }
    if context.receive_queue_type() == Some(ReceiveQueueType::Shared)
        && let Some(pool) = objects.receive_pools.get_mut(context.shared_receive_queue)
    {
        pool.users = change(pool.users);
    }
}

/// Executes DESTROY_QP.
pub(crate) fn destroy(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    subnet.destroy_queue_pair(adapter, number).map_err(status)?;
    let objects = &mut super::function(subnet, adapter)?.objects;
    objects.set_pending(number, false);
    if let Some(queues) = objects.queue_pairs.remove(number) {
        count_users(objects, &queues.context, |users| users.saturating_sub(1));
    }
    Ok(())
}

/// Executes QUERY_QP.
pub(crate) fn query(
    subnet: &mut Subnet<Function>,
    adapter: AdapterId,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    let adapter = subnet.adapter(adapter).ok_or(Status::BadResource)?;
    let pair = adapter.queue_pair(number).ok_or(Status::BadResource)?;
    let queues = adapter.queues().objects.queue_pairs.get(number).ok_or(Status::BadResource)?;
    let [send, receive] = queues.positions();
    let context = QueuePairContext {
        state: state(pair.state()).raw(),
        device_send_counter: send.taken,
        driver_send_counter: send.posted,
        device_receive_counter: u32::from(receive.taken),
        driver_receive_counter: u32::from(receive.posted),
        ..queues.context
    };
    output.put(CONTEXT, &context.to_bytes())
}

/// Returns the code of a state.
fn state(state: State) -> WireState {
    match state {
        State::Reset => WireState::Reset,
        State::Init => WireState::Init,
        State::ReadyToReceive => WireState::ReadyToReceive,
        State::ReadyToSend => WireState::ReadyToSend,
        State::Drained => WireState::SendQueueDrained,
        State::SendQueueError => WireState::SendQueueError,
        State::Error => WireState::Error,
    }
}
