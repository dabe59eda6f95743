//! Objects as the tables by which configuration and state file describe them.
//!
//! [`ObjectTable`] is one form for all types of objects, also those of services that the daemon
//! does not know: a section, an identity and values by key. Objects with a name are identified by
//! it, others (routes) by their values. Rules have an order instead of an identity:
//! [`ObjectTables`] has them apart. Only [`super::objects`] makes [`ObjectTable`]s of rules, for
//! the state file. Lists keep their order and are not searched for duplicates.
//!
//! The conversions are total and ask no service; only a link of a configuration that is no valid
//! specification is left out. [`of_running`] and [`of_sections`] list the objects of a fabric: they
//! block the calling thread until the dispatchers answer, and end with the first error.
//!
//! [`super::Kept`] makes the tables of commands and of the configuration, and [`super::restore`]
//! those of the state file; [`crate::api`] compares those of a file with those of the fabric (`POST
//! /v1/config/diff`, and for services' sections `POST /v1/apply`).

use std::fmt;
use std::path::Path;

use causeway_model::draft::LinkDraft;
use causeway_model::draft::host::resolve_later;
use causeway_model::schema::values;
use causeway_model::{
    Answer, Command, CommandError, GroupSpec, LinkSpec, PortSpec, RouteSpec, RuleSpec,
    SectionDefinition,
};
use serde_json::{Map, Value};

use crate::config::{Config, ConfigObject};
use crate::fabric::FabricControl;
use crate::plan::{FabricState, read_running, shown};

/// Identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Section of the object: `group`, `port`, `link`, `route`, that of a service, or `rule` for a
    /// rule of the state file.
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

    /// Returns the table of a link.
    pub fn link(spec: &LinkSpec) -> Self {
        Self::named("link", &spec.name, LinkDraft::of_spec(spec).values())
    }

    /// Returns the table of a route.
    pub fn route(spec: &RouteSpec) -> Self {
        Self::named("route", shown(spec), spec.values())
    }

    /// Returns the table of an object of a registered section.
    pub fn section(section: &'static SectionDefinition, values: Map<String, Value>) -> Self {
        let name = values.get("name").and_then(Value::as_str).map(str::to_owned);
        let name = name.unwrap_or_else(|| Value::Object(values.clone()).to_string());
        Self::named(section.name, name, values)
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
        objects.extend(state.links.iter().map(ObjectTable::link));
        objects.extend(state.routes.iter().map(ObjectTable::route));
        Self { objects, rules: state.rules.clone() }
    }

    /// Returns the objects of a configuration. Names of peers stay names.
    pub fn of_config(config: &Config, key_file: &Path) -> Self {
        let mut objects: Vec<_> = config.groups.iter().map(ObjectTable::group).collect();
        objects.extend(config.ports.iter().map(ObjectTable::port));
        let link = |draft: &LinkDraft| draft.clone().into_spec(key_file, resolve_later).ok();
        objects.extend(config.links.iter().filter_map(link).map(|spec| ObjectTable::link(&spec)));
        objects.extend(config.routes.iter().map(ObjectTable::route));
        let of_section =
            |object: &ConfigObject| ObjectTable::section(object.section, object.values.clone());
        objects.extend(config.objects.iter().map(of_section));
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
    let mut all = ObjectTables::of_state(&read_running(fabric)?);
    all.objects.extend(of_sections(fabric, sections)?);
    Ok(all)
}

/// Returns the objects of registered sections that can be listed.
///
/// # Errors
/// A service does not answer.
pub fn of_sections(
    fabric: &dyn FabricControl,
    sections: &'static [SectionDefinition],
) -> Result<Vec<ObjectTable>, CommandError> {
    let ask = |request| match fabric.call(Command::Service(request))? {
        Answer::Service(response) => Ok(response),
        other => Err(CommandError::Host(format!("a service's command got {other:?}"))),
    };
    let mut objects = Vec::new();
    for section in sections {
        if let Some(list) = section.list {
            let tables = list(&ask)?;
            objects.extend(tables.into_iter().map(|values| ObjectTable::section(section, values)));
        }
    }
    Ok(objects)
}
