//! Commands about completion queues.
//!
//! The creation is refused with *bad parameter* for more than 2^20 entries, an unknown length of
//! entries, an unaligned doorbell record, or too few or too large pages; with *bad resource* for an
//! unknown event queue; with *limit exceeded* if the event queue has no room for the queue's
//! events, the table is full, or the pages of all queues are too many. An unknown queue is *bad
//! resource* in every command. A queue that work queues complete to cannot be destroyed (*bad
//! resource state*).
//!
//! A change sets the moderation, or replaces the ring by one of another size and the same length of
//! entries. A resize has the limits of the creation; while it runs, the pages of both rings count.
//! It is refused with *too many outstanding completions* if the old ring is full or the driver has
//! not taken more entries than the new ring holds, and with *bad resource state* if the queue is
//! broken or its memory is not granted. A resize that cannot write its entry to the old ring leaves
//! the queue broken. Other changes are *bad operation*.
//!
//! [`super::dispatch`] calls the handlers, in the dispatcher's turn. The rule and the entries are
//! in `crate::completion_queue`; entries that a destroyed queue holds stay in the driver's memory.

use causeway_wire::mlx5::command::{InputHeader, Status};
use causeway_wire::mlx5::completion_queue::{
    CONTEXT, CompletionQueueContext, MODIFY_COUNT, MODIFY_LOG_SIZE, MODIFY_PAGE_OFFSET,
    MODIFY_PAGE_SIZE, MODIFY_PERIOD, MODIFY_RESIZE, PAGES,
};

use super::{Input, Outcome, Output, short};
use crate::completion_queue::CompletionQueue;
use crate::function::Function;
use crate::limits::{COMPLETION_QUEUE_LOG_MAX, DOORBELL_RECORD_ALIGNMENT};
use crate::page_list::PageList;

/// Executes CREATE_CQ.
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

/// Executes DESTROY_CQ.
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
    if let Some(until) = queue.delayed_ns {
        objects.delayed.remove(&(until, number));
    }
    objects.completion_queues.remove(number);
    Ok(())
}

/// Executes QUERY_CQ.
pub(crate) fn query(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let queue = f.objects.completion_queues.get(input.number()?).ok_or(Status::BadResource)?;
    output.put(CONTEXT, &queue.context().to_bytes())
}

/// Executes MODIFY_CQ: sets the moderation, or replaces the ring.
pub(crate) fn modify(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let header = InputHeader::parse(input.bytes()).map_err(short)?;
    let context = CompletionQueueContext::parse(input.tail(CONTEXT)?).map_err(short)?;
    let objects = &mut f.objects;
    let queue = objects.completion_queues.get_mut(header.number).ok_or(Status::BadResource)?;
    match header.modifier {
        0 => {
            let selects = |field: u32| header.argument & field != 0;
            let period = selects(MODIFY_PERIOD).then_some(context.period);
            queue.set_moderation(period, selects(MODIFY_COUNT).then_some(context.max_count));
            Ok(())
        }
        MODIFY_RESIZE => {
            if context.stride().map(|stride| stride as u64) != Some(queue.stride()) {
                return Err(Status::BadParameter);
            }
            let new = resized(queue.context(), &context, header.argument);
            if new.log_size > COMPLETION_QUEUE_LOG_MAX {
                return Err(Status::BadParameter);
            }
            let position = (new.log_page_size, new.page_offset);
            let bytes = queue.stride() << new.log_size;
            let pages = PageList::new(&objects.page_quota, input.tail(PAGES)?, position, bytes)?;
            if f.is_restoring {
                queue.resume_ring(pages, new);
                return Ok(());
            }
            queue.resize(&f.map, pages, new)
        }
        _ => Err(Status::BadOperation),
    }
}

/// Returns a context with the fields of a resize that the mask selects.
fn resized(
    own: CompletionQueueContext,
    new: &CompletionQueueContext,
    mask: u32,
) -> CompletionQueueContext {
    let choose = |field: u32, new: u8, own: u8| if mask & field == 0 { own } else { new };
    CompletionQueueContext {
        log_size: choose(MODIFY_LOG_SIZE, new.log_size, own.log_size),
        page_offset: choose(MODIFY_PAGE_OFFSET, new.page_offset, own.page_offset),
        log_page_size: choose(MODIFY_PAGE_SIZE, new.log_page_size, own.log_page_size),
        ..own
    }
}
