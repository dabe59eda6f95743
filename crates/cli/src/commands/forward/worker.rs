//! A process that runs one forward for the forwarder.
//!
//! The process is this program with `forward --report`: it listens, restricts itself to the two
//! addresses of its forward, and prints a [`WorkerStatus`] in a line of JSON after each change. It
//! ends when its stdin ends, and so never outlives the forwarder; messages about failed connections
//! go to the forwarder's stderr. A thread of the forwarder reads the lines, and ignores a line that
//! is no status or has more than 16 KiB.
//!
//! A process that ends by itself is started again, after a pause that grows from 1 s to 15 s. Its
//! counters continue: [`Worker::report`] adds those of earlier processes. A process that cannot be
//! started counts as one that failed. The forwarder calls [`Worker::supervise`] and
//! [`Worker::report`] each second; the drop of a worker waits at most 2 s for the end of its
//! process, and then kills it. The words are those of `causeway_model::ForwardReport`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_forward::Counters;
use causeway_model::{ForwardReport, ForwardState, ForwardTask};
use serde::{Deserialize, Serialize};

use super::print;
use crate::error::{Error, Result};
use crate::limits::{
    FORWARD_END_TIME, FORWARD_REPORT_BYTES_MAX, FORWARD_RETRY_MAX, FORWARD_RETRY_MIN,
};

/// Counters that do not grow only.
const GAUGES: [&str; 1] = ["open_connections"];

/// The status of a forward, by its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The state.
    pub state: ForwardState,
    /// Its reason.
    pub reason: String,
    /// Counters of this process.
    pub counters: BTreeMap<String, u64>,
}

impl WorkerStatus {
    /// Returns the status of a process that cannot forward.
    pub fn failed(reason: String) -> Self {
        Self { state: ForwardState::Failed, reason, counters: BTreeMap::new() }
    }

    /// Prints the status for the forwarder.
    ///
    /// # Errors
    /// The forwarder has ended.
    pub fn print(&self) -> Result<()> {
        let line = serde_json::to_string(self).map_err(|e| Error::Reply(e.to_string()))?;
        print(&(line + "\n"))
    }
}

/// Returns the counters by the names of the daemon.
pub fn counters_of(counters: &Counters) -> BTreeMap<String, u64> {
    let all = [
        ("connections_total", counters.accepted_total),
        ("open_connections", counters.open),
        ("target_failures_total", counters.refused_total),
        ("lost_connections_total", counters.lost_total),
        ("target_bytes_total", counters.to_target_bytes),
        ("client_bytes_total", counters.to_source_bytes),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// A forward of the forwarder, with its process.
#[derive(Debug)]
pub struct Worker {
    /// The task.
    pub task: ForwardTask,
    child: Option<Child>,
    status: Arc<Mutex<WorkerStatus>>,
    /// Counters of processes that ended.
    before: BTreeMap<String, u64>,
    starts: u64,
    /// The process is started at this time.
    due: Instant,
    /// Pause after the next failure.
    pause: Duration,
    /// The failure that was reported on stderr.
    reported: String,
}

impl Worker {
    /// Returns a worker that starts its process with the next [`Self::supervise`].
    pub fn new(task: ForwardTask) -> Self {
        let starting = WorkerStatus {
            state: ForwardState::Starting,
            reason: String::new(),
            counters: BTreeMap::new(),
        };
        Self {
            task,
            child: None,
            status: Arc::new(Mutex::new(starting)),
            before: BTreeMap::new(),
            starts: 0,
            due: Instant::now(),
            pause: FORWARD_RETRY_MIN,
            reported: String::new(),
        }
    }

    /// Starts the process if it is due, and notes its end.
    pub fn supervise(&mut self, no_sandbox: bool) {
        if let Some(child) = &mut self.child {
            match child.try_wait() {
                Ok(None) => return,
                ended => self.note_end(ended.ok().flatten().map(|status| status.to_string())),
            }
        }
        if self.child.is_none() && Instant::now() >= self.due {
            match self.start(no_sandbox) {
                Ok(child) => self.child = Some(child),
                Err(error) => {
                    self.set_failed(format!("cannot start a process: {error}"));
                    self.back_off();
                }
            }
        }
    }

    /// Starts the process, and a thread that reads its reports.
    fn start(&mut self, no_sandbox: bool) -> std::io::Result<Child> {
        // The file of a program that was upgraded meanwhile is another one; this names the old one.
        let mut command = Command::new("/proc/self/exe");
        command.args(["forward", "--report", "--from", &self.task.from, "--to", &self.task.to]);
        command.arg(format!("--connections-max={}", self.task.connections_max));
        if no_sandbox {
            command.arg("--no-sandbox");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        self.starts = self.starts.saturating_add(1);
        if let Some(stdout) = child.stdout.take() {
            let status = self.status.clone();
            std::thread::spawn(move || read_reports(stdout, &status));
        }
        Ok(child)
    }

    /// Notes that the process ended.
    fn note_end(&mut self, status: Option<String>) {
        self.child = None;
        let last = self.status().clone();
        for (name, value) in last.counters {
            if !GAUGES.contains(&name.as_str()) {
                let total = self.before.entry(name).or_default();
                *total = total.wrapping_add(value);
            }
        }
        if last.state != ForwardState::Failed {
            // It listened: the failure is a new one.
            self.pause = FORWARD_RETRY_MIN;
            self.reported.clear();
        }
        let reason = match last.state {
            ForwardState::Failed => last.reason,
            _ => format!("the process ended: {}", status.unwrap_or_else(|| "unknown".into())),
        };
        self.set_failed(reason);
        self.back_off();
    }

    fn set_failed(&mut self, reason: String) {
        if self.reported != reason {
            let name = &self.task.name;
            eprintln!("causeway: forward {name} does not work: {reason}; it is tried again");
            self.reported.clone_from(&reason);
        }
        *self.status() = WorkerStatus::failed(reason);
    }

    fn back_off(&mut self) {
        self.due = Instant::now() + self.pause;
        self.pause = self.pause.saturating_mul(2).min(FORWARD_RETRY_MAX);
    }

    fn status(&self) -> std::sync::MutexGuard<'_, WorkerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the report for the daemon.
    pub fn report(&self) -> ForwardReport {
        let WorkerStatus { state, reason, mut counters } = self.status().clone();
        for (name, value) in &self.before {
            let total = counters.entry(name.clone()).or_default();
            *total = total.wrapping_add(*value);
        }
        counters.insert("starts_total".into(), self.starts);
        ForwardReport { name: self.task.name.clone(), state, reason, counters }
    }
}

impl Drop for Worker {
    /// Ends the process: its listener and its connections close.
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        drop(child.stdin.take());
        let since = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if since.elapsed() >= FORWARD_END_TIME {
                // It hangs in a system call; nothing of it is needed any more.
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Reads reports until the process ends.
fn read_reports(stdout: ChildStdout, status: &Mutex<WorkerStatus>) {
    let mut lines = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = lines.by_ref().take(FORWARD_REPORT_BYTES_MAX).read_until(b'\n', &mut line);
        if !matches!(read, Ok(count) if count > 0) {
            return;
        }
        if let Ok(new) = serde_json::from_slice::<WorkerStatus>(&line) {
            *status.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }
}
