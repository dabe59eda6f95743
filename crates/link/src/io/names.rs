//! Resolution of peers' host names, outside the dispatcher: a resolver may block for seconds.
//!
//! [`RESOLVER_THREADS`] (4) threads serve the whole process; at most [`LOOKUPS_WAITING_MAX`]
//! (4,096) lookups wait, and a further lookup fails at once. The daemon's resolver is
//! [`causeway_model::draft::host::resolve`], with at most 16 addresses in the order of the host;
//! further addresses are ignored. Answers arrive in any order, in a thread of the resolver:
//! `super::pending` sends them to the shard of links by a mailbox. A lookup cannot be cancelled and
//! has no timeout of its own. If a thread could not be started, an error is logged; if none could,
//! every lookup fails at once, as if too many waited: links keep the addresses that they have.
//!
//! The daemon calls [`start`] before it creates dispatchers, because threads inherit the sandbox of
//! the thread that creates them. The module does not cache or retry; `super::pending` does.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use super::limits::{LOOKUPS_WAITING_MAX, RESOLVER_THREADS};

/// The addresses of a host, the preferred address first, or the reason why there are none.
pub type ResolverAnswer = Result<Vec<SocketAddr>, String>;

/// A function that resolves a host and port to addresses; may block.
pub type NameResolver = fn(&str, u16) -> ResolverAnswer;

/// A queued lookup.
struct QueuedLookup {
    host: String,
    port: u16,
    resolver: NameResolver,
    /// Receives the answer: in a thread of the resolver, or in that of [`look_up`] if the lookup is
    /// refused.
    answer: Box<dyn FnOnce(ResolverAnswer) + Send>,
}

/// The queue of lookups; set once the threads run.
static LOOKUPS: OnceLock<SyncSender<QueuedLookup>> = OnceLock::new();

/// Starts the threads, unless they run already.
pub fn start() {
    LOOKUPS.get_or_init(|| {
        let (sender, receiver) = sync_channel(LOOKUPS_WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..RESOLVER_THREADS {
            let receiver = receiver.clone();
            let thread = thread::Builder::new().name("resolver".into());
            if let Err(error) = thread.spawn(move || run(&receiver)) {
                log::error!(error:% = error; "cannot start a resolver thread: names of peers are not resolved");
            }
        }
        sender
    });
}

/// Serves lookups until the queue is dropped.
fn run(lookups: &Mutex<Receiver<QueuedLookup>>) {
    loop {
        // The lock is held while waiting: one thread waits for a lookup, the others for the lock.
        let lookup = lookups.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(QueuedLookup { host, port, resolver, answer }) = lookup else { return };
        answer(resolver(&host, port));
    }
}

/// Resolves `HOST:PORT`. `answer` is called in a thread of the resolver, or with an error in this
/// thread, before the function returns, if `place` has no port or too many lookups wait.
pub fn look_up(
    place: &str,
    resolver: NameResolver,
    answer: impl FnOnce(ResolverAnswer) + Send + 'static,
) {
    start();
    let split = place.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let Some((host, port)) = split else {
        return answer(Err(format!("{place:?}: expected HOST:PORT")));
    };
    let lookup = QueuedLookup { host: host.to_owned(), port, resolver, answer: Box::new(answer) };
    let refused = match LOOKUPS.get() {
        Some(lookups) => lookups.try_send(lookup).err(),
        None => return,
    };
    if let Some(error) = refused {
        let (std::sync::mpsc::TrySendError::Full(lookup)
        | std::sync::mpsc::TrySendError::Disconnected(lookup)) = error;
        (lookup.answer)(Err("too many names are being resolved".to_owned()));
    }
}
