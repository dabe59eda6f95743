//! Executes a plan step by step, up to the first refusal.
//!
//! [`execute`] sends one command after the other to [`FabricControl`] and blocks the calling thread
//! until each is answered. Steps before a refused step are not undone, steps after it are not
//! tried; [`PlanResult::done`] reports which changes are complete. A replacement whose deletion
//! succeeded and whose addition was refused is not done, and its object is missing. Policies that
//! were prepared stay in force then. A policy that is gone already, with an object that it names,
//! counts as deleted.
//!
//! `POST /v1/apply` calls it after `plan()`.

use causeway_model::{Command, CommandError, SectionOrder, ServiceRequest, TableReader, schema};

use super::{ChangePlan, SectionObject, StepCommand};
use crate::fabric::FabricControl;

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
    let mut failed = None;
    for step in &plan.steps {
        match execute_step(fabric, &step.act) {
            Ok(()) => left[step.change] -= 1,
            Err(error) => {
                failed = Some((step.change, error));
                break;
            }
        }
    }
    PlanResult { done: left.into_iter().map(|left| left == 0).collect(), failed }
}

/// Executes a step.
fn execute_step(fabric: &dyn FabricControl, act: &StepCommand) -> Result<(), CommandError> {
    let command = match act.clone() {
        StepCommand::RuleDel(index) => Command::RuleDel { index },
        StepCommand::PortDel(name) => Command::PortDel(name),
        StepCommand::GroupDel(name) => Command::GroupDel(name),
        StepCommand::GroupAdd(spec) => Command::GroupAdd(spec),
        StepCommand::RuleAdd(index, rule) => Command::RuleAdd { index: Some(index), rule },
        StepCommand::PortAdd(spec) => Command::PortAdd(*spec),
        StepCommand::ObjectPrepare(object) | StepCommand::ObjectPrepareIn(object) => {
            let Some(prepare) = object.section.requests.prepare else { return Ok(()) };
            Command::Service(request_of(&object, prepare)?)
        }
        StepCommand::ObjectDel(object) => {
            let Some(delete) = object.section.delete else { return Ok(()) };
            let deleted = fabric.call(Command::Service(request_of(&object, delete)?));
            return match deleted {
                Err(CommandError::NotFound { .. })
                    if object.section.order == SectionOrder::Policy =>
                {
                    Ok(())
                }
                deleted => deleted.map(drop),
            };
        }
        StepCommand::ObjectAdd(object) => {
            Command::Service(request_of(&object, object.section.read)?)
        }
    };
    fabric.call(command).map(drop)
}

/// Returns a request about an object of a section.
fn request_of(object: &SectionObject, read: TableReader) -> Result<ServiceRequest, CommandError> {
    read(&object.complete)
        .map_err(|all| CommandError::Invalid(schema::joined(object.section.title, &all)))
}
