//! Executes the host's commands and replies with their results.
//!
//! Each command has a thread of its own, so that a long exchange does not block a short one, and
//! two for its output. There is no limit of commands at a time. A command that exceeds its time
//! limit is killed, its children are not: the reply of each command waits until the children, too,
//! have closed the standard output and error. Of each output the last 32 KiB are kept. A program
//! that cannot be started, or ends by a signal, is a result without a code; a malformed request is
//! logged and has no reply. `init` calls [`serve`], in the first thread of the guest; a reboot runs
//! in that thread.

use crate::limits::{MAX_LINE_BYTES, MAX_OUTPUT_BYTES};
use crate::protocol::{CommandResult, Line, Operation, Request};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval at which a running command is polled.
const CHECK: Duration = Duration::from_millis(5);

/// Serves the control channel until it ends. A line that is longer than [`MAX_LINE_BYTES`] or no
/// request is logged and skipped.
///
/// # Errors
/// The read error of the channel.
pub fn serve(channel: &File, restart: fn()) -> io::Result<()> {
    let out = Arc::new(Mutex::new(channel.try_clone()?));
    let mut lines = BufReader::new(channel);
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = Read::take(&mut lines, MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(());
        }
        if n == MAX_LINE_BYTES && !line.ends_with(b"\n") {
            lines.skip_until(b'\n')?;
            eprintln!("causeway-guest: a request of more than {MAX_LINE_BYTES} bytes is ignored");
            continue;
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(Request { ask: Operation::Reboot, .. }) => restart(),
            Ok(Request { id, ask: Operation::Run { argv, limit_ms } }) => {
                let out = Arc::clone(&out);
                thread::spawn(move || {
                    let ran = run(&argv, Duration::from_millis(limit_ms));
                    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Err(e) = send(&mut out, &Line::Reply { id, ran }) {
                        eprintln!("causeway-guest: reply {id}: {e}");
                    }
                });
            }
            Err(e) => {
                let text = String::from_utf8_lossy(&line);
                eprintln!("causeway-guest: request '{}': {e}", text.trim_end());
            }
        }
    }
}

/// Writes one line to the control channel.
///
/// # Errors
/// The write error of the channel.
pub fn send(channel: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    channel.write_all(&text)
}

/// Runs a command to its end or its time limit, and until its output is closed. The caller's thread
/// waits.
#[must_use]
pub fn run(argv: &[String], limit: Duration) -> CommandResult {
    let failed = |why: String| CommandResult { stderr: why, ..CommandResult::default() };
    let Some((program, arguments)) = argv.split_first() else {
        return failed("no command given".into());
    };
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(e) => return failed(format!("{program}: {e}")),
    };
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let (code, timed_out) = wait(&mut child, limit);
    CommandResult { code, timed_out, stdout: finish(stdout), stderr: finish(stderr) }
}

fn wait(child: &mut Child, limit: Duration) -> (Option<i32>, bool) {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return (status.code(), false),
            Ok(None) if start.elapsed() < limit => thread::sleep(CHECK),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return (None, true);
            }
        }
    }
}

/// Reads a stream to its end and keeps the last of it.
fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut kept = VecDeque::new();
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            kept.extend(&chunk[..n]);
            let over = kept.len().saturating_sub(MAX_OUTPUT_BYTES);
            kept.drain(..over);
        }
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    })
}

fn finish(stream: Option<JoinHandle<String>>) -> String {
    stream.and_then(|s| s.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit_ms: u64) -> CommandResult {
        run(&["sh".into(), "-c".into(), script.into()], Duration::from_millis(limit_ms))
    }

    #[test]
    fn agent_reports_streams_and_exit_code() {
        let ran = sh("echo out; echo err >&2; exit 3", 10_000);
        let want = CommandResult {
            code: Some(3),
            timed_out: false,
            stdout: "out\n".into(),
            stderr: "err\n".into(),
        };
        assert_eq!(ran, want);
    }

    #[test]
    fn agent_kills_a_command_at_its_time_limit() {
        let ran = sh("echo started; exec sleep 600", 300);
        assert!(ran.timed_out && ran.code.is_none());
        assert_eq!(ran.stdout, "started\n");
    }

    #[test]
    fn agent_keeps_the_end_of_long_output() {
        let ran = sh("yes | head -c 200000; echo last", 20_000);
        assert_eq!(ran.stdout.len(), MAX_OUTPUT_BYTES);
        assert!(ran.stdout.ends_with("last\n"));
    }

    #[test]
    fn agent_skips_lines_that_are_no_text_or_too_long() {
        use std::os::fd::OwnedFd;
        use std::os::unix::net::UnixStream;

        let (mut near, far) = UnixStream::pair().unwrap();
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        let far = File::from(OwnedFd::from(far));
        let serving = thread::spawn(move || serve(&far, || {}));
        // The limit cuts a character of two bytes.
        let long = [b"x", "\u{e9}".repeat(MAX_LINE_BYTES).as_bytes(), b"\n"].concat();
        let argv = vec!["echo".to_owned(), "out".to_owned()];
        let request = Request { id: 7, ask: Operation::Run { argv, limit_ms: 10_000 } };
        let request = serde_json::to_vec(&request).unwrap();
        near.write_all(&[b"\xff\xfe\n", &long[..], &request, b"\n"].concat()).unwrap();
        let mut reply = String::new();
        BufReader::new(&near).read_line(&mut reply).unwrap();
        let Ok(Line::Reply { id: 7, ran }) = serde_json::from_str(&reply) else {
            panic!("{reply}")
        };
        assert_eq!(ran.stdout, "out\n");
        near.shutdown(std::net::Shutdown::Write).unwrap();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn agent_names_a_missing_program() {
        let ran = run(&["/no/such/program".into()], Duration::from_secs(1));
        assert!(ran.code.is_none() && ran.stderr.contains("/no/such/program"));
    }
}
