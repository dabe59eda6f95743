//! `causeway mpi-env`: prints the environment with which an MPI program uses the NICs of this host.
//!
//! The output is shell text to evaluate: an `export` line for each variable (`FI_PROVIDER_PATH`,
//! `CAUSEWAY_MX` and those of the MPI library), and a comment with the start command. With `--json`
//! it has the variables, the NICs and the start command. `commands::run` calls [`run`] in the main
//! thread; `MpiEnvironment::find` asks the daemon for its NICs and attaches to each for a moment.
//!
//! If a part is missing, the verb prints [`EVALUATED_FAILURE`], so that the evaluating shell fails
//! too, and no variable; with `--json` it prints nothing. The error follows on stderr, with its
//! exit status. For a wrong command line `main` prints the failure, also with `--json`.

use serde_json::json;

use super::{CommandContext, MpiEnvironment, assignment};
use crate::args::{Format, Mpi, MpiEnvArgs};
use crate::commands::print;
use crate::error::Result;

/// Text for the shell to evaluate instead of variables if the command fails.
pub const EVALUATED_FAILURE: &str = "false # causeway mpi-env failed\n";

/// Runs `causeway mpi-env` and prints the result.
///
/// # Errors
/// Those of [`MpiEnvironment::find`]: no provider, no NIC, a NIC that does not admit this user. A
/// failed output.
pub fn run(cx: &CommandContext, args: &MpiEnvArgs) -> Result<()> {
    let found = match MpiEnvironment::find(cx, args.mpi, &args.choice) {
        Ok(found) => found,
        Err(error) => {
            // `eval "$(causeway mpi-env)" && mpirun` has the status of the evaluated text, and an
            // empty text succeeds.
            if cx.format == Format::Table {
                print(EVALUATED_FAILURE)?;
            }
            return Err(error);
        }
    };
    let start = start(args.mpi, args.slurm);
    let value = json!({ "environment": found.variables, "nics": found.nics, "start": start });
    cx.show(&value, |_| Ok(script(&found, start)))
}

/// Returns the start command with placeholders for ranks and program; with `slurm`, srun starts the
/// ranks.
fn start(mpi: Mpi, slurm: bool) -> &'static str {
    match (slurm, mpi) {
        (true, Mpi::Openmpi4 | Mpi::Openmpi5) => "srun --mpi=pmix -n RANKS PROGRAM",
        // MPICH supports PMIx only if it was built with it.
        (true, Mpi::Mpich) => "srun --mpi=pmi2 -n RANKS PROGRAM",
        (false, Mpi::Openmpi4 | Mpi::Openmpi5) => "mpirun -n RANKS PROGRAM",
        (false, Mpi::Mpich) => "mpiexec -n RANKS PROGRAM",
    }
}

/// Returns the environment as shell commands.
fn script(found: &MpiEnvironment, start: &str) -> String {
    let lines = found.variables.iter();
    let lines = lines.map(|(name, value)| format!("export {}\n", assignment(name, value)));
    format!("{}# {start}\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::nics::Nic;
    use super::*;

    #[test]
    fn mpi_env_quotes_variables_for_the_shell() {
        let nics = vec![Nic::at("/run/a b/mx0.sock"), Nic::at("/run/it's.sock")];
        let found = MpiEnvironment::of(Mpi::Openmpi4, Path::new("/usr/lib"), nics).unwrap();
        let script = script(&found, start(Mpi::Openmpi4, false));
        let expected = [
            r"export CAUSEWAY_MX='/run/a b/mx0.sock:/run/it'\''s.sock'",
            "export FI_PROVIDER_PATH=/usr/lib",
            "export OMPI_MCA_mtl_ofi_provider_include=causeway",
            "export OMPI_MCA_pml=cm",
            "# mpirun -n RANKS PROGRAM",
        ];
        for line in expected {
            assert!(script.lines().any(|found| found == line), "{line} not in\n{script}");
        }
    }

    #[test]
    fn mpi_env_start_line_names_the_interface_of_slurm() {
        assert!(start(Mpi::Openmpi4, true).starts_with("srun --mpi=pmix "));
        assert!(start(Mpi::Mpich, true).starts_with("srun --mpi=pmi2 "));
        assert!(start(Mpi::Mpich, false).starts_with("mpiexec "));
    }
}
