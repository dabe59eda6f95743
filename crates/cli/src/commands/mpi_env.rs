//! `causeway mpi-env`: prints the environment with which an MPI program uses the NICs of this host.
//!
//! The output is shell text to evaluate: `export` lines for the provider of libfabric, the sockets
//! of the NICs, and the variables of the chosen MPI library, and a comment with the start command.
//! The provider is searched in five directories, the NICs in `--board`, `CAUSEWAY_MX`, the daemon,
//! or beside the control socket (if the daemon does not answer or refuses), in this order. A test
//! connect to each NIC follows; no provider, no NIC, or a NIC without access is an error of exit
//! status 3.
//!
//! The verb starts no program, sets no variable of the caller, and does not check the version of
//! the MPI library. It describes this host only: other hosts of a job need their own output. If it
//! fails, it prints [`EVALUATED_FAILURE`], so that the evaluating shell fails too; not with JSON
//! output. `commands::run` is the caller; `main` prints the failure for a wrong command line.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{CommandContext, print};
use crate::args::{Format, Mpi, MpiArgs};
use crate::client::view;
use crate::error::{Error, Result};
use crate::view::PortView;

/// File name of the provider, as libfabric searches it.
const PROVIDER: &str = "libcauseway-fi.so";
/// Text for the shell to evaluate instead of variables if the command fails.
pub const EVALUATED_FAILURE: &str = "false # causeway mpi-env failed\n";

/// The environment and the start command of a program.
#[derive(Debug, PartialEq, Eq)]
struct MpiEnvironment {
    /// Values by name of the variable.
    environment: BTreeMap<&'static str, String>,
    /// Start command with placeholders for ranks and program.
    start: &'static str,
}

/// Runs `causeway mpi-env` and prints the result.
pub fn run(cx: &CommandContext, args: &MpiArgs) -> Result<()> {
    let found = provider(args.provider.as_deref())
        .and_then(|provider| Ok((provider, nics(cx, &args.board)?)));
    let (provider, nics) = match found {
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
    let program = mpi_environment(args.mpi, args.slurm, &provider, &nics);
    let MpiEnvironment { environment, start } = &program;
    let value = json!({ "environment": environment, "start": start });
    cx.show(&value, |_| Ok(script(&program)))
}

/// Returns the environment for an MPI library; with `slurm`, srun starts the ranks.
fn mpi_environment(mpi: Mpi, slurm: bool, provider: &Path, nics: &[PathBuf]) -> MpiEnvironment {
    let nics: Vec<String> = nics.iter().map(|path| path.display().to_string()).collect();
    let places =
        [("FI_PROVIDER_PATH", provider.display().to_string()), ("CAUSEWAY_MX", nics.join(":"))];
    let own = library(mpi).iter().map(|&(name, value)| (name, value.to_owned()));
    let start = match (slurm, mpi) {
        (true, Mpi::Openmpi4 | Mpi::Openmpi5) => "srun --mpi=pmix -n RANKS PROGRAM",
        // MPICH supports PMIx only if it was built with it.
        (true, Mpi::Mpich) => "srun --mpi=pmi2 -n RANKS PROGRAM",
        (false, Mpi::Openmpi4 | Mpi::Openmpi5) => "mpirun -n RANKS PROGRAM",
        (false, Mpi::Mpich) => "mpiexec -n RANKS PROGRAM",
    };
    MpiEnvironment { environment: places.into_iter().chain(own).collect(), start }
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

/// Returns the environment as shell commands.
fn script(program: &MpiEnvironment) -> String {
    let quoted = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
    let lines = program.environment.iter().map(|(name, value)| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._:-".contains(c);
        let value = if value.chars().all(plain) { value.clone() } else { quoted(value) };
        format!("export {name}={value}\n")
    });
    let lines: String = lines.collect();
    format!("{lines}# {}\n", program.start)
}

/// Returns the directory of the provider: the given directory, or the first that has the file.
fn provider(named: Option<&Path>) -> Result<PathBuf> {
    let has = |folder: &PathBuf| folder.join(PROVIDER).exists();
    if let Some(folder) = named {
        let folder = folder.to_owned();
        let none = || Error::NotFound(format!("no {PROVIDER} in {}", folder.display()));
        return if has(&folder) { Ok(absolute(folder)) } else { Err(none()) };
    }
    let here = std::env::current_exe().unwrap_or_default();
    let beside = here.parent().unwrap_or(Path::new("/")).to_owned();
    let arch = std::env::consts::ARCH;
    let folders = [
        beside.clone(),
        beside.join("../lib/libfabric"),
        "/usr/local/lib/libfabric".into(),
        format!("/usr/lib/{arch}-linux-gnu/libfabric").into(),
        "/usr/lib64/libfabric".into(),
    ];
    let found = folders.into_iter().find(has).map(absolute);
    found.ok_or_else(|| {
        Error::NotFound(format!(
            "no {PROVIDER} is found; install it with scripts/install-libfabric.sh, or give its \
             directory with --provider"
        ))
    })
}

/// Returns the path without symbolic links, or unchanged if it does not exist.
fn absolute(folder: PathBuf) -> PathBuf {
    std::fs::canonicalize(&folder).unwrap_or(folder)
}

/// Returns the sockets of NICs, after a test connect to each: those given, else those of
/// `CAUSEWAY_MX`, else the daemon's.
fn nics(cx: &CommandContext, named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let (nics, searched) = match (named, std::env::var_os("CAUSEWAY_MX")) {
        ([], None) => known(cx)?,
        ([], Some(paths)) => {
            let paths = std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty());
            (paths.collect(), "CAUSEWAY_MX".into())
        }
        (named, _) => (named.to_vec(), "--board".into()),
    };
    if nics.is_empty() {
        return Err(Error::NotFound(format!(
            "no NIC of this host is found in {searched}; add a port of kind mx (`causeway port add \
             mx0 --kind mx --group GROUP`), or name its socket with --board or CAUSEWAY_MX"
        )));
    }
    for nic in &nics {
        if let Err(error) = UnixStream::connect(nic) {
            return Err(Error::NotFound(format!(
                "{}: {error}; is it the socket of a port of kind mx, does causewayd run, and may you \
                 use it?",
                nic.display()
            )));
        }
    }
    Ok(nics.into_iter().map(absolute).collect())
}

