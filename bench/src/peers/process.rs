//! Child processes: start, line-based communication, guaranteed termination.
//!
//! All peers and inner processes start by [`command`], through `setpriv --pdeathsig KILL`, so that
//! the kernel ends them with the benchmark. [`Program`] reads the output's lines in a thread of its
//! own; a wait for a line ends after its time limit, or with the program, with a reason as text. A
//! program that is not installed is such a reason. [`run`] waits for the end of a command without a
//! time limit. [`Folder`] is removed on drop, and after a kill by the next run (`sweep`).

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::sweep::PREFIX;

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder for `what` below the system's folder for temporary files.
    pub fn new(what: &str) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{what}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a command for a program that ends with this process in every case.
pub fn command(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(name);
    command
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Starts `command` with its input and output connected to this process.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let words = command.get_args().skip_while(|word| *word != "--").nth(1);
        let name = words.unwrap_or(command.get_program()).to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => format!("{name} is not installed"),
            _ => format!("{name}: {e}"),
        })?;
        let (send, lines) = channel();
        let output = child.stdout.take().ok_or_else(|| format!("{name} has no output"))?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { name, child, lines })
    }

    /// Writes a line to the program's input. Blocks while the program reads nothing and the pipe
    /// is full.
    pub fn write_line(&mut self, line: &str) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).map_err(|e| self.ended(&e))
    }

    fn ended(&self, why: &dyn std::fmt::Display) -> String {
        format!("{} ended: {why}", self.name)
    }

    /// Returns the first value that `of` finds in a line of output, within `timeout`.
    pub fn await_line<T>(
        &self,
        timeout: Duration,
        mut of: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, String> {
        let since = Instant::now();
        loop {
            let left = timeout.saturating_sub(since.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.map_err(|e| format!("{} does not answer: {e}", self.name))?;
            if let Some(found) = of(&line) {
                return Ok(found);
            }
        }
    }

    /// Returns whether the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits up to `time` for the program to end.
    pub fn wait_end(&mut self, time: Duration) {
        let since = Instant::now();
        while self.is_running() && since.elapsed() < time {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a short command to its end, and returns its output. The error is the first line of its
/// standard error.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name}: {e}"),
    })?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{name}: {}", said.lines().next().unwrap_or("failed")))
}

/// Waits until `path` exists.
pub fn wait_for(path: &Path, timeout: Duration) -> Result<(), String> {
    let since = Instant::now();
    while !path.exists() {
        if since.elapsed() > timeout {
            return Err(format!("{} does not exist within the time limit", path.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
