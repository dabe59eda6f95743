//! What is done once in a process, and what becomes of domains in its children.
//!
//! A child gets a copy of all memory and the same descriptors. It drops what it got of the
//! endpoints, so that no partner takes it for its parent; it may open domains itself.

use std::ffi::c_int;
use std::sync::{Arc, Once, Weak};

use causeway_endpoint::lock::Guarded;
use causeway_endpoint::{board, lock};

use super::state::Shared;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

/// All domains of this process.
static DOMAINS: Guarded<Vec<Weak<Shared>>> = Guarded::new(Vec::new());

/// Before the first domain.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lock::find_out();
        // SAFETY: the functions are there as long as the process is (the library is never
        // unloaded), and take locks that the thread that has the child does not hold: nothing of
        // the application runs while one is held.
        unsafe { pthread_atfork(Some(before), Some(parent), Some(child)) };
    });
}

/// There is one more.
pub fn note(shared: &Arc<Shared>) {
    DOMAINS.with(|domains| {
        domains.retain(|known| known.strong_count() > 0);
        domains.push(Arc::downgrade(shared));
    });
}

/// All that are there. Only for who holds the lock of [`DOMAINS`].
fn each(run: impl Fn(&Shared)) {
    // SAFETY: the lock is held, by `before` or for good in a child.
    let domains = unsafe { DOMAINS.unlocked() };
    domains.iter().filter_map(Weak::upgrade).for_each(|shared| run(&shared));
}

extern "C" fn before() {
    DOMAINS.lock().take();
    each(|shared| shared.state.lock().claim());
    board::lock().take();
}

extern "C" fn parent() {
    board::lock().give();
    each(|shared| shared.state.lock().end_claim());
    DOMAINS.lock().give();
}

extern "C" fn child() {
    board::lock().give();
    each(|shared| {
        shared.state.lock().end_claim();
        shared.state.with(|state| {
            for ep in state.eps.iter_mut().filter_map(Option::take) {
                ep.rdm.abandon();
            }
        });
    });
    DOMAINS.lock().give();
    // Whether its parent did counts for what it opens itself.
    causeway_channel::allow_fences();
}
