//! Child processes: start, line-based communication, guaranteed termination.
//!
//! The peers' programs and the inner processes start by [`command`], through `setpriv --pdeathsig
//! KILL`, so that the kernel ends them with the benchmark; some short commands, such as `ip`, start
//! without it. [`Program`] reads the output's lines in a thread of its own; a wait for a line ends
//! after its time limit, or with the program, with a reason as text. A command that [`run`] starts
//! is killed after [`LIMIT`] (5 minutes). A child of a program is not killed with it.
//!
//! A program that is not installed ends at once, because `setpriv` cannot execute it: callers look
//! for a program that may be absent first. [`Folder`] is removed on drop, and after a kill by the
//! next run (`sweep`).

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Prefix of all names, followed by the process ID.
pub const PREFIX: &str = "causeway-bench-";
/// Longest time of a command.
pub const LIMIT: Duration = Duration::from_secs(300);
/// Interval at which the end of a program is polled.
const POLL: Duration = Duration::from_millis(2);
/// Time for the rest of the output of a program that has ended: a child of it may keep the pipe
/// open, and the output then counts as empty.
const REST: Duration = Duration::from_secs(5);

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

/// Returns a command for a program that the kernel kills when the thread that starts it ends, also
/// if this process is killed.
pub fn command(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(name);
    command
}

/// Returns the name of a command's program: that behind `setpriv` for a result of [`command`].
fn name_of(command: &Command) -> String {
    let words = command.get_args().skip_while(|word| *word != "--").nth(1);
    words.unwrap_or(command.get_program()).to_string_lossy().into_owned()
}

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    /// Starts `command` with its input and output connected to this process; its standard error is
    /// discarded.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let name = name_of(command);
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

    /// Returns the first value that `of` finds in a line of output, within `timeout`. Lines before
    /// it are dropped.
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

/// Runs a command to its end, for at most [`LIMIT`], and returns its output. The error is the first
/// line of its standard error, or that the command did not start or end.
pub fn run(command: &mut Command) -> Result<String, String> {
    run_within(command, LIMIT)
}

/// As [`run`], with another limit. A command that lasts longer is killed.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<String, String> {
    let name = name_of(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name}: {e}"),
    })?;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let Some(status) = end_of(&mut child, limit).map_err(|e| format!("{name}: {e}"))? else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{name} did not end within {} s, and was killed", limit.as_secs_f32()));
    };
    let text = |from: Receiver<String>| from.recv_timeout(REST).unwrap_or_default();
    if status.success() {
        return Ok(text(output));
    }
    Err(format!("{name}: {}", text(errors).lines().next().unwrap_or("failed")))
}

/// Reads a stream of a child to its end, in a thread.
fn read(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, text) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

/// Waits for the end of a child; `None` after `limit`.
fn end_of(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let since = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || since.elapsed() > limit {
            return Ok(status);
        }
        std::thread::sleep(POLL);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_does_not_end_is_killed_after_its_limit() {
        let since = Instant::now();
        let ended = run_within(Command::new("sleep").arg("60"), Duration::from_millis(50));
        let why = ended.unwrap_err();
        assert!(why.starts_with("sleep did not end within"), "{why}");
        assert!(since.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn command_returns_its_output_or_the_first_line_of_its_errors() {
        let shell = |script: &str| run(command("sh").args(["-c", script]));
        assert_eq!(shell("echo out; echo err >&2"), Ok("out\n".to_owned()));
        assert_eq!(shell("echo out; echo why >&2; exit 3"), Err("sh: why".to_owned()));
        // More than a pipe holds.
        assert_eq!(shell("head -c 300000 /dev/zero").map(|text| text.len()), Ok(300_000));
        let missing = run(&mut Command::new("causeway-no-such-program"));
        assert_eq!(missing, Err("causeway-no-such-program is not installed".to_owned()));
    }
}
