//! MPI programs by `causeway mpi-run`, with the NICs of causewayd as a process.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, Output, provider, run};
use crate::library::{Library, all};
use crate::wire;

const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a program that was built beside this test.
fn built(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    test.ancestors().skip(1).take(2).map(|at| at.join(name)).find(|path| path.exists())
}

/// causewayd with a NIC mx0; killed with the test.
struct Daemon {
    process: Child,
    dir: Folder,
}

impl Daemon {
    /// Starts the daemon; `more` are further lines of the NIC's table.
    fn start(more: &str) -> Self {
        let dir = Folder::new();
        let (file, run) = (dir.0.join("causeway.toml"), dir.0.display());
        let text = format!(
            "[daemon]\ncontrol = \"{run}/control.sock\"\nlog = \"warn\"\n\
             [[group]]\nname = \"blue\"\n\
             [[port]]\nname = \"mx0\"\nkind = \"mx\"\ngroup = \"blue\"\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        let mut daemon = Command::new(built("causewayd").unwrap());
        daemon.arg("--ephemeral").arg("--config").arg(file).stdin(Stdio::null());
        let daemon = Self { process: daemon.spawn().unwrap(), dir };
        let since = Instant::now();
        while !run_tool(&daemon, &["info"]).good {
            assert!(since.elapsed() < PATIENCE, "causewayd does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn control(&self) -> PathBuf {
        self.dir.0.join("control.sock")
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns `causeway` at the control socket of a daemon, without variables of MPI or libfabric.
fn tool(daemon: &Daemon) -> Command {
    let mut tool = Command::new(built("causeway").unwrap());
    for name in ["FI_PROVIDER", "FI_PROVIDER_PATH", "CAUSEWAY_MX"] {
        tool.env_remove(name);
    }
    Library::allow_root(&mut tool);
    tool.env("CAUSEWAY_CONTROL", daemon.control());
    tool
}

fn run_tool(daemon: &Daemon, words: &[&str]) -> Output {
    run(tool(daemon).args(words))
}

/// Returns whether the programs are built; otherwise the test is skipped.
fn is_ready() -> bool {
    let is_built = built("causewayd").is_some() && built("causeway").is_some();
    if !is_built {
        eprintln!("skipped: causewayd and causeway are not built beside the test");
    }
    is_built
}

fn is_ok(output: &Output) -> bool {
    output.good && output.out.lines().any(|line| line == "ok")
}

#[test]
fn mpi_run_starts_ranks_over_the_nic_of_the_daemon_or_nothing() {
    if !is_ready() {
        return;
    }
    let (mut daemon, provider) = (Daemon::start(""), provider());
    let marker = daemon.dir.0.join("started");
    for mpi in all() {
        let program = mpi.compile("messages.c");
        let counters = program.0.join("counted");
        let launched = |words: &[&str]| {
            let mut tool = tool(&daemon);
            tool.env("FI_CAUSEWAY_COUNTERS", &counters);
            tool.arg("mpi-run").arg("--provider").arg(&provider.0).args(words).arg("--");
            tool.arg(mpi.program("mpirun")).args(mpi.crowded()).args(["-n", "2"]);
            run(tool.arg(program.0.join("program")))
        };
        // The library is that of the launcher.
        let output = launched(&[]);
        assert!(is_ok(&output), "{mpi:?} {output:?}");
        let files = program.0.read_dir().unwrap().map(|file| file.unwrap().file_name());
        let tables = files.filter(|name| name.to_string_lossy().starts_with("counted"));
        assert_eq!(tables.count(), 2, "{mpi:?} each rank used the provider");
        let other = if mpi.name() == "mpich" { "openmpi4" } else { "mpich" };
        let shown = launched(&["--dry-run", "--mpi", other]);
        assert!(shown.good && !shown.out.lines().any(|line| line == "ok"), "{shown:?}");
        // Each rank asks the daemon of its node.
        let mut mpirun = Command::new(mpi.program("mpirun"));
        Library::allow_root(&mut mpirun);
        mpirun.args(mpi.crowded()).args(["-n", "2"]).arg(built("causeway").unwrap());
        mpirun.args(["mpi-run", "--mpi", mpi.name(), "--provider"]).arg(&provider.0).arg("--");
        mpirun.env("CAUSEWAY_CONTROL", daemon.control()).arg(program.0.join("program"));
        let output = run(&mut mpirun);
        assert!(is_ok(&output), "{mpi:?} {output:?}");
    }
    daemon.kill();
    let launched = run(tool(&daemon)
        .args(["mpi-run", "--mpi", "openmpi4", "--provider"])
        .arg(&provider.0)
        .args(["--", "touch"])
        .arg(&marker));
    assert!(!launched.good && !marker.exists(), "{launched:?}");
    assert!(launched.err.contains("no daemon serves"), "{launched:?}");
}

/// Runs ranks of two nodes in turn, each with the control socket of its node.
fn two_nodes() {
    // The launcher uses the loopback interface.
    wire::ip("link set lo up");
    // One machine acts as both nodes, so that addresses derived from its identity would be equal.
    let node = |name: &str, last: u8| {
        Daemon::start(&format!(
            "interface = \"{name}\"\nhostname = \"{name}:mx0\"\nmac = \"02:00:00:00:00:0{last}\"\n"
        ))
    };
    let (near, mut far) = (node("near", 1), node("far", 2));
    let provider = provider();
    for mpi in all() {
        let program = mpi.compile("messages.c");
        let script = "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\n\
             [ $((rank % 2)) = 0 ] || CAUSEWAY_CONTROL=$other\nexport CAUSEWAY_CONTROL\n\
             exec \"$causeway\" mpi-run --mpi \"$mpi\" --provider \"$provider\" -- \"$program\"";
        let job = |far: &Daemon| {
            let mut mpirun = Command::new(mpi.program("mpirun"));
            Library::allow_root(&mut mpirun);
            mpirun.env("CAUSEWAY_CONTROL", near.control()).env("other", far.control());
            mpirun.env("causeway", built("causeway").unwrap()).env("mpi", mpi.name());
            mpirun.env("provider", &provider.0).env("program", program.0.join("program"));
            mpirun.args(mpi.crowded()).args(["-n", "2", "sh", "-c", script]);
            run(&mut mpirun)
        };
        let output = job(&far);
        assert!(is_ok(&output), "{mpi:?} {output:?}");
        far.kill();
        let since = Instant::now();
        let output = job(&far);
        assert!(since.elapsed() < PATIENCE, "{mpi:?} the job does not end by itself {output:?}");
        assert!(!output.good && output.err.contains("no daemon serves"), "{mpi:?} {output:?}");
        far = node("far", 2);
    }
}

#[test]
fn mpi_run_on_each_rank_uses_the_nic_of_its_node_and_ends_the_job_without_it() {
    if is_ready() {
        let name =
            "front::mpi_run_on_each_rank_uses_the_nic_of_its_node_and_ends_the_job_without_it";
        wire::with_wire(name, two_nodes);
    }
}
