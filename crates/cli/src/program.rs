//! Runs a program of the host for at most [`PROGRAM_TIME_MAX`] (5 s), and returns its output.
//!
//! `doctor` asks programs of the host for its state, `vmm::version` asks QEMU for its version, and
//! `commands::mpi` a launcher for its MPI library. The main thread of the tool waits; a thread of
//! the call reads the output.
//!
//! The limit is that of the output: a program that closes its output and does not end, or leaves it
//! to a child that does not end, is waited for without limit. Output beyond 4 MiB is not read. The
//! program has no standard input, its messages at stderr are dropped, and its language is C. Each
//! call runs it again.

use std::ffi::OsStr;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;

use crate::limits::{PROGRAM_BYTES_MAX, PROGRAM_TIME_MAX};

/// Returns the output of a program that succeeds in time; `None` if it is missing, fails, or writes
/// too long. A program that is late is killed.
pub fn output(name: impl AsRef<OsStr>, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(name);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = sync_channel(1);
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(PROGRAM_BYTES_MAX).read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver.recv_timeout(PROGRAM_TIME_MAX);
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    let _ = reader.join();
    text.ok()?.ok().filter(|_| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_runs_programs_and_leaves_out_missing_ones() {
        assert_eq!(output("echo", &["a"]).as_deref(), Some("a\n"));
        assert_eq!(output("false", &[]), None);
        assert_eq!(output("/nonexistent/program", &[]), None);
    }
}
