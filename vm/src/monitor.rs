//! QEMU's monitor (QMP).
//!
//! Tests of migration and of small writes, and the hot unplug of the matrix, connect a [`Monitor`]
//! to the socket that they named in the guest's spec. Commands go one at a time, as JSON lines, and
//! block the caller until QEMU answers or is silent for 60 s ([`MONITOR`]); each event begins this
//! time anew. Events that arrive before the answer to a command are dropped:
//! [`Monitor::await_event`] sees later events only. QEMU that refuses, is silent or ends is an
//! error; after silence the monitor is not usable, because a late answer would count for the next
//! command. A monitor serves one thread at a time.

use crate::error::{Error, Result};
use crate::limits::{CHECK, MONITOR};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the state of a migration is polled.
const MIGRATION_POLL: Duration = Duration::from_millis(100);

/// A connection to the monitor of a machine.
#[derive(Debug)]
pub struct Monitor {
    /// Sending side of the socket.
    write: UnixStream,
    /// Receiving side of the socket.
    read: BufReader<UnixStream>,
}

impl Monitor {
    /// Connects to a monitor as soon as its socket exists, for which 60 s are allowed.
    ///
    /// # Errors
    /// When the socket does not appear in time, or QEMU does not answer.
    pub fn connect(path: &Path) -> Result<Self> {
        let start = Instant::now();
        while !path.exists() {
            if start.elapsed() > MONITOR {
                return Err(failed("connect", format!("{} does not exist", path.display())));
            }
            thread::sleep(CHECK);
        }
        let connect = || {
            let write = UnixStream::connect(path)?;
            write.set_read_timeout(Some(MONITOR))?;
            Ok((BufReader::new(write.try_clone()?), write))
        };
        let (read, write) = connect().map_err(Error::io(format!("use {}", path.display())))?;
        let mut monitor = Self { write, read };
        monitor.message()?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Executes a command and returns its answer.
    ///
    /// # Errors
    /// When QEMU refuses the command, does not answer in time, or ends.
    pub fn ask(&mut self, what: &str, arguments: Value) -> Result<Value> {
        let line = json!({"execute": what, "arguments": arguments});
        writeln!(self.write, "{line}").map_err(Error::io(format!("ask the monitor: {what}")))?;
        loop {
            let mut answer = self.message()?;
            if let Some(error) = answer.get("error") {
                return Err(failed(what, error.to_string()));
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// Waits for an event of this name; drops other events and answers.
    ///
    /// # Errors
    /// When QEMU is silent for [`MONITOR`], or ends.
    pub fn await_event(&mut self, name: &str) -> Result<()> {
        while self.message()?.get("event").and_then(Value::as_str) != Some(name) {}
        Ok(())
    }

    /// Migrates the machine to the Unix socket `to`, where another machine waits for it, and waits
    /// for the end of the migration.
    ///
    /// # Errors
    /// When the migration fails, or does not end in time.
    pub fn migrate(&mut self, to: &Path) -> Result<()> {
        // The migration converges at any write rate of the guest.
        let limits = json!({"downtime-limit": 2000, "max-bandwidth": 1 << 30});
        self.ask("migrate-set-parameters", limits)?;
        self.ask("migrate", json!({"uri": format!("unix:{}", to.display())}))?;
        let start = Instant::now();
        loop {
            let status = self.ask("query-migrate", json!({}))?;
            match status.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed") => return Err(failed("migrate", status.to_string())),
                _ if start.elapsed() > MONITOR => {
                    return Err(failed("migrate", format!("the migration does not end: {status}")));
                }
                _ => thread::sleep(MIGRATION_POLL),
            }
        }
    }

    /// Reads a greeting, an answer or an event.
    fn message(&mut self) -> Result<Value> {
        let mut line = String::new();
        match self.read.read_line(&mut line) {
            Ok(0) => Err(failed("read", "QEMU has closed its monitor".into())),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|why| failed("read", format!("'{}': {why}", line.trim()))),
            Err(why) => Err(Error::io("read from the monitor")(why)),
        }
    }
}

fn failed(what: &str, why: String) -> Error {
    Error::Traffic { what: format!("monitor: {what}: {why}") }
}
