//! The log: one line on stderr per record, as `key=value` pairs.
//!
//! `time=… level=info target=… msg="…" port=vm1-net`; the time (UTC) is omitted if the environment
//! has `JOURNAL_STREAM`, because journald adds its own. The report of a panic has the form of the
//! standard library, with a backtrace if one is requested.
//!
//! A write to stderr blocks while the reader of the log does not read. The thread that logs
//! therefore only formats its line and puts it into a bounded queue (`queue`,
//! [`LOG_LINES_QUEUED_MAX`] (1,024) lines); the thread `log` writes. Lines that find the queue full
//! are dropped, counted and reported in the log. Dispatchers may log: a line costs its formatting
//! and an allocation. Lines of one thread keep their order. Only a panic, the last line of a
//! failing process and [`flush`] wait for the reader, at most 1 s.
//!
//! The module neither rotates nor filters by target, and it limits no rate: code that a guest or
//! client can make log uses [`causeway_fabric::LogLimit`]. Records before [`start`] are lost; lines
//! in the queue are lost if the process ends without [`flush`]. The level cannot change at run
//! time.
//!
//! [`crate::run`] starts the log after the sandbox was entered, and `causeway-holder` in its own
//! process at level info; every crate logs through the `log` crate. `/v1/stats` and the metrics
//! have the number of dropped lines. A second [`start`] of a process is an error, also after a
//! start that could not create the thread.

mod queue;
mod record;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{LevelFilter, Log, Metadata, Record};

use crate::limits::{LOG_FLUSH_TIME_MAX, LOG_LINES_QUEUED_MAX};
use queue::LogQueue;

/// The queue of this process's log, after the start.
static QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// The receiver of log records.
#[derive(Debug)]
struct Logger {
    /// Whether lines have a time.
    timed: bool,
}

/// Starts to send all log records of `level` and more severe ones, and panics, to stderr.
///
/// # Errors
/// The log was started before, or the thread cannot be created.
pub fn start(level: LevelFilter) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let timed = std::env::var_os("JOURNAL_STREAM").is_none();
    log::set_boxed_logger(Box::new(Logger { timed }))?;
    let queue = LogQueue::start(std::io::stderr(), LOG_LINES_QUEUED_MAX)?;
    QUEUE.get_or_init(|| queue);
    std::panic::set_hook(Box::new(report_panic));
    log::set_max_level(level);
    Ok(())
}

/// Waits until the lines that are queued now are written, at most [`LOG_FLUSH_TIME_MAX`] (1 s).
/// Must be called before the process ends. Does nothing before [`start`].
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(LOG_FLUSH_TIME_MAX);
    }
}

/// Writes the last line of a failing process. Waits for the reader of the log at most
/// [`LOG_FLUSH_TIME_MAX`] (1 s); before the log is started, the write may block.
pub fn write_last(text: &str) {
    let line = format!("{text}\n");
    match QUEUE.get() {
        Some(queue) => queue.push_and_flush(line, LOG_FLUSH_TIME_MAX),
        // A closed stderr is ignored.
        None => drop(std::io::stderr().lock().write_all(line.as_bytes())),
    }
}

/// Returns the number of lines dropped because the reader of the log did not read.
pub fn dropped_total() -> u64 {
    QUEUE.get().map_or(0, LogQueue::dropped_total)
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if let Some(queue) = QUEUE.get() {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            queue.push(record::line(record, self.timed.then_some(since_1970)));
        }
    }

    fn flush(&self) {
        flush();
    }
}

/// The panic hook: as that of the standard library, but a reader that does not read delays the
/// thread by at most [`LOG_FLUSH_TIME_MAX`] (1 s).
fn report_panic(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let mut text = format!("thread {:?} {info}", thread.name().unwrap_or("without a name"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        let _ = write!(text, "\n{trace}");
    }
    write_last(&text);
}
