//! Executes a plan step by step, up to the first refusal.

use std::collections::HashMap;

use causeway_model::RouteSpec;
use causeway_model::commands::{links, routes};
use causeway_model::{Command, CommandError};

use super::{Act, Plan};
use crate::fabric::{Fabric, ask};

/// The result of executing a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// For each change, whether all of its steps were executed.
    pub done: Vec<bool>,
    /// The change that failed, and the error.
    pub failed: Option<(usize, CommandError)>,
}

/// Executes a plan. Steps before a refused step are not undone.
pub fn carry_out(fabric: &dyn Fabric, plan: &Plan) -> Outcome {
    let mut left = vec![0_usize; plan.changes.len()];
    plan.steps.iter().for_each(|step| left[step.change] += 1);
    let mut numbers = None;
    let mut failed = None;
    for step in &plan.steps {
        match execute(fabric, &step.act, &mut numbers) {
            Ok(()) => left[step.change] -= 1,
            Err(error) => {
                failed = Some((step.change, error));
                break;
            }
        }
    }
    Outcome { done: left.into_iter().map(|left| left == 0).collect(), failed }
}

type Numbers = HashMap<RouteSpec, u64>;

fn execute(
    fabric: &dyn Fabric,
    act: &Act,
    numbers: &mut Option<Numbers>,
) -> Result<(), CommandError> {
    let command = match act.clone() {
        Act::RouteDel(route) => {
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
        Act::LinkDel(name) => return ask(fabric, links::Delete(name)),
        Act::RuleDel(index) => Command::RuleDel { index },
        Act::PortDel(name) => Command::PortDel(name),
        Act::GroupDel(name) => Command::GroupDel(name),
        Act::GroupAdd(spec) => Command::GroupAdd(spec),
        Act::RuleAdd(index, rule) => Command::RuleAdd { index: Some(index), rule },
        Act::PortAdd(spec) => Command::PortAdd(*spec),
        Act::LinkAdd(spec) => return ask(fabric, links::Add(spec)).map(drop),
        Act::RouteAdd(spec) => return ask(fabric, routes::Add(spec)).map(drop),
    };
    fabric.call(command).map(drop)
}

/// Returns the numbers of the routes before the first is deleted.
fn route_numbers(fabric: &dyn Fabric) -> Result<Numbers, CommandError> {
    let views = ask(fabric, routes::List)?;
    Ok(views.into_iter().map(|view| (view.spec, view.index)).collect())
}
