//! Ranks that Slurm starts by the lines that `causeway mpi-env --slurm` prints. Two `slurmd` on
//! this machine, each with a NIC of its own, act as a cluster of two nodes in a network namespace.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, Host, Output, command, provider, run};
use crate::library::{Library, all};
use crate::wire;

/// The names of the nodes in the configuration, and of their interfaces.
const NODES: [&str; 2] = ["near", "far"];
const PATIENCE: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = "slurm.conf";
/// The required programs, and an option that each accepts.
const PROGRAMS: [(&str, &str); 4] =
    [("munged", "--version"), ("slurmctld", "-V"), ("slurmd", "-V"), ("srun", "-V")];

/// Returns the configuration: all files are in the test's directory, and the files of a node have
/// its name in the path, because one machine acts as both.
fn configuration(folder: &Path) -> String {
    let host = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let (at, host, user) = (folder.display(), host.trim(), user.trim());
    let node = |(number, name): (usize, &&str)| {
        let port = 16820 + number;
        format!("NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2\n")
    };
    let nodes: String = NODES.iter().enumerate().map(node).collect();
    format!(
        "ClusterName=test\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=16817\n\
         SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\nAuthInfo=socket={at}/munge\n\
         StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool.%n\nTmpFS={at}/tmp.%n\n\
         SlurmctldPidFile={at}/control.pid\nSlurmdPidFile={at}/%n.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
         SelectType=select/linear\nSchedulerType=sched/builtin\nReturnToService=2\n\
         SlurmdParameters=config_overrides\n{nodes}\
         PartitionName=all Nodes={} Default=YES OverSubscribe=FORCE State=UP\n",
        NODES.join(",")
    )
}

/// A running cluster.
struct Cluster {
    daemons: Vec<Child>,
    folder: Folder,
}

