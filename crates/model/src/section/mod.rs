//! Sections of the configuration file that services register: `[[SECTION]]`.
//!
//! A service registers a [`SectionDefinition`] for each type of objects of its own. The daemon
//! checks the section's tables by the definition's fields, prints them, and sends one request for
//! each table of the configuration file when it starts, in the order of [`SectionOrder`] and of the
//! file. The first refusal ends the start.
//!
//! Objects that a client adds while the daemon runs are kept in the state file if the section lists
//! them ([`SectionDefinition::list`]); a refusal of such an object does not end the start. Two
//! tables with the same `name`, or without names the same description ([`TableForms::id`]), are the
//! same object; a file that has both is refused. A file whose table names an object that does not
//! exist is refused too ([`TableRelations::references`]).
//!
//! `POST /v1/apply` checks the tables. It changes the objects of sections that can be listed and
//! deleted ([`SectionDefinition::delete`]); it ignores others until the daemon starts again. A file
//! has at most [`SectionDefinition::tables_max`] tables of a section, and is refused with more. Two
//! definitions of one name are not detected: the first is used. The functions of a definition run in
//! the thread that reads the table: that of the start, or of a client's connection; they keep no
//! state.

mod parts;

use std::path::Path;

use serde_json::Value;

use crate::limits::SECTION_TABLES_MAX;
use crate::schema::{Field, Problem, fill};
use crate::{Asker, CommandError, ServiceRequest};

pub use parts::{
    ConflictFinder, GroupMtu, HostNeed, MtuLister, PathMtu, ReferenceTarget, RequestEffect,
    SectionRequests, StatsReader, TableConflict, TableContext, TableForms, TableReference,
    TableRelations, TableValues,
};

/// Returns a request about the object of complete values, or all problems of the values.
pub type TableReader = fn(&TableValues) -> Result<ServiceRequest, Vec<Problem>>;

/// Lists the objects of a section as complete values.
pub type TableLister = fn(Asker<'_>) -> Result<Vec<TableValues>, CommandError>;

/// The place of a section's objects among the steps of a start, of a change of the configuration and
/// of the printed configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SectionOrder {
    /// Paths of a group's traffic: deleted before the ports and groups change, added after the
    /// ports, and replaced with their group.
    Path,
    /// Policies about ports and paths: in force before a port opens ([`SectionRequests::prepare`]),
    /// completed after the paths, deleted after all ports and paths, and replaced with the objects
    /// that they name. A policy is identified by all of its values.
    Policy,
    /// Other objects: deleted and added after all others. No other object names them.
    Last,
}

/// A section of the configuration file.
#[derive(Debug, Clone, Copy)]
pub struct SectionDefinition {
    /// Name of the section, a singular: `mirror`.
    pub name: &'static str,
    /// Title in messages: `[[mirror]]`.
    pub title: &'static str,
    /// Meaning of a table, in a sentence, for manual pages; may be empty.
    pub about: &'static str,
    /// The keys, in the order in which they are printed.
    pub fields: &'static [Field],
    /// Returns the request that adds an object.
    pub read: TableReader,
    /// Lists the objects that exist, for the state file and `causeway config export`. Objects of a
    /// section without it are neither kept nor exported.
    pub list: Option<TableLister>,
    /// Returns the request that deletes an object; its answer is `()`, and requests that
    /// delete different objects print differently by [`std::fmt::Debug`]. `causeway apply` changes the objects
    /// of a section with it, and ignores those of other sections until the next start.
    pub delete: Option<TableReader>,
    /// Place among the steps of a change.
    pub order: SectionOrder,
    /// Most tables of a file.
    pub tables_max: usize,
    /// The key at which a file that has an object twice is refused.
    pub main_key: &'static str,
    /// Forms of a table; without it, a table with its defaults is complete.
    pub forms: Option<TableForms>,
    /// Relations to other objects.
    pub relations: TableRelations,
    /// Further requests.
    pub requests: SectionRequests,
}

