//! Commands about event queues.
//!
//! At most 16 queues ([`crate::limits::EVENT_QUEUES_MAX`]) of up to 2^16 entries exist; a further
//! one is refused with *limit exceeded*, a larger one or one with an unknown vector or too few
//! pages with *bad parameter*, a queue beyond the pages of all queues with *limit exceeded*. An
//! unknown queue is *bad resource*, as is a number with more than 8 bits. A queue that completion
//! queues report to cannot be destroyed (*bad resource state*). The mask of event types is that of
//! the creation; masks and vectors cannot be changed, and the driver's consumer position is not
//! read.
//!
//! The dispatcher executes the commands in a turn of the port's shard ([`crate::run_commands`],
//! `super::dispatch`); afterwards `crate::event_queue` writes events into the queue.

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::event_queue::{
    CREATE_CONTEXT, CREATE_EVENT_MASK, CREATE_PAGES, ENTRY_LEN, EventQueueContext, QUERY_CONTEXT,
};

use super::{Input, Outcome, Output, short};
use crate::event_queue::EventQueue;
use crate::function::Function;
use crate::limits::EVENT_QUEUE_LOG_MAX;
use crate::page_list::PageList;

/// Executes CREATE_EQ.
pub(crate) fn create(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let context = EventQueueContext::parse(input.tail(CREATE_CONTEXT)?).map_err(short)?;
    let mask = input.array(CREATE_EVENT_MASK).map(u64::from_be_bytes)?;
    if context.log_size > EVENT_QUEUE_LOG_MAX || context.vector >= f.vectors() {
        return Err(Status::BadParameter);
    }
    let bytes = (ENTRY_LEN as u64) << context.log_size;
    let list = input.tail(CREATE_PAGES)?;
    let position = (context.log_page_size, context.page_offset);
    let pages = PageList::new(&f.objects.page_quota, list, position, bytes)?;
    let queue = EventQueue::new(pages, context, mask);
    let number = f.objects.event_queues.insert(queue).ok_or(Status::ExceededLimit)?;
    output.put_number(u32::from(number))
}

/// Returns the number of an event queue. The record of the function has the same number, so its
/// high bits may not be dropped.
fn number(input: Input<'_>) -> Result<u8, Status> {
    u8::try_from(input.number()?).map_err(|_| Status::BadResource)
}

/// Executes DESTROY_EQ.
pub(crate) fn destroy(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let number = number(input)?;
    let queue = f.objects.event_queues.get(number).ok_or(Status::BadResource)?;
    if queue.users > 0 {
        return Err(Status::BadResourceState);
    }
    f.objects.event_queues.remove(number);
    Ok(())
}

/// Executes QUERY_EQ.
pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let queue = f.objects.event_queues.get(number(input)?).ok_or(Status::BadResource)?;
    output.put(QUERY_CONTEXT, &queue.context().to_bytes())
}
