//! A dispatcher in a process of its own, so that its processor time and memory are separate from
//! those of its clients.
//!
//! Rows of idle ports (`rows::idle`, `rows::rdma::idle`) and of the memory of connections
//! (`rows::scale`) start a [`Daemon`]: the benchmark executes itself with [`FLAG`] as first
//! argument, and [`serve`] runs the dispatcher there, on [`SERVER`](crate::pin::SERVER) and with
//! the daemon's default poll mode, and takes commands as lines of standard input. An answer may
//! take 20 s; without one the row is left out with the reason. A refused port ends the process. The
//! process ends with its input, and is killed on drop.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use causeway_fabric::PollConfig;

use crate::peers::process::{Program, command};
use crate::rig::{GROUP, Rig};

/// First argument of the serving process.
pub const FLAG: &str = "--inner-daemon";
const ANSWER: Duration = Duration::from_secs(20);

/// Returns the processor time of this process's running threads, in nanoseconds; that of threads
/// that have ended is not included.
pub fn busy_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ran = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(ran).sum()
}

/// Returns the resident memory of this process, in KiB: its own, and pages of guests that it
/// touched; 0 if it cannot be read.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Serves, with the daemon's default poll mode, until its input ends: `vsock CID`, `net NUMBER`
/// and `hca NUMBER` add a port and answer with its socket, or with an empty line if the number is
/// invalid; any other line, such as `usage`, is answered with time and memory.
pub fn serve() -> ExitCode {
    let rig = Rig::paced(PollConfig::default());
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = match line.split_once(' ') {
            Some(("vsock", cid)) => cid.parse().map(|cid| {
                rig.idle_vsock(cid);
                rig.socket(&format!("v{cid}")).display().to_string()
            }),
            Some(("net", number)) => number
                .parse()
                .map(|number| rig.idle_net(GROUP, number, false).display().to_string()),
            Some(("hca", number)) => {
                number.parse().map(|number| rig.idle_hca(number).display().to_string())
            }
            _ => Ok(format!("{} {}", busy_ns(), resident_kib())),
        };
        let said = writeln!(std::io::stdout(), "{}", answer.unwrap_or_default());
        if said.and_then(|()| std::io::stdout().flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// Resources used by the daemon so far.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Processor time of its threads, in nanoseconds.
    pub busy_ns: u64,
    /// Resident memory, in KiB.
    pub resident_kib: u64,
}

/// Handle of the serving process; killed when dropped.
#[derive(Debug)]
pub struct Daemon(Program);

impl Daemon {
    /// Starts the daemon.
    pub fn start() -> Result<Self, String> {
        let me = std::env::current_exe().map_err(|e| e.to_string())?;
        Ok(Self(Program::start(command(me).arg(FLAG))?))
    }

    /// Adds a vsock port; returns its socket.
    pub fn vsock(&mut self, cid: u32) -> Result<PathBuf, String> {
        self.add(&format!("vsock {cid}"))
    }

    /// Adds an Ethernet port; returns its socket.
    pub fn net(&mut self, number: u8) -> Result<PathBuf, String> {
        self.add(&format!("net {number}"))
    }

    /// Adds an adapter; returns its socket.
    pub fn hca(&mut self, number: u8) -> Result<PathBuf, String> {
        self.add(&format!("hca {number}"))
    }

    fn add(&mut self, port: &str) -> Result<PathBuf, String> {
        self.0.write_line(port)?;
        self.0.await_line(ANSWER, |line| Some(PathBuf::from(line)))
    }

    /// Returns the resources used so far.
    pub fn usage(&mut self) -> Result<Usage, String> {
        self.0.write_line("usage")?;
        self.0.await_line(ANSWER, |line| {
            let (busy, resident) = line.split_once(' ')?;
            Some(Usage { busy_ns: busy.parse().ok()?, resident_kib: resident.parse().ok()? })
        })
    }
}
