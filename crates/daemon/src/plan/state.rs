//! Reads the running state from the fabric: groups, rules, ports and the objects of sections, as
//! specifications without counters and states.
//!
//! The lists are read by one command each, not at one moment: a change in between can make
//! them inconsistent, which a plan reports as a refused step. An answer of an unexpected type is an
//! error. Held ports (kept by the holder) have their public paths, because [`FabricControl`]
//! includes that wrapper.
//!
//! `POST /v1/apply` calls [`read_running`] on the thread of a connection, before `plan()`; so do
//! `GET /v1/config` and `POST /v1/config/diff`. A call blocks until the dispatchers answer, and
//! ends with the first error.

use causeway_model::{
    Answer, Command, CommandError, GroupSpec, GroupView, RuleOrigin, SectionDefinition,
};

use super::{FabricState, SectionObject, unexpected};
use crate::fabric::{FabricControl, ask_service};

/// Returns the state of a fabric, with the objects of those `sections` that can be listed.
///
/// # Errors
/// The fabric or a service does not answer.
pub fn read_running(
    fabric: &dyn FabricControl,
    sections: &'static [SectionDefinition],
) -> Result<FabricState, CommandError> {
    let mut state = FabricState::default();
    let Answer::Groups(groups) = fabric.call(Command::GroupList)? else {
        return Err(unexpected());
    };
    let Answer::Rules(rules) = fabric.call(Command::RuleList)? else { return Err(unexpected()) };
    let Answer::Ports(ports) = fabric.call(Command::PortList)? else { return Err(unexpected()) };
    let group = |view: GroupView| GroupSpec {
        name: view.name,
        forwarding: view.forwarding,
        weight: view.weight,
        kind: view.kind,
    };
    state.groups.extend(groups.into_iter().map(group));
    // Rules of the site belong to no configuration of this host.
    let own = rules.into_iter().filter(|view| view.origin == RuleOrigin::Host);
    state.rules.extend(own.map(|view| view.rule));
    state.ports.extend(ports.into_iter().map(|view| view.spec));
    state.objects = list(fabric, sections.iter())?;
    Ok(state)
}

/// Returns the objects of those `sections` that can be listed.
///
/// # Errors
/// A service does not answer.
pub fn list(
    fabric: &dyn FabricControl,
    sections: impl Iterator<Item = &'static SectionDefinition>,
) -> Result<Vec<SectionObject>, CommandError> {
    let ask = |request| ask_service(fabric, request);
    let mut objects = Vec::new();
    for section in sections {
        let Some(list) = section.list else { continue };
        let listed = list(&ask)?.into_iter();
        objects.extend(listed.map(|complete| SectionObject::new(section, complete)));
    }
    Ok(objects)
}
