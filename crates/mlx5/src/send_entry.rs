//! Send work queue entries: from the driver's format to the engine's work requests.
//!
//! `work_queues` has checked the length in the first segment against the posted blocks, and passes
//! a private copy of at most 1,024 bytes, in the dispatcher's thread. An entry with segments beyond
//! its length, with inline payload behind other payload, or with an operation that its queue pair
//! does not have, breaks the queue: the engine (`causeway_verbs::Subnet::progress`) writes an error
//! completion for the entry and none for the entries behind it, and the queue pair moves to the
//! error state. Keys, addresses and lengths of payloads are the engine's part. Masked atomic
//! operations are not offered by the capabilities and are refused here in the same way. The service
//! level and the rate of an entry are ignored, and so is the fence: the engine ends each request
//! before it begins the next of its queue. The layouts of segments are in
//! `causeway_wire::mlx5::work_request`. Entries of Ethernet send queues are decoded in
//! `ethernet::transmit`.

use causeway_verbs::QueueError;
use causeway_verbs::region::Rights;
use causeway_verbs::work::{
    AddressVector, Operation, PageEntries, PageUpdate, RegionUpdate, RemoteAddress, SendWork,
};
use causeway_wire::mlx5::memory_key::mask;
use causeway_wire::mlx5::page_list;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{
    ControlSegment, DatagramSegment, Payload, SendOpcode, SendQueueKind, SendRequest, Update,
    UpdateList,
};

use crate::receive_entry::decode;

/// Page list entries in a unit of list sizes.
const ENTRIES_PER_UNIT: u32 = 2;

/// Returns the number of blocks of the entry that begins with `first`, or `None` if its length is
/// zero.
#[inline]
pub(crate) fn blocks(first: &[u8]) -> Option<u16> {
    let control = ControlSegment::parse(first).ok().filter(|control| !control.is_empty())?;
    Some(control.blocks())
}

/// Decodes an entry of a queue pair with this service. `work` must be clear.
///
/// # Errors
/// [`QueueError`]; the opcode in `work.token` is set if the entry has an opcode.
pub(crate) fn parse(entry: &[u8], service: u8, work: &mut SendWork) -> Result<(), QueueError> {
    work.token.opcode = entry.get(3).copied().unwrap_or(0);
    let kind = Service::from_raw(service).and_then(SendQueueKind::of);
    let kind = kind.ok_or(QueueError("the service has no send queue"))?;
    let request = SendRequest::parse(entry, kind);
    let request = request.map_err(|_| QueueError("the send entry is malformed"))?;
    let control = request.control;
    work.is_signaled = control.is_signaled();
    work.is_solicited = control.is_solicited;
    work.destination = request.datagram.map(|segment| address_vector(&segment));
    work.xrc_queue = request.xrc.map_or(0, |segment| segment.receive_queue);
    work.operation = operation(&request)?;
    for part in request.payload {
        match part.map_err(|_| QueueError("a payload segment is cut off"))? {
            Payload::Memory(segment) => work.segments.push(decode(&segment)),
            Payload::Inline(bytes) if work.segments.is_empty() => {
                work.is_inline = true;
                work.inline.extend_from_slice(bytes);
            }
            Payload::Inline(_) => return Err(QueueError("inline payload follows other payload")),
        }
    }
    Ok(())
}

/// Returns the operation of an entry.
fn operation(request: &SendRequest<'_>) -> Result<Operation, QueueError> {
    let immediate = request.control.immediate;
    let remote = request.remote.map(|r| RemoteAddress { address: r.address, key: r.key });
    let remote = remote.unwrap_or_default();
    let atomic = request.atomic.unwrap_or_default();
    Ok(match request.opcode {
        SendOpcode::Nop => Operation::Nop,
        SendOpcode::Send => Operation::Send,
        SendOpcode::SendImmediate => Operation::SendImmediate(immediate),
        SendOpcode::SendInvalidate => Operation::SendInvalidate(immediate),
        SendOpcode::Write => Operation::Write(remote),
        SendOpcode::WriteImmediate => Operation::WriteImmediate(remote, immediate),
        SendOpcode::Read => Operation::Read(remote),
        SendOpcode::CompareSwap => {
            Operation::CompareSwap { remote, compare: atomic.compare, swap: atomic.swap_or_add }
        }
        SendOpcode::FetchAdd => Operation::FetchAdd { remote, add: atomic.swap_or_add },
        SendOpcode::Update => match &request.update {
            Some(update) => Operation::Register(region_update(immediate, update)),
            None => return Err(QueueError("the send entry is malformed")),
        },
        SendOpcode::Segmentation | SendOpcode::MaskedCompareSwap | SendOpcode::MaskedFetchAdd => {
            return Err(QueueError("the operation is not offered"));
        }
    })
}

