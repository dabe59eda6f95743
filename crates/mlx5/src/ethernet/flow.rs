//! Flow tables: the driver's rules by which a received frame finds its transport interfaces.
//!
//! A table consists of groups, which select header bits, and entries of these groups, which have
//! values for them. Among the entries with values equal to the frame's, the lowest index decides:
//! the frame goes to transport interfaces and further tables, or, by an entry without that action,
//! to none. A frame without an entry goes to the table that the table names for misses. The search
//! begins at the root table of received frames. A table or interface that was destroyed receives
//! nothing, and a frame without an interface at the end is dropped and counted as filtered.
//!
//! Searched are tables of [`TableType::Receive`] only; others are stored without effect, and so are
//! groups with criteria beyond [`MatchHeaders`]: their entries match nothing. Entries of a group
//! are found by a hash. A search ends after [`limits::FLOW_GROUPS_PER_FRAME_MAX`] (256) groups or
//! [`limits::FLOW_TABLES_PER_FRAME_MAX`] (64) tables, so that links in a circle end: the interfaces
//! found before receive the frame, at most [`limits::INTERFACES_PER_FRAME_MAX`] (8), each once. Up
//! to 256 results are kept for later frames with equal headers; a further result or a change of a
//! rule drops them.
//!
//! `super::command` changes the rules, `super::receive` searches, both in the dispatcher's turn. A
//! change beyond a limit (`super::command::flow`) is refused with a status and changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use causeway_verbs::number::Table;
use causeway_wire::mlx5::command::Status;
use causeway_wire::mlx5::steering::{
    ACTION_DROP, ACTION_FORWARD, Destination, DestinationType, MatchHeaders, TableType,
};

use super::limits;

/// The match fields of a frame, group or entry, as bytes.
pub(crate) type Fields = [u8; MatchHeaders::LEN];

type FieldMap<T> = HashMap<Fields, T, foldhash::fast::RandomState>;

/// The destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    interfaces: [u32; limits::INTERFACES_PER_FRAME_MAX],
    count: usize,
    /// Value that completions carry: of the entry that named the last of the interfaces.
    pub tag: u32,
}

impl Verdict {
    /// Returns the transport interfaces that receive the frame.
    pub fn interfaces(&self) -> &[u32] {
        self.interfaces.get(..self.count).unwrap_or(&[])
    }

    fn push(&mut self, interface: u32, tag: u32) {
        if self.interfaces().contains(&interface) {
            return;
        }
        if let Some(place) = self.interfaces.get_mut(self.count) {
            (*place, self.tag) = (interface, tag);
            self.count = self.count.saturating_add(1);
        }
    }
}

/// A flow table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    /// Code of the [`TableType`].
    pub table_type: u8,
    /// Binary logarithm of the number of entries.
    pub log_size: u8,
    /// Table for frames without an entry.
    pub miss: Option<u32>,
    /// Groups by their first index.
    groups: BTreeMap<u32, u32>,
    /// Entries by index.
    entries: BTreeMap<u32, FlowEntry>,
}

/// A group of entries.
#[derive(Debug)]
struct FlowGroup {
    table: u32,
    first: u32,
    last: u32,
    mask: Fields,
    is_supported: bool,
    /// The indices of the entries with a value; the lowest decides.
    lookup: FieldMap<BTreeSet<u32>>,
    entries: usize,
}

/// The definition of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupDefinition {
    pub table: u32,
    pub table_type: u8,
    pub first: u32,
    pub last: u32,
    pub mask: MatchHeaders,
    /// The group selects no bits beyond those of `mask`.
    pub is_supported: bool,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowEntry {
    pub group: u32,
    pub value: Fields,
    /// Sum of the `ACTION_` constants.
    pub action: u16,
    pub tag: u32,
    pub destinations: Vec<Destination>,
}

/// All flow tables of a function.
#[derive(Debug)]
pub(crate) struct FlowTables {
    tables: Table<FlowTable>,
    groups: Table<FlowGroup>,
    root: Option<u32>,
    /// Entries of all tables.
    entries: usize,
    /// Bits that any group selects.
    selected: Fields,
    cache: FieldMap<Verdict>,
    /// The last result: most frames are of the flow of the frame before.
    last: Option<(Fields, Verdict)>,
}

impl Default for FlowTables {
    fn default() -> Self {
        Self {
            tables: Table::new(limits::FLOW_TABLES_MAX),
            groups: Table::new(limits::FLOW_TABLES_MAX),
            root: None,
            entries: 0,
            selected: [0; MatchHeaders::LEN],
            cache: HashMap::default(),
            last: None,
        }
    }
}

/// Returns the bits of a value that a mask selects.
fn masked(value: &Fields, mask: &Fields) -> Fields {
    let mut result = *value;
    for (byte, mask) in result.iter_mut().zip(mask) {
        *byte &= mask;
    }
    result
}

impl FlowTables {
    /// Returns the table of a number and type.
    fn table(&mut self, number: u32, table_type: u8) -> Result<&mut FlowTable, Status> {
        let table = self.tables.get_mut(number).ok_or(Status::BadResource)?;
        if table.table_type == table_type { Ok(table) } else { Err(Status::BadParameter) }
    }

