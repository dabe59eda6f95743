//! Commands about shared receive queues: receive memory pools, and the queues of XRC domains.
//!
//! Both are linked lists of entries of 32 to 2,048 bytes, up to 2^15 of them; cyclic rings, other
//! sizes, an unaligned doorbell record and too few pages are refused with *bad parameter*. Both
//! have numbers of one table, and DESTROY and ARM commands serve either kind; QUERY_RMP of a queue
//! of an XRC domain is *bad resource*, QUERY_XRC_SRQ of a pool answers void fields. A queue of an
//! XRC domain receives the messages that name it, from any target queue pair of its domain, and
//! completes to its own completion queue; domain and completion queue must exist (*bad resource*)
//! and stay as long as the queue. Its memory is checked as that of pools, and both count against
//! the same limit: the port's largest number of queue pairs and 16 more, at most 2^14
//! ([`crate::limits::RECEIVE_POOLS_MAX`]); more, or too many pages of all queues, is *limit
//! exceeded*. An unknown queue is *bad resource*. The protection domain is not looked up. A queue
//! that queue pairs name as their shared receive queue cannot be destroyed (*bad resource state*).
//! A limit is reported once, at once if fewer entries are posted already, and 0 disarms it. Entries
//! are read in `crate::receive_pool`.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_verbs::Adapter;
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::work_queue::{
    ArmInput, CONTEXT, MODIFY_LIMIT, MODIFY_MASK, PAGES, QueueState, ReceivePoolContext,
    WorkQueueType, XRC_CONTEXT, XRC_PAGES, XrcReceiveQueueContext,
};

use super::{Input, Outcome, Output, short};
use crate::function::{Function, Objects};
use crate::limits::{DOORBELL_RECORD_ALIGNMENT, RECEIVE_STRIDE_LOG, WORK_QUEUE_LOG_MAX};
use crate::page_list::PageList;
use crate::receive_pool::{PoolFormat, ReceivePool, XrcValues};

/// Smallest binary logarithm of an entry's length: a link and a segment.
const LINKED_STRIDE_LOG_MIN: u8 = 5;

/// Returns the format of a ring, if it is supported.
fn format(log_size: u8, log_stride: u8, record: u64, domain: u32) -> Result<PoolFormat, Status> {
    let is_supported = log_size <= WORK_QUEUE_LOG_MAX
        && log_stride >= LINKED_STRIDE_LOG_MIN
        && RECEIVE_STRIDE_LOG.contains(&log_stride)
        && record.is_multiple_of(DOORBELL_RECORD_ALIGNMENT);
    if !is_supported {
        return Err(Status::BadParameter);
    }
    Ok(PoolFormat { log_size, stride: 1 << log_stride, doorbell_record: record, domain })
}

/// Adds a queue and returns its number to the driver.
fn insert(
    f: &mut Function,
    format: PoolFormat,
    (list, log_page, page_offset): (&[u8], u8, u8),
    (context, xrc): (&[u8], Option<XrcValues>),
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let bytes = format.stride << format.log_size;
    let quota = &f.objects.page_quota;
    let pages = PageList::new(quota, list, (log_page, page_offset), bytes)?;
    let mut pool = ReceivePool::new(pages, format, context.to_vec());
    pool.xrc = xrc;
    let number = f.objects.receive_pools.insert(pool).map_err(|_| Status::ExceededLimit)?;
    count_queue(&mut f.objects, xrc, |users| users.saturating_add(1));
    output.put_number(number)
}

/// Executes CREATE_RMP: makes a shared receive queue.
pub(crate) fn create(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let context = ReceivePoolContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let queue = context.queue;
    if queue.queue_type() != Some(WorkQueueType::LinkedList) {
        return Err(Status::BadParameter);
    }
    let format = format(queue.log_size, queue.log_stride, queue.doorbell_record, queue.domain)?;
    let pages = (input.tail(PAGES)?, queue.log_page_size, queue.page_offset);
    let mut context = context;
    context.state = QueueState::Ready.raw();
    insert(f, format, pages, (&context.to_bytes(), None), output)
}

