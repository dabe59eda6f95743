//! Safe interfaces to Linux system calls that `rustix` and `std` do not cover, or not safely
//! against a hostile peer.
//!
//! - [`fd`]: receives descriptors from other processes, accounts them to their senders and closes
//!   them where a slow close blocks no other peer.
//! - [`net`]: packet sockets with their rings and filters, TAP interfaces, batched sends, socket
//!   options of UDP and TCP, and I/O between sockets and guest memory.
//! - [`watchdog`]: interrupts a thread that a peer blocks in a write.
//!
//! The crate is on floor 2: it imports `causeway-memory` and nothing else of the workspace.
//! Attachments, links, MX NICs, and stream and TAP ports call it for messages and frames that enter
//! or leave the process by a descriptor. It parses no protocol, chooses no destination and holds no
//! configuration. It needs `unsafe` inside; its interfaces are safe.
//!
//! # Threads and limits
//! Calls run in the caller's thread, and none is meant to wait for a peer: a write that a peer
//! blocks is interrupted ([`watchdog`]). The crate starts threads for closes that may block
//! (`causeway-closer`, `causeway-reaper`), and one for each [`Watchdog`]. A peer with more than 128
//! pending closes is *behind*: [`Account::is_behind`] reports it, and the callers refuse its
//! connections and descriptors. [`limits`] has the bounds and their effects.
//!
//! # Main types
//! [`ReceivedFd`] is a descriptor that another process sent, [`Account`] the peer that it is
//! charged to. [`net::socket::PacketSocket`] is a packet socket, [`net::receiver::PacketReceiver`]
//! its receive side, [`net::send::OutgoingFrame`] a frame to send. [`AppMemory`] is application
//! memory that is sent from its place. [`Watchdog`] guards the calling thread.
//!
//! # Example
//! ```
//! use std::os::fd::OwnedFd;
//! use std::os::unix::net::UnixStream;
//!
//! use causeway_host::Account;
//! use causeway_host::fd::receive::UntrustedSocket;
//!
//! let (ours, mut theirs) = UnixStream::pair()?;
//! std::io::Write::write_all(&mut theirs, b"hello")?;
//! // Descriptors that arrive on this socket are charged to an account of its own.
//! let socket = UntrustedSocket::from(OwnedFd::from(ours)).charged_to(Account::unique());
//! let (mut bytes, mut fds, mut is_odd) = ([0; 16], Vec::new(), false);
//! let got = socket.receive(&mut bytes, &mut fds, &mut is_odd)?;
//! assert_eq!(&bytes[..got.bytes], b"hello");
//! assert!(fds.is_empty() && !is_odd && !socket.giver().is_behind());
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code, reason = "system calls, and what the kernel writes into private memory")]
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

pub mod fd;
pub mod limits;
pub mod net;
pub mod watchdog;

pub use fd::{Account, ReceivedFd};
pub use net::{AppMemory, AppMemoryPiece};
pub use watchdog::Watchdog;
