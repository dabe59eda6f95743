//! Labels: objects of the service beside its ports.
//!
//! Labels demonstrate the parts of the operator's interface that a service registers beside kinds
//! of ports: the section `[[label]]` of the configuration file, the noun `/v1/labels`, and the
//! trace `loopback`. A label has a name and a number, and no effect. The controller keeps at most
//! [`LABELS_MAX`] (16); a further label is refused, as is a name in use, and the deletion of an
//! unknown name is an error. The service of a shard (`super::Loopback`) answers the trace.

use std::collections::BTreeMap;

use causeway_fabric::{Control, Controller};
use causeway_model::schema::{DefaultValue, ValueType, joined, read_filled, table, text, values};
use causeway_model::{
    CommandError, Name, NounCall, NounDefinition, NounError, NounResult, RequestDispatch,
    SectionDefinition, ServiceRequest, TraceDefinition, TraceRequest, TraceScope, TypedRequest,
    noun::name,
};
use serde::{Deserialize, Serialize};

/// Most labels.
const LABELS_MAX: usize = 16;

table! {
    /// A label.
    pub struct Label, pub const LABEL_FIELDS {
        /// Unique name.
        name: Name => text::<Name>("NAME"), DefaultValue::Required("expected name = \"first\", say");
        /// Number that the operator chooses.
        number: u16 => ValueType::Integer { min: 1, max: 99, unit: "N" }, DefaultValue::Number(1);
    }
}

/// The section of labels.
pub(crate) const SECTIONS: &[SectionDefinition] =
    &[SectionDefinition::new("label", "[[label]]", LABEL_FIELDS, |values| {
        read_filled(LABEL_FIELDS, values).map(|label| ServiceRequest::new(Add(label)))
    })
    .with_list(|ask| {
        let labels = ask(ServiceRequest::new(List))?.take::<List>()?;
        Ok(labels.iter().map(values).collect())
    })
    .with_delete(|values| {
        read_filled(LABEL_FIELDS, values)
            .map(|label: Label| ServiceRequest::new(Delete(label.name)))
    })];

/// The noun of labels.
pub(crate) const NOUNS: &[NounDefinition] = &[NounDefinition::new("labels", labels)];

/// The trace of a port.
pub(crate) const TRACES: &[TraceDefinition] = &[TraceDefinition::new::<PortTrace>()];

/// Asks for the receiver of the frames of a port.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PortTrace {
    /// The sending port.
    pub(crate) from: Name,
}

impl TraceRequest for PortTrace {
    const WHAT: &'static str = "loopback";

    fn scope(&self) -> TraceScope {
        TraceScope { from: Some(self.from.clone()), ..TraceScope::default() }
    }
}

/// Adds a label.
#[derive(Debug)]
struct Add(Label);

impl TypedRequest for Add {
    type Answer = Label;
}

/// Lists the labels.
#[derive(Debug)]
struct List;

impl TypedRequest for List {
    type Answer = Vec<Label>;
}

/// Deletes a label.
#[derive(Debug)]
struct Delete(Name);

impl TypedRequest for Delete {
    type Answer = ();
}

/// Answers `/v1/labels`.
fn labels(call: &NounCall<'_>) -> NounResult {
    match (call.path, call.method) {
        ([], "GET") => call.show(List),
        ([], "POST") => {
            let label = read_filled(LABEL_FIELDS, &call.body()?);
            let invalid = |problems: Vec<_>| NounError::invalid(joined("label", &problems));
            call.add(Add(label.map_err(invalid)?))
        }
        ([label], "DELETE") => call.execute(Delete(name(label)?)),
        ([], _) => Err(NounError::Method("GET, POST")),
        ([_], _) => Err(NounError::Method("DELETE")),
        _ => Err(NounError::Path),
    }
}

/// The controller of the service: the labels.
#[derive(Debug, Default)]
pub(crate) struct Labels(BTreeMap<Name, Label>);

impl Labels {
    fn add(&mut self, label: Label) -> Result<Label, CommandError> {
        if self.0.contains_key(&label.name) {
            return Err(CommandError::Conflict(format!("label {} exists already", label.name)));
        }
        if self.0.len() >= LABELS_MAX {
            return Err(CommandError::Full(format!("there are {LABELS_MAX} labels already")));
        }
        self.0.insert(label.name.clone(), label.clone());
        Ok(label)
    }

    fn delete(&mut self, name: &Name) -> Result<(), CommandError> {
        let missing = || CommandError::NotFound { what: "label", name: name.to_string() };
        self.0.remove(name).map(drop).ok_or_else(missing)
    }
}

impl Controller for Labels {
    fn ask(&mut self, _: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|Add(label)| self.add(label))
            .on(|List| Ok(self.0.values().cloned().collect()))
            .on(|Delete(name)| self.delete(&name))
    }
}
