//! `causeway mpi-run`: executes a command with the environment, or executes nothing.
//!
//! The command replaces this process (execve(2)), so that it keeps the process id and the open
//! files, receives signals itself, and its exit status is that of `causeway`. With `--dry-run` the
//! verb prints the variables and the command instead. `commands::run` is the caller.
//!
//! A launcher may start `mpi-run` itself, for each rank. Open MPI 5, MPICH and others then wait
//! forever for a rank that ends with an exit status before it has initialised MPI, but end the job
//! if a signal ends the rank. A failed `mpi-run` of a rank therefore ends itself by SIGTERM.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::json;

use rustix::process::{Signal, getpid, kill_process};

use super::{CommandContext, MpiEnvironment, assignment, launcher, quoted};
use crate::args::MpiRunArgs;
use crate::error::{Error, Result};

/// Variables that launchers set for each rank.
const RANKS: [&str; 3] = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"];

/// Runs `causeway mpi-run`. Returns only without having started the command; for a rank of a
/// launcher, a failure ends this process.
///
/// # Errors
/// Those of [`MpiEnvironment::find`]; the MPI library is unknown, or the command cannot be
/// executed.
pub fn run(cx: &CommandContext, args: &MpiRunArgs) -> Result<()> {
    let done = execute(cx, args);
    let is_rank = RANKS.iter().any(|name| std::env::var_os(name).is_some());
    if let (Err(error), true) = (&done, is_rank) {
        eprintln!("causeway: {error}\ncauseway: this rank ends by SIGTERM, so that the job ends");
        // Returns if the launcher has SIGTERM ignored; the exit status then reports the failure.
        let _ = kill_process(getpid(), Signal::TERM);
    }
    done
}

/// Finds the environment, and executes the command or prints it.
fn execute(cx: &CommandContext, args: &MpiRunArgs) -> Result<()> {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Error::Usage("expected a command after --".into()));
    };
    let mpi = args.mpi.map_or_else(|| launcher::library(program), Ok)?;
    let found = MpiEnvironment::find(cx, mpi, &args.choice)?;
    if args.dry_run {
        return show(cx, args, &found);
    }
    let error = Command::new(program).args(arguments).envs(&found.variables).exec();
    let is_missing = error.kind() == ErrorKind::NotFound;
    Err(Error::Execute { program: program.into(), is_missing, error })
}

/// Prints the variables and the command, as a line for a shell or as JSON.
fn show(cx: &CommandContext, args: &MpiRunArgs, found: &MpiEnvironment) -> Result<()> {
    let words: Vec<String> = args.command.iter().map(|w| w.to_string_lossy().into()).collect();
    let value = json!({ "environment": found.variables, "nics": found.nics, "command": words });
    cx.show(&value, |_| {
        let variables = found.variables.iter().map(|(name, value)| assignment(name, value));
        let words = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        Ok(variables.map(|one| format!("{one} \\\n")).chain([words, "\n".into()]).collect())
    })
}