impl PartialEq for SectionDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SectionDefinition {}

impl SectionDefinition {
    /// Defines a section of named tables that are added last, and neither listed nor deleted.
    pub const fn new(
        name: &'static str,
        title: &'static str,
        fields: &'static [Field],
        read: TableReader,
    ) -> Self {
        Self {
            name,
            title,
            about: "",
            fields,
            read,
            list: None,
            delete: None,
            order: SectionOrder::Last,
            tables_max: SECTION_TABLES_MAX,
            main_key: "name",
            forms: None,
            relations: TableRelations::NONE,
            requests: SectionRequests::NONE,
        }
    }

    /// Sets the meaning of a table.
    #[must_use]
    pub const fn with_about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// Sets the list of the objects.
    #[must_use]
    pub const fn with_list(self, list: TableLister) -> Self {
        Self { list: Some(list), ..self }
    }

    /// Sets the request that deletes an object.
    #[must_use]
    pub const fn with_delete(self, delete: TableReader) -> Self {
        Self { delete: Some(delete), ..self }
    }

    /// Sets the place among the steps of a change.
    #[must_use]
    pub const fn with_order(self, order: SectionOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the most tables of a file.
    #[must_use]
    pub const fn with_tables_max(self, tables_max: usize) -> Self {
        Self { tables_max, ..self }
    }

    /// Sets the key at which an object that a file has twice is reported.
    #[must_use]
    pub const fn with_main_key(self, main_key: &'static str) -> Self {
        Self { main_key, ..self }
    }

    /// Sets the forms of a table.
    #[must_use]
    pub const fn with_forms(self, forms: TableForms) -> Self {
        Self { forms: Some(forms), ..self }
    }

    /// Sets the relations to other objects.
    #[must_use]
    pub const fn with_relations(self, relations: TableRelations) -> Self {
        Self { relations, ..self }
    }

    /// Sets the requests beyond addition and deletion.
    #[must_use]
    pub const fn with_requests(self, requests: SectionRequests) -> Self {
        Self { requests, ..self }
    }

    /// Returns whether the objects have names.
    pub fn is_named(&self) -> bool {
        self.fields.iter().any(|field| field.key == "name")
    }

    /// Returns whether the objects can change while the daemon runs.
    pub fn can_change(&self) -> bool {
        self.list.is_some() && self.delete.is_some()
    }

    /// Checks a table, and fills in its defaults.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn fill(&self, values: &TableValues, key_file: &Path) -> Result<TableValues, Vec<Problem>> {
        if let Some(forms) = &self.forms {
            return (forms.fill)(values, key_file);
        }
        (self.read)(values)?;
        let mut values = values.clone();
        fill(self.fields, &mut values);
        Ok(values)
    }

    /// Completes a filled table. Blocks for as long as the resolver of the context does.
    ///
    /// # Errors
    /// A sentence for the operator, for example about a host without an address.
    pub fn complete(
        &self,
        values: &TableValues,
        cx: TableContext<'_>,
    ) -> Result<TableValues, String> {
        self.forms.map_or_else(|| Ok(values.clone()), |forms| (forms.complete)(values, cx))
    }

    /// Returns the operator's form of complete values.
    pub fn table(&self, complete: &TableValues) -> TableValues {
        let table = self.forms.and_then(|forms| (forms.table)(complete));
        table.unwrap_or_else(|| complete.clone())
    }

    /// Returns the name of a table's object, or a description that no other object of the section
    /// has.
    pub fn id(&self, table: &TableValues) -> String {
        let described = self.forms.and_then(|forms| forms.id).and_then(|id| id(table));
        let name = || table.get("name").and_then(Value::as_str).map(str::to_owned);
        described.or_else(name).unwrap_or_else(|| Value::Object(table.clone()).to_string())
    }

    /// Returns the group of a table's object, if the section has groups.
    pub fn group<'a>(&self, table: &'a TableValues) -> Option<&'a str> {
        table.get("group").and_then(Value::as_str)
    }
}
