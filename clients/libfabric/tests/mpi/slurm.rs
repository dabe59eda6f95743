//! Ranks that Slurm starts, by the lines that `causeway mpi-env --slurm` prints. A cluster of two
//! nodes, each with a board of its own, is this machine twice, in a namespace of the test's own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Folder, Host, Said, command, provider, run};
use crate::library::{Library, all};
use crate::wire;

/// As the configuration and the interfaces name them.
const NODES: [&str; 2] = ["near", "far"];
const PATIENCE: Duration = Duration::from_secs(20);
const CONFIGURATION: &str = "slurm.conf";
/// What must be there, with a word that each knows.
const PROGRAMS: [(&str, &str); 4] =
    [("munged", "--version"), ("slurmctld", "-V"), ("slurmd", "-V"), ("srun", "-V")];

/// All that it writes is in a folder of ours; what is a node's own has the node's name in its path,
/// so that one machine is both.
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
        // Secret to nobody: it is this test's alone.
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
            let said = cluster.run(Command::new("sinfo").args(["--noheader", "--format=%T %D"]));
            said.out.trim() == "idle 2"
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

    /// A command that is to know of this cluster.
    fn knowing<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("SLURM_CONF", self.folder.0.join(CONFIGURATION))
    }

    fn run(&self, command: &mut Command) -> Said {
        run(self.knowing(command))
    }

    /// What the daemons wrote.
    fn logs(&self) -> String {
        let files = self.folder.0.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let logs = files.filter(|path| path.extension().is_some_and(|word| word == "log"));
        logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut daemon in self.daemons.drain(..).rev() {
            // Slurm's end their steps and then themselves.
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

/// The `causeway` that was built beside this test.
fn causeway() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    test.ancestors().skip(1).take(2).map(|at| at.join("causeway")).find(|path| path.exists())
}

/// Runs a program as a user would: what `mpi-env` says is evaluated, and then the line it names.
fn ranks(cluster: &Cluster, mpi: &Library, program: &str, count: usize, boards: &[String]) -> Said {
    let compiled = mpi.compile(program);
    let provider = provider();
    let mut shell = command("sh", &provider, None, &boards[0]);
    // Boards of several hosts have one name, which here they cannot have.
    let script = format!(
        r#"set -e
        said=$("$causeway" mpi-env --slurm --mpi {} --provider "$FI_PROVIDER_PATH")
        eval "$said"
        start=$(printf '%s\n' "$said" | sed -n 's/^# \(srun --mpi=[a-z0-9]*\) .*/\1/p')
        exec $start -N 2 -n {count} sh -c '
            if [ "$SLURMD_NODENAME" = far ]; then CAUSEWAY_MX=$other; fi; exec "$program"'"#,
        mpi.name(),
    );
    shell.args(["-c", &script]).current_dir(&compiled.0);
    shell.env("causeway", causeway().unwrap()).env("other", &boards[1]);
    cluster.run(shell.env("program", compiled.0.join("program")))
}

fn by_slurm() {
    // Its daemons, and what starts ranks, talk by the loopback interface.
    wire::ip("link set lo up");
    // Addresses are looked up only where an interface besides that one has some.
    wire::ip("address add 192.0.2.1/24 dev near");
    let (one, two) = (Host::on("near", "a", false), Host::on("far", "b", false));
    let boards = [one.sockets(&["a"]), two.sockets(&["b"])];
    let cluster = Cluster::start();
    for mpi in all() {
        // Open MPI 5 started by Slurm has no more ranks than processors, whatever it runs over.
        let count = if mpi.name() == "openmpi5" { 2 } else { 4 };
        for program in ["messages.c", "collectives.c", "memory.c"] {
            let said = ranks(&cluster, &mpi, program, count, &boards);
            let well = said.good && said.out.lines().any(|line| line == "ok");
            assert!(well, "{mpi:?} {program} {said:?} {}", cluster.logs());
        }
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
