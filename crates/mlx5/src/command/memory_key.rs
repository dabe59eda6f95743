//! Commands about memory keys: the regions of the adapter.
//!
//! A key of physical mode reaches all memory that the map grants at the time of an access, and ends
//! with the grant; one with a length is refused, because its holder would reach more, and so is a
//! key of page list mode without a length. A key of page list mode has the pages of the command, or
//! none until a registration by a work request. Keys that refer to other keys are refused. All of
//! these are *bad parameter*; a list shorter than its count by more than an entry is *bad input
//! length*, an unknown key *bad resource*. The protection domain is not looked up.
//!
//! The engine bounds keys, registered bytes and page list entries per adapter (*limit exceeded*). A
//! key may be destroyed while work requests use it: their next access to it fails.
//! [`super::dispatch`] calls the handlers in the dispatcher's turn.

use causeway_verbs::Adapter;
use causeway_verbs::region::{Region, RegionError, RegionMemory, Rights};
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::memory_key::{
    AccessMode, CREATE_ACTUAL_SIZE, CREATE_CONTEXT, CREATE_PAGES, MemoryKeyContext, QUERY_CONTEXT,
    RESERVED_LOCAL_KEY,
};
use causeway_wire::mlx5::page_list;
use causeway_wire::mlx5::startup::SpecialContextsOutput;

use super::{Input, Outcome, Output, short};
use crate::function::Function;

/// Page list entries in a unit of list sizes.
const ENTRIES_PER_UNIT: u32 = 2;
/// Units of page list entries that a length of zero stands for.
const CAPACITY_MIN: u32 = 1;

/// Executes CREATE_MKEY.
pub(crate) fn create(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let context = MemoryKeyContext::parse(input.tail(CREATE_CONTEXT)?).map_err(short)?;
    let memory = match context.mode() {
        Some(AccessMode::Physical) => RegionMemory::Whole,
        Some(AccessMode::PageList) => pages(&context, input)?,
        _ => return Err(Status::BadParameter),
    };
    if context.is_unlimited != (memory == RegionMemory::Whole) {
        return Err(Status::BadParameter);
    }
    let region = Region {
        domain: context.domain,
        base: context.start,
        len: context.len,
        rights: rights(&context),
        is_free: context.is_free,
        variable: context.variable,
        memory,
    };
    let number = adapter.regions_mut().create(region).map_err(status)?;
    output.put_number(number)
}

/// Returns the page list of a new key.
fn pages(context: &MemoryKeyContext, input: Input<'_>) -> Result<RegionMemory, Status> {
    let actual = input.u32(CREATE_ACTUAL_SIZE)?;
    let capacity = context.list_size.max(actual).max(CAPACITY_MIN);
    let capacity = capacity.checked_mul(ENTRIES_PER_UNIT).ok_or(Status::BadParameter)?;
    let count = actual.checked_mul(ENTRIES_PER_UNIT).ok_or(Status::BadParameter)?;
    let list = input.0.get(CREATE_PAGES..).unwrap_or(&[]);
    let addresses = page_list::addresses(list);
    // The list is padded to whole units: an odd number of pages may lack its last entry.
    let present = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    if present.saturating_add(1) < count {
        return Err(Status::BadInputLength);
    }
    let pages = addresses.take(count as usize).collect();
    Ok(RegionMemory::Pages { shift: context.log_page_size, pages, capacity })
}

/// Returns the rights of a context.
fn rights(context: &MemoryKeyContext) -> Rights {
    let all = [
        (context.local_read, Rights::LOCAL_READ),
        (context.local_write, Rights::LOCAL_WRITE),
        (context.remote_read, Rights::REMOTE_READ),
        (context.remote_write, Rights::REMOTE_WRITE),
        (context.remote_atomic, Rights::REMOTE_ATOMIC),
        (context.has_remote_invalidate, Rights::REMOTE_INVALIDATE),
    ];
    let permitted = all.into_iter().filter(|(is_permitted, _)| *is_permitted);
    permitted.fold(Rights::empty(), |sum, (_, right)| sum.union(right))
}

/// Returns the status of an error of the engine.
fn status(error: RegionError) -> Status {
    match error {
        // Drivers report this status as a lack of memory.
        RegionError::Limit(_) => Status::ExceededLimit,
        RegionError::NoKey => Status::BadResource,
        _ => Status::BadParameter,
    }
}

/// Executes DESTROY_MKEY.
pub(crate) fn destroy(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    adapter.regions_mut().destroy(input.number()?).map(drop).map_err(status)
}

/// Executes QUERY_MKEY.
pub(crate) fn query(
    adapter: &mut Adapter<Function>,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let region = adapter.regions().region(input.number()?).ok_or(Status::BadResource)?;
    let has = |right| region.rights.contains(right);
    let (mode, log_page_size) = match &region.memory {
        RegionMemory::Whole => (AccessMode::Physical, 0),
        RegionMemory::Pages { shift, .. } => (AccessMode::PageList, *shift),
    };
    let context = MemoryKeyContext {
        is_free: region.is_free,
        local_read: has(Rights::LOCAL_READ),
        local_write: has(Rights::LOCAL_WRITE),
        remote_read: has(Rights::REMOTE_READ),
        remote_write: has(Rights::REMOTE_WRITE),
        remote_atomic: has(Rights::REMOTE_ATOMIC),
        has_remote_invalidate: has(Rights::REMOTE_INVALIDATE),
        access_mode: mode.raw(),
        variable: region.variable,
        domain: region.domain,
        start: region.base,
        len: region.len,
        log_page_size,
        ..MemoryKeyContext::default()
    };
    output.put(QUERY_CONTEXT, &context.to_bytes())
}

/// Executes QUERY_SPECIAL_CONTEXTS: reports the reserved local key.
pub(crate) fn special(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let special = SpecialContextsOutput { reserved_key: RESERVED_LOCAL_KEY, ..Default::default() };
    // The status and syndrome are written behind the handler.
    output.put_truncated(0, &special.to_bytes());
    Ok(())
}
