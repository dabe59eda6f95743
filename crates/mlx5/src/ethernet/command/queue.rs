//! Commands about Ethernet send and receive queues.
//!
//! A queue is created in the reset state and works in the ready state. Send queues are polled while
//! they are ready, and in the error state if the driver asked for flushed completions. Receive
//! queues are cyclic arrays with memory of their own; other types, queues of receive pools and
//! hairpin queues (which forward frames inside a NIC) are refused with *bad parameter*, as are more
//! than 2^15 entries or blocks, send blocks of other than 64 bytes, receive entries of less than 16
//! or more than 2,048 bytes, an unaligned doorbell record, too few pages and an unknown state. An
//! unknown queue, completion queue or transport interface is *bad resource*; more than 1,024 queues
//! of a kind, or the pages of all queues, are *limit exceeded*. A completion queue cannot be
//! destroyed while a queue completes to it. The present state of a queue is not checked: the driver
//! may move it to any state. A reset or destroyed queue forgets its posted entries without
//! completions. The handlers run in the dispatcher's turn.

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::work_queue::{
    CONTEXT, MODIFY_MASK, PAGES, QueueState, ReceiveQueueContext, SEND_BLOCK, SendQueueContext,
    WorkQueue, WorkQueueType,
};

use crate::command::{Input, Outcome, Output, short};
use crate::ethernet::receive_queue::ReceiveQueue;
use crate::ethernet::send_queue::SendQueue;
use crate::function::{Function, Objects};
use crate::limits::{DOORBELL_RECORD_ALIGNMENT, RECEIVE_STRIDE_LOG, WORK_QUEUE_LOG_MAX};
use crate::page_list::{PageList, PageQuota};

/// Bit of the mask of MODIFY_RQ: whether VLAN tags stay in the frames.
const MODIFY_VLAN: u64 = 1 << 1;
/// Bit of the mask of MODIFY_RQ: the set of counters.
const MODIFY_COUNTER_SET: u64 = 1 << 3;

/// Returns the pages of a ring, if it is supported.
fn pages(quota: &PageQuota, queue: &WorkQueue, input: Input<'_>) -> Result<PageList, Status> {
    if queue.queue_type() != Some(WorkQueueType::Cyclic)
        || queue.log_size > WORK_QUEUE_LOG_MAX
        || !queue.doorbell_record.is_multiple_of(DOORBELL_RECORD_ALIGNMENT)
    {
        return Err(Status::BadParameter);
    }
    let (list, bytes) = (input.tail(PAGES)?, queue.buffer_len());
    PageList::new(quota, list, (queue.log_page_size, queue.page_offset), bytes)
}

/// Adds a user of a completion queue.
fn use_completions(objects: &mut Objects, number: u32) -> Outcome {
    let queue = objects.completion_queues.get_mut(number).ok_or(Status::BadResource)?;
    queue.users = queue.users.saturating_add(1);
    Ok(())
}

/// Removes a user of a completion queue.
fn leave_completions(objects: &mut Objects, number: u32) {
    if let Some(queue) = objects.completion_queues.get_mut(number) {
        queue.users = queue.users.saturating_sub(1);
    }
}

/// Executes CREATE_SQ.
pub(crate) fn create_send_queue(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let mut context = SendQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    if context.is_hairpin || context.queue.stride() != SEND_BLOCK as u64 {
        return Err(Status::BadParameter);
    }
    let objects = &mut f.objects;
    let interfaces = &objects.ethernet.interfaces;
    if context.interface_count > 0 && !interfaces.send.contains(context.interface) {
        return Err(Status::BadResource);
    }
    let pages = pages(&objects.page_quota, &context.queue, input)?;
    context.state = QueueState::Reset.raw();
    if !objects.completion_queues.contains(context.completion_queue) {
        return Err(Status::BadResource);
    }
    let queue = SendQueue::new(pages, context);
    let number = objects.ethernet.send_queues.insert(queue).map_err(|_| Status::ExceededLimit)?;
    use_completions(objects, context.completion_queue)?;
    output.put_number(number)
}

