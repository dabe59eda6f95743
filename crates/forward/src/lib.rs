//! Forwards stream connections between TCP addresses, Unix sockets and AF_VSOCK ports of guests.
//!
//! The library of `causeway forward`, which runs in a process of its own:
//!
//! ```text
//!  client ──▶ listener ─┐                       ┌─▶ TCP, Unix socket
//!                       ├─▶ connection (Relay) ─┤
//!  guest ───▶ host      │   two directions,     └─▶ host socket: CONNECT PORT, OK ──▶ guest
//!             socket_P ─┘   64 KiB each
//! ```
//!
//! A [`Forward`] has a source, at which it listens, and a target, to which it connects for each
//! accepted connection. [`Relay`] serves all forwards of a process on one thread. Half-close is
//! passed on in each direction, a slow receiver stops its sender, and a failed connection ends
//! without an orderly end of data, so that neither side takes a cut-off stream for a whole one.
//! The AF_VSOCK side is the host socket of causewayd's port, by the convention of Firecracker and
//! Cloud Hypervisor; the crate opens no AF_VSOCK socket and no connection to causewayd's control
//! socket. SEQPACKET and datagrams are not forwarded.
//!
//! A Unix socket that a process serves already, and a TCP source without a free address, are
//! refused. A process has at most 256 forwards, more of which are an error, and 1,024 connections
//! ([`Relay::set_connections_max`] sets fewer): further clients wait in the kernel's queue, of 128
//! at a TCP source and `net.core.somaxconn` at a Unix socket. A target that does not answer within
//! 10 s fails its connection alone. [`limits`] has the bounds.
//!
//! | module | content |
//! |---|---|
//! | `address` | resolved addresses: host sockets |
//! | `listener` | sources |
//! | `dial` | connections to targets, the handshake with a host socket |
//! | `pipe` | one direction of a connection |
//! | `connection` | a connection: dial, then two pipes |
//! | `relay` | the thread that serves them |
//! | [`stdio`] | a single connection over standard input and output |
//! | [`sandbox`] | restrictions of the process |
//! | `error` | errors of addresses, sources and connections |
//! | [`limits`] | limits |
//!
//! # Example
//! ```
//! use causeway_forward::SocketAddress;
//!
//! let source: SocketAddress = SocketAddress::resolve(&"tcp:127.0.0.1:2222".parse()?, |_| None)?;
//! assert_eq!(source.to_string(), "tcp:127.0.0.1:2222");
//! # Ok::<(), Box<dyn std::error::Error>>(())
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

mod address;
mod connection;
mod dial;
mod error;
pub mod limits;
mod listener;
mod pipe;
mod relay;
pub mod sandbox;
pub mod stdio;

pub use address::SocketAddress;
pub use causeway_model::ForwardAddress as Address;
pub use error::ForwardError;
pub use relay::{Counters, Event, Forward, Relay, TargetFailure};
