//! `causeway capture`: writes the frames at a port or link to a pcapng file, or to stdout for `-`.
//!
//! The verb begins a capture, fetches its bytes in a loop with a pause of [`PAUSE`] (100 ms) after
//! an empty reply, and ends the capture. It stops after `--count` frames, after `--seconds`, at
//! SIGINT or SIGTERM, when the reader of a pipe closes it, or when the port or link is deleted:
//! each is a success. A failed request or write ends it with an error, and the file keeps the bytes
//! so far. An existing file is overwritten, but only after the daemon accepted the capture.
//!
//! The daemon buffers and filters the frames. Frames that the tool fetches too slowly are dropped
//! and counted; the count goes to stderr. A tool that is killed leaves the capture to the daemon,
//! which ends it after 30 s. Frames are not decoded. `commands::run` and `extcap` are the callers;
//! `daemon::api` serves the requests.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_model::{CaptureChunk, CaptureView, Name};
use serde_json::json;

use super::{CommandContext, hint};
use crate::args::{CaptureArgs, CaptureConditions};
use crate::client::view;
use crate::error::{Error, Result};

/// Pause after an empty reply.
const PAUSE: Duration = Duration::from_millis(100);

/// A capture: the place, the file, and its end.
#[derive(Debug)]
pub struct CaptureTask<'a> {
    /// Name of the port or link.
    pub name: &'a Name,
    /// Whether the name is that of a link.
    pub is_link: bool,
    /// The file, or `-` for standard output.
    pub write: &'a Path,
    /// Frames and packets to capture.
    pub conditions: &'a CaptureConditions,
    /// Number of frames after which the capture ends.
    pub count: Option<u64>,
    /// Seconds after which the capture ends.
    pub seconds: Option<u64>,
}

/// Runs `causeway capture` and prints the result.
pub fn run(cx: &CommandContext, args: &CaptureArgs) -> Result<()> {
    let (is_link, name) = match (&args.port_name, &args.link) {
        (_, Some(link)) => (true, link),
        (Some(port), None) => (false, port),
        (None, None) => return Err(Error::Usage("expected a port or --link".into())),
    };
    let CaptureArgs { write, conditions, count, seconds, .. } = args;
    let (count, seconds) = (*count, *seconds);
    let task = CaptureTask { name, is_link, write, conditions, count, seconds };
    let (part, is_stopped) = capture(cx, &task)?;
    let CaptureChunk { frames, dropped, closed, .. } = part;
    eprintln!("{frames} frames, {dropped} of them dropped because the buffer was full");
    let is_full = count.is_some_and(|count| frames.saturating_sub(dropped) >= count);
    if closed && !is_stopped && !is_full {
        eprintln!("the {} was deleted", if is_link { "link" } else { "port" });
    }
    Ok(())
}

/// Captures until the end of the task. Returns the last reply, and whether this process stopped the
/// capture.
///
/// # Errors
/// The daemon refuses the capture, or the file cannot be written.
pub fn capture(cx: &CommandContext, task: &CaptureTask<'_>) -> Result<(CaptureChunk, bool)> {
    let args = task.conditions;
    let (kind, what) = if task.is_link { ("edge", "link") } else { ("interface", "port") };
    let mut filter = serde_json::Map::new();
    let mut put = |key: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            filter.insert(key.into(), value);
        }
    };
    put("mac", args.mac.map(|mac| json!(mac)));
    put("ethertype", args.ethertype.map(|n| json!(n)));
    put("host", args.host.map(|host| json!(host)));
    put("protocol", args.protocol.map(|n| json!(n)));
    put("port", args.port.map(|n| json!(n)));
    let stopped = stop_on_signals()?;
    let count = task.count.unwrap_or(0);
    let at = json!({"type": kind, "name": task.name});
    let spec = json!({"at": at, "filter": filter, "snap": args.snap, "count": count});
    let started = cx.client.post("/v1/captures", &spec);
    let started: CaptureView =
        view(&started.map_err(|e| hint(e, what, &format!("see `causeway {what} list`")))?)?;
    let path = format!("/v1/captures/{}", started.capture);
    // Opened only after the daemon has accepted the capture, because an existing file is
    // overwritten.
    let copied = open(task.write).and_then(|mut out| copy(cx, task, &path, &mut *out, &stopped));
    let ended = cx.client.delete(&path);
    let outcome = copied?;
    ended?;
    Ok(outcome)
}

/// Creates or overwrites the file; stdout for `-`.
fn open(path: &Path) -> Result<Box<dyn Write>> {
    if path == Path::new("-") {
        return Ok(Box::new(std::io::stdout().lock()));
    }
    let file = File::create(path);
    let file = file.map_err(|error| Error::Output { what: path.display().to_string(), error })?;
    Ok(Box::new(file))
}

/// Returns a flag that SIGINT and SIGTERM set, so that the file is completed before the exit.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stopped.clone())
            .map_err(|e| Error::Usage(format!("cannot watch for signals: {e}")))?;
    }
    Ok(stopped)
}

/// Fetches and writes until the capture ends. Returns the last reply, and whether this process
/// stopped the capture.
fn copy(
    cx: &CommandContext,
    task: &CaptureTask<'_>,
    path: &str,
    out: &mut dyn Write,
    stopped: &AtomicBool,
) -> Result<(CaptureChunk, bool)> {
    let (since, mut is_stopped) = (Instant::now(), false);
    loop {
        let last = stopped.load(Ordering::Relaxed)
            || task.seconds.is_some_and(|n| since.elapsed() >= Duration::from_secs(n));
        if last && !std::mem::replace(&mut is_stopped, true) {
            // Frames that are buffered by now are still fetched.
            cx.client.post(&format!("{path}/stop"), &json!({}))?;
        }
        let part: CaptureChunk = view(&cx.client.get(path)?)?;
        let what = task.write.display().to_string();
        let written = out.write_all(&part.bytes).and_then(|()| out.flush());
        match written {
            // The reader of the pipe has closed it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                return Ok((part, true));
            }
            other => other.map_err(|error| Error::Output { what, error })?,
        }
        if part.bytes.is_empty() && part.closed {
            return Ok((part, is_stopped));
        }
        if part.bytes.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
}
