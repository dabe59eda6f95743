//! Commands about transport interfaces and tables of receive queues.
//!
//! Merging of received segments is not offered, so an interface that asks for it is refused (*bad
//! parameter*), and so are an unknown hash or dispatch, a change of other fields than merging, hash
//! and loopback, and a table of another type of list, without queues, of more than 1,024, or beyond
//! its own capacity. A list shorter than its count is *bad input length*. A receive queue or table
//! that a new object names must exist (*bad resource*). More than 1,024 objects of a kind are
//! *limit exceeded*. A table cannot be destroyed while an interface uses it (*bad resource state*).
//! An interface may be destroyed while a flow entry names it. Receive queues may be destroyed while
//! a table or an interface names them: frames for them are then dropped.
//!
//! `crate::command::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::steering::{
    CONTEXT, Dispatch, HASH_KEY, HashFunction, ReceiveInterface, ReceiveQueueTable, SendInterface,
    TABLE_LIST, emit_table_entries, hash_key, table_entries,
};

use crate::command::{Input, Outcome, Output, short};
use crate::ethernet::interface::{Interface, QueueTable};
use crate::ethernet::limits::TABLE_ENTRIES_MAX;
use crate::function::Function;

/// Offset of the mask of changed fields in MODIFY_TIR.
const MODIFY_MASK: usize = 0x14;
/// Bit of that mask: merging of segments.
const MODIFY_MERGE: u32 = 1 << 0;
/// Bit of that mask: the hash.
const MODIFY_HASH: u32 = 1 << 2;
/// Bit of that mask: blocked loopback.
const MODIFY_LOOPBACK: u32 = 1 << 4;

/// Reads an interface and checks its hash.
fn interface(input: Input<'_>) -> Result<Interface, Status> {
    let bytes = input.tail(CONTEXT)?;
    let context = ReceiveInterface::parse(bytes).map_err(short)?;
    let key = hash_key(bytes).ok_or(Status::BadInputLength)?;
    if context.merge_mask != 0 || HashFunction::from_raw(context.hash).is_none() {
        return Err(Status::BadParameter);
    }
    Ok(Interface { context, key })
}

/// Executes CREATE_TIR.
pub(crate) fn create_tir(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let interface = interface(input)?;
    let context = interface.context;
    let ethernet = &mut f.objects.ethernet;
    let interfaces = &mut ethernet.interfaces;
    match Dispatch::from_raw(context.dispatch).ok_or(Status::BadParameter)? {
        Dispatch::Direct if !ethernet.receive_queues.contains(context.receive_queue) => {
            return Err(Status::BadResource);
        }
        Dispatch::Indirect if !interfaces.tables.contains(context.table) => {
            return Err(Status::BadResource);
        }
        _ => {}
    }
    let number = interfaces.receive.insert(interface).map_err(|_| Status::ExceededLimit)?;
    if context.dispatch == Dispatch::Indirect.raw()
        && let Some(table) = interfaces.tables.get_mut(context.table)
    {
        table.users = table.users.saturating_add(1);
    }
    output.put_number(number)
}

/// Executes MODIFY_TIR: changes the hash. The loopback switch is stored and has no effect.
pub(crate) fn modify_tir(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let new = interface(input)?;
    let mask = input.u32(MODIFY_MASK)?;
    if mask & !(MODIFY_MERGE | MODIFY_HASH | MODIFY_LOOPBACK) != 0 {
        return Err(Status::BadParameter);
    }
    let own = f.objects.ethernet.interfaces.receive.get_mut(input.number()?);
    let own = own.ok_or(Status::BadResource)?;
    if mask & MODIFY_HASH != 0 {
        own.key = new.key;
        own.context.is_symmetric = new.context.is_symmetric;
        own.context.hash = new.context.hash;
        own.context.hash_ipv6 = new.context.hash_ipv6;
        own.context.hash_udp = new.context.hash_udp;
        own.context.hash_fields = new.context.hash_fields;
    }
    if mask & MODIFY_LOOPBACK != 0 {
        own.context.loopback_block = new.context.loopback_block;
    }
    Ok(())
}

/// Executes DESTROY_TIR.
pub(crate) fn destroy_tir(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let interfaces = &mut f.objects.ethernet.interfaces;
    let interface = interfaces.receive.remove(input.number()?).ok_or(Status::BadResource)?;
    if interface.context.dispatch == Dispatch::Indirect.raw()
        && let Some(table) = interfaces.tables.get_mut(interface.context.table)
    {
        table.users = table.users.saturating_sub(1);
    }
    Ok(())
}

