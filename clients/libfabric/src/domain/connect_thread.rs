//! The thread that continues connects while the application makes no calls, in domains with manual
//! progress.
//!
//! A connect that is not answered while its call waits (at most `CONNECT_AT_ONCE`, 2 ms) starts the
//! thread ([`ConnectHelper::help`]); it ends when no message waits for a connect. It polls the
//! endpoints with waiting messages after pauses that double within [`CONNECT_POLL`] (0.5 to 20 ms).
//!
//! # Limits
//! At most one thread runs per domain; it does not keep the domain open, and ends within a pause
//! after its close. It makes progress for endpoints with waiting messages only, and sets no time
//! limit: the connect has its own. If the thread cannot start, the application's calls continue the
//! connect. It blocks all signals and claims the domain's lock, so it may delay a call.
//!
//! # Place
//! `rdm::connect` calls [`ConnectHelper::help`]; the thread calls [`DomainState::with_ep_internal`]
//! and wakes sleepers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use causeway_endpoint::threads::spawn_unsignalled;

use super::state::{DomainShared, DomainState};
use crate::limits::{CONNECT_POLL, CONNECT_POLL_MAX};
use crate::rdm::ConnectHelper;

/// Starts the thread, at most one per domain.
#[derive(Debug)]
pub struct ConnectThread {
    /// The domain, which may be closed while the thread sleeps.
    domain: Weak<DomainShared>,
    /// Whether the thread runs. Changed under the domain's lock.
    running: Arc<AtomicBool>,
}

impl ConnectThread {
    /// Returns the starter for a domain.
    pub fn new(shared: &Arc<DomainShared>) -> Self {
        Self { domain: Arc::downgrade(shared), running: Arc::default() }
    }
}

impl ConnectHelper for ConnectThread {
    fn help(&self) {
        if self.running.swap(true, Ordering::Relaxed) {
            return;
        }
        let (domain, running) = (self.domain.clone(), Arc::clone(&self.running));
        let thread = std::thread::Builder::new().name("causeway-fi".to_owned());
        if spawn_unsignalled(|| thread.spawn(move || run(&domain, &running))).is_err() {
            // The application's calls continue the connect instead.
            self.running.store(false, Ordering::Relaxed);
        }
    }
}

/// The result of a poll.
enum ConnectPoll {
    /// No message waits for a connect.
    Nothing,
    /// A connect is in progress.
    Waiting,
    /// A connect ended.
    Ended,
}

/// The thread.
fn run(domain: &Weak<DomainShared>, running: &AtomicBool) {
    let mut pause = CONNECT_POLL;
    loop {
        std::thread::sleep(pause);
        let Some(shared) = domain.upgrade() else { return };
        match shared.state.claimed(|state| poll(state, running)) {
            ConnectPoll::Nothing => return,
            ConnectPoll::Waiting => pause = pause.saturating_mul(2).min(CONNECT_POLL_MAX),
            ConnectPoll::Ended => pause = CONNECT_POLL,
        }
    }
}

/// Polls the endpoints with waiting messages once.
fn poll(state: &mut DomainState, running: &AtomicBool) -> ConnectPoll {
    let waiting = |state: &DomainState| -> Vec<usize> {
        let eps = (0_usize..).zip(&state.eps);
        let eps = eps.filter(|(_, ep)| ep.as_ref().is_some_and(|ep| ep.rdm.has_waiting()));
        eps.map(|(at, _)| at).collect()
    };
    let before = waiting(state);
    for at in &before {
        let _ = state.with_ep_internal(*at, |ep, env| {
            ep.rdm.endpoint.look();
            ep.rdm.progress(env);
            Ok(())
        });
        // This thread may have taken messages that sleeping threads wait for.
        state.wake(*at);
    }
    let after = waiting(state);
    if after.is_empty() {
        running.store(false, Ordering::Relaxed);
        ConnectPoll::Nothing
    } else if after.len() < before.len() {
        ConnectPoll::Ended
    } else {
        ConnectPoll::Waiting
    }
}
