//! The tables of the sections that services registered: checks across tables, and the MTU that
//! objects give to the ports of their group.
//!
//! [`check`] reports too many tables of a section, objects that the file has twice, names of groups,
//! ports and objects that the file does not define or that are in another group, and the conflicts
//! that the section finds ([`causeway_model::TableRelations`]). It compares values of the file only.
//! The module knows no section by name; each section states its relations.
//!
//! `config::read` reads the tables and calls [`group_mtus`], which asks the host once for each object
//! with a path; `config::check` calls [`check`] with the other tables of the file. Both run in the
//! thread that reads the file.

use std::collections::HashMap;

use causeway_model::schema::nearest;
use causeway_model::{
    PathMtu, PortSpec, ReferenceTarget, SectionDefinition, TableReference, TableValues,
};

use super::ConfigObject;
use super::conditions::{UniqueValues, known_group, too_many};
use super::file_value::FileValue;
use super::problem::{Problems, line_of};

/// The tables of a section.
#[derive(Debug)]
pub struct FileSection {
    /// The section.
    pub section: &'static SectionDefinition,
    /// The tables with their defaults.
    pub tables: Vec<FileValue<TableValues>>,
}

impl FileSection {
    /// Returns the objects of the tables, in the file's order.
    pub fn objects(&self) -> impl Iterator<Item = ConfigObject> {
        self.tables.iter().map(|table| ConfigObject::new(self.section, &table.value))
    }
}

/// The groups of named objects, by name.
type ObjectGroups = HashMap<String, String>;

/// Returns the largest payload that the objects of each group carry, in bytes. `path` replaces the
/// sections' own functions that ask the host.
pub fn group_mtus(sections: &[FileSection], path: Option<PathMtu>) -> HashMap<String, u16> {
    let mut mtus = HashMap::new();
    for FileSection { section, tables } in sections {
        let Some(mtu) = section.relations.group_mtu else { continue };
        for table in tables {
            let Some(group) = section.group(&table.value) else { continue };
            let own = (mtu.of)(&table.value, path.unwrap_or(mtu.path));
            mtus.entry(group.to_owned())
                .and_modify(|least: &mut u16| *least = own.min(*least))
                .or_insert(own);
        }
    }
    mtus
}

/// Checks the tables of all sections. `groups` are the names of the groups of the file.
pub fn check(
    source: &str,
    sections: &[FileSection],
    (groups, ports): (&[&str], &[FileValue<PortSpec>]),
    problems: &mut Problems,
) {
    let is_network = |port: &&FileValue<PortSpec>| port.value.kind.kind().is_network;
    let of_port =
        |port: &FileValue<PortSpec>| (port.value.name.to_string(), port.value.group.to_string());
    let ports: ObjectGroups = ports.iter().filter(is_network).map(of_port).collect();
    let objects: HashMap<&str, ObjectGroups> =
        sections.iter().map(|found| (found.section.name, groups_of(found))).collect();
    for FileSection { section, tables } in sections {
        too_many(section.title, tables, section.tables_max, problems);
        unique_objects(source, section, tables, problems);
        for table in tables {
            for reference in (section.relations.references)(&table.value) {
                let TableReference { key, target, name } = &reference;
                let (what, known) = match target {
                    ReferenceTarget::Group => {
                        known_group(name, table.span(key), key, groups, problems);
                        continue;
                    }
                    ReferenceTarget::NetworkPort => ("net port", Some(&ports)),
                    ReferenceTarget::Object(other) => (*other, objects.get(other)),
                };
                let own = section.group(&table.value).unwrap_or_default();
                if let Some(text) = reference_problem((what, &reference), own, known) {
                    problems.add(table.span(key), text);
                }
            }
        }
        conflicts(source, section, tables, problems);
    }
}

/// Returns the groups of the named objects of a section.
fn groups_of(found: &FileSection) -> ObjectGroups {
    if !found.section.is_named() {
        return ObjectGroups::new();
    }
    let of = |table: &FileValue<TableValues>| {
        let group = found.section.group(&table.value)?.to_owned();
        Some((found.section.id(&table.value), group))
    };
    found.tables.iter().filter_map(of).collect()
}

/// Returns the problem of a reference from the group `own`, if it has one.
fn reference_problem(
    (what, reference): (&str, &TableReference),
    own: &str,
    known: Option<&ObjectGroups>,
) -> Option<String> {
    let TableReference { key, name, .. } = reference;
    match known.and_then(|known| known.get(name)) {
        Some(group) if group == own => None,
        Some(group) => Some(format!(
            "key {key:?}: {what} {name} is in group {group}: expected one of group {own}, as no \
             traffic crosses groups"
        )),
        None => {
            let names = known.into_iter().flat_map(HashMap::keys).map(String::as_str);
            Some(match nearest(name, names) {
                Some(near) => {
                    format!("key {key:?}: {what} {name} is not defined; did you mean {near:?}?")
                }
                None => format!("key {key:?}: {what} {name} is not defined"),
            })
        }
    }
}

/// Reports objects that several tables of a section have.
fn unique_objects(
    source: &str,
    section: &SectionDefinition,
    tables: &[FileValue<TableValues>],
    problems: &mut Problems,
) {
    let is_named = section.is_named();
    if !is_named && section.forms.is_none_or(|forms| forms.id.is_none()) {
        return;
    }
    let mut seen = UniqueValues::new(source);
    for table in tables {
        let id = section.id(&table.value);
        let span = if is_named { table.span("name") } else { table.whole.clone() };
        seen.insert(section.main_key, &id, span, problems, |id| match is_named {
            true => format!("{} {id}", section.name),
            false => format!("the same {}", section.name),
        });
    }
}

/// Reports the conflicts that a section finds between its tables.
fn conflicts(
    source: &str,
    section: &SectionDefinition,
    tables: &[FileValue<TableValues>],
    problems: &mut Problems,
) {
    let Some(find) = section.relations.conflicts else { return };
    let values: Vec<TableValues> = tables.iter().map(|table| table.value.clone()).collect();
    for conflict in find(&values) {
        let both = (tables.get(conflict.table), tables.get(conflict.other));
        let (Some(table), Some(other)) = both else { continue };
        let line = line_of(source, other.whole.start);
        let (key, before, after) = (conflict.key, &conflict.before, &conflict.after);
        problems.add(table.span(key), format!("key {key:?}: {before} on line {line}{after}"));
    }
}
