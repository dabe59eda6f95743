//! `causeway mpi-env` and `causeway mpi-run`: the environment with which an MPI program uses the
//! NICs of this host.
//!
//! [`MpiEnvironment::find`] finds the provider of libfabric ([`provider`]), asks the daemon for its
//! NICs unless their sockets are given ([`nics`]), attaches to each chosen NIC for a moment, and
//! returns the variables for an MPI library. [`env`](mod@env) prints them, [`run`](mod@run) sets
//! them and executes the command. Every missing part is an error that names the remedy, and then
//! nothing is printed or started that could run over another transport.
//!
//! The verbs describe this host only: other hosts of a job need their own environment. Neither
//! checks that the MPI library was built with libfabric.

mod env;
mod launcher;
mod nics;
mod provider;
mod run;

pub use env::{EVALUATED_FAILURE, run as env};
pub use run::run;

use std::collections::BTreeMap;
use std::path::Path;

use super::CommandContext;
use crate::args::{Mpi, MpiChoice};
use crate::error::{Error, Result};
use nics::Nic;

/// The variables of a program, and the NICs that these select.
#[derive(Debug, PartialEq, Eq)]
struct MpiEnvironment {
    /// Values by name of the variable.
    variables: BTreeMap<&'static str, String>,
    /// The NICs, each attached to for a moment.
    nics: Vec<Nic>,
}

impl MpiEnvironment {
    /// Finds the provider and the NICs.
    ///
    /// # Errors
    /// A part is missing, this user may not use a NIC, or the choice is ambiguous.
    fn find(cx: &CommandContext, mpi: Mpi, choice: &MpiChoice) -> Result<Self> {
        let provider = provider::find(choice.provider.as_deref())?;
        let nics = nics::choose(cx, choice)?;
        Self::of(mpi, &provider, nics)
    }

    /// Returns the environment for an MPI library.
    fn of(mpi: Mpi, provider: &Path, nics: Vec<Nic>) -> Result<Self> {
        let sockets: Vec<String> =
            nics.iter().map(|nic| listed(&nic.socket)).collect::<Result<_>>()?;
        let places = [("FI_PROVIDER_PATH", listed(provider)?), ("CAUSEWAY_MX", sockets.join(":"))];
        let own = library(mpi).iter().map(|&(name, value)| (name, value.to_owned()));
        Ok(Self { variables: places.into_iter().chain(own).collect(), nics })
    }
}

/// Returns a path as an element of a variable that separates paths by colons.
fn listed(path: &Path) -> Result<String> {
    let text = path.to_str().filter(|text| !text.contains(':'));
    text.map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!(
            "{}: a path with a colon, or one that is not UTF-8, does not fit into CAUSEWAY_MX and \
             FI_PROVIDER_PATH; use another path",
            path.display()
        ))
    })
}

/// Returns the variables that make an MPI library use the provider, and no other transport between
/// ranks.
fn library(mpi: Mpi) -> &'static [(&'static str, &'static str)] {
    match mpi {
        // The one-sided operations of Debian's version are broken over the default component (osc).
        Mpi::Openmpi4 => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "causeway"),
            ("OMPI_MCA_osc", "pt2pt"),
        ],
        Mpi::Openmpi5 => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_opal_common_ofi_provider_include", "causeway"),
        ],
        // MPICH has its own shared-memory transport between ranks of one host.
        Mpi::Mpich => &[
            ("FI_PROVIDER", "causeway"),
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
        ],
    }
}

/// Returns `NAME=value` for a shell.
fn assignment(name: &str, value: &str) -> String {
    format!("{name}={}", quoted(value))
}

/// Returns a word for a shell, in quotes if necessary.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._:-+,=@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpi_env_has_the_variables_of_each_library() {
        let nic = || vec![Nic::at("/b")];
        let of = |mpi| MpiEnvironment::of(mpi, Path::new("/p"), nic()).unwrap().variables;
        assert_eq!(of(Mpi::Mpich)["FI_PROVIDER"], "causeway");
        let five = of(Mpi::Openmpi5);
        assert_eq!(five["OMPI_MCA_opal_common_ofi_provider_include"], "causeway");
        assert!(!five.contains_key("OMPI_MCA_osc"));
    }

    #[test]
    fn mpi_paths_that_a_list_cannot_hold_are_refused() {
        let of = |provider: &str, nic| {
            MpiEnvironment::of(Mpi::Mpich, Path::new(provider), vec![Nic::at(nic)])
        };
        assert_eq!(of("/p", "/a b").unwrap().variables["CAUSEWAY_MX"], "/a b");
        for (provider, nic) in [("/p:q", "/a"), ("/p", "/a:b")] {
            let error = of(provider, nic).unwrap_err();
            assert_eq!((error.status(), error.to_string().contains("colon")), (2, true));
        }
    }

    #[test]
    fn mpi_words_are_quoted_for_a_shell_only_if_necessary() {
        assert_eq!(quoted("/run/mx0.sock:/b"), "/run/mx0.sock:/b");
        assert_eq!(quoted("it's a"), r"'it'\''s a'");
        assert_eq!(quoted(""), "''");
    }
}