/// Returns the destination of a datagram.
fn address_vector(segment: &DatagramSegment) -> AddressVector {
    AddressVector {
        mac: segment.mac,
        queue_pair: segment.queue_pair,
        queue_key: segment.queue_key,
        gid: segment.gid,
        source_gid_index: segment.source_gid_index,
        traffic_class: segment.traffic_class,
        hop_limit: segment.hop_limit,
        flow_label: segment.flow_label,
    }
}

/// Returns the change of a memory key. Fields that the mask does not select are undefined in the
/// entry, the access mode always.
fn region_update(key: u32, update: &Update<'_>) -> RegionUpdate {
    let (control, context) = (&update.control, &update.context);
    let if_set = |bit: u64| control.changes(bit).then_some(());
    let is_free = if_set(mask::FREE).map(|()| context.is_free);
    RegionUpdate {
        key,
        variable: if_set(mask::VARIABLE).map(|()| context.variable),
        base: if_set(mask::START).map(|()| context.start),
        len: if_set(mask::LEN).map(|()| context.len),
        domain: if_set(mask::DOMAIN).map(|()| context.domain),
        page_shift: if_set(mask::PAGE_SIZE).map(|()| context.log_page_size),
        rights: rights(update),
        is_free,
        // Drivers ask for both states in ways that differ between versions; the checks only find
        // errors of the driver itself.
        required_free: None,
        // A revocation carries a list size and no list.
        pages: if is_free == Some(true) { None } else { pages(update) },
    }
}

/// Returns the new rights and the mask of rights that change.
fn rights(update: &Update<'_>) -> Option<(Rights, Rights)> {
    let context = &update.context;
    let all = [
        (mask::LOCAL_READ, context.local_read, Rights::LOCAL_READ),
        (mask::LOCAL_WRITE, context.local_write, Rights::LOCAL_WRITE),
        (mask::REMOTE_READ, context.remote_read, Rights::REMOTE_READ),
        (mask::REMOTE_WRITE, context.remote_write, Rights::REMOTE_WRITE),
        (mask::REMOTE_ATOMIC, context.remote_atomic, Rights::REMOTE_ATOMIC),
        (mask::REMOTE_INVALIDATE, context.has_remote_invalidate, Rights::REMOTE_INVALIDATE),
    ];
    let (mut value, mut selected) = (Rights::empty(), Rights::empty());
    for (bit, is_permitted, right) in all {
        if update.control.changes(bit) {
            selected = selected.union(right);
            if is_permitted {
                value = value.union(right);
            }
        }
    }
    (!selected.is_empty()).then_some((value, selected))
}

/// Returns the new page list entries.
fn pages(update: &Update<'_>) -> Option<PageUpdate> {
    let count = u32::from(update.control.list_size).checked_mul(ENTRIES_PER_UNIT)?;
    let first = update.control.offset().saturating_mul(u64::from(ENTRIES_PER_UNIT));
    // An offset that is too large stays outside of every list.
    let first = u32::try_from(first).unwrap_or(u32::MAX);
    let entries = match &update.list {
        UpdateList::None => return None,
        UpdateList::Inline(list) => PageEntries::Inline(page_list::addresses(list).collect()),
        UpdateList::Memory(segment) => PageEntries::Memory(decode(segment)),
    };
    Some(PageUpdate { first, count, entries })
}
