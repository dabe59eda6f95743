//! One thread that samples the daemon for all browsers.
//!
//! The thread (`web-poller`) takes a sample each interval while browsers ask, and until
//! [`IDLE_TIME`] (15 s) after the last request; without browsers the daemon is not asked. The load
//! of the daemon is thus independent of the number of browsers. A request gets the last state at
//! once, or waits for a new one for at most [`WAIT_TIME_MAX`] (1 s) if the thread was idle. If
//! there is no state by then, it gets none, and `site` answers with 503.
//!
//! While the daemon does not answer, the state has the error and the objects of the last sample,
//! and each interval tries again. Rates begin anew after a pause or an error.
//!
//! `WebServer` starts and stops the poller; `site` asks it in the threads of connections, which
//! share a lock with the thread, which does not hold it during a sample.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::limits::{FIRST_INTERVAL, IDLE_TIME, WAIT_TIME_MAX};
use crate::sample::Sample;
use crate::source::ControlSource;
use crate::state::{Daemon, State};

/// The last state, as JSON.
#[derive(Debug, Clone)]
pub struct StateText {
    /// The entity tag: another state has another tag, also after a restart of this process.
    pub tag: String,
    /// The JSON.
    pub text: Arc<str>,
}

/// The polling thread. [`Poller::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct Poller {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The part that the thread and the requests share.
#[derive(Debug)]
struct Shared {
    state: Mutex<Polled>,
    /// Wakes the thread.
    wanted: Condvar,
    /// Wakes requests.
    changed: Condvar,
    interval: Duration,
    /// Start of every tag.
    process: String,
}

/// The last state and the requests for it.
#[derive(Debug)]
struct Polled {
    sequence: u64,
    /// Absent before the first sample.
    text: Option<Arc<str>>,
    /// When a browser asked last.
    asked: Option<Instant>,
    is_stopped: bool,
}

impl Poller {
    /// Starts the thread. `host` is the name of this host, for display.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        source: Box<dyn ControlSource>,
        interval: Duration,
        host: String,
    ) -> std::io::Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shared = Arc::new(Shared {
            state: Mutex::new(Polled { sequence: 0, text: None, asked: None, is_stopped: false }),
            wanted: Condvar::new(),
            changed: Condvar::new(),
            interval,
            process: format!("{:x}", since.as_nanos()),
        });
        let of_thread = shared.clone();
        let thread = thread::Builder::new()
            .name("web-poller".into())
            .spawn(move || of_thread.run(&*source, &host))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the last state; `None` if there is none yet. Waits up to 1 s for the first state, or
    /// for a new state after a pause.
    pub fn state(&self) -> Option<StateText> {
        let shared = &self.shared;
        let mut state = shared.lock();
        let now = Instant::now();
        let was_idle = state.asked.is_none_or(|asked| now.duration_since(asked) > IDLE_TIME);
        state.asked = Some(now);
        shared.wanted.notify_all();
        if was_idle || state.text.is_none() {
            let sequence = state.sequence;
            let waits = |state: &mut Polled| state.sequence == sequence && !state.is_stopped;
            let waited = shared.changed.wait_timeout_while(state, WAIT_TIME_MAX, waits);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let tag = format!("\"{}-{}\"", shared.process, state.sequence);
        state.text.clone().map(|text| StateText { tag, text })
    }

    /// Stops the thread; waits for the end of a sample that it has begun. Requests get the last
    /// state from then on. A second call has no effect.
    pub fn stop(&self) {
        self.shared.lock().is_stopped = true;
        self.shared.wanted.notify_all();
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Polled> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of the thread.
    fn run(&self, source: &dyn ControlSource, host: &str) {
        let mut last: Option<Sample> = None;
        // Whether the last sample is a base of rates.
        let mut is_base = false;
        let mut pause = Duration::ZERO;
        while let Some(was_idle) = self.wait(pause) {
            let before = last.as_ref().filter(|_| is_base && !was_idle);
            let mut state = State {
                sequence: 0,
                interval_ms: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
                host: host.to_owned(),
                error: None,
                daemon: None,
            };
            match Sample::take(source) {
                Ok(sample) => {
                    let daemon = Daemon::of(&sample, before);
                    pause = if daemon.seconds.is_some() {
                        self.interval
                    } else {
                        self.interval.min(FIRST_INTERVAL)
                    };
                    state.daemon = Some(daemon);
                    last = Some(sample);
                    is_base = true;
                }
                Err(error) => {
                    state.error = Some(error.text);
                    state.daemon = last.as_ref().map(|sample| Daemon::of(sample, None));
                    is_base = false;
                    pause = self.interval;
                }
            }
            self.store(state);
        }
    }

    /// Waits for the end of a pause and for a browser. Returns whether the thread was idle, or
    /// `None` if it is to end.
    fn wait(&self, pause: Duration) -> Option<bool> {
        let state = self.lock();
        let stopped = |state: &mut Polled| !state.is_stopped;
        let waited = self.wanted.wait_timeout_while(state, pause, stopped);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let mut was_idle = false;
        loop {
            if state.is_stopped {
                return None;
            }
            if state.asked.is_some_and(|asked| asked.elapsed() <= IDLE_TIME) {
                return Some(was_idle);
            }
            was_idle = true;
            state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes a state the last one.
    fn store(&self, mut next: State) {
        let mut state = self.lock();
        state.sequence = state.sequence.saturating_add(1);
        next.sequence = state.sequence;
        // A state has no map with other keys than texts, so that its encoding does not fail.
        if let Ok(text) = serde_json::to_string(&next) {
            state.text = Some(text.into());
        }
        self.changed.notify_all();
    }
}
