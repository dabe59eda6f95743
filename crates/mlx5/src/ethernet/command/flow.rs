//! Commands about flow tables, groups and entries. The rules are in [`FlowTables`].
//!
//! Tables and groups number at most 4,096 each, groups of a table 64, entries 16,384, and
//! destinations of an entry 32; more is *limit exceeded*. A table of more than 2^24 entries, an
//! unknown type or not the table's, and a group outside of its table or across another group are
//! *bad parameter*. An unknown table or group, and a destination that does not exist, are *bad
//! resource*; an entry that does not exist or lies outside of its group, and a new one with a type
//! that is not the table's, is *bad index*.
//!
//! A table with groups, and a group with entries, cannot be destroyed, and an entry cannot be added
//! twice (*bad resource state*). Tables and transport interfaces may be destroyed while an entry, a
//! miss or the root names them: frames then find nothing there. A change takes effect for the next
//! frame.
//!
//! [`FlowTables`]: crate::ethernet::flow::FlowTables
//!
//! `crate::command::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::steering::{
    CRITERIA_OUTER, Destination, DestinationType, EntryInput, GROUP_CRITERIA, GroupInput,
    MatchHeaders, TableInput, TableReference, destinations,
};

use crate::command::{Input, Outcome, Output, short};
use crate::ethernet::flow::{FlowEntry, GroupDefinition};
use crate::ethernet::limits::FLOW_DESTINATIONS_MAX;
use crate::function::Function;

/// Value of [`TableInput::miss_action`]: frames without an entry go to another table.
const MISS_FORWARDS: u8 = 1;
/// Bit of [`TableReference::select`]: the table for frames without an entry.
const MODIFY_MISS: u16 = 1 << 0;
/// Modifier of SET_FLOW_TABLE_ROOT: there is no first table.
const ROOT_DISCONNECTED: u16 = 1;
/// Modifier of SET_FLOW_TABLE_ENTRY: a new entry.
const ENTRY_NEW: u16 = 0;
/// Modifier of SET_FLOW_TABLE_ENTRY: the change of an entry.
const ENTRY_CHANGED: u16 = 1;
/// Bit of [`EntryInput::select`]: the action.
const MODIFY_ACTION: u8 = 1 << 0;
/// Bit of [`EntryInput::select`]: the tag.
const MODIFY_TAG: u8 = 1 << 1;
/// Bit of [`EntryInput::select`]: the destinations.
const MODIFY_DESTINATIONS: u8 = 1 << 2;

/// Returns the table, group and entry that a command names.
fn reference(input: Input<'_>) -> Result<TableReference, Status> {
    TableReference::parse(input.bytes()).map_err(short)
}

/// Returns the table for frames without an entry; `None` for none.
fn miss(input: &TableInput) -> Option<u32> {
    (input.miss_action == MISS_FORWARDS).then_some(input.miss_table)
}

/// Executes CREATE_FLOW_TABLE.
pub(crate) fn create_table(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let new = TableInput::parse(input.bytes()).map_err(short)?;
    let flows = &mut f.objects.ethernet.flows;
    output.put_number(flows.create(new.table_type, new.log_size, miss(&new))?)
}

/// Executes DESTROY_FLOW_TABLE.
pub(crate) fn destroy_table(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let table = reference(input)?;
    f.objects.ethernet.flows.destroy(table.table, table.table_type)
}

/// Executes MODIFY_FLOW_TABLE: sets the table for misses.
pub(crate) fn modify_table(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let table = reference(input)?;
    if table.select & MODIFY_MISS == 0 {
        return Ok(());
    }
    let new = TableInput::parse(input.bytes()).map_err(short)?;
    f.objects.ethernet.flows.set_miss(table.table, table.table_type, miss(&new))
}

/// Executes SET_FLOW_TABLE_ROOT.
pub(crate) fn set_root(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let table = reference(input)?;
    let is_connected = input.modifier()? != ROOT_DISCONNECTED;
    let root = is_connected.then_some(table.table);
    f.objects.ethernet.flows.set_root(root, table.table_type)
}

/// Executes CREATE_FLOW_GROUP.
pub(crate) fn create_group(f: &mut Function, input: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let new = GroupInput::parse(input.bytes()).map_err(short)?;
    // Bits that have no field here are lost in the parsed mask.
    let mask: [u8; MatchHeaders::LEN] = input.array(GROUP_CRITERIA)?;
    let is_supported = new.criteria & !CRITERIA_OUTER == 0 && mask == new.outer.to_bytes();
    let number = f.objects.ethernet.flows.create_group(&GroupDefinition {
        table: new.table,
        table_type: new.table_type,
        first: new.first,
        last: new.last,
        mask: new.outer,
        is_supported,
    })?;
    output.put_number(number)
}

/// Executes DESTROY_FLOW_GROUP.
pub(crate) fn destroy_group(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let group = reference(input)?;
    f.objects.ethernet.flows.destroy_group(group.table, group.group)
}

/// Executes SET_FLOW_TABLE_ENTRY: adds an entry, or changes one.
pub(crate) fn set_entry(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let new = EntryInput::parse(input.bytes()).map_err(short)?;
    let count = usize::try_from(new.destinations).unwrap_or(usize::MAX);
    if count > FLOW_DESTINATIONS_MAX {
        return Err(Status::ExceededLimit);
    }
    let to: Vec<Destination> = destinations(input.bytes()).collect();
    if to.len() != count {
        return Err(Status::BadInputLength);
    }
    let ethernet = &mut f.objects.ethernet;
    let is_interface =
        |to: &&Destination| to.destination_type == DestinationType::ReceiveInterface.raw();
    let existing = &ethernet.interfaces.receive;
    if !to.iter().filter(is_interface).all(|to| existing.contains(to.number)) {
        return Err(Status::BadResource);
    }
    let place = (new.table, new.table_type, new.index);
    match input.modifier()? {
        ENTRY_NEW => {
            let (value, action, tag) = (new.outer.to_bytes(), new.action, new.tag);
            let entry = FlowEntry { group: new.group, value, action, tag, destinations: to };
            ethernet.flows.insert(place, entry)
        }
        ENTRY_CHANGED => {
            let selects = |field: u8| new.select & field != 0;
            let action = selects(MODIFY_ACTION).then_some(new.action);
            let tag = selects(MODIFY_TAG).then_some(new.tag);
            let to = selects(MODIFY_DESTINATIONS).then_some(to);
            ethernet.flows.modify(place, action, tag, to)
        }
        _ => Err(Status::BadParameter),
    }
}

/// Executes DELETE_FLOW_TABLE_ENTRY.
pub(crate) fn delete_entry(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let entry = reference(input)?;
    f.objects.ethernet.flows.remove(entry.table, entry.table_type, entry.index)
}
