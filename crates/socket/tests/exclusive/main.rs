//! Tests that measure or limit the whole process: they run one at a time, apart from the crate's
//! other tests.

#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod idle;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a guard that keeps the program's other tests waiting.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
