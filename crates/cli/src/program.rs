//! Runs a program of the host for at most [`PROGRAM_TIME_MAX`] (5 s), and returns its output.
//!
//! `doctor` asks programs of the host for its state, `vmm::version` asks QEMU for its version, and
//! `commands::mpi` a launcher for its MPI library. The main thread of the tool waits; a thread of
//! the call reads the output, and ends with the last process that holds the output open.
//!
//! A program that has not ended in time is killed, and its output is lost; so is the output that a
//! child of the program still holds open then. Output beyond 4 MiB is not read. The program has no
//! standard input, its messages at stderr are dropped, and its language is C. Each call runs it
//! again.

use std::ffi::OsStr;
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{PROGRAM_BYTES_MAX, PROGRAM_TIME_MAX};

/// Time between two looks at a program that closed its output and has not ended.
const END_INTERVAL: Duration = Duration::from_millis(2);

/// Returns the output of a program that succeeds in time, at most 4 MiB; `None` if the program is
/// missing, fails, runs too long, or writes no UTF-8. A program that is late is killed.
pub fn output(name: impl AsRef<OsStr>, arguments: &[&str]) -> Option<String> {
    output_within(PROGRAM_TIME_MAX, name, arguments)
}

/// As [`output`], with another limit of time.
fn output_within(limit: Duration, name: impl AsRef<OsStr>, arguments: &[&str]) -> Option<String> {
    let late = Instant::now().checked_add(limit)?;
    let mut command = Command::new(name);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(PROGRAM_BYTES_MAX).read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver.recv_timeout(limit).ok();
    let status = status_before(late, &mut child);
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    text?.ok().filter(|_| status.is_some_and(|status| status.success()))
}

/// Returns the status of a program that ends before `late`.
fn status_before(late: Instant, child: &mut Child) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < late => thread::sleep(END_INTERVAL),
            Ok(status) => return status,
            Err(_) => return None,
        }
    }
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

    #[test]
    fn programs_that_do_not_end_are_killed_although_their_output_ended() {
        let limit = Duration::from_millis(300);
        for script in ["exec sleep 30", "exec >&-; exec sleep 30", "sleep 12 & exit 0"] {
            let started = Instant::now();
            assert_eq!(output_within(limit, "sh", &["-c", script]), None, "{script}");
            assert!(started.elapsed() < Duration::from_secs(10), "{script}");
        }
    }
}
