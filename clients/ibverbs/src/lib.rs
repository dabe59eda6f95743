//! RDMA adapters of a process by libibverbs, which is loaded at run time: one binary serves hosts
//! without the library and guests with an adapter.
//!
//! [`Adapter`] opens a device, [`ProtectionDomain`] registers memory ([`Registration`]),
//! [`CompletionQueue`] reports the ends of work requests and raises events on a descriptor, and
//! [`QueuePair`] is one end of a reliable connection. The crate sends no message of its own and
//! interprets none.
//!
//! # Versions
//! The library is `libibverbs.so.1` of rdma-core 31 or later (symbols up to `IBVERBS_1.11`); Debian
//! 11 and later have it. The declarations here are our own; a test compares them with the installed
//! headers. Only the fast calls (post, poll, arm) go through the operations of the opened device,
//! as the inline functions of the headers do.
//!
//! # Threads
//! libibverbs locks its queues, so every object may be used from any thread. Calls that list, open,
//! query, create, change or destroy objects block: these are system calls, and commands of the
//! adapter. Posting, polling, arming and taking events do not.
//!
//! # Fork
//! Loading calls `ibv_fork_init`. With Linux 5.12 or later `fork(2)` copies pinned pages and the
//! call has no effect; with an older kernel a child has no access to registered memory. Objects
//! belong to the process that created them: in a child process a drop frees nothing, since the
//! kernel's objects are still those of the parent. A child keeps the device's descriptor until it
//! ends or executes another program.
//!
//! # Limits
//! A queue pair has one scatter element per work request; sends carry at most [`INLINE_BYTES_MAX`]
//! bytes, which are copied when the request is posted. Errors name the call and keep the errno.
//!
//! # Example
//! ```no_run
//! use causeway_ibverbs::{Adapter, CompletionQueue, ProtectionDomain, QueuePair};
//!
//! # fn main() -> Result<(), causeway_ibverbs::Error> {
//! let adapter = Adapter::open("mlx5_0")?;
//! let port = adapter.port(1)?;
//! let gid = adapter.roce_v2_gid(1)?;
//! let domain = ProtectionDomain::new(&adapter)?;
//! let completions = CompletionQueue::new(&adapter, 64)?;
//! let pair = QueuePair::new(&domain, &completions, 32)?;
//! pair.connect(&port, &gid, pair.number())?;
//! pair.send(1, b"hello to itself", None)?;
//! # Ok(())
//! # }
//! ```
#![allow(unsafe_code, reason = "calls of a C library, and its structures")]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

mod abi;
mod adapter;
mod completion;
mod error;
mod library;
mod queue_pair;
mod registration;

pub use adapter::{Adapter, Gid, Port, adapters};
pub use completion::{Completion, CompletionQueue};
pub use error::Error;
pub use queue_pair::{INLINE_BYTES_MAX, QueuePair};
pub use registration::{ProtectionDomain, Registration};
