//! Executes a plan step by step, up to the first refusal.

use std::collections::HashMap;

use causeway_model::RouteSpec;
use causeway_model::commands::{links, routes};
use causeway_model::{Command, CommandError};

use super::{ChangePlan, StepCommand};
use crate::fabric::{FabricControl, ask};

/// The result of executing a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanResult {
    /// For each change, whether all of its steps were executed.
    pub done: Vec<bool>,
    /// The change that failed, and the error.
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

type RouteNumbers = HashMap<RouteSpec, u64>;

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
            let number = numbers.get(&route).copied();
            let number = number.ok_or_else(|| CommandError::NotFound {
                what: "route",
                name: super::shown(&route),
            })?;
            return ask(fabric, routes::Delete(number));
        }
        StepCommand::LinkDel(name) => return ask(fabric, links::Delete(name)),
        StepCommand::RuleDel(index) => Command::RuleDel { index },
        StepCommand::PortDel(name) => Command::PortDel(name),
        StepCommand::GroupDel(name) => Command::GroupDel(name),
        StepCommand::GroupAdd(spec) => Command::GroupAdd(spec),
        StepCommand::RuleAdd(index, rule) => Command::RuleAdd { index: Some(index), rule },
        StepCommand::PortAdd(spec) => Command::PortAdd(*spec),
        StepCommand::LinkAdd(spec) => return ask(fabric, links::Add(spec)).map(drop),
        StepCommand::RouteAdd(spec) => return ask(fabric, routes::Add(spec)).map(drop),
    };
    fabric.call(command).map(drop)
}

/// Returns the numbers of the routes before the first is deleted.
fn route_numbers(fabric: &dyn FabricControl) -> Result<RouteNumbers, CommandError> {
    let views = ask(fabric, routes::List)?;
    Ok(views.into_iter().map(|view| (view.spec, view.index)).collect())
}
