//! Child processes that cannot outlive this process.
//!
//! A command made by [`tied`] starts through `setpriv --pdeathsig KILL`: the kernel kills the child
//! when this process dies; children of the child are not included. For the kernel, the parent is
//! the *thread* that started the child; a single thread with the lifetime of the process therefore
//! starts each [`Process`]. Tied children have their own process groups: an interrupt from the
//! terminal reaches only this process.
//!
//! The other modules start their children here, but for the decompression of modules. A [`Process`]
//! that still runs is killed on drop, with its group, and reaped; [`Process::stop`] sends SIGTERM
//! first. Short commands run to their end in the caller's thread ([`output`]), without a time
//! limit; they are tied only if the caller made them by [`tied`]. A command that cannot start is an
//! error with its name; a tied program that is missing starts `setpriv`, which ends with a failure.
//!
//! After [`show_commands`] each command is printed before it runs ([`show`]), as a line for a shell
//! without the part that ties it to this process; the same command again, with no other between, is
//! not printed.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The words that let a process die with this process.
const TIE: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];
/// Whether commands are printed.
static SHOWS: AtomicBool = AtomicBool::new(false);
/// The command that was printed last.
static SHOWN: Mutex<String> = Mutex::new(String::new());

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

/// Returns a command that runs in a process group of its own, with no input, and is killed when
/// this process dies.
pub fn tied(program: impl AsRef<OsStr>) -> Command {
    tied_within(&[], program)
}

/// As [`tied`], behind a `prefix` that changes namespaces or users and then executes the rest. Such
/// a change clears the parent-death signal, which is therefore set after it.
pub fn tied_within(prefix: &[String], program: impl AsRef<OsStr>) -> Command {
    let tie = TIE.map(String::from);
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
        show("$", &line(&command));
        let (answer, started) = channel();
        let gone = || io::Error::other("the thread that starts processes has ended");
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

    /// Returns the process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM and waits; kills the process and its group after `limit` and returns `None`.
    /// Returns the status at once if the process has ended before.
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

    /// Kills the process and its process group, and reaps the process. The group of a process that
    /// has ended is left alone.
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

/// Runs a host command to its end, with no input, and returns its standard output.
///
/// # Errors
/// When it cannot start or fails, with the last 30 lines of its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let line = describe(command);
    show("$", &self::line(command));
    let done = command.stdin(Stdio::null()).output().map_err(Error::io(format!("run `{line}`")))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let end: Vec<&str> = said.lines().rev().take(30).collect();
    let said = end.into_iter().rev().collect::<Vec<_>>().join("\n");
    Err(Error::Command { command: line, said: format!("{} {said}", done.status) })
}

/// Lets commands be printed to standard error from now on.
pub fn show_commands() {
    SHOWS.store(true, Ordering::Relaxed);
}

/// Prints a command behind a prompt, if commands are printed and it is not the last one again.
pub fn show(prompt: &str, line: &str) {
    if !SHOWS.load(Ordering::Relaxed) {
        return;
    }
    let text = format!("    {prompt} {line}");
    let mut last = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != text {
        eprintln!("{text}");
        *last = text;
    }
}

/// Returns words as a line for a shell.
pub fn quoted<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let word = |word: T| {
        let text = word.as_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._:-+,=@%".contains(c);
        if !text.is_empty() && text.chars().all(is_plain) {
            return text.to_owned();
        }
        format!("'{}'", text.replace('\'', r"'\''"))
    };
    words.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Returns a command with its variables as a line for a shell, without the tie to this process.
fn line(command: &Command) -> String {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let mut words: Vec<String> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(text).collect();
    if let Some(at) = words.windows(TIE.len()).position(|part| part == TIE) {
        words.drain(at..at + TIE.len());
    }
    let set = command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?))));
    let set = set.map(|(name, value)| format!("{name}={} ", quoted([value])));
    format!("{}{}", set.collect::<String>(), quoted(words))
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
    fn process_outlives_the_requesting_thread_but_not_its_handle() {
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
    fn process_commands_are_shown_as_lines_for_a_shell() {
        let mut command = tied_within(&["nsenter".into(), "-t1".into()], "mx");
        command.arg("it's").arg("--sizes=8").env("CAUSEWAY_MX", "/a b");
        assert_eq!(line(&command), r"CAUSEWAY_MX='/a b' nsenter -t1 mx 'it'\''s' --sizes=8");
        assert_eq!(line(&tied("sleep")), "sleep");
    }

    #[test]
    fn process_failure_contains_the_output() {
        let why = output(Command::new("sh").args(["-c", "echo reason >&2; exit 7"])).unwrap_err();
        assert!(why.to_string().contains("reason"), "{why}");
    }
}
