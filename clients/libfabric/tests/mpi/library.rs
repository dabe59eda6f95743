//! The installed MPI libraries, and their options to use the provider.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_testing::wait::patient;

use crate::common::{self, Folder, Output, PATIENCE, command, run};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenMpi4,
    OpenMpi5,
    Mpich,
}

/// An MPI library.
#[derive(Debug)]
pub struct Library {
    kind: Kind,
    /// The directory of its programs; `None` for the search path.
    folder: Option<PathBuf>,
}

/// The programs of `tests/mpi` that one job may call in turn.
const SUITE: &str = include_str!("suite.h");

/// Returns the system's library, with which other programs of the system are built.
pub fn system() -> Option<Library> {
    Library::new(None).filter(|library| library.kind == Kind::OpenMpi4)
}

/// Returns all libraries.
pub fn all() -> Vec<Library> {
    let more = std::env::var_os("CAUSEWAY_MPI").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    let folders = std::iter::once(None).chain(more.chain(fetched()).map(Some));
    let found: Vec<Library> = folders.filter_map(Library::new).collect();
    if found.is_empty() {
        eprintln!("no MPI is installed (openmpi-bin, libopenmpi-dev): nothing is tested");
    }
    found
}

/// Returns the libraries that `scripts/mpi.sh` installed.
fn fetched() -> impl Iterator<Item = PathBuf> {
    let programs = common::fetched().into_iter().map(|place| place.join("bin"));
    programs.filter(|path| path.join("mpirun").exists())
}

impl Library {
    fn new(folder: Option<PathBuf>) -> Option<Self> {
        let program = |name: &str| folder.as_deref().map_or(name.into(), |f: &Path| f.join(name));
        Command::new(program("mpicc")).arg("--version").output().ok()?;
        let output = Command::new(program("mpirun")).arg("--version").output().ok()?.stdout;
        let output = String::from_utf8_lossy(&output).into_owned();
        let kind = match output {
            output if output.contains("(Open MPI) 4.") => Kind::OpenMpi4,
            output if output.contains("(Open MPI) 5.") => Kind::OpenMpi5,
            output if output.contains("HYDRA") => Kind::Mpich,
            other => panic!("an MPI that is not known: {other}"),
        };
        Some(Self { kind, folder })
    }

