//! What `mpi-env` is asked.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `causeway mpi-env`.
#[derive(Debug, Args)]
pub struct MpiArgs {
    /// Which MPI library
    #[arg(long, value_enum, default_value = "openmpi4")]
    pub mpi: Mpi,
    /// For ranks that Slurm's srun starts
    #[arg(long)]
    pub slurm: bool,
    /// Where libcauseway-fi.so is [default: beside this program, or where libfabric looks]
    #[arg(long, value_name = "DIR")]
    pub provider: Option<PathBuf>,
    /// The socket of a board; may be given more than once [default: $CAUSEWAY_MX, or those
    /// of the daemon at the control socket]
    #[arg(long, value_name = "PATH")]
    pub board: Vec<PathBuf>,
}

/// An MPI library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mpi {
    /// Open MPI 4, as Debian has it
    Openmpi4,
    /// Open MPI 5
    Openmpi5,
    /// MPICH 4 or later that was built with libfabric (ch4:ofi)
    Mpich,
}
