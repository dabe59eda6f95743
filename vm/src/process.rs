//! Child processes that cannot outlive this one.
//!
//! Each is started through `setpriv --pdeathsig KILL`: when this process dies,
//! however it dies, the kernel kills them. The kernel takes the death of the
//! *thread* that started a child for the parent's, so that one thread that
//! lives as long as the process starts them all. They get process groups of
//! their own: an interrupt from the terminal reaches only us, and we clean up.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

type Order = (Command, Sender<io::Result<Child>>);

fn spawner() -> Sender<Order> {
    static SPAWNER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let sender = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A command whose process dies with ours.
pub fn tied(program: impl AsRef<OsStr>) -> Command {
    tied_within(&[], program)
}

/// The same behind a `prefix` that changes namespaces or users and then runs
/// the rest: such a change undoes the tie, so that the tie comes after it.
pub fn tied_within(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    let tie = ["setpriv", "--pdeathsig", "KILL", "--"].map(String::from);
    let mut words = prefix.iter().chain(&tie);
    let mut command = Command::new(words.next().map_or("setpriv", String::as_str));
    command.args(words).arg(program).stdin(Stdio::null()).process_group(0);
    command
}

/// A running child: killed and waited for when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts a command made by [`tied`].
    ///
    /// # Errors
    /// The system's reason, with the command's name.
    pub fn start(name: &str, command: Command) -> Result<Self> {
        let (answer, started) = channel();
        let gone = || io::Error::other("the thread that starts processes is gone");
        let child = spawner()
            .send((command, answer))
            .map_err(|_| gone())
            .and_then(|()| started.recv().map_err(|_| gone())?)
            .map_err(Error::io(format!("start {name}")))?;
        Ok(Self { name: name.into(), child })
    }

    /// The child, for taking its streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to end, and waits; what has not ended by then is killed.
    pub fn stop(&mut self, limit: Duration) -> Option<ExitStatus> {
        if self.ended().is_none() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(crate::limits::CHECK);
        }
        self.kill();
        None
    }

    /// Kills it now, and the helpers it started in its process group.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            let group = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        if let Err(e) = self.child.kill() {
            eprintln!("causeway-vm: kill {}: {e}", self.name);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// Runs a host command to its end and returns what it printed.
///
/// # Errors
/// When it cannot start or fails, with the end of what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    let done = command.stdin(Stdio::null()).output().map_err(Error::io(format!("run `{line}`")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let end: Vec<&str> = said.lines().rev().take(30).collect();
    let said = end.into_iter().rev().collect::<Vec<_>>().join("\n");
    Err(Error::Command { command: line, said: format!("{} {said}", done.status) })
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it_but_not_its_handle() {
        let mut sleep = tied("sleep");
        sleep.arg("600");
        let process =
            thread::spawn(move || Process::start("sleep", sleep).unwrap()).join().unwrap();
        let pid = process.id();
        thread::sleep(Duration::from_millis(200));
        assert!(alive(pid), "the child died with a thread that did not start it");
        drop(process);
        assert!(!alive(pid));
    }

    #[test]
    fn a_failing_command_tells_what_it_said() {
        let why = output(Command::new("sh").args(["-c", "echo reason >&2; exit 7"])).unwrap_err();
        assert!(why.to_string().contains("reason"), "{why}");
    }
}
