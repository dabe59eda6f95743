//! QEMU's monitor (QMP).

use super::hosts::{PATIENCE, wait};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to the monitor of a machine.
pub struct Monitor {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to a monitor as soon as its socket exists.
    pub fn connect(path: &Path) -> Self {
        wait(|| path.exists(), || "no monitor".to_owned());
        let write = UnixStream::connect(path).unwrap();
        write.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut monitor = Self { read: BufReader::new(write.try_clone().unwrap()), write };
        monitor.answer();
        monitor.ask("qmp_capabilities", json!({}));
        monitor
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.read.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Executes a command and returns its answer.
    pub fn ask(&mut self, what: &str, arguments: Value) -> Value {
        let line = json!({"execute": what, "arguments": arguments});
        writeln!(self.write, "{line}").unwrap();
        loop {
            let answer = self.answer();
            assert!(answer["error"].is_null(), "{what}: {answer}");
            if !answer["return"].is_null() {
                return answer["return"].clone();
            }
        }
    }

    /// Migrates the machine, and waits for the end of the migration.
    pub fn migrate(&mut self, to: &Path) {
        // The migration converges at any write rate of the guest.
        let limits = json!({"downtime-limit": 2000, "max-bandwidth": 1 << 30});
        self.ask("migrate-set-parameters", limits);
        self.ask("migrate", json!({"uri": format!("unix:{}", to.display())}));
        let mut status = Value::Null;
        let mut done = || {
            status = self.ask("query-migrate", json!({}));
            assert_ne!(status["status"], "failed", "{status}");
            status["status"] == "completed"
        };
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < PATIENCE, "the migration does not end: {status}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
