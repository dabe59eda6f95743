//! MPI rows of the second table: a program without any knowledge of Causeway, started by Open MPI's
//! `mpirun` over the libfabric provider (`causeway mpi-run`), compared with sockets.
//!
//! `super` adds the rows to the second table. The program `mpi.c` is compiled on the machine and
//! runs as two ranks on this host, as child processes, once over Causeway and once over Open MPI's
//! TCP, for at most 60 s each. Before the measurement the program verifies the content of 100
//! messages of each length. Without `mpicc`, or when it fails, there are no rows and no error; a
//! run that fails, also for want of `mpirun`, is an error of its rows.

use crate::step;
use crate::table::{Row, Unit};
use causeway_vm::daemon::{Daemon, MxNic, Setup};
use causeway_vm::{Error, Result, RunDir, build, process};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("mpi.c");
/// Time limit of `mpirun`, in seconds.
const PATIENCE: &str = "60";

/// Output of the program.
struct Figures {
    small_us: f64,
    large_us: f64,
    mb_per_s: f64,
}

/// A row: name, unit, and the figure it shows.
type FigureRow = (&'static str, Unit, fn(&Figures) -> f64);

/// Measures every row; empty if the program cannot be compiled.
pub fn all() -> Vec<Row> {
    step("MPI between two processes of this host");
    let dir = match RunDir::new() {
        Ok(dir) => dir,
        Err(why) => return vec![row("MPI", Unit::Count, Err(why), None)],
    };
    let Some(program) = compiled(&dir) else {
        step("MPI is not measured: install openmpi-bin and libopenmpi-dev");
        return Vec::new();
    };
    let ours = ours(&program);
    let sockets = over_tcp(&program);
    for error in [&ours, &sockets].into_iter().filter_map(|done| done.as_ref().err()) {
        step(&format!("  FAILED: {error}"));
    }
    let figures: [FigureRow; 3] = [
        ("MPI ping-pong, one host, 8 B", Unit::Micros, |figures| 2.0 * figures.small_us),
        ("MPI ping-pong, one host, 1 MiB", Unit::Micros, |figures| 2.0 * figures.large_us),
        ("MPI stream, one host, 1 MiB", Unit::MegabytesPerSecond, |figures| figures.mb_per_s),
    ];
    let of = |done: &Result<Figures>, figure: fn(&Figures) -> f64| match done {
        Ok(figures) => Ok(figure(figures)),
        Err(why) => Err(Error::Traffic { what: why.to_string() }),
    };
    let rows = figures.into_iter();
    rows.map(|(name, unit, get)| row(name, unit, of(&ours, get), Some(of(&sockets, get)))).collect()
}

fn row(name: &str, unit: Unit, ours: Result<f64>, sockets: Option<Result<f64>>) -> Row {
    Row::beside_sockets(name, unit, ours, sockets)
}

/// Compiles the program; `None` if `mpicc` is missing or fails.
fn compiled(dir: &RunDir) -> Option<PathBuf> {
    let (source, program) = (dir.join("mpi.c"), dir.join("mpi"));
    std::fs::write(&source, SOURCE).ok()?;
    let mut compiler = process::tied("mpicc");
    process::output(compiler.arg("-O2").arg("-o").arg(&program).arg(&source)).ok()?;
    Some(program)
}

/// Runs the program by `causeway mpi-run`, which chooses transport and NIC.
fn ours(program: &Path) -> Result<Figures> {
    let (name, group) = ("mx1".into(), "blue".into());
    let nic = MxNic { name, group, number: 1, ..MxNic::default() };
    let daemon = Daemon::with(Setup { nics: vec![nic], ..Setup::default() })?;
    let provider = build::provider()?;
    let mut command = process::tied(daemon.tool());
    command.arg("--control").arg(daemon.control_socket()).arg("mpi-run").arg("--provider");
    command.arg(provider.parent().unwrap_or(&provider)).args(["--", "mpirun"]);
    command.env_remove("CAUSEWAY_MX");
    run(two_ranks(&mut command).arg(program))
}

/// Runs the program over Open MPI's own TCP.
fn over_tcp(program: &Path) -> Result<Figures> {
    let mut command = process::tied("mpirun");
    two_ranks(&mut command).args(["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]);
    run(command.arg(program))
}

/// Adds the options of `mpirun` for two ranks.
fn two_ranks(command: &mut Command) -> &mut Command {
    // Root needs two confirmations from Open MPI.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["--oversubscribe", "--timeout", PATIENCE, "-n", "2"])
}

fn run(command: &mut Command) -> Result<Figures> {
    let said = process::output(command)?;
    let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match *numbers {
        [small_us, large_us, mb_per_s] => Ok(Figures { small_us, large_us, mb_per_s }),
        _ => Err(Error::Traffic { what: format!("cannot parse the output '{said}'") }),
    }
}
