//! Arguments of `causeway mpi-env` and `causeway mpi-run`: the NICs, the provider of libfabric, and
//! the MPI library.
//!
//! Paths are not checked here, and libraries that [`Mpi`] does not list are not supported: another
//! name is refused with exit status 2. `commands::mpi` uses the arguments, in the main thread.

use std::ffi::OsString;
use std::path::PathBuf;

use causeway_model::Name;
use clap::{Args, ValueEnum};

/// Help after the options of `causeway mpi-env`.
pub const ENV_EXAMPLES: &str = "\
The program is not rebuilt: its MPI library finds the libfabric provider by these variables.
`causeway mpi-run` sets them and starts the program in one step.

Examples:
  eval \"$(causeway mpi-env)\" && mpirun -n 4 ./program
  causeway mpi-env --mpi mpich
  causeway mpi-env --slurm --nic mx0 --json";

/// Help after the options of `causeway mpi-run`.
pub const RUN_EXAMPLES: &str = "\
The daemon is asked for its NICs, and each chosen NIC must accept this user; the provider must be
installed. Otherwise nothing is started. Without access to the control socket, the NICs are those
of the sockets mx*.sock beside it. The command replaces this process: signals and its exit status
pass through. The MPI library takes no other transport between ranks, so that a rank without a NIC
ends the job.

On several nodes, start mpi-run on each rank's node, between the launcher and the program: each
rank then uses the NICs of its own node, and the job ends if one node has none: mpi-run then ends
by SIGTERM, as launchers wait for a rank that only exits.

Exit status before the command starts: 2 wrong usage, or a choice is necessary; 3 no NIC or no
provider; 4 no daemon or no access; 5 no answer in time; 126 the command cannot be executed;
127 the command does not exist.

Examples:
  causeway mpi-run -- mpirun -n 4 ./program
  causeway mpi-run --group blue -- mpiexec -n 4 ./program
  causeway mpi-run --dry-run -- mpirun -n 4 ./program
  mpirun -n 8 --host node1:4,node2:4 causeway mpi-run --mpi openmpi4 -- ./program
  srun -K --mpi=pmix -n 8 causeway mpi-run --mpi openmpi4 -- ./program";

/// `causeway mpi-env`.
#[derive(Debug, Args)]
pub struct MpiEnvArgs {
    /// The MPI library of the program
    #[arg(long, value_enum, default_value = "openmpi4")]
    pub mpi: Mpi,
    /// For ranks that are started by Slurm's srun
    #[arg(long)]
    pub slurm: bool,
    /// The NICs and the provider.
    #[command(flatten)]
    pub choice: MpiChoice,
}

/// `causeway mpi-run`.
#[derive(Debug, Args)]
pub struct MpiRunArgs {
    /// The MPI library of the program [default: that of the launcher mpirun or mpiexec]
    #[arg(long, value_enum)]
    pub mpi: Option<Mpi>,
    /// Print the variables and the command, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The NICs and the provider.
    #[command(flatten)]
    pub choice: MpiChoice,
    /// The command with its arguments: a launcher (mpirun, mpiexec, srun), or the program of a rank
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// The NICs and the provider that an MPI program uses.
#[derive(Debug, Args)]
pub struct MpiChoice {
    /// Name of a NIC (port of kind mx); may be repeated [default: all NICs of the daemon that this
    /// user may use, unless CAUSEWAY_MX lists their sockets]
    #[arg(long, value_name = "NAME")]
    pub nic: Vec<Name>,
    /// Only NICs of this group
    #[arg(long, value_name = "NAME")]
    pub group: Option<Name>,
    /// Socket of a NIC, without asking the daemon for its name; may be repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["nic", "group"])]
    pub board: Vec<PathBuf>,
    /// Directory of libcauseway-fi.so [default: beside this program, or libfabric's directories]
    #[arg(long, value_name = "DIR")]
    pub provider: Option<PathBuf>,
}

/// An MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    /// Open MPI 4, as in Debian
    Openmpi4,
    /// Open MPI 5
    Openmpi5,
    /// MPICH 4 or later, built with libfabric (ch4:ofi)
    Mpich,
}
