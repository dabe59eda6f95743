//! The service of TAP interfaces: the host itself, containers, and programs behind a bridge as
//! members of a group.
//!
//! A port of kind `tap` opens a TAP interface of the host (`causeway_host::net::tap`), or creates
//! it. Frames that the host sends by the interface are frames of the port, and frames of the group
//! to the port's address are received by the host at the interface. The port is a station of the
//! service that forwards the group's frames (`causeway_fabric::station`): routes, captures and
//! traces name it, no other member may send from its address, and with `learn` a whole bridge is
//! behind it. Unfinished checksums and segments cross in both directions: a TCP segment of 64 KiB
//! from a guest reaches the host's stack uncut.
//!
//! ```text
//!  group ── ethernet ── carrier: writev ──▶ ┌───────────┐ ──▶ receive path of the kernel
//!           (shard A)                       │ interface │
//!  group ◀─ mailbox ◀── receive: read ◀──── └───────────┘ ◀── programs, bridge, tc
//!                       (shard B)
//! ```
//!
//! # Place
//! Fifth floor, beside `ethernet`, which it does not know. `receive` runs in the dispatcher of the
//! TAP shard, `carrier` in that of the forwarding service; both share one descriptor. The shard's
//! epoll wakes the dispatcher; a busy interface is polled.
//!
//! # Budget
//!
//! | per frame | system calls | copies | wake-ups |
//! |---|---|---|---|
//! | from the group to the interface | 1 `writev` | 1, by the kernel from guest memory | those of the kernel's receivers |
//! | from the interface to the group | 1 `read`, and 1 per burst that finds no frame | 2: by the kernel, and to the receiver | 1 per burst, if the dispatcher sleeps; 1 per batch, if `ethernet` runs elsewhere and sleeps |
//!
//! A call reads at most the budget of the shard, in frames, and ends with its turn; a batch has at
//! most 64 frames and about 200 KiB, and at most three batches of a port are under way
//! ([`limits`]).
//!
//! # Limits and errors
//! An interface that is missing, in use or not permitted does not fail the port: the port is in the
//! state `connecting`, with a warning that names the remedy, and opens the interface once it can.
//! One descriptor is opened per interface: several queues of one interface are not used. The daemon
//! needs `/dev/net/tun`; CAP_NET_ADMIN only to create interfaces, to open those of another user,
//! and to set IP addresses. The daemon enters no other network namespace: an interface is created
//! in its own.
//!
//! ```
//! use causeway_fabric::Service;
//!
//! // A fabric creates the service by its registration, one instance for each group.
//! let service: Box<dyn Service> = Box::new(causeway_tap::TapService::new());
//! assert_eq!(service.deadline_ns(), None);
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

mod carrier;
pub mod limits;
mod port;
mod receive;
mod service;
mod stats;

pub use service::TapService;

use causeway_fabric::ServiceRegistration;
use causeway_fabric::station_control::StationControl;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::KindDefinition] = &[&causeway_model::port::TAP];

/// The registration of the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(TapService::new()))
        .with_kinds(KINDS)
        .with_controller(|| Box::new(StationControl::new(service::NAME)))
        .with_counters(stats::TABLES);