/// Executes QUERY_TIR.
pub(crate) fn query_tir(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let interface = f.objects.ethernet.interfaces.receive.get(input.number()?);
    let interface = interface.ok_or(Status::BadResource)?;
    output.put(CONTEXT, &interface.context.to_bytes())?;
    output.put(CONTEXT.saturating_add(HASH_KEY), &interface.key)
}

/// Executes CREATE_TIS.
pub(crate) fn create_tis(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let context = SendInterface::parse(input.tail(CONTEXT)?).map_err(short)?;
    let interfaces = &mut f.objects.ethernet.interfaces;
    output.put_number(interfaces.send.insert(context).map_err(|_| Status::ExceededLimit)?)
}

/// Executes MODIFY_TIS: stores the priority, which has no effect.
pub(crate) fn modify_tis(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let new = SendInterface::parse(input.tail(CONTEXT)?).map_err(short)?;
    let own = f.objects.ethernet.interfaces.send.get_mut(input.number()?);
    own.ok_or(Status::BadResource)?.priority = new.priority;
    Ok(())
}

/// Executes DESTROY_TIS.
pub(crate) fn destroy_tis(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let removed = f.objects.ethernet.interfaces.send.remove(input.number()?);
    removed.map(drop).ok_or(Status::BadResource)
}

/// Executes QUERY_TIS.
pub(crate) fn query_tis(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    let context = f.objects.ethernet.interfaces.send.get(input.number()?);
    output.put(CONTEXT, &context.ok_or(Status::BadResource)?.to_bytes())
}

/// Reads the list of a table and checks that its receive queues exist.
fn queues(f: &Function, bytes: &[u8]) -> Result<(ReceiveQueueTable, Vec<u32>), Status> {
    let context = ReceiveQueueTable::parse(bytes).map_err(short)?;
    let len = usize::from(context.len);
    if context.list_type != 0 || len == 0 || len > TABLE_ENTRIES_MAX {
        return Err(Status::BadParameter);
    }
    let queues: Vec<u32> = table_entries(bytes).collect();
    if queues.len() != len {
        return Err(Status::BadInputLength);
    }
    let existing = &f.objects.ethernet.receive_queues;
    if !queues.iter().all(|queue| existing.contains(*queue)) {
        return Err(Status::BadResource);
    }
    Ok((context, queues))
}

/// Executes CREATE_RQT.
pub(crate) fn create_queue_table(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    output.check_number()?;
    let (context, queues) = queues(f, input.tail(CONTEXT)?)?;
    if context.len > context.capacity {
        return Err(Status::BadParameter);
    }
    let table = QueueTable { queues, capacity: context.capacity, users: 0 };
    let tables = &mut f.objects.ethernet.interfaces.tables;
    output.put_number(tables.insert(table).map_err(|_| Status::ExceededLimit)?)
}

/// Executes MODIFY_RQT: replaces the list of queues.
pub(crate) fn modify_queue_table(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let (context, queues) = queues(f, input.tail(CONTEXT)?)?;
    let table = f.objects.ethernet.interfaces.tables.get_mut(input.number()?);
    let table = table.ok_or(Status::BadResource)?;
    if context.len > table.capacity {
        return Err(Status::BadParameter);
    }
    table.queues = queues;
    Ok(())
}

/// Executes DESTROY_RQT.
pub(crate) fn destroy_queue_table(
    f: &mut Function,
    input: Input<'_>,
    _: &mut Output<'_>,
) -> Outcome {
    let tables = &mut f.objects.ethernet.interfaces.tables;
    let number = input.number()?;
    if tables.get(number).ok_or(Status::BadResource)?.users > 0 {
        return Err(Status::BadResourceState);
    }
    tables.remove(number);
    Ok(())
}

/// Executes QUERY_RQT.
pub(crate) fn query_queue_table(
    f: &mut Function,
    input: Input<'_>,
    output: &mut Output<'_>,
) -> Outcome {
    let table = f.objects.ethernet.interfaces.tables.get(input.number()?);
    let table = table.ok_or(Status::BadResource)?;
    let len = u16::try_from(table.queues.len()).unwrap_or(u16::MAX);
    let context =
        ReceiveQueueTable { len, capacity: table.capacity, ..ReceiveQueueTable::default() };
    output.put(CONTEXT, &context.to_bytes())?;
    let context = output.0.get_mut(CONTEXT..).ok_or(Status::BadOutputLength)?;
    if context.len() < TABLE_LIST {
        return Err(Status::BadOutputLength);
    }
    emit_table_entries(&table.queues, context);
    Ok(())
}
