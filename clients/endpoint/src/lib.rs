//! An MX endpoint in a process, below any API: shared by `libmyriexpress.so` and the libfabric
//! provider.
//!
//! The crate attaches an endpoint to a NIC, by its socket or by an adapter of the machine, builds
//! its paths to peers, runs its matching engine within calls, and lets threads sleep until there is
//! work. It has no API of MX or libfabric, and does not match messages itself
//! ([`causeway_message::library`] does). It starts at most one thread, behind an adapter: the
//! thread counts changes of the application's memory ([`MemoryWatch`]). An endpoint has no lock of
//! its own: the API library serialises its calls. [`limits`] has the bounds.
//!
//! A number that is open already is refused by the daemon ([`Error::Taken`]). At a limit a call
//! fails with [`Error`], a request ends with a status, or it waits until there is room.
//!
//! # Place
//! Above `message` (matching) and `mxoe` (packets), below the API libraries. A message of the
//! application passes [`Endpoint`], then the matching engine, then [`paths`]: a channel to a peer
//! of this host, or rings to the NIC side for other hosts, and for peers of this host without a
//! channel. The NIC side runs in the daemon, or here (`bypass`) if the NIC gives its processes a
//! packet socket (direct mode).
//!
//! # Main types
//! | type | content |
//! |---|---|
//! | [`Endpoint`] | matching engine, paths and waiter of one endpoint |
//! | [`nic::Conversation`] | commands to the daemon of a NIC and its answers |
//! | [`connection::Connection`] | the way to the daemon: a socket, or an adapter of a guest |
//! | [`waiter::Waiter`] | descriptors on which threads sleep |
//! | [`lock::Guarded`] | lock without atomic operations in a process with one thread |
//!
//! # Example
//! ```no_run
//! use std::time::Duration;
//!
//! use causeway_endpoint::limits::ENDPOINT_ANY;
//! use causeway_endpoint::{Endpoint, OpenOptions};
//! use causeway_message::library::Partner;
//!
//! let opening = OpenOptions { key: 7, ..OpenOptions::default() };
//! let mut endpoint = Endpoint::<Vec<u8>>::open(0, ENDPOINT_ANY, opening)?;
//! let Endpoint { library, paths, .. } = &mut endpoint;
//! let receive = library.irecv(paths, 5, u64::MAX, 0, vec![0; 8])?;
//! library.isend(paths, Partner::SELF, 5, 0, b"hello".to_vec())?;
//! assert!(endpoint.wait_for(receive, Duration::from_secs(1)).is_some());
//! endpoint.finish();
//! # Ok::<(), causeway_endpoint::Error>(())
//! ```
#![allow(unsafe_code, reason = "locks, descriptors in a child process, other processes' memory")]
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

mod adapter;
mod bypass;
mod clock;
pub mod connection;
mod endpoint;
mod error;
pub mod limits;
pub mod lock;
pub mod nic;
pub mod paths;
pub mod place;
mod process_memory;
mod staging;
pub mod threads;
mod unknown_nics;
pub mod waiter;

pub use clock::now;
pub use endpoint::{Endpoint, OpenOptions};
pub use error::Error;
pub use staging::clean as clean_registrations;
pub use staging::{MemoryWatch, WatchedRange};
