//! The MPI library of a launcher, by the output of its `--version`.
//!
//! [`library`] is called by `run` without `--mpi`, in the main thread, and runs the launcher at
//! each call. It knows Open MPI 4 and 5 and MPICH; everything else is an error of exit status 2,
//! whose text names `--mpi`.

use std::ffi::OsStr;
use std::path::Path;

use crate::args::Mpi;
use crate::error::{Error, Result};
use crate::program::output;

/// Beginnings of the names of launchers that report their MPI library.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];

/// Returns the MPI library of a launcher. A launcher is run with `--version` for at most 5 s; other
/// programs are not run.
///
/// # Errors
/// The program is no launcher of an MPI library, does not exist, or reports an unknown library.
pub fn library(program: &OsStr) -> Result<Mpi> {
    let unknown = |text: &str| {
        Error::Usage(format!(
            "{}: {text}; name the MPI library of the program: --mpi openmpi4, openmpi5 or mpich",
            program.display()
        ))
    };
    let name = Path::new(program).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if !LAUNCHERS.iter().any(|launcher| name.starts_with(launcher)) {
        return Err(unknown("the command does not show which MPI library it uses"));
    }
    let output = output(program, &["--version"]);
    match output {
        Some(text) => reported(&text).ok_or_else(|| {
            let line = text.lines().next().unwrap_or_default();
            unknown(&format!("its version is not one of a known MPI library ({line})"))
        }),
        None => Err(unknown("it does not report its version, or does not exist")),
    }
}

/// Returns the library that the output of `--version` names.
fn reported(text: &str) -> Option<Mpi> {
    if text.contains("HYDRA") {
        return Some(Mpi::Mpich);
    }
    let version = text.split_once("(Open MPI) ")?.1;
    match version.split_once('.')?.0 {
        "4" => Some(Mpi::Openmpi4),
        "5" => Some(Mpi::Openmpi5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpi_launchers_report_their_library() {
        assert_eq!(reported("mpirun (Open MPI) 4.1.4\n\nReport bugs"), Some(Mpi::Openmpi4));
        assert_eq!(reported("mpirun (Open MPI) 5.0.11"), Some(Mpi::Openmpi5));
        assert_eq!(reported("HYDRA build details:\n    Version: 5.0.2"), Some(Mpi::Mpich));
        for other in ["", "mpirun (Open MPI) 3.1.0", "mpirun (Open MPI) 45", "Intel(R) MPI"] {
            assert_eq!(reported(other), None, "{other}");
        }
    }

    #[test]
    fn mpi_library_of_other_programs_must_be_named() {
        for program in ["srun", "./a.out", "/nonexistent/mpirun", ""] {
            let error = library(OsStr::new(program)).unwrap_err();
            assert_eq!(error.status(), 2, "{program}");
            assert!(error.to_string().contains("--mpi openmpi4"), "{error}");
        }
    }
}
