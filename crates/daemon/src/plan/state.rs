//! Reads the running state from the fabric: groups, rules, ports, links and routes, as
//! specifications without counters and states. Links that the cluster made are left out: no file
//! has them.
//!
//! The five lists are read by one command each, not at one moment: a change in between can make
//! them inconsistent, which a plan reports as a refused step. An answer of an unexpected type is an
//! error, as is a missing service of links or routes. Held ports (kept by the holder) have their
//! public paths, because [`FabricControl`] includes that wrapper.
//!
//! `POST /v1/apply` calls [`read_running`] on the thread of a connection, before `plan()`; so do
//! `GET /v1/config` and `POST /v1/config/diff`. A call blocks until the dispatchers answer, and
//! ends with the first error.

use causeway_model::GroupSpec;
use causeway_model::commands::{links, routes};
use causeway_model::{Answer, Command, CommandError, GroupView};

use super::{FabricState, unexpected};
use crate::fabric::{FabricControl, ask};

/// Returns the state of a fabric.
///
/// # Errors
/// The fabric or a service does not answer.
pub fn read_running(fabric: &dyn FabricControl) -> Result<FabricState, CommandError> {
    let mut state = FabricState::default();
    let Answer::Groups(groups) = fabric.call(Command::GroupList)? else {
        return Err(unexpected());
    };
    let Answer::Rules(rules) = fabric.call(Command::RuleList)? else { return Err(unexpected()) };
    let Answer::Ports(ports) = fabric.call(Command::PortList)? else { return Err(unexpected()) };
    let links = ask(fabric, links::List)?;
    let routes = ask(fabric, routes::List)?;
    let group = |view: GroupView| GroupSpec {
        name: view.name,
        forwarding: view.forwarding,
        weight: view.weight,
        kind: view.kind,
    };
    state.groups.extend(groups.into_iter().map(group));
    state.rules.extend(rules.into_iter().map(|view| view.rule));
    state.ports.extend(ports.into_iter().map(|view| view.spec));
    let configured = links.into_iter().filter(|view| !view.is_of_cluster);
    state.links.extend(configured.map(|view| view.spec));
    // The list is in reverse order: newest first.
    state.routes.extend(routes.into_iter().rev().map(|view| view.spec));
    Ok(state)
}