/// Returns the sockets of the daemon's NICs, and where they were searched. A process without access
/// to the control socket finds NICs whose sockets are in its directory.
fn known(cx: &CommandContext) -> Result<(Vec<PathBuf>, String)> {
    let control = cx.client.path();
    match cx.client.get("/v1/ports") {
        Ok(value) => {
            let ports: Vec<PortView> = view(&value)?;
            let nics = ports.iter().filter(|port| port.spec.text("kind") == Some("mx"));
            let nics = nics.filter_map(|port| port.spec.text("socket").map(PathBuf::from));
            let nics = nics.collect();
            Ok((nics, format!("the daemon at {}", control.display())))
        }
        Err(Error::Unreachable { .. } | Error::Timeout { .. } | Error::Refused { .. }) => {
            let folder = control.parent().unwrap_or(Path::new("/"));
            Ok((beside(folder), folder.display().to_string()))
        }
        Err(other) => Err(other),
    }
}

/// Returns the sockets in `folder` with the conventional names of NICs: `mx*.sock`.
fn beside(folder: &Path) -> Vec<PathBuf> {
    let is_nic = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("mx") && name.ends_with(".sock"))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_nic).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpi_env_quotes_variables_for_the_shell() {
        let nics = [PathBuf::from("/run/a b/mx0.sock"), "/run/it's.sock".into()];
        let script = script(&mpi_environment(Mpi::Openmpi4, false, Path::new("/usr/lib"), &nics));
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
    fn mpi_env_has_the_variables_of_each_library() {
        let of = |mpi| mpi_environment(mpi, false, Path::new("/p"), &["/b".into()]);
        assert_eq!(of(Mpi::Mpich).environment["FI_PROVIDER"], "causeway");
        let five = of(Mpi::Openmpi5).environment;
        assert_eq!(five["OMPI_MCA_opal_common_ofi_provider_include"], "causeway");
        assert!(!five.contains_key("OMPI_MCA_osc"));
    }

    #[test]
    fn mpi_env_does_not_depend_on_the_launcher() {
        for (mpi, starts) in [(Mpi::Openmpi4, "srun --mpi=pmix "), (Mpi::Mpich, "srun --mpi=pmi2 ")]
        {
            let of = |slurm| mpi_environment(mpi, slurm, Path::new("/p"), &["/b".into()]);
            assert_eq!(of(true).environment, of(false).environment);
            assert!(of(true).start.starts_with(starts), "{:?}", of(true));
        }
    }
}
