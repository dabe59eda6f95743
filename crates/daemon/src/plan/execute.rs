//! Executes a plan step by step, up to the first refusal.
//!
//! [`execute`] sends one command after the other to [`FabricControl`] and blocks the calling thread
//! until each is answered. Steps before a refused step are not undone, steps after it are not
//! tried; [`PlanResult::done`] reports which changes are complete. A replacement whose deletion
//! succeeded and whose addition was refused is not done, and its object is missing. Routes that
//! were prepared stay in force then. The numbers of routes are read once, before the first route is
//! deleted; a route that is gone already, with its port or link, counts as deleted.
//!
//! `POST /v1/apply` calls it after `plan()`.

use std::collections::HashMap;

use causeway_model::RouteSpec;
use causeway_model::commands::{links, routes};
use causeway_model::{Command, CommandError, ServiceRequest, TableReader, schema};

use super::{ChangePlan, StepCommand};
use crate::config::ConfigObject;
use crate::fabric::{FabricControl, ask};

/// The result of executing a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanResult {
    /// For each change, whether all of its steps were executed.
    pub done: Vec<bool>,
    /// Index of the change that failed, and the error.
    pub failed: Option<(usize, CommandError)>,
}

/// Executes a plan. Steps before a refused step are not undone.
pub fn execute(fabric: &dyn FabricControl, plan: &ChangePlan) -> PlanResult {
    let mut left = vec![0_usize; plan.changes.len()];
    plan.steps.iter().for_each(|step| left[step.change] += 1);
    let mut numbers = None;
    let mut failed = None;
    for step in &plan.steps {
        match execute_step(fabric, &step.act, &mut numbers) {
            Ok(()) => left[step.change] -= 1,
            Err(error) => {
                failed = Some((step.change, error));
                break;
            }
        }
    }
    PlanResult { done: left.into_iter().map(|left| left == 0).collect(), failed }
}

/// The number of each route, by which the fabric deletes it.
type RouteNumbers = HashMap<RouteSpec, u64>;

/// Executes a step. `numbers` is filled when it is first needed.
fn execute_step(
    fabric: &dyn FabricControl,
    act: &StepCommand,
    numbers: &mut Option<RouteNumbers>,
) -> Result<(), CommandError> {
    let command = match act.clone() {
        StepCommand::RouteDel(route) => {
            let numbers = match numbers {
                Some(numbers) => numbers,
                None => numbers.insert(route_numbers(fabric)?),
            };
            let Some(number) = numbers.get(&route).copied() else { return Ok(()) };
            return match ask(fabric, routes::Delete(number)) {
                Err(CommandError::NotFound { .. }) => Ok(()),
                deleted => deleted,
            };
        }
        StepCommand::LinkDel(name) => return ask(fabric, links::Delete(name)),
        StepCommand::RuleDel(index) => Command::RuleDel { index },
        StepCommand::PortDel(name) => Command::PortDel(name),
        StepCommand::GroupDel(name) => Command::GroupDel(name),
        StepCommand::GroupAdd(spec) => Command::GroupAdd(spec),
        StepCommand::RuleAdd(index, rule) => Command::RuleAdd { index: Some(index), rule },
        StepCommand::PortAdd(spec) => Command::PortAdd(*spec),
        StepCommand::LinkAdd(spec) => return ask(fabric, links::Add(spec)).map(drop),
        StepCommand::RoutePrepare(spec) | StepCommand::RoutePrepareIn(spec) => {
            return ask(fabric, routes::Prepare(spec));
        }
        StepCommand::RouteAdd(spec) => return ask(fabric, routes::Add(spec)).map(drop),
        StepCommand::ObjectDel(object) => {
            let Some(delete) = object.section.delete else { return Ok(()) };
            Command::Service(request_of(&object, delete)?)
        }
        StepCommand::ObjectAdd(object) => {
            Command::Service(request_of(&object, object.section.read)?)
        }
    };
    fabric.call(command).map(drop)
}

/// Returns the request of an object of a section.
fn request_of(object: &ConfigObject, read: TableReader) -> Result<ServiceRequest, CommandError> {
    read(&object.values)
        .map_err(|all| CommandError::Invalid(schema::joined(object.section.title, &all)))
}

/// Returns the numbers of the routes before the first is deleted.
fn route_numbers(fabric: &dyn FabricControl) -> Result<RouteNumbers, CommandError> {
    let views = ask(fabric, routes::List)?;
    Ok(views.into_iter().map(|view| (view.spec, view.index)).collect())
}
