//! A thread that goes on with connects while the application makes no calls. It is begun by a
//! connect that takes long, and ends when no message waits for one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::auto::quietly;
use super::state::{Shared, State};
use crate::limits::HELP_PAUSE;
use crate::rdm::Helps;

/// Begins that thread. One for each domain.
#[derive(Debug)]
pub struct Helper {
    domain: Weak<Shared>,
    /// The thread is there. Changed under the domain's lock.
    running: Arc<AtomicBool>,
}

impl Helper {
    /// Of a domain.
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self { domain: Arc::downgrade(shared), running: Arc::default() }
    }
}

impl Helps for Helper {
    fn help(&self) {
        if self.running.swap(true, Ordering::Relaxed) {
            return;
        }
        let (domain, running) = (self.domain.clone(), Arc::clone(&self.running));
        let thread = std::thread::Builder::new().name("causeway-fi".to_owned());
        if quietly(|| thread.spawn(move || run(&domain, &running))).is_err() {
            // The application's calls go on with it.
            self.running.store(false, Ordering::Relaxed);
        }
    }
}

/// What a look found.
enum Found {
    /// No message waits for a connect.
    Nothing,
    /// A connect goes on.
    Waiting,
    /// One ended.
    Ended,
}

fn run(domain: &Weak<Shared>, running: &AtomicBool) {
    let (mut pause, longest) = HELP_PAUSE;
    loop {
        std::thread::sleep(pause);
        let Some(shared) = domain.upgrade() else { return };
        match shared.state.claimed(|state| look(state, running)) {
            Found::Nothing => return,
            Found::Waiting => pause = pause.saturating_mul(2).min(longest),
            Found::Ended => pause = HELP_PAUSE.0,
        }
    }
}

fn look(state: &mut State, running: &AtomicBool) -> Found {
    let waiting = |state: &State| -> Vec<usize> {
        let eps = (0_usize..).zip(&state.eps);
        let eps = eps.filter(|(_, ep)| ep.as_ref().is_some_and(|ep| ep.rdm.waits()));
        eps.map(|(at, _)| at).collect()
    };
    let before = waiting(state);
    for at in &before {
        let _ = state.with_ep_unseen(*at, |ep, env| {
            ep.rdm.endpoint.look();
            ep.rdm.progress(env);
            Ok(())
        });
        // Those who sleep look again: what came for them may have been taken here.
        state.stir(*at);
    }
    let after = waiting(state);
    if after.is_empty() {
        running.store(false, Ordering::Relaxed);
        Found::Nothing
    } else if after.len() < before.len() {
        Found::Ended
    } else {
        Found::Waiting
    }
}