/// Executes CREATE_XRC_SRQ: makes a shared receive queue of an XRC domain.
pub(crate) fn create_xrc(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let context = XrcReceiveQueueContext::parse(input.tail(XRC_CONTEXT)?).map_err(short)?;
    let log_stride = context.log_stride.saturating_add(4);
    if context.is_cyclic {
        return Err(Status::BadParameter);
    }
    let format = format(context.log_size, log_stride, context.doorbell_record, context.domain)?;
    let pages = (input.tail(XRC_PAGES)?, context.log_page_size, context.page_offset);
    let xrc = XrcValues {
        xrc_domain: context.xrc_domain,
        completion_queue: context.completion_queue,
        user_index: (!context.has_number_as_index).then_some(context.user_index),
    };
    let objects = &f.objects;
    if !objects.xrc_domains.contains(xrc.xrc_domain)
        || !objects.completion_queues.contains(xrc.completion_queue)
    {
        return Err(Status::BadResource);
    }
    insert(f, format, pages, (&context.to_bytes(), Some(xrc)), output)
}

/// Changes the numbers of users of the objects that a queue of an XRC domain names.
fn count_queue(objects: &mut Objects, xrc: Option<XrcValues>, change: impl Fn(u32) -> u32) {
    let Some(xrc) = xrc else { return };
    if let Some(users) = objects.xrc_domains.get_mut(xrc.xrc_domain) {
        *users = change(*users);
    }
    if let Some(queue) = objects.completion_queues.get_mut(xrc.completion_queue) {
        queue.users = change(queue.users);
    }
}

/// Executes DESTROY_RMP and DESTROY_XRC_SRQ.
pub(crate) fn destroy(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let number = input.number()?;
    let objects = &mut adapter.queues_mut().objects;
    let pool = objects.receive_pools.get(number).ok_or(Status::BadResource)?;
    if pool.users > 0 {
        return Err(Status::BadResourceState);
    }
    let xrc = pool.xrc;
    objects.receive_pools.remove(number);
    count_queue(objects, xrc, |users| users.saturating_sub(1));
    adapter.arm_shared_limit(number, 0);
    Ok(())
}

/// Sets the limit below which a queue reports an event.
fn set_limit(adapter: &mut Adapter<Function>, number: u32, limit: u16) -> Outcome {
    let pool = adapter.queues_mut().objects.receive_pools.get_mut(number);
    let pool = pool.ok_or(Status::BadResource)?;
    (pool.limit, pool.armed) = (limit, limit);
    adapter.arm_shared_limit(number, u32::from(limit));
    Ok(())
}

/// Executes ARM_RQ and ARM_XRC_SRQ: sets the limit.
pub(crate) fn arm(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let arm = ArmInput::parse(input.bytes()).map_err(short)?;
    set_limit(adapter, arm.number, arm.limit)
}

/// Executes MODIFY_RMP: sets the limit if the mask selects it.
pub(crate) fn modify(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let context = ReceivePoolContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let mask = u64::from_be_bytes(input.array(MODIFY_MASK)?);
    let number = input.number()?;
    if mask & MODIFY_LIMIT != 0 {
        return set_limit(adapter, number, context.queue.limit);
    }
    match adapter.queues().objects.receive_pools.contains(number) {
        true => Ok(()),
        false => Err(Status::BadResource),
    }
}

/// Executes QUERY_RMP.
pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let pool = f.objects.receive_pools.get(input.number()?).ok_or(Status::BadResource)?;
    let mut context = ReceivePoolContext::parse(&pool.context).map_err(|_| Status::BadResource)?;
    context.queue.limit = pool.limit;
    output.put(CONTEXT, &context.to_bytes())
}

/// Executes QUERY_XRC_SRQ.
pub(crate) fn query_xrc(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let pool = f.objects.receive_pools.get(input.number()?).ok_or(Status::BadResource)?;
    let context = XrcReceiveQueueContext::parse(&pool.context);
    let mut context = context.map_err(|_| Status::BadResource)?;
    context.limit = pool.limit;
    output.put(XRC_CONTEXT, &context.to_bytes())
}
