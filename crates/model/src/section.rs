//! Sections of the configuration file that services register: `[[SECTION]]`.
//!
//! A service registers a [`SectionDefinition`] for each type of objects of its own. The daemon
//! checks the section's tables by the definition's fields, prints them, and sends one request for
//! each table when it starts, in the file's order, after groups, rules, ports, links and routes.
//! The first refusal ends the start.
//!
//! `POST /v1/apply` checks the tables and otherwise ignores them until the daemon starts again. A
//! file has at most [`SECTION_TABLES_MAX`](crate::limits::SECTION_TABLES_MAX) (1,024) tables of a
//! section. Two definitions of one name are not detected: the first is used.

use serde_json::{Map, Value};

use crate::ServiceRequest;
use crate::schema::{Field, Problem};

/// Checks a table, and returns the request that adds its object, or all problems.
pub type TableReader = fn(&Map<String, Value>) -> Result<ServiceRequest, Vec<Problem>>;

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
}

impl PartialEq for SectionDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SectionDefinition {}
