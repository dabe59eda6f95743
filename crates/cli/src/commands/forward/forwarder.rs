//! `causeway forward --all`: runs the daemon's forwards, and follows their changes.
//!
//! Every second the forwarder reports to the daemon (`POST /v1/forwarder`), and gets its tasks in
//! the answer: new forwards get a [`Worker`] with a process of its own, deleted ones lose it with
//! their connections, and changed ones get another. Other forwards are not touched.
//!
//! While the daemon does not answer, all forwards continue as they are; connections to guests are
//! refused as long as the daemon is away. A daemon that runs another forwarder refuses this one,
//! which then ends with exit status 1. SIGINT and SIGTERM end the process and all forwards. The
//! process itself opens no listener and keeps the rights that its workers need, such as to listen
//! at ports below 1024; each worker drops them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use causeway_model::{ForwardTask, ForwarderReport, Name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::worker::Worker;
use super::{CommandContext, stop_signal};
use crate::client::view;
use crate::error::{Error, Result};
use crate::limits::FORWARDER_INTERVAL;

/// The forwards that run.
struct Forwarder<'a> {
    cx: &'a CommandContext,
    no_sandbox: bool,
    instance: u64,
    workers: BTreeMap<Name, Worker>,
    /// The daemon answered the last request.
    is_connected: bool,
}

/// Runs the daemon's forwards until a signal.
pub fn run(cx: &CommandContext, no_sandbox: bool) -> Result<()> {
    let (stop, _stopper) = stop_signal()?;
    // The keys of a hasher are random.
    let instance = std::hash::RandomState::new().build_hasher().finish();
    let mut forwarder =
        Forwarder { cx, no_sandbox, instance, workers: BTreeMap::new(), is_connected: true };
    eprintln!("causeway: forwarder started (control={})", cx.client.path().display());
    loop {
        forwarder.exchange(false)?;
        for worker in forwarder.workers.values_mut() {
            worker.supervise(no_sandbox);
        }
        if is_stopped(&stop)? {
            break;
        }
    }
    forwarder.workers.clear();
    forwarder.exchange(true)
}

impl Forwarder<'_> {
    /// Reports to the daemon, and follows its list.
    fn exchange(&mut self, ends: bool) -> Result<()> {
        let forwards = self.workers.values().map(Worker::report).collect();
        let (pid, instance) = (std::process::id(), self.instance);
        let report = ForwarderReport { pid, instance, forwards, ends };
        match self.cx.client.post("/v1/forwarder", &json!(report)) {
            Ok(value) if !ends => {
                if !std::mem::replace(&mut self.is_connected, true) {
                    eprintln!("causeway: causewayd answers again");
                }
                self.follow(view(&value)?);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error @ (Error::Unreachable { .. } | Error::Timeout { .. } | Error::Reply(_))) => {
                if std::mem::replace(&mut self.is_connected, false) && !ends {
                    eprintln!(
                        "causeway: {error}\ncauseway: {} forwards continue; changes are followed \
                         when causewayd answers",
                        self.workers.len()
                    );
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Starts, replaces and ends forwards by the daemon's list.
    fn follow(&mut self, tasks: Vec<ForwardTask>) {
        let names: BTreeSet<&Name> = tasks.iter().map(|task| &task.name).collect();
        // First: a new forward may have the source of one that ends.
        self.workers.retain(|name, worker| {
            let is_same = tasks.contains(&worker.task);
            if !is_same {
                let what = if names.contains(name) { "changed" } else { "ended" };
                eprintln!("causeway: forward {name} {what}: its connections are closed");
            }
            is_same
        });
        for task in tasks {
            if !self.workers.contains_key(&task.name) {
                let ForwardTask { name, from, to, .. } = &task;
                eprintln!("causeway: forward {name}: {from} to {to}");
                let mut worker = Worker::new(task.clone());
                worker.supervise(self.no_sandbox);
                self.workers.insert(task.name, worker);
            }
        }
    }
}

/// Waits for the interval of reports; returns whether a signal asks for the end.
fn is_stopped(stop: &UnixStream) -> Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    let wait = Timespec::try_from(FORWARDER_INTERVAL).ok();
    match poll(&mut fds, wait.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(Error::Output { what: "signals".into(), error: error.into() }),
    }
}
