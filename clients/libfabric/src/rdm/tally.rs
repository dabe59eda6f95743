//! What an endpoint counts, for whoever looks why something is slow: said when it is closed.
//!
//! All of it is plain numbers beside what is changed anyway, under the lock of the domain.

use std::fmt;
use std::time::Instant;

use super::done::Done;
use super::{Name, Rdm};
use crate::abi::{FI_ECANCELED, FI_ETRUNC, FI_INJECT};

/// What is told of, by its place: also the places of libfabric's counters.
pub const SENT: usize = 0;
pub const RECEIVED: usize = 1;
pub const READ: usize = 2;
pub const WRITTEN: usize = 3;
pub const REMOTE_READ: usize = 4;
pub const REMOTE_WRITTEN: usize = 5;
/// How many of them there are.
pub const KINDS: usize = 6;

/// How many, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    bytes: u64,
}

/// See above.
#[derive(Debug)]
pub struct Tally {
    since: Instant,
    kinds: [Sum; KINDS],
    /// Completions that went into a queue.
    completions: u64,
    /// Messages that were sent and that counters do not count yet.
    quiet: u64,
    /// Messages too long to go with their head.
    pub long_sent: u64,
    pub long_received: u64,
    /// Atomic operations, which are among reads and writes.
    pub atomics: u64,
    /// The same, done for others.
    pub remote_atomics: u64,
    /// Messages that were there before the receive that took them.
    pub early: u64,
    /// How often messages were found lost that had been told as sent.
    pub lost: u64,
    cancelled: u64,
    truncated: u64,
    failed: u64,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            since: Instant::now(),
            kinds: [Sum::default(); KINDS],
            completions: 0,
            quiet: 0,
            long_sent: 0,
            long_received: 0,
            atomics: 0,
            remote_atomics: 0,
            early: 0,
            lost: 0,
            cancelled: 0,
            truncated: 0,
            failed: 0,
        }
    }

    /// An operation is over.
    #[inline]
    pub fn over(&mut self, kind: usize, done: &Done) {
        if let Some(fault) = &done.fault {
            self.ill(fault.err);
            if fault.err != FI_ETRUNC {
                return;
            }
        }
        self.add(kind, done.len);
    }

    #[inline]
    fn add(&mut self, kind: usize, len: usize) {
        if let Some(sum) = self.kinds.get_mut(kind) {
            sum.count = sum.count.wrapping_add(1);
            sum.bytes = sum.bytes.wrapping_add(len as u64);
        }
    }

    /// A message was sent of which nobody is told.
    #[inline]
    pub fn sent_quietly(&mut self, len: usize) {
        self.add(SENT, len);
        self.quiet = self.quiet.wrapping_add(1);
    }

    /// How many of those there were since it was asked last.
    #[inline]
    pub fn take_quiet(&mut self) -> u64 {
        std::mem::take(&mut self.quiet)
    }

    /// Counts and reports an operation that failed though the application was told that it is over,
    /// and returns whether it is one: an error entry of it would have no context.
    #[cold]
    pub fn lost_injected(&mut self, done: &Done) -> bool {
        let Some(fault) = done.fault.filter(|_| done.report.flags & FI_INJECT != 0) else {
            return false;
        };
        self.lose(fault.status);
        true
    }

    /// Counts and reports messages that did not arrive though they were reported as sent.
    #[cold]
    pub fn lose(&mut self, status: u32) {
        count(&mut self.lost);
        let why = i32::try_from(status).map(crate::errno::describe).unwrap_or_default();
        let why = why.to_string_lossy();
        let text = format!("a message that was told as sent did not arrive: {why}");
        crate::say::warn(&text, true);
    }

    #[cold]
    fn ill(&mut self, err: i32) {
        let counter = match err {
            FI_ECANCELED => &mut self.cancelled,
            FI_ETRUNC => &mut self.truncated,
            _ => &mut self.failed,
        };
        *counter = counter.wrapping_add(1);
    }

    /// A completion goes into a queue.
    #[inline]
    pub fn queued(&mut self) {
        self.completions = self.completions.wrapping_add(1);
    }
}

/// One more of something.
pub fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}

/// All that is known of an endpoint when it is closed.
#[derive(Debug)]
pub struct Account {
    name: Name,
    seconds: f64,
    /// Messages sent and received in a second, over its whole life.
    rate: f64,
    /// All counters, always in the same order.
    pub rows: Vec<(&'static str, u64)>,
}

impl Rdm {
    /// What was counted until now.
    pub fn account(&self) -> Account {
        let tally = &self.tally;
        let [sent, received, read, written, remote_read, remote_written] = tally.kinds;
        let staged = self.endpoint.way.staged();
        let engine = self.endpoint.library.counters().named();
        let of_engine = |name: &str| {
            engine.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
        };
        let rows = vec![
            ("sent", sent.count),
            ("sent_bytes", sent.bytes),
            ("sent_long", tally.long_sent),
            ("received", received.count),
            ("received_bytes", received.bytes),
            ("received_long", tally.long_received),
            ("reads", read.count),
            ("read_bytes", read.bytes),
            ("writes", written.count),
            ("written_bytes", written.bytes),
            ("atomics", tally.atomics),
            ("remote_reads", remote_read.count),
            ("remote_read_bytes", remote_read.bytes),
            ("remote_writes", remote_written.count),
            ("remote_written_bytes", remote_written.bytes),
            ("remote_atomics", tally.remote_atomics),
            ("unexpected", tally.early),
            ("cancelled", tally.cancelled),
            ("truncated", tally.truncated),
            ("failed", tally.failed),
            ("lost", tally.lost),
            ("completions", tally.completions),
            ("connects", of_engine("connects")),
            ("staging_lent", staged.lent),
            ("staging_used_again", staged.taken.saturating_sub(staged.lent)),
        ];
        let seconds = tally.since.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "to be read, not to be reckoned with")]
        let messages = sent.count.wrapping_add(received.count) as f64;
        let rate = if seconds > 0.0 { messages / seconds } else { 0.0 };
        Account { name: self.name(), seconds, rate, rows }
    }
}

impl Account {
    /// In one line: what is not 0.
    pub fn line(&self) -> String {
        use fmt::Write as _;
        let Self { name, seconds, rate, rows } = self;
        let mut line = format!("{name} was open for {seconds:.3} s, {rate:.0} messages/s:");
        for (name, value) in rows.iter().filter(|(_, value)| *value != 0) {
            let _ = write!(line, " {name} {value}");
        }
        line
    }
}

/// A table: all, each in a line of its own.
impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seconds, rate, rows } = self;
        writeln!(f, "{name}")?;
        writeln!(f, "  {:<22}{seconds:>16.3}", "seconds")?;
        writeln!(f, "  {:<22}{rate:>16.0}", "messages_per_second")?;
        for (name, value) in rows {
            writeln!(f, "  {name:<22}{value:>16}")?;
        }
        Ok(())
    }
}
