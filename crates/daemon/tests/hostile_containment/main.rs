//! A port attacks in ten ways, an adapter in five, and outsiders in three, while other ports carry checked traffic. The
//! other ports must lose nothing, and the daemon's descriptors, threads and memory must return to
//! their earlier numbers.

mod adapters;
#[path = "../common/mod.rs"]
mod common;
mod outsiders;
mod ports;
mod victims;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Dir;
use victims::Victims;

const PATIENCE: Duration = Duration::from_secs(30);
/// The file with the daemon's log.
const LOG: &str = "log";
/// The file with the log of the daemon's holder, through which vsock frontends are connected.
const HOLDER_LOG: &str = "held/holder.log";
/// Permitted growth of the process after a second round of all attacks, in pages: the allocator
/// keeps about 8 MiB for each thread of the control socket that once read 4,000 routes, and a round may
/// meet a thread that the first did not.
const GROWTH_PAGES: u64 = 4096;

fn wait(mut done: impl FnMut() -> bool, what: impl Fn() -> String) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting: {}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A daemon that is killed with its test.
struct Daemon {
    child: Child,
    dir: Dir,
}

impl Daemon {
    fn start() -> Self {
        let dir = Dir::new();
        let mut text = format!(
            "[daemon]\ncontrol = \"{}/control.sock\"\n[[group]]\nname = \"blue\"\n",
            dir.0.display()
        );
        for (n, name) in ["one", "two", "bad"].iter().enumerate() {
            text += &format!(
                "[[port]]\nname = \"{name}-net\"\ngroup = \"blue\"\nkind = \"net\"\n\
                 mac = \"52:54:00:00:00:0{n}\"\n\
                 [[port]]\nname = \"{name}-vsock\"\ngroup = \"blue\"\nkind = \"vsock\"\ncid = 1{n}\n\
                 [[port]]\nname = \"{name}-hca\"\ngroup = \"blue\"\nkind = \"hca\"\n\
                 mac = \"52:54:00:00:01:0{n}\"\n"
            );
        }
        text += &outsiders::refusals(&dir);
        let config = dir.file("causeway.toml");
        std::fs::write(&config, text).unwrap();
        let log = File::create(dir.file(LOG)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd"));
        command.env_remove("NOTIFY_SOCKET").arg("--config").arg(config).stderr(Stdio::from(log));
        let daemon = Self { child: command.spawn().unwrap(), dir };
        for port in ["one", "two", "bad"] {
            for kind in ["net", "vsock", "hca"] {
                let socket = daemon.socket(&format!("{port}-{kind}"));
                wait(|| socket.exists(), || format!("{} is not there", socket.display()));
            }
        }
        daemon
    }

    fn socket(&self, port: &str) -> PathBuf {
        self.dir.file(&format!("{port}.sock"))
    }

    /// Returns open descriptors, threads, and resident pages.
    fn holds(&self) -> [u64; 3] {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let count = |name| std::fs::read_dir(proc.join(name)).unwrap().count() as u64;
        let pages = std::fs::read_to_string(proc.join("statm")).unwrap();
        let resident = pages.split(' ').nth(1).unwrap().parse().unwrap();
        [count("fd"), count("task"), resident]
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // The reason why a port was closed is in the daemon's log, or in that of its holder.
            for name in [LOG, HOLDER_LOG] {
                let log = std::fs::read_to_string(self.dir.file(name)).unwrap_or_default();
                let ours = log.lines().filter(|line| !line.contains("bad-"));
                ours.for_each(|line| println!("{name}: {line}"));
            }
        }
    }
}

type Attack = (&'static str, fn(&Daemon));

const ATTACKS: [Attack; 18] = [
    ("a storm of connections", ports::reconnect_storm),
    ("malformed chains", ports::malformed_chains),
    ("a flood of forged frames", ports::forged_flood),
    ("churn of the memory table", ports::memory_churn),
    ("a storm of doorbells", ports::doorbell_storm),
    ("lies about credit", ports::credit_lies),
    ("a guest that never reads", ports::never_reading),
    ("a storm of resets", ports::reset_storm),
    ("a storm of descriptors", ports::descriptor_storm),
    ("rules broken at each step", ports::broken_set_up),
    ("drivers of adapters that come and go", adapters::come_and_go),
    ("noise at an adapter's socket", adapters::noise),
    ("random commands of an adapter", adapters::random_commands),
    ("random work of an adapter", adapters::random_work),
    ("forged writes of an adapter", adapters::forged_writes),
    ("a hostile client of the control socket", outsiders::control_socket),
    ("a hostile client of the VNET port", outsiders::vnet_control),
    ("hostile peers of links", outsiders::link_peers),
];

#[test]
fn hostile_ports_and_outsiders_are_contained() {
    let daemon = Daemon::start();
    let victims = Victims::start(&daemon);
    // The first round fills caches and pools of the daemon.
    for (name, attack) in ATTACKS {
        let start = Instant::now();
        attack(&daemon);
        println!("{name}: {} ms", start.elapsed().as_millis());
        victims.assert_well(name);
    }
    let before = daemon.holds();
    for (name, attack) in ATTACKS {
        attack(&daemon);
        victims.assert_well(name);
        let same = || daemon.holds()[..2] == before[..2];
        wait(same, || format!("{name}: {before:?} became {:?}", daemon.holds()));
    }
    let after = daemon.holds();
    assert!(after[2] <= before[2] + GROWTH_PAGES, "{before:?} became {after:?}");
}
