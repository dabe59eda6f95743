//! A file of commands: checked wholly, then carried out.

use causeway_model::CommandError;
use causeway_model::Name;

use super::parse::parse;
use super::plan::{Doer, Numbers, Step, World};
use super::speech::{Command, VERSION};
use crate::fabric::Fabric;
use crate::limits::PROBLEMS_MAX;
use causeway_model::draft::Resolver;

/// What a file changes.
#[derive(Debug)]
pub struct Script {
    /// Its changes, in order.
    pub steps: Vec<Step>,
    doer: Doer,
}

/// Why a file cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Lines are wrong; nothing was changed.
    #[error("{0}\nnothing was changed")]
    Wrong(String),
    /// The fabric does not answer, or has no such group; nothing was changed.
    #[error("{0}")]
    Fabric(CommandError),
    /// A step was refused.
    #[error("{what}: {error}; {done} of {all} changes were made, the others are left")]
    Stopped {
        /// What was tried.
        what: String,
        /// The refusal.
        error: CommandError,
        /// Steps before it.
        done: usize,
        /// All steps.
        all: usize,
    },
}

/// Reads a file's text against the group as it is now.
///
/// # Errors
/// Every line that is wrong, with its number.
pub fn check(
    fabric: &dyn Fabric,
    group: &Name,
    resolve: Resolver,
    file: &str,
    text: &[u8],
) -> Result<Script, FileError> {
    let mut numbers = Numbers::default();
    let world = World::look(fabric, group, resolve, &mut numbers, true);
    let mut world = world.map_err(FileError::Fabric)?;
    let doer = Doer::of(&world);
    let (mut steps, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in (1_usize..).zip(text.split(|b| *b == b'\n')) {
        match one(&mut world, line) {
            Ok(Line::Step(step)) => steps.push(step),
            Ok(Line::Nothing) => {}
            Ok(Line::End) => break,
            Err(error) => problems.push(format!("{file}:{number}: {error}")),
        }
    }
    if problems.is_empty() {
        return Ok(Script { steps, doer });
    }
    let more = problems.len().saturating_sub(PROBLEMS_MAX);
    problems.truncate(PROBLEMS_MAX);
    if more > 0 {
        problems.push(format!("{file}: {more} more problems not shown"));
    }
    Err(FileError::Wrong(problems.join("\n")))
}

enum Line {
    Step(Step),
    Nothing,
    End,
}

fn one(world: &mut World, line: &[u8]) -> Result<Line, String> {
    let Some(command) = parse(line).map_err(|error| error.to_string())? else {
        return Ok(Line::Nothing);
    };
    let command = match command {
        // Who may write the file need not know the password.
        Command::Hello { version, then, .. } => {
            if version != VERSION {
                return Err(format!("HELLO: version {version:?}: expected {VERSION}"));
            }
            match then {
                Some(then) => *then,
                None => return Ok(Line::Nothing),
            }
        }
        other => other,
    };
    match command {
        // Numbers are of the lists that a session is told: here they would name other links.
        Command::LinkDel(number) => Err(format!(
            "DEL LINK {number}: only a session has numbers of links, by LIST LINKS; a file \
                 names the link: DELETELINK host"
        )),
        Command::Done => Ok(Line::End),
        Command::List(_) => Err("LIST: a file is answered by nobody".into()),
        other => Ok(world.plan(&other, None)?.map_or(Line::Nothing, Line::Step)),
    }
}

impl Script {
    /// Carries it out, up to the first step that is refused.
    ///
    /// # Errors
    /// That step, and how many were done before it.
    pub fn carry_out(mut self, fabric: &dyn Fabric) -> Result<usize, FileError> {
        let all = self.steps.len();
        for (done, step) in self.steps.iter().enumerate() {
            let what = || step.shown();
            let stopped = |error| FileError::Stopped { what: what(), error, done, all };
            self.doer.take(fabric, step).map_err(stopped)?;
        }
        Ok(all)
    }
}