impl Cluster {
    fn start() -> Self {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name);
        std::fs::create_dir(at("state")).unwrap();
        for node in NODES {
            for name in ["spool", "tmp"] {
                std::fs::create_dir(at(&format!("{name}.{node}"))).unwrap();
            }
        }
        std::fs::write(at(CONFIGURATION), configuration(&folder.0)).unwrap();
        // The key is for this test only, so it need not be secret.
        std::fs::write(at("key"), [7; 64]).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        std::fs::set_permissions(at("key"), mode).unwrap();
        let mut cluster = Self { daemons: Vec::new(), folder };
        cluster.daemon("munged", |munged, at| {
            munged.args(["--foreground", "--force"]);
            for (word, file) in [
                ("socket", "munge"),
                ("key-file", "key"),
                ("pid-file", "munge.pid"),
                ("seed-file", "seed"),
                ("log-file", "munge.log"),
            ] {
                munged.arg(format!("--{word}={}", at.join(file).display()));
            }
        });
        cluster.until("munged listens", |cluster| cluster.folder.0.join("munge").exists());
        cluster.daemon("slurmctld", |control, _| _ = control.args(["-D", "-c"]));
        for node in NODES {
            cluster.daemon("slurmd", |slurmd, _| _ = slurmd.args(["-D", "-N", node]));
        }
        cluster.until("both nodes are idle", |cluster| {
            let output = cluster.run(Command::new("sinfo").args(["--noheader", "--format=%T %D"]));
            output.out.trim() == "idle 2"
        });
        cluster
    }

    fn daemon(&mut self, name: &str, more: impl FnOnce(&mut Command, &Path)) {
        let log = self.folder.0.join(format!("{name}.{}.log", self.daemons.len()));
        let log = File::create(log).unwrap();
        let mut command = Command::new(name);
        more(&mut command, &self.folder.0);
        let files = self
            .knowing(&mut command)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.daemons.push(files.spawn().unwrap());
    }

    fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let since = Instant::now();
        while !is(self) {
            assert!(since.elapsed() < PATIENCE, "{what}: {}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes a command use this cluster.
    fn knowing<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("SLURM_CONF", self.folder.0.join(CONFIGURATION))
    }

    fn run(&self, command: &mut Command) -> Output {
        run(self.knowing(command))
    }

    /// Returns the logs of the daemons.
    fn logs(&self) -> String {
        let files = self.folder.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|word| word == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut daemon in self.daemons.drain(..).rev() {
            // Slurm's daemons end their steps, then themselves.
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let since = Instant::now();
            while daemon.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Returns the `causeway` that was built beside this test.
fn causeway() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    test.ancestors().skip(1).take(2).map(|at| at.join("causeway")).find(|path| path.exists())
}

/// Runs a program by `causeway mpi-run` of each rank.
fn ranks_of_mpi_run(
    cluster: &Cluster,
    mpi: &Library,
    program: &str,
    count: usize,
    boards: &[String],
) -> Output {
    let compiled = mpi.compile(program);
    let provider = provider();
    let mut shell = command("sh", &provider, None, &boards[0]);
    let (name, kind) = (mpi.name(), if mpi.name() == "mpich" { "pmi2" } else { "pmix" });
    let script = format!(
        r#"exec srun -K --mpi={kind} -N 2 -n {count} sh -c '
            if [ "$SLURMD_NODENAME" = far ]; then CAUSEWAY_MX=$other; fi
            exec "$causeway" mpi-run --mpi {name} --provider "$FI_PROVIDER_PATH" -- "$program"'"#
    );
    shell.args(["-c", &script]).current_dir(&compiled.0);
    shell.env("causeway", causeway().unwrap()).env("other", &boards[1]);
    cluster.run(shell.env("program", compiled.0.join("program")))
}

/// Runs programs of a suite as a user would: evaluates the output of `mpi-env`, and then the start line that
/// it names.
fn ranks(
    cluster: &Cluster,
    mpi: &Library,
    programs: &str,
    count: usize,
    boards: &[String],
) -> Output {
    let compiled = mpi.compile_suite();
    let provider = provider();
    let mut shell = command("sh", &provider, None, &boards[0]);
    // NICs of several hosts share a path, which they cannot here.
    let script = format!(
        r#"set -e
        output=$("$causeway" mpi-env --slurm --mpi {} --provider "$FI_PROVIDER_PATH")
        eval "$output"
        start=$(printf '%s\n' "$output" | sed -n 's/^# \(srun --mpi=[a-z0-9]*\) .*/\1/p')
        exec $start -N 2 -n {count} sh -c '
            if [ "$SLURMD_NODENAME" = far ]; then CAUSEWAY_MX=$other; fi; exec "$program" $programs'"#,
        mpi.name(),
    );
    shell.args(["-c", &script]).current_dir(&compiled.0);
    shell.env("causeway", causeway().unwrap()).env("other", &boards[1]).env("programs", programs);
    cluster.run(shell.env("program", compiled.0.join("program")))
}

fn by_slurm() {
    // The daemons and the launcher use the loopback interface.
    wire::ip("link set lo up");
    // Host names are resolved only if an interface besides the loopback has an address.
    wire::ip("address add 192.0.2.1/24 dev near");
    let (one, two) = (Host::on("near", "a", false), Host::on("far", "b", false));
    let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
    let cluster = Cluster::start();
    for mpi in all() {
        // Open MPI 5 under Slurm starts no more ranks than processors, with any transport.
        let count = if mpi.name() == "openmpi5" { 2 } else { 4 };
        let output = ranks(&cluster, &mpi, "messages collectives memory", count, &boards);
        for program in ["messages", "collectives", "memory"] {
            let line = format!("ok {program}");
            let well = output.good && output.out.lines().any(|found| found == line);
            assert!(well, "{mpi:?} {program} {output:?} {}", cluster.logs());
        }
        let output = ranks_of_mpi_run(&cluster, &mpi, "messages.c", count, &boards);
        let well = output.good && output.out.lines().any(|line| line == "ok");
        assert!(well, "{mpi:?} mpi-run {output:?} {}", cluster.logs());
        // A node without a NIC.
        let boards = [boards[0].clone(), "/nonexistent".to_owned()];
        let output = ranks_of_mpi_run(&cluster, &mpi, "messages.c", count, &boards);
        let why = "is it the socket of a port of kind mx";
        assert!(!output.good && output.err.contains(why), "{mpi:?} {output:?}");
    }
}

#[test]
fn ranks_that_slurm_starts_on_two_nodes_are_as_those_that_mpirun_starts() {
    let there = |&(name, word): &(&str, &str)| Command::new(name).arg(word).output().is_ok();
    if !PROGRAMS.iter().all(there) || causeway().is_none() {
        eprintln!(
            "Slurm and munge are not installed, or `causeway` is not built: nothing is tested"
        );
        return;
    }
    let name = "slurm::ranks_that_slurm_starts_on_two_nodes_are_as_those_that_mpirun_starts";
    wire::with_wire(name, by_slurm);
}
