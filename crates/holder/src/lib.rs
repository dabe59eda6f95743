//! The holder keeps frontends connected while causewayd is away.
//!
//! Some frontends never reconnect (QEMU's vhost-user-vsock and vfio-user-pci). For a *held* port
//! the process `causeway-holder` listens in place of causewayd ([`holder`]), forwards each
//! frontend's messages to the port's inner socket, at which causewayd listens, and records the
//! state that the messages set up: for vhost-user one message at a time ([`relay`], [`record`]),
//! for vfio-user many ([`vfio`]). Memory and eventfds are passed to causewayd as descriptors: of
//! the data path only doorbells that a VMM sends as messages cross this process.
//!
//! When causewayd ends, frontends notice nothing but a slow backend. The next causewayd reports the
//! ports that it serves ([`client`], [`protocol`]) and gets each frontend's state replayed; rings
//! continue at the indices in guest memory ([`replay`]). For frontends without an inflight region
//! the holder keeps one, so that chains that causewayd had popped and not completed are processed
//! exactly once ([`inflight`]). Meanwhile the holder answers vfio-user frontends by itself
//! ([`vfio::away`]).
//!
//! # Limits
//! 1,024 ports with one frontend each; other numbers are in [`limits`]. A second frontend of a port
//! waits up to 500 ms for the first to leave, and is disconnected then. One causewayd is served at
//! a time: a second one is refused, and the first keeps its ports. Without causewayd and frontends
//! for 60 s the holder ends. A frontend that violates the protocol, and a causewayd that sends
//! invalid replies, lose the connection in question and no other. The holder does not interpret
//! rings, does not move traffic, and does not restart causewayd. Its own end disconnects all
//! frontends.
//!
//! # Threads
//! The holder's main thread serves the control connection and accepts frontends ([`holder`],
//! [`port`], [`listen`]); each connected frontend has a thread, which runs [`relay`] or [`vfio`].
//! [`client`] runs in causewayd, in the thread that calls it, and blocks for at most 5 s for an
//! answer (30 s while causewayd starts), and 10 s for the start of a holder.
//!
//! [`inner`] is the relay's connection to causewayd, [`route`] decides which causewayd it reaches
//! and when, [`process`] is the process of a causewayd, and [`deaths`] counts its ends during a
//! frontend's message, so that a frontend that crashes causewayd is disconnected.
//!
//! # Example
//!
//! causewayd's side: connect to the holder of a run directory and register a port.
//!
//! ```no_run
//! use std::path::Path;
//! use causeway_holder::client::{Client, start};
//! use causeway_holder::directory::holder_dir;
//! use causeway_holder::protocol::{HeldPort, HeldProtocol};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = holder_dir(Path::new("/run/causeway"));
//! let program = Path::new("/usr/bin/causeway-holder");
//! let mut holder = Client::reach(&dir, |dir| start(dir, program))?;
//! holder.add(HeldPort {
//!     name: "vsock3".into(),
//!     public: "/run/causeway/vsock3".into(),
//!     inner: dir.join("vsock3"),
//!     protocol: HeldProtocol::VhostUser,
//!     users: None,
//!     queues: 3,
//!     ring_size: 1024,
//!     device: "vsock 3".into(),
//! })?;
//! holder.synced()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
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

pub mod client;
pub mod deaths;
pub mod directory;
pub mod holder;
pub mod inflight;
pub mod inner;
pub mod limits;
pub mod listen;
pub mod port;
pub mod process;
pub mod protocol;
pub mod record;
pub mod relay;
pub mod replay;
pub mod route;
mod threads;
pub mod vfio;
