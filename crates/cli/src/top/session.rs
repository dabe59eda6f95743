//! The terminal of the full-screen view, and the thread that sends requests.
//!
//! The thread of the command draws and reads keys; a second thread takes a sample for each request
//! of the first, so that a slow daemon does not delay keys. The terminal is restored at the end,
//! also after an error, a panic (by the hook of ratatui), SIGTERM, SIGHUP and SIGINT.
//!
//! `commands::top` calls [`run`], once. At most one request is on its way: while it is not
//! answered, no further one is sent, and keys work. The view ends without waiting for the thread,
//! which ends with the process or after its request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::app::{App, Step};
use super::sample::Sample;
use super::screen::draw;
use crate::client::ControlClient;
use crate::error::{Error, Result};
use crate::limits::TOP_TICK;

/// The terminal in the full-screen mode; restored when dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self> {
        ratatui::try_init().map(Self).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Returns the error of the terminal.
fn failed(error: std::io::Error) -> Error {
    Error::Output { what: "terminal".into(), error }
}

/// Takes a sample for each message, until the receiver or the sender is gone.
fn serve(client: &ControlClient, requests: &Receiver<()>, samples: &Sender<Result<Sample>>) {
    while requests.recv().is_ok() {
        if samples.send(Sample::take(client)).is_err() {
            return;
        }
    }
}

/// Runs the full-screen view until the user ends it, a signal arrives, or `count` reports were
/// shown.
///
/// # Errors
/// The terminal fails.
pub fn run(client: &ControlClient, app: &mut App, count: Option<u64>) -> Result<()> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone()).map_err(failed)?;
    }
    let (request, requests) = channel();
    let (sample, samples) = channel();
    let client = client.clone();
    let thread = std::thread::Builder::new().name("top-requests".into());
    thread.spawn(move || serve(&client, &requests, &sample)).map_err(failed)?;
    let mut screen = Screen::open()?;
    let (mut last, mut is_waiting, mut is_changed) = (Instant::now(), false, true);
    loop {
        let is_due = last.elapsed().as_secs_f64() >= app.interval;
        if is_due && !is_waiting && !app.is_paused && request.send(()).is_ok() {
            (last, is_waiting) = (Instant::now(), true);
        }
        match samples.try_recv() {
            Ok(outcome) => {
                app.update(outcome);
                (is_waiting, is_changed) = (false, true);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(failed(std::io::Error::other("the thread of the requests ended")));
            }
        }
        // A loss is shown with its age.
        if is_changed || app.loss.is_some() {
            screen.0.draw(|frame| draw(frame, app)).map_err(failed)?;
        }
        if count.is_some_and(|count| app.reports >= count) || stopped.load(Ordering::Relaxed) {
            return Ok(());
        }
        match keys(app, TOP_TICK)? {
            None => return Ok(()),
            Some(events) => is_changed = events > 0,
        }
    }
}

/// Executes the keys that are pressed within a time, and returns the number of the terminal's
/// events; `None` if the user ends the view.
fn keys(app: &mut App, within: Duration) -> Result<Option<u32>> {
    let (mut wait, mut events) = (within, 0_u32);
    loop {
        match event::poll(wait) {
            Ok(true) => {}
            Ok(false) => return Ok(Some(events)),
            // A signal.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                return Ok(Some(events));
            }
            Err(error) => return Err(failed(error)),
        }
        if let Event::Key(key) = event::read().map_err(failed)?
            && key.kind != KeyEventKind::Release
            && app.key(key) == Step::Quit
        {
            return Ok(None);
        }
        (wait, events) = (Duration::ZERO, events.saturating_add(1));
    }
}
