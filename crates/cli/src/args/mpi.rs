//! Arguments of `causeway mpi-env`: the MPI library, the start by Slurm, and places of the provider
//! and the NICs.
//!
//! Paths are not checked here, and libraries that [`Mpi`] does not list are not supported: another
//! name is refused with exit status 2. `commands::mpi_env` uses the arguments.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `causeway mpi-env`.
#[derive(Debug, Args)]
pub struct MpiArgs {
    /// The MPI library of the program
    #[arg(long, value_enum, default_value = "openmpi4")]
    pub mpi: Mpi,
    /// For ranks that are started by Slurm's srun
    #[arg(long)]
    pub slurm: bool,
    /// Directory of libcauseway-fi.so [default: beside this program, or libfabric's directories]
    #[arg(long, value_name = "DIR")]
    pub provider: Option<PathBuf>,
    /// Socket of a NIC (port of kind mx); may be repeated [default: $CAUSEWAY_MX, or the NICs of
    /// the daemon at the control socket]
    #[arg(long, value_name = "PATH")]
    pub board: Vec<PathBuf>,
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
