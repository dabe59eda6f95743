//! Files of VNET commands: all lines are checked before the first is executed.
//!
//! [`check`] parses and plans every line against the state of one group, as it would be after the
//! lines before. If lines are wrong, its error has the first [`PROBLEMS_MAX`] (20) and the number
//! of the others, and nothing can be executed. [`VnetScript::execute`] makes the changes up to the
//! first refusal; changes before it remain. Between both calls the fabric may change, which shows
//! as a refusal.
//!
//! A file needs no password: HELLO is optional, and its password is ignored. `DEL LINK <number>`,
//! `LIST` and commands that need a sender's address (`REGISTERLINK`, `DEREGISTERLINK`) are errors;
//! lines after `DONE` are ignored. Peers' servers are not notified. The size of the text is limited
//! by the callers. Without the group, or if the fabric does not answer, [`check`] returns the error
//! of the fabric.
//!
//! [`crate::lifecycle`] executes `vnet_file` at the start, and puts its routes in force before the
//! ports ([`check_lines`] against the configuration); `POST /v1/vnet` ([`crate::api`]) any
//! other file. Resolving a host blocks the calling thread.

use causeway_model::commands::routes;
use causeway_model::{CommandError, Name, ServiceRequest};

use super::command::{VERSION, VnetCommand};
use super::parse::parse;
use super::plan::{GroupState, LinkNumbers, StepExecutor, VnetStep};
use crate::config::Config;
use crate::fabric::FabricControl;
use crate::limits::PROBLEMS_MAX;
use causeway_model::draft::Resolver;

/// The checked commands of a file.
#[derive(Debug)]
pub struct VnetScript {
    /// The changes, in order.
    pub steps: Vec<VnetStep>,
    executor: StepExecutor,
}

/// The reason why a file cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Lines are wrong; nothing was changed.
    #[error("{0}\nnothing was changed")]
    Wrong(String),
    /// The fabric does not answer, or the group does not exist; nothing was changed.
    #[error("{0}")]
    Fabric(CommandError),
    /// A step was refused.
    #[error("{what}: {error}; {done} of {all} changes were made, the others were not")]
    Stopped {
        /// Description of the step.
        what: String,
        /// Error of the step.
        error: CommandError,
        /// Number of steps executed before it.
        done: usize,
        /// Number of all steps.
        all: usize,
    },
}

/// Checks a file's text against the current state of the group.
///
/// # Errors
/// The first [`PROBLEMS_MAX`] (20) wrong lines with their numbers, or the error of the fabric.
pub fn check(
    fabric: &dyn FabricControl,
    group: &Name,
    resolve: Resolver,
    file: &str,
    text: &[u8],
) -> Result<VnetScript, FileError> {
    let mut numbers = LinkNumbers::default();
    let world = GroupState::read(fabric, group, resolve, &mut numbers, true);
    check_lines(world.map_err(FileError::Fabric)?, file, text)
}

/// Checks a file's text against a state of the group.
///
/// # Errors
/// The first [`PROBLEMS_MAX`] (20) wrong lines with their numbers.
pub fn check_lines(
    mut world: GroupState,
    file: &str,
    text: &[u8],
) -> Result<VnetScript, FileError> {
    let executor = StepExecutor::of(&world);
    let (mut steps, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in (1_usize..).zip(text.split(|b| *b == b'\n')) {
        match plan_line(&mut world, line) {
            Ok(PlannedLine::Step(step)) => steps.push(step),
            Ok(PlannedLine::Nothing) => {}
            Ok(PlannedLine::End) => break,
            Err(error) => problems.push(format!("{file}:{number}: {error}")),
        }
    }
    if problems.is_empty() {
        return Ok(VnetScript { steps, executor });
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    if more > 0 {
        problems.push(format!("{file}: {more} more problems not shown"));
    }
    Err(FileError::Wrong(problems.join("\n")))
}

/// Returns the requests that put the routes of a file in force before the ports and links of `config`
/// exist; none of a file with a wrong line.
pub fn policies(
    config: &Config,
    (group, resolve): (&Name, Resolver),
    file: &str,
    text: &[u8],
) -> Vec<ServiceRequest> {
    let world = GroupState::before_start(group, resolve, config);
    let Ok(script) = check_lines(world, file, text) else { return Vec::new() };
    let prepare = |step: &VnetStep| match step {
        VnetStep::RouteAdd(route) => Some(ServiceRequest::new(routes::Prepare(route.clone()))),
        _ => None,
    };
    script.steps.iter().filter_map(prepare).collect()
}

/// The effect of a line.
enum PlannedLine {
    /// A change.
    Step(VnetStep),
    /// An empty line, a comment, or a command that changes nothing.
    Nothing,
    /// `DONE`: further lines are ignored.
    End,
}

/// Parses and plans a line; updates `world` for the next.
fn plan_line(world: &mut GroupState, line: &[u8]) -> Result<PlannedLine, String> {
    let Some(command) = parse(line).map_err(|error| error.to_string())? else {
        return Ok(PlannedLine::Nothing);
    };
    let command = match command {
        // The file's permissions replace the password.
        VnetCommand::Hello { version, then, .. } => {
            if version != VERSION {
                return Err(format!("HELLO: version {version:?}: expected {VERSION}"));
            }
            match then {
                Some(then) => *then,
                None => return Ok(PlannedLine::Nothing),
            }
        }
        other => other,
    };
    match command {
        // A session lists links with numbers; in a file the same numbers could name other links.
        VnetCommand::LinkDel(number) => Err(format!(
            "DEL LINK {number}: only a session has numbers of links, by LIST LINKS; a file \
                 names the link: DELETELINK host"
        )),
        VnetCommand::Done => Ok(PlannedLine::End),
        VnetCommand::List(_) => Err("LIST: a file gets no answer".into()),
        other => Ok(world.plan(&other, None)?.map_or(PlannedLine::Nothing, PlannedLine::Step)),
    }
}

impl VnetScript {
    /// Executes the changes, up to the first refusal. Returns their number.
    ///
    /// # Errors
    /// The refused step, and the number of steps executed before it.
    pub fn execute(mut self, fabric: &dyn FabricControl) -> Result<usize, FileError> {
        let all = self.steps.len();
        for (done, step) in self.steps.iter().enumerate() {
            let what = || step.shown();
            let stopped = |error| FileError::Stopped { what: what(), error, done, all };
            self.executor.execute(fabric, step).map_err(stopped)?;
        }
        Ok(all)
    }
}
