//! The thread `state` that writes the state file.
//!
//! A change requests a write ([`StateWriter::request`]) and may wait for it
//! ([`StateWriter::wait`]); requests that arrive during a write share the next. A failed write is
//! tried again every [`STATE_RETRY`] (10 s) until it succeeds, or at once if a further change is
//! requested; the first failure in a row is logged, and the success after it. A waiter waits for at
//! most [`STATE_WRITE_TIME_MAX`] (4 s), so that a file system that hangs delays replies and no
//! traffic; it gets the result of the last write, which may be a later one than its own.
//!
//! The writer asks for the text at the start of each write, without a lock of its own. An equal
//! text is not written again. The thread ends when there is no text any more, and leaves the file
//! as it is. Requests that are not waited for are lost if the process ends first.
//!
//! [`super::Kept::begin`] starts the thread once, at the end of the start, and requests a write if
//! objects of the file were dropped or merged; `super::Kept` requests in the threads of
//! connections, where the control API waits and a VNET session does not, and waits at the stop.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::store;
use crate::limits::{STATE_RETRY, STATE_WRITE_TIME_MAX};

/// Returns the text to write; `None` after the end of the use of the file.
pub type StateSource = dyn Fn() -> Option<String> + Send + Sync;

/// Progress of the writes.
#[derive(Debug, Default)]
struct Progress {
    /// Number of requests.
    requested: u64,
    /// Requests up to this number were tried.
    tried: u64,
    /// Error of the last write, if it failed.
    error: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests writes, from any thread. The thread ends with the use of the file.
#[derive(Debug, Clone)]
pub struct StateWriter {
    shared: Arc<Shared>,
}

impl StateWriter {
    /// Starts the thread. `written` is the text that needs no write.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        path: PathBuf,
        written: String,
        source: Arc<StateSource>,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let serve = move || write_all(&of_thread, &path, written, &*source);
        thread::Builder::new().name("state".into()).spawn(serve)?;
        Ok(Self { shared })
    }

    /// Requests a write, and returns the number of the request.
    pub fn request(&self) -> u64 {
        let mut progress = self.shared.progress();
        progress.requested = progress.requested.saturating_add(1);
        self.shared.changed.notify_all();
        progress.requested
    }

    /// Waits until a request was tried.
    ///
    /// # Errors
    /// The write failed, or was not done within 4 s: the reason.
    pub fn wait(&self, request: u64) -> Result<(), String> {
        let until = Instant::now() + STATE_WRITE_TIME_MAX;
        let mut progress = self.shared.progress();
        while progress.tried < request {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = STATE_WRITE_TIME_MAX.as_secs();
                return Err(format!("the state file was not written within {seconds} s"));
            }
            let waited = self.shared.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        progress.error.clone().map_or(Ok(()), Err)
    }

    /// Returns the error of the last write, if it failed.
    pub fn error(&self) -> Option<String> {
        self.shared.progress().error.clone()
    }
}

/// Executes requests until the source has no text.
fn write_all(shared: &Shared, path: &Path, mut written: String, source: &StateSource) {
    let mut progress = shared.progress();
    loop {
        let is_due = progress.tried < progress.requested;
        if !is_due {
            // A failed write is due again after a pause.
            let is_failed = progress.error.is_some();
            let waited = shared.changed.wait_timeout(progress, STATE_RETRY);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            progress = next;
            if !(timeout.timed_out() && is_failed) {
                continue;
            }
        }
        let request = progress.requested;
        drop(progress);
        let Some(text) = source() else {
            progress = shared.progress();
            progress.error = Some("causewayd ends".to_owned());
            progress.tried = u64::MAX;
            return shared.changed.notify_all();
        };
        let result = match written == text {
            true => Ok(()),
            false => store::replace(path, &text).map_err(|error| error.to_string()),
        };
        progress = shared.progress();
        if let (Err(error), None) = (&result, &progress.error) {
            log::warn!(
                error = error.as_str();
                "changes are not kept: they are lost when causewayd ends; correct the cause, and the \
                 state file is written within {} s",
                STATE_RETRY.as_secs()
            );
        } else if let (Ok(()), Some(_)) = (&result, &progress.error) {
            log::info!(path:% = path.display(); "the state file is written again: changes are kept");
        }
        if result.is_ok() {
            written = text;
        }
        progress.error = result.err();
        progress.tried = progress.tried.max(request);
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writer_without_a_source_leaves_the_file() {
        let path = std::env::temp_dir().join(format!("causeway-state-{}", std::process::id()));
        std::fs::write(&path, "objects").unwrap();
        let shared = Shared::default();
        shared.progress().requested = 1;
        write_all(&shared, &path, "objects".to_owned(), &|| None);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "objects");
        std::fs::remove_file(path).unwrap();
        assert!(
            StateWriter { shared: shared.into() }.wait(2).is_err(),
            "no later request succeeds"
        );
    }
}
