//! Objects as the tables by which configuration and state file describe them.
//!
//! [`ObjectTable`] is one form for all types of objects, also those of services that the daemon
//! does not know: a section, an identity and values by key. Objects with a name are identified by
//! it, others by a description of their values. Rules have an order instead of an identity:
//! [`ObjectTables`] has them apart. Only [`super::objects`] makes [`ObjectTable`]s of rules, for
//! the state file. Lists keep their order and are not searched for duplicates.
//!
//! The conversions are total and ask no service; only an object of a configuration that cannot be
//! completed is left out. [`of_running`] lists the objects of a fabric: it
//! blocks the calling thread until the dispatchers answer, and ends with the first error.
//!
//! [`super::Kept`] makes the tables of commands and of the configuration, and [`super::restore`]
//! those of the state file; [`crate::api`] compares those of a file with those of the fabric (`POST
//! /v1/config/diff`).

use std::fmt;
use std::path::Path;

use causeway_model::draft::host::resolve_later;
use causeway_model::schema::values;
use causeway_model::{
    CommandError, GroupSpec, PortSpec, RuleSpec, SectionDefinition, TableContext,
};
use serde_json::{Map, Value};

use crate::config::{Config, ConfigObject};
use crate::fabric::FabricControl;
use crate::plan::{FabricState, SectionObject, read_running};

/// Identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Section of the object: `group`, `port`, that of a service, or `rule` for a rule of the state
    /// file.
    pub section: &'static str,
    /// Name of the object, or a description that no other object of the section has.
    pub id: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.section, self.id)
    }
}

/// An object with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectTable {
    /// The identity.
    pub key: ObjectKey,
    /// The values by key.
    pub values: Map<String, Value>,
}

impl ObjectTable {
    fn named(section: &'static str, name: impl fmt::Display, values: Map<String, Value>) -> Self {
        Self { key: ObjectKey { section, id: name.to_string() }, values }
    }

    /// Returns the table of a group.
    pub fn group(spec: &GroupSpec) -> Self {
        Self::named("group", &spec.name, values(spec))
    }

    /// Returns the table of a port.
    pub fn port(spec: &PortSpec) -> Self {
        Self::named("port", &spec.name, values(spec))
    }

    /// Returns the table of an object of a registered section.
    pub fn section(section: &'static SectionDefinition, values: Map<String, Value>) -> Self {
        Self::named(section.name, section.id(&values), values)
    }

    /// Returns the table of an object in both forms.
    pub fn of_object(object: &SectionObject) -> Self {
        Self::section(object.section, object.table.clone())
    }
}

/// All objects of a configuration or of a fabric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ObjectTables {
    /// The objects with an identity, in the order of their sections.
    pub objects: Vec<ObjectTable>,
    /// The rules in their order.
    pub rules: Vec<RuleSpec>,
}

impl ObjectTables {
    fn of_state(state: &FabricState) -> Self {
        let mut objects: Vec<_> = state.groups.iter().map(ObjectTable::group).collect();
        objects.extend(state.ports.iter().map(ObjectTable::port));
        objects.extend(state.objects.iter().map(ObjectTable::of_object));
        Self { objects, rules: state.rules.clone() }
    }

    /// Returns the objects of a configuration. Names of peers stay names.
    pub fn of_config(config: &Config, key_file: &Path) -> Self {
        let mut objects: Vec<_> = config.groups.iter().map(ObjectTable::group).collect();
        objects.extend(config.ports.iter().map(ObjectTable::port));
        let cx = TableContext { key_file, resolve: resolve_later };
        let of_section = |object: &ConfigObject| SectionObject::of_config(object, cx).ok();
        let of_sections = config.objects.iter().filter_map(of_section);
        objects.extend(of_sections.map(|object| ObjectTable::of_object(&object)));
        Self { objects, rules: config.rules.clone() }
    }
}

/// Returns the objects of a fabric.
///
/// # Errors
/// The fabric or a service does not answer.
pub fn of_running(
    fabric: &dyn FabricControl,
    sections: &'static [SectionDefinition],
) -> Result<ObjectTables, CommandError> {
    Ok(ObjectTables::of_state(&read_running(fabric, sections)?))
}
