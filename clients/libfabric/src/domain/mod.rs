//! A domain without the C interface around it: the endpoints of `rdm` with their queues and counters
//! behind one lock, and the threads that wait for them.
//!
//! `shell` opens and closes the objects, and calls `rdm` through [`DomainState`]; completions come
//! out in queues and counters. The module reads no memory of the application but what `rdm` is
//! lent.
//!
//! # Limits
//! All objects of a domain share one lock, so calls of several threads take turns; a call that
//! sleeps or waits for a close releases it meanwhile. Two threads may run beside the application:
//! `progress_thread` (automatic progress) or `connect_thread` (slow connects).
//!
//! # Modules
//! From the ground up: `wait_fd` is the descriptor that threads sleep on, `objects` the state of
//! endpoints, queues and counters, `route` moves completions to queues and counters, `wait_set`
//! requests wake-ups of endpoints, `auto_progress` is the record of the progress thread, and
//! [`DomainState`] has them all. Above the state, `wait` sleeps, `progress_thread` and
//! `connect_thread` make progress, and `process` handles `fork(2)`.

mod auto_progress;
mod connect_thread;
mod objects;
pub mod process;
pub mod progress_thread;
mod route;
mod state;
pub mod wait;
mod wait_fd;
mod wait_set;

pub use connect_thread::ConnectThread;
pub use objects::{CntrState, CqBinding, CqState, EpState, get, insert};
pub use state::{DomainShared, DomainState, FastCompletion, WaitTarget};
pub use wait_fd::WaitFd;
