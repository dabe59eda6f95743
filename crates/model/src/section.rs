//! Sections of the configuration file that services register: `[[SECTION]]`.
//!
//! A service registers a [`SectionDefinition`] for each type of objects of its own. The daemon
//! checks the section's tables by the definition's fields, prints them, and sends one request for
//! each table of the configuration file when it starts, in the file's order, after groups, rules,
//! ports, links and routes. The first refusal ends the start.
//!
//! Objects that a client adds while the daemon runs are kept in the state file if the section lists
//! them ([`SectionDefinition::list`]); a refusal of such an object does not end the start. Two
//! tables with the same `name` are the same object; a file that has both is refused.
//!
//! `POST /v1/apply` checks the tables. It changes the objects of sections that can be listed and
//! deleted ([`SectionDefinition::delete`]); it ignores others until the daemon starts again. A file
//! has at most [`SECTION_TABLES_MAX`](crate::limits::SECTION_TABLES_MAX) (1,024) tables of a
//! section, and is refused with more. Two definitions of one name are not detected: the first is
//! used. The functions of a definition run in the thread that reads the table: that of the start,
//! or of a client's connection; they keep no state.

use serde_json::{Map, Value};

use crate::schema::{Field, Problem};
use crate::{Asker, CommandError, ServiceRequest};

/// Checks a table, and returns the request that adds its object, or all problems.
pub type TableReader = fn(&Map<String, Value>) -> Result<ServiceRequest, Vec<Problem>>;

/// Lists the objects of a section as tables, with every key that the section has.
pub type TableLister = fn(Asker<'_>) -> Result<Vec<Map<String, Value>>, CommandError>;

/// A section of the configuration file.
#[derive(Debug, Clone, Copy)]
pub struct SectionDefinition {
    /// Name of the section, a singular: `mirror`.
    pub name: &'static str,
    /// Title in messages: `[[mirror]]`.
    pub title: &'static str,
    /// The keys, in the order in which they are printed.
    pub fields: &'static [Field],
    /// Reads a table.
    pub read: TableReader,
    /// Lists the objects that exist, for the state file and `causeway config export`. Objects of a
    /// section without it are neither kept nor exported.
    pub list: Option<TableLister>,
    /// Returns the request that deletes the object of a table; its answer is `()`, and requests that
    /// delete different objects print differently by [`std::fmt::Debug`]. `causeway apply` changes the objects
    /// of a section with it, and ignores those of other sections until the next start.
    pub delete: Option<TableReader>,
}

impl PartialEq for SectionDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SectionDefinition {}
