//! Commands about completion queues.
//!
//! The creation is refused with *bad parameter* for more than 2^20 entries, an unaligned doorbell
//! record, or too few pages; with *bad resource* for an unknown event queue; with *limit exceeded*
//! if the event queue has no room for the queue's events, the table is full, or the pages of all
//! queues are too many. An unknown queue is *bad resource* in every command. A queue that work
//! queues complete to cannot be destroyed (*bad resource state*). Moderation is stored and not
//! applied: completions are reported as soon as the event rule permits. Queues cannot be resized
//! (*bad operation*); the capabilities do not offer it.
//!
//! [`super::dispatch`] calls the handlers, in the dispatcher's turn. The rule and the entries are
//! in `crate::completion_queue`; entries that a destroyed queue holds stay in the driver's memory.

use causeway_wire::mlx5::command::{InputHeader, Status};
use causeway_wire::mlx5::completion_queue::{CONTEXT, CompletionQueueContext, PAGES};

use super::{Input, Outcome, Output, short};
use crate::completion_queue::CompletionQueue;
use crate::function::Function;
use crate::limits::{COMPLETION_QUEUE_LOG_MAX, DOORBELL_RECORD_ALIGNMENT};
use crate::page_list::PageList;

pub(crate) fn create(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let context = CompletionQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let stride = context.stride().ok_or(Status::BadParameter)? as u64;
    if context.log_size > COMPLETION_QUEUE_LOG_MAX
        || !context.doorbell_record.is_multiple_of(DOORBELL_RECORD_ALIGNMENT)
    {
        return Err(Status::BadParameter);
    }
    let bytes = stride << context.log_size;
    let list = input.tail(PAGES)?;
    let position = (context.log_page_size, context.page_offset);
    let pages = PageList::new(&f.objects.page_quota, list, position, bytes)?;
    let objects = &mut f.objects;
    let event_queue = u8::try_from(context.event_queue).map_err(|_| Status::BadResource)?;
    let event_queue = objects.event_queues.get_mut(event_queue).ok_or(Status::BadResource)?;
    if !event_queue.has_room() {
        return Err(Status::ExceededLimit);
    }
    let queue = CompletionQueue::new(pages, context, stride);
    let number = objects.completion_queues.insert(queue).map_err(|_| Status::ExceededLimit)?;
    event_queue.users = event_queue.users.saturating_add(1);
    output.put_number(number)
}

pub(crate) fn destroy(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let number = input.number()?;
    let objects = &mut f.objects;
    let queue = objects.completion_queues.get(number).ok_or(Status::BadResource)?;
    if queue.users > 0 {
        return Err(Status::BadResourceState);
    }
    if let Some(event_queue) = objects.event_queues.get_mut(queue.event_queue()) {
        event_queue.users = event_queue.users.saturating_sub(1);
    }
    objects.completion_queues.remove(number);
    Ok(())
}

pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let queue = f.objects.completion_queues.get(input.number()?).ok_or(Status::BadResource)?;
    output.put(CONTEXT, &queue.context().to_bytes())
}

pub(crate) fn modify(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let header = InputHeader::parse(input.bytes()).map_err(short)?;
    let context = CompletionQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let queues = &mut f.objects.completion_queues;
    let queue = queues.get_mut(header.number).ok_or(Status::BadResource)?;
    if header.modifier != 0 {
        return Err(Status::BadOperation);
    }
    queue.set_moderation(context.period, context.max_count);
    Ok(())
}