    /// Forgets results of searches.
    fn changed(&mut self) {
        self.cache.clear();
        self.last = None;
    }

    /// Adds a table without groups. Returns its number.
    pub fn create(
        &mut self,
        table_type: u8,
        log_size: u8,
        miss: Option<u32>,
    ) -> Result<u32, Status> {
        if TableType::from_raw(table_type).is_none() || log_size > limits::FLOW_TABLE_LOG_MAX {
            return Err(Status::BadParameter);
        }
        if let Some(miss) = miss {
            self.table(miss, table_type)?;
        }
        let (groups, entries) = (BTreeMap::new(), BTreeMap::new());
        let table = FlowTable { table_type, log_size, miss, groups, entries };
        self.tables.insert(table).map_err(|_| Status::ExceededLimit)
    }

    /// Reserves the number of the next table. Returns false if it is not free.
    pub fn prepare_table(&mut self, number: u32) -> bool {
        self.tables.prepare(number)
    }

    /// Reserves the number of the next group. Returns false if it is not free.
    pub fn prepare_group(&mut self, number: u32) -> bool {
        self.groups.prepare(number)
    }

    /// Removes a table. A table with groups is refused (*bad resource state*).
    pub fn destroy(&mut self, number: u32, table_type: u8) -> Result<(), Status> {
        if !self.table(number, table_type)?.groups.is_empty() {
            return Err(Status::BadResourceState);
        }
        self.tables.remove(number);
        if self.root == Some(number) {
            self.root = None;
        }
        self.changed();
        Ok(())
    }

    /// Sets the table for frames without an entry.
    pub fn set_miss(
        &mut self,
        number: u32,
        table_type: u8,
        miss: Option<u32>,
    ) -> Result<(), Status> {
        if let Some(miss) = miss {
            self.table(miss, table_type)?;
        }
        self.table(number, table_type)?.miss = miss;
        self.changed();
        Ok(())
    }

    /// Sets the table where the search begins, or none.
    pub fn set_root(&mut self, number: Option<u32>, table_type: u8) -> Result<(), Status> {
        if let Some(number) = number {
            self.table(number, table_type)?;
        }
        if table_type == TableType::Receive.raw() {
            self.root = number;
            self.changed();
        }
        Ok(())
    }

    /// Adds a group without entries. Returns its number.
    pub fn create_group(&mut self, new: &GroupDefinition) -> Result<u32, Status> {
        let groups = &self.groups;
        let table = self.tables.get_mut(new.table).ok_or(Status::BadResource)?;
        let size = 1_u32.checked_shl(u32::from(table.log_size)).unwrap_or(0);
        if table.table_type != new.table_type || new.first > new.last || new.last >= size {
            return Err(Status::BadParameter);
        }
        // Groups do not overlap, so only the neighbour below can reach into the new group.
        let below = table.groups.range(..=new.last).next_back();
        let below = below.and_then(|(_, number)| groups.get(*number));
        if below.is_some_and(|group| group.last >= new.first) {
            return Err(Status::BadParameter);
        }
        if table.groups.len() >= limits::FLOW_GROUPS_PER_TABLE_MAX {
            return Err(Status::ExceededLimit);
        }
        let mask = new.mask.to_bytes();
        let group = FlowGroup {
            table: new.table,
            first: new.first,
            last: new.last,
            mask,
            is_supported: new.is_supported,
            lookup: HashMap::default(),
            entries: 0,
        };
        let number = self.groups.insert(group).map_err(|_| Status::ExceededLimit)?;
        table.groups.insert(new.first, number);
        for (selected, mask) in self.selected.iter_mut().zip(mask) {
            *selected |= mask;
        }
        self.changed();
        Ok(number)
    }

    /// Removes a group. A group with entries is refused (*bad resource state*).
    pub fn destroy_group(&mut self, table: u32, number: u32) -> Result<(), Status> {
        let group = self.groups.get(number).filter(|group| group.table == table);
        let group = group.ok_or(Status::BadResource)?;
        if group.entries > 0 {
            return Err(Status::BadResourceState);
        }
        let first = group.first;
        if let Some(table) = self.tables.get_mut(table) {
            table.groups.remove(&first);
        }
        self.groups.remove(number);
        self.changed();
        Ok(())
    }

    /// Adds an entry. The number of destinations is the caller's to bound.
    pub fn insert(
        &mut self,
        (table, table_type, index): (u32, u8, u32),
        mut entry: FlowEntry,
    ) -> Result<(), Status> {
        self.check_destinations(table_type, &entry.destinations)?;
        let owner = self.tables.get_mut(table).ok_or(Status::BadResource)?;
        let group = self.groups.get_mut(entry.group).filter(|group| group.table == table);
        let group = group.ok_or(Status::BadResource)?;
        if owner.table_type != table_type || !(group.first..=group.last).contains(&index) {
            return Err(Status::BadIndex);
        }
        if owner.entries.contains_key(&index) {
            return Err(Status::BadResourceState);
        }
        if self.entries >= limits::FLOW_ENTRIES_MAX {
            return Err(Status::ExceededLimit);
        }
        entry.value = masked(&entry.value, &group.mask);
        group.lookup.entry(entry.value).or_default().insert(index);
        group.entries = group.entries.saturating_add(1);
        owner.entries.insert(index, entry);
        self.entries = self.entries.saturating_add(1);
        self.changed();
        Ok(())
    }

