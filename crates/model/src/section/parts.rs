//! Optional parts of a section: forms of a table, relations to other objects, and requests beyond
//! addition and deletion.
//!
//! A section of simple tables has none of them ([`super::SectionDefinition::new`]). The daemon calls
//! the functions in the thread that reads a table, plans a change or answers a client; they keep no
//! state and open no file, except [`GroupMtu::path`], which asks the host. They get tables of the
//! operator, of the state file or of a service, and must accept every value: a function that cannot
//! read a table returns its empty value, and the service refuses the table later.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::TableReader;
use crate::draft::Resolver;
use crate::schema::Problem;
use crate::{Asker, CommandError, Name, ServiceRequest, ServiceResponse, StatsView};

/// The values of a table by key.
pub type TableValues = Map<String, Value>;

/// Asks the host for the MTU of the path that a table describes, in bytes; `None` if the host does
/// not know it.
pub type PathMtu = fn(&TableValues) -> Option<u16>;

/// Finds conflicts between filled tables of a file.
pub type ConflictFinder = fn(&[TableValues]) -> Vec<TableConflict>;

/// Lists the group of each running object with the largest payload that the object carries, in bytes.
pub type MtuLister = fn(Asker<'_>) -> Result<Vec<(Name, u16)>, CommandError>;

/// Adds the counters of objects to those of the daemon.
pub type StatsReader = fn(Asker<'_>, &mut StatsView) -> Result<(), CommandError>;

/// Values of the daemon that complete a table.
#[derive(Debug, Clone, Copy)]
pub struct TableContext<'a> {
    /// File of the private key of objects that name none (`key_file` of `[daemon]`).
    pub key_file: &'a Path,
    /// Resolves host names; may block the calling thread.
    pub resolve: Resolver,
}

/// The forms of a table: as the operator writes it, and complete, as the service takes it.
///
/// The table of a running object is [`Self::table`] of its complete values. Two objects are equal if
/// these tables are.
#[derive(Debug, Clone, Copy)]
pub struct TableForms {
    /// Checks a table, and fills in the defaults for which no name has to be resolved. The path is
    /// [`TableContext::key_file`].
    pub fill: fn(&TableValues, &Path) -> Result<TableValues, Vec<Problem>>,
    /// Completes a filled table. The error is a sentence for the operator.
    pub complete: fn(&TableValues, TableContext<'_>) -> Result<TableValues, String>,
    /// Returns the operator's form of complete values; `None` if they are not complete.
    pub table: fn(&TableValues) -> Option<TableValues>,
    /// Returns a description of a table without a name, which no other object of the section has.
    pub id: Option<fn(&TableValues) -> Option<String>>,
}

/// The relations of a section's tables to each other, to other objects and to the host.
#[derive(Debug, Clone, Copy)]
pub struct TableRelations {
    /// Returns the objects that a table names.
    pub references: fn(&TableValues) -> Vec<TableReference>,
    /// Returns the conflicts between filled tables of a file: each table has one conflict at most.
    pub conflicts: Option<ConflictFinder>,
    /// The MTU that the objects give to the ports of their group.
    pub group_mtu: Option<GroupMtu>,
    /// Returns the files and interfaces of the host that the object of a filled table uses.
    pub needs: Option<fn(&TableValues) -> Vec<HostNeed>>,
}

impl TableRelations {
    /// Relates tables to nothing.
    pub const NONE: Self =
        Self { references: |_| Vec::new(), conflicts: None, group_mtu: None, needs: None };
}

/// An object that a table names by one of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableReference {
    /// The key.
    pub key: &'static str,
    /// The type of the named object.
    pub target: ReferenceTarget,
    /// The name.
    pub name: String,
}

/// The type of a named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceTarget {
    /// The group of the table's object.
    Group,
    /// A port with frames, in the group of the table's object.
    NetworkPort,
    /// An object of this section, in the group of the table's object.
    Object(&'static str),
}

/// Two tables of a file that exclude each other. The message is [`Self::before`], the line of the
/// other table, and [`Self::after`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableConflict {
    /// Index of the table with the problem.
    pub table: usize,
    /// The key with the problem.
    pub key: &'static str,
    /// Index of the other table.
    pub other: usize,
    /// Start of the message, up to the other object.
    pub before: String,
    /// Rest of the message, with the remedy.
    pub after: String,
}

/// The MTU that objects give to the ports of their group.
#[derive(Debug, Clone, Copy)]
pub struct GroupMtu {
    /// Returns the largest payload that the object of a filled table carries, in bytes. Calls the
    /// second function at most once.
    pub of: fn(&TableValues, PathMtu) -> u16,
    /// Asks the host for the MTU of the object's path.
    pub path: PathMtu,
    /// Returns the group of each running object with the largest payload that the object carries, in
    /// bytes.
    pub running: MtuLister,
}

/// A part of the host that an object uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostNeed {
    /// A file to read.
    File {
        /// The key that names it.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A network interface, which needs a socket of the family AF_PACKET.
    Interface {
        /// The key that names it.
        key: &'static str,
        /// The interface.
        name: String,
    },
}

/// Requests of a section beyond addition, list and deletion.
#[derive(Debug, Clone, Copy)]
pub struct SectionRequests {
    /// Returns the request that adds an object at the start of the daemon, where an object of the
    /// configuration that cannot work yet is no error.
    pub keep: Option<TableReader>,
    /// Returns the request that puts a policy in force before its ports and paths exist
    /// ([`super::SectionOrder::Policy`]).
    pub prepare: Option<TableReader>,
    /// Returns the effect of a request on the section's objects. Objects of a section without it are
    /// listed anew after each request of a client.
    pub follow: Option<fn(&ServiceRequest) -> RequestEffect>,
    /// Reads files of the objects again (SIGHUP).
    pub reload: Option<fn(Asker<'_>) -> Result<(), CommandError>>,
    /// Adds the counters of the objects to those of the daemon (`/v1/stats`).
    pub stats: Option<StatsReader>,
    /// Closes all objects, at the end of the daemon and before the ports are closed.
    pub close: Option<fn(Asker<'_>)>,
}

impl SectionRequests {
    /// Has no request.
    pub const NONE: Self =
        Self { keep: None, prepare: None, follow: None, reload: None, stats: None, close: None };
}

/// The effect of a request on the objects of a section, if the request succeeds.
#[derive(Debug, Clone)]
pub enum RequestEffect {
    /// The section does not know the request.
    Unknown,
    /// The request changes no object.
    Nothing,
    /// The object of this table is added.
    Add(TableValues),
    /// The object of this table is added; the answer has its number.
    AddNumbered(TableValues, fn(&ServiceResponse) -> Option<u64>),
    /// The object with this name or description is deleted, with the objects that name it.
    Delete(String),
    /// The object with this number is deleted.
    DeleteNumber(u64),
}