    /// Returns the path of a program of the library.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.as_deref().map_or(name.into(), |folder| folder.join(name))
    }

    /// Returns the name in `causeway mpi-env`.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::OpenMpi4 => "openmpi4",
            Kind::OpenMpi5 => "openmpi5",
            Kind::Mpich => "mpich",
        }
    }

    /// Compiles a program of `tests/mpi`.
    pub fn compile(&self, name: &str) -> Folder {
        let folder = Folder::new();
        self.compile_to(&folder.0.join("program"), [source(name)], &[]);
        folder
    }

    /// Compiles a program that calls other programs of `tests/mpi` in turn, in one job.
    pub fn compile_suite(&self) -> Folder {
        let folder = Folder::new();
        let lines = SUITE.lines().filter_map(|line| line.strip_prefix("PROGRAM("));
        let mut objects = vec![source("suite.c")];
        for name in lines.map(|line| line.trim_end_matches(')')) {
            let object = folder.0.join(format!("{name}.o"));
            let main = format!("-Dmain={name}_program");
            self.compile_to(&object, [source(&format!("{name}.c"))], &["-c", "-DSUITE", &main]);
            objects.push(object);
        }
        self.compile_to(&folder.0.join("program"), objects, &[]);
        folder
    }

    fn compile_to<I: IntoIterator<Item = PathBuf>>(&self, to: &Path, from: I, options: &[&str]) {
        let done = Command::new(self.program("mpicc"))
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-O1", "-pthread"])
            .args(options)
            .arg("-o")
            .arg(to)
            .args(from)
            .arg("-lm")
            .status();
        assert!(done.unwrap().success(), "{} compiles", to.display());
    }

    /// Runs programs of a suite in turn, in one job over the provider only.
    pub fn run_suite(
        &self,
        suite: &Folder,
        programs: &[&str],
        ranks: usize,
        boards: &[String],
        provider: &Folder,
    ) -> Output {
        let program = format!("{} {}", suite.0.join("program").display(), programs.join(" "));
        self.run_ready(Path::new(&program), suite, ranks, boards, provider)
    }

    /// Runs a program over the provider only. Ranks use the NICs in turn. Also returns the counters
    /// of all endpoints.
    pub fn run_counted(
        &self,
        name: &str,
        ranks: usize,
        boards: &[String],
        provider: &Folder,
    ) -> (Output, Vec<String>) {
        let folder = self.compile(name);
        let mut mpirun = self.over_ours(ranks, boards, provider);
        mpirun.env("FI_CAUSEWAY_COUNTERS", folder.0.join("counted"));
        let output = start(mpirun, &folder.0.join("program"), &folder, boards);
        let files = folder.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.to_string_lossy().contains("counted."));
        (output, files.map(|path| std::fs::read_to_string(path).unwrap()).collect())
    }

    /// Returns whether ranks continue if another dies: the launchers of other libraries end all.
    pub fn lets_ranks_die(&self) -> bool {
        self.kind == Kind::OpenMpi4
    }

    /// Runs a program over the provider only, and ranks continue if another dies.
    pub fn run_on(&self, name: &str, ranks: usize, boards: &[String], provider: &Folder) -> Output {
        let mut mpirun = self.over_ours(ranks, boards, provider);
        mpirun.arg("--enable-recovery");
        self.finish(mpirun, name, boards)
    }

    /// Runs an existing program in a directory, over the provider only.
    pub fn run_ready(
        &self,
        program: &Path,
        folder: &Folder,
        ranks: usize,
        boards: &[String],
        provider: &Folder,
    ) -> Output {
        start(self.over_ours(ranks, boards, provider), program, folder, boards)
    }

    fn over_ours(&self, ranks: usize, boards: &[String], provider: &Folder) -> Command {
        let mut mpirun = self.mpirun(ranks, boards, provider);
        match self.kind {
            Kind::OpenMpi4 => mpirun.args(["--mca", "mtl_ofi_provider_include", "causeway"]),
            Kind::OpenMpi5 => {
                mpirun.args(["--mca", "opal_common_ofi_provider_include", "causeway"])
            }
            Kind::Mpich => mpirun.env("FI_PROVIDER", "causeway"),
        };
        if self.kind != Kind::Mpich {
            mpirun.args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"]);
        }
        mpirun
    }

    /// Runs a program over any provider, preferably this one, with libfabric's warnings.
    pub fn run_over_any(
        &self,
        name: &str,
        ranks: usize,
        boards: &[String],
        provider: &Folder,
    ) -> Output {
        let mut mpirun = self.mpirun(ranks, boards, provider);
        if self.kind != Kind::Mpich {
            mpirun.args(["--mca", "mtl", "ofi"]);
        }
        mpirun.env("FI_LOG_LEVEL", "warn");
        self.finish(mpirun, name, boards)
    }

    /// Lets the launchers of Open MPI run as root.
    pub fn allow_root(command: &mut Command) {
        for name in ["OMPI", "PRTE"] {
            for more in ["", "_CONFIRM"] {
                command.env(format!("{name}_ALLOW_RUN_AS_ROOT{more}"), "1");
            }
        }
    }

    /// Returns the options of `mpirun` for more ranks than processors, with a time limit.
    pub fn crowded(&self) -> Vec<String> {
        if self.kind == Kind::Mpich {
            return Vec::new();
        }
        // The launcher prints why it ended the job.
        let seconds = patient(PATIENCE - Duration::from_secs(10)).as_secs();
        vec!["--oversubscribe".to_owned(), "--timeout".to_owned(), seconds.to_string()]
    }

    fn mpirun(&self, ranks: usize, boards: &[String], provider: &Folder) -> Command {
        let program = self.program("mpirun");
        let boards = boards.first().map_or("", String::as_str);
        let mut mpirun = command(program.to_str().unwrap(), provider, None, boards);
        mpirun.args(["-n", &ranks.to_string()]);
        match self.kind {
            // MPICH has its own transports between ranks of a host.
            Kind::Mpich => {
                mpirun.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
            }
            Kind::OpenMpi4 | Kind::OpenMpi5 => {
                Self::allow_root(&mut mpirun);
                // The RMA component of Debian's version crashes with any provider.
                mpirun.args(self.crowded());
                if self.kind == Kind::OpenMpi4 {
                    mpirun.args(["--mca", "osc", "pt2pt"]);
                }
            }
        }
        mpirun
    }

    fn finish(&self, mpirun: Command, name: &str, boards: &[String]) -> Output {
        let folder = self.compile(name);
        start(mpirun, &folder.0.join("program"), &folder, boards)
    }
}

/// Returns the path of a source file of `tests/mpi`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi").join(name)
}

/// Runs a program in a directory. Each rank has the NIC of its number.
fn start(mut mpirun: Command, program: &Path, folder: &Folder, boards: &[String]) -> Output {
    let wrapper = folder.0.join("rank");
    let all = boards.join(" ");
    let count = boards.len();
    let script = format!(
        "#!/bin/sh\nrank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}\nset -- {all}\n\
         shift $((rank % {count}))\nCAUSEWAY_MX=$1\nexport CAUSEWAY_MX\nexec {}\n",
        program.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&wrapper, mode).unwrap();
    run(mpirun.current_dir(&folder.0).arg(&wrapper))
}