    /// Replaces action, tag or destinations of an entry by those that are given.
    pub fn modify(
        &mut self,
        (table, table_type, index): (u32, u8, u32),
        action: Option<u16>,
        tag: Option<u32>,
        destinations: Option<Vec<Destination>>,
    ) -> Result<(), Status> {
        self.check_destinations(table_type, destinations.as_deref().unwrap_or(&[]))?;
        let entry = self.table(table, table_type)?.entries.get_mut(&index);
        let entry = entry.ok_or(Status::BadIndex)?;
        entry.action = action.unwrap_or(entry.action);
        entry.tag = tag.unwrap_or(entry.tag);
        if let Some(destinations) = destinations {
            entry.destinations = destinations;
        }
        self.changed();
        Ok(())
    }

    /// Removes an entry.
    pub fn remove(&mut self, table: u32, table_type: u8, index: u32) -> Result<(), Status> {
        let owner = self.tables.get_mut(table).ok_or(Status::BadResource)?;
        if owner.table_type != table_type {
            return Err(Status::BadParameter);
        }
        let entry = owner.entries.remove(&index).ok_or(Status::BadIndex)?;
        self.entries = self.entries.saturating_sub(1);
        if let Some(group) = self.groups.get_mut(entry.group) {
            group.entries = group.entries.saturating_sub(1);
            if let Some(others) = group.lookup.get_mut(&entry.value) {
                others.remove(&index);
                if others.is_empty() {
                    group.lookup.remove(&entry.value);
                }
            }
        }
        self.changed();
        Ok(())
    }

    /// Checks that tables among the destinations exist.
    fn check_destinations(&self, table_type: u8, list: &[Destination]) -> Result<(), Status> {
        let is_table = |d: &&Destination| d.destination_type == DestinationType::FlowTable.raw();
        let is_known = |d: &Destination| {
            self.tables.get(d.number).is_some_and(|table| table.table_type == table_type)
        };
        match list.iter().filter(is_table).all(is_known) {
            true => Ok(()),
            false => Err(Status::BadResource),
        }
    }

    /// Returns the destination of a frame with these header fields.
    pub fn find(&mut self, headers: &MatchHeaders) -> Verdict {
        let fields = masked(&headers.to_bytes(), &self.selected);
        match &self.last {
            Some((last, verdict)) if *last == fields => *verdict,
            _ => self.find_other(fields),
        }
    }

    /// Returns the destination of a frame whose fields are not those of the last.
    #[inline(never)]
    fn find_other(&mut self, fields: Fields) -> Verdict {
        let verdict = match self.cache.get(&fields) {
            Some(verdict) => *verdict,
            None => {
                let verdict = self.search(&fields);
                if self.cache.len() >= limits::FLOW_CACHE_MAX {
                    self.cache.clear();
                }
                self.cache.insert(fields, verdict);
                verdict
            }
        };
        self.last = Some((fields, verdict));
        verdict
    }

    /// Searches the tables from the root on.
    fn search(&self, fields: &Fields) -> Verdict {
        let mut verdict = Verdict::default();
        let mut waiting: Vec<u32> = self.root.into_iter().collect();
        let mut groups = limits::FLOW_GROUPS_PER_FRAME_MAX;
        for _ in 0..limits::FLOW_TABLES_PER_FRAME_MAX {
            let Some(number) = waiting.pop() else { break };
            let Some(table) = self.tables.get(number) else { continue };
            let Some(entry) = self.entry(table, fields, &mut groups) else {
                waiting.extend(table.miss);
                continue;
            };
            if entry.action & ACTION_DROP != 0 || entry.action & ACTION_FORWARD == 0 {
                continue;
            }
            for destination in &entry.destinations {
                match DestinationType::from_raw(destination.destination_type) {
                    Some(DestinationType::ReceiveInterface) => {
                        verdict.push(destination.number, entry.tag);
                    }
                    Some(DestinationType::FlowTable) => waiting.push(destination.number),
                    _ => {}
                }
            }
        }
        verdict
    }

    /// Returns the entry of a table that decides.
    fn entry<'a>(
        &self,
        table: &'a FlowTable,
        fields: &Fields,
        groups: &mut usize,
    ) -> Option<&'a FlowEntry> {
        for number in table.groups.values() {
            *groups = groups.checked_sub(1)?;
            let group = self.groups.get(*number).filter(|group| group.is_supported);
            let Some(group) = group else { continue };
            let indices = group.lookup.get(&masked(fields, &group.mask));
            if let Some(index) = indices.and_then(BTreeSet::first) {
                return table.entries.get(index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
