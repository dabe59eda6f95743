//! The service of ports on sockets: Ethernet frames over stream and datagram sockets of VMMs,
//! user-mode network stacks and emulators.
//!
//! A port of kind `stream` speaks QEMU's framing, each frame behind its length in 4 bytes, on a
//! Unix or TCP socket: QEMU `-netdev stream`, passt, gvproxy. A port of kind `dgram` sends and
//! receives each frame as a datagram, on a Unix socket (vfkit, krunkit, libkrun with their `VFKT`
//! datagram, QEMU `-netdev dgram`) or by UDP (GNS3, dynamips, ubridge). Each port is a station of
//! the service that forwards the group's frames, so that rules of addresses, routes and captures
//! apply as to other ports. Guests need no shared memory; the price is a copy and a system call
//! more than with vhost-user.
//!
//! # Threads
//! The dispatcher of the port's shard receives ([`StreamService`]); the thread of the forwarding
//! service sends, through a carrier that shares a bounded queue under a lock. No call blocks.
//!
//! # Budget
//! From the peer: two copies (socket to batch, batch to the receiver), one system call for up to
//! 128 KiB of a stream or for one datagram. To the peer: two copies (sender's memory to queue,
//! queue to socket), one system call per turn or 65,000 bytes for a stream, one for 64 datagrams.
//!
//! # Limits and errors
//! Offloads: none; the forwarding service cuts segments and completes checksums. A peer that breaks
//! the framing loses its connection, with the reason at the port. A slow peer loses frames,
//! counted; a slow group makes the peer wait. [`limits`] has the bounds. Nothing here is encrypted.
//!
//! ```
//! use causeway_fabric::Service;
//! use causeway_stream::framing::FrameQueue;
//!
//! // A fabric creates the service by its registration, one instance for each group.
//! let service: Box<dyn Service> = Box::new(causeway_stream::StreamService::new());
//! assert_eq!(service.deadline_ns(), None);
//! // The framing is sans-I/O.
//! let mut queue = FrameQueue::new(true);
//! let read = |room: &mut [u8]| Ok::<(), ()>(room.copy_from_slice(&[1, 2, 3]));
//! assert_eq!(queue.push(3, read), Ok(()));
//! assert_eq!(queue.waiting(), [0, 0, 0, 3, 1, 2, 3]);
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

mod bound_path;
mod connector;
mod counters;
mod datagram_end;
pub mod framing;
mod ingress;
pub mod limits;
mod output;
mod port;
mod service;
mod socket;
mod stream_end;

pub use service::StreamService;

use causeway_fabric::ServiceRegistration;
use causeway_fabric::station_control::StationControl;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::KindDefinition] =
    &[&causeway_model::port::STREAM, &causeway_model::port::DGRAM];

/// The registration of the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(StreamService::new()))
        .with_kinds(KINDS)
        .with_controller(|| Box::new(StationControl::new(service::NAME)))
        .with_counters(counters::TABLES);