/// Executes MODIFY_SQ: changes the state, and whether the queue is polled.
pub(crate) fn modify_send_queue(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let number = input.number()?;
    let new = SendQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let state = QueueState::from_raw(new.state).ok_or(Status::BadParameter)?;
    let ethernet = &mut f.objects.ethernet;
    let queue = ethernet.send_queues.get_mut(number).ok_or(Status::BadResource)?;
    queue.set_state(state);
    let is_polled = match state {
        QueueState::Reset => false,
        QueueState::Ready => true,
        QueueState::Error => queue.context.flushes_in_error,
    };
    ethernet.rotation.set(number, is_polled);
    Ok(())
}

/// Executes DESTROY_SQ.
pub(crate) fn destroy_send_queue(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    let objects = &mut f.objects;
    let queue = objects.ethernet.send_queues.remove(number).ok_or(Status::BadResource)?;
    objects.ethernet.rotation.set(number, false);
    leave_completions(objects, queue.context.completion_queue);
    Ok(())
}

/// Executes QUERY_SQ.
pub(crate) fn query_send_queue(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let queue = f.objects.ethernet.send_queues.get(input.number()?);
    let queue = queue.ok_or(Status::BadResource)?;
    let (mut context, positions) = (queue.context, queue.positions());
    context.queue.device_counter = u32::from(positions.taken);
    context.queue.driver_counter = u32::from(positions.posted);
    output.put(CONTEXT, &context.to_bytes())
}

/// Executes CREATE_RQ.
pub(crate) fn create_receive_queue(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let mut context = ReceiveQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let is_supported = !context.is_hairpin
        && context.memory_type == 0
        && RECEIVE_STRIDE_LOG.contains(&context.queue.log_stride);
    if !is_supported {
        return Err(Status::BadParameter);
    }
    let pages = pages(&f.objects.page_quota, &context.queue, input)?;
    context.state = QueueState::Reset.raw();
    let objects = &mut f.objects;
    if !objects.completion_queues.contains(context.completion_queue) {
        return Err(Status::BadResource);
    }
    let queue = ReceiveQueue::new(pages, context);
    let queues = &mut objects.ethernet.receive_queues;
    let number = queues.insert(queue).map_err(|_| Status::ExceededLimit)?;
    use_completions(objects, context.completion_queue)?;
    output.put_number(number)
}

/// Executes MODIFY_RQ: changes the state, the VLAN option and the counter set.
pub(crate) fn modify_receive_queue(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    let new = ReceiveQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let mask = u64::from_be_bytes(input.array(MODIFY_MASK)?);
    let state = QueueState::from_raw(new.state).ok_or(Status::BadParameter)?;
    let queue = f.objects.ethernet.receive_queues.get_mut(number).ok_or(Status::BadResource)?;
    queue.set_state(state);
    if mask & MODIFY_VLAN != 0 {
        queue.context.keeps_vlan = new.keeps_vlan;
    }
    if mask & MODIFY_COUNTER_SET != 0 {
        queue.context.counter_set = new.counter_set;
    }
    Ok(())
}

/// Executes DESTROY_RQ.
pub(crate) fn destroy_receive_queue(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let objects = &mut f.objects;
    let queue = objects.ethernet.receive_queues.remove(input.number()?);
    let queue = queue.ok_or(Status::BadResource)?;
    leave_completions(objects, queue.context.completion_queue);
    Ok(())
}

/// Executes QUERY_RQ.
pub(crate) fn query_receive_queue(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let queue = f.objects.ethernet.receive_queues.get(input.number()?);
    let queue = queue.ok_or(Status::BadResource)?;
    let (mut context, positions) = (queue.context, queue.positions());
    context.queue.device_counter = u32::from(positions.taken);
    context.queue.driver_counter = u32::from(positions.posted);
    output.put(CONTEXT, &context.to_bytes())
}
