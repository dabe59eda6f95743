//! The log of the daemon as a process: a reader that does not read, and the last lines of a
//! process.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Dir, send};
use causeway_daemon::limits::LOG_LINES_QUEUED_MAX;

const LIMIT: Duration = Duration::from_secs(20);
/// Number of requests; each adds a line of more than 100 bytes. Together they exceed a pipe of 64
/// KiB and the queue of the log.
const LINES: usize = 655 + 2 * LOG_LINES_QUEUED_MAX;

/// A process that is killed with its test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn config(dir: &Dir) -> PathBuf {
    let (file, run) = (dir.file("causeway.toml"), dir.0.display());
    let text = format!(
        "[daemon]\ncontrol = \"{run}/control.sock\"\nlog = \"debug\"\n[[group]]\nname = \"blue\"\n\
         [[port]]\nname = \"a\"\ngroup = \"blue\"\nkind = \"net\"\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn start(config: &Path) -> KilledOnDrop {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd"));
    command.arg("--config").arg(config).stderr(Stdio::piped());
    for key in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"] {
        command.env_remove(key);
    }
    KilledOnDrop(command.spawn().unwrap())
}

fn ready(socket: &Path) {
    let since = Instant::now();
    while UnixStream::connect(socket).is_err() || send(socket, "GET", "/v1/info", "").0 != 200 {
        assert!(since.elapsed() < LIMIT, "not ready");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Connects a frontend that breaks the protocol, which the dispatcher logs.
fn break_the_protocol(port: &Path) {
    let mut stream = UnixStream::connect(port).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let _ = stream.write_all(&[0xff; 64]);
    let _ = stream.read(&mut [0; 64]);
}

#[test]
fn log_reader_that_does_not_read_stops_nothing() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let mut daemon = start(&config(&dir));
    ready(&socket);
    for _ in 0..20 {
        break_the_protocol(&dir.file("a.sock"));
    }
    for _ in 0..LINES {
        // Status 422, and a line in the log.
        assert_eq!(send(&socket, "POST", "/v1/ports", "{}").0, 422);
    }
    // The dispatcher answers these requests.
    let (status, ports) = send(&socket, "GET", "/v1/ports", "");
    assert_eq!((status, &ports[0]["name"]), (200, &serde_json::json!("a")));
    let (_, stats) = send(&socket, "GET", "/v1/stats", "");
    let dropped = stats["log"]["dropped_lines_total"].as_u64().unwrap();
    assert!(dropped > 0, "{stats}");
    // A stop does not wait for the reader forever.
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let since = Instant::now();
    while daemon.0.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < LIMIT, "does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn log_reports_dropped_lines_once_it_is_read_again() {
    let dir = Dir::new();
    let socket = dir.file("control.sock");
    let mut daemon = start(&config(&dir));
    ready(&socket);
    for _ in 0..LINES {
        assert_eq!(send(&socket, "POST", "/v1/ports", "{}").0, 422);
    }
    let mut stderr = daemon.0.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(daemon.0.wait().unwrap().success());
    let text = reader.join().unwrap();
    assert!(text.contains("msg=\"log lines dropped"), "{text}");
}

#[test]
fn log_start_errors_reach_stderr() {
    let dir = Dir::new();
    let file = config(&dir);
    std::fs::write(dir.file("a.sock"), "no socket").unwrap();
    let mut daemon = start(&file);
    let mut text = String::new();
    daemon.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(daemon.0.wait().unwrap().code(), Some(1));
    assert!(text.contains("causewayd: ") && text.contains("is not a socket"), "{text}");
}
