//! Cost of frames: the table "What a frame costs" of docs/design/ethernet.md.
//!
//! The tests observe all dispatchers of the process: they run one at a time, apart from the
//! crate's other tests.

mod budget;
#[path = "../common/mod.rs"]
mod common;
mod touched;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a guard that keeps the program's other tests waiting.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
