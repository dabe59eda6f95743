//! The socket service: virtio-vsock between guests of a group, and between guests and host
//! processes.
//!
//! After V4VSockets: a trusted party copies the data once and stamps the sender's address. Here the
//! guest's own AF_VSOCK is the interface, the dispatcher is the trusted party, and the copy goes
//! from the sender's transmit descriptors directly into the receiver's receive descriptors. The
//! service stands above the fabric, which owns ports and rings and calls it for each queue with
//! work. It does not connect groups: both ends of a connection are in one group, on this host or on
//! a directly linked one. Datagram sockets are not supported. Connections end when the daemon is replaced.
//!
//! [`SERVICE`] registers the service, and [`Socket`] is its part of a shard.
//!
//! ```no_run
//! use causeway_fabric::{Fabric, Options};
//! use causeway_model::{Command, Name};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::start(&[causeway_socket::SERVICE], Options::default())?;
//! let group: Name = "blue".parse()?;
//! fabric.handle().call(Command::GroupAdd(group.into()))?;
//! // Ports of the kind "vsock" can be added to the group now.
//! fabric.wait()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `transmit` | packets of guests: checks, resolution to a connection, delivery |
//! | `deliver` | a guest's receive buffers |
//! | `control`, `forwards` | commands of the operator: connections, forwards |
//! | `host`, `host_messages`, `connect_line` | connections with host processes |
//! | [`remote`] | connections with guests of linked daemons |
//! | [`multiplex`] | reliable channels between two daemons, free of I/O |
//! | `stall` | receivers without room: limits of queued data, stopped senders |
//! | [`capture`] | copies of packets for captures |
//! | [`conn`] | state machine of a connection, free of I/O |
//! | [`credit`] | flow-control arithmetic and violations |
//! | [`table`] | connections, found by the addresses of a packet |
//! | [`socket_port`] | state of a port: queued deliveries, held chains, quotas |
//! | [`guest_cid`] | clones of one snapshot: the CID of the guest and that of the port |
//! | [`deadline`], `expiry`, `credit_requests` | times of connections and credit requests |
//! | [`stall_tracker`] | time for which senders stand still |
//! | [`unread`] | packets that a receiver's kernel still queues |
//! | [`pack`] | copies of data outside of descriptors, for receivers without room |
//! | [`ledger`], `resume` | open connections across a restart of the daemon |
//! | `service`, `port_batch` | the part of a shard: turns, ticks and batches |
//! | `trace` | questions about the destination of a connect |
//! | [`counters`] | counters of a port |
//! | [`limits`] | every bound, with the effect at the limit |
//!
//! # Threads, limits, repeats
//! All modules run in the dispatcher's thread that serves the group, except the controller
//! (`control`, `forwards`): it runs in the threads of the control socket and asks the shards. At a
//! limit a connect is answered with a reset, data waits in the sender's ring, or
//! connections that make no progress are reset ([`limits`]). A connect from the addresses of an
//! open connection ends that connection and begins a new one; a repeated connect is passed on
//! again. A CID belongs to one port of the group; a second port with it is refused.
//!
//! # When a receiver has no room
//! Data waits in the sender's own descriptors, up to a part of its ring; then in a bounded staging
//! buffer; then the sender's ring stops. A receiver that makes too little progress while a sender
//! stands still for it loses the connections on which data of this sender waits (`stall`), so that
//! it cannot delay the sender's other peers for long. A receiver has no room if it has no receive
//! buffers, and also if its kernel would queue more packets of a connection than it accounts for
//! ([`unread`]).
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

pub mod capture;
pub mod conn;
mod connect_line;
mod control;
pub mod counters;
pub mod credit;
mod credit_requests;
pub mod deadline;
mod deliver;
mod expiry;
mod forwards;
pub mod guest_cid;
mod host;
mod host_messages;
pub mod ledger;
pub mod limits;
mod metrics;
pub mod multiplex;
pub mod pack;
mod port_batch;
pub mod remote;
mod resume;
mod service;
pub mod socket_port;
mod stall;
pub mod stall_tracker;
pub mod table;
mod trace;
mod transmit;
pub mod unread;

pub use service::Socket;

use causeway_fabric::ServiceRegistration;
use causeway_fabric::carrier::CARRIES_SOCKETS;
use causeway_model::TraceDefinition;
use causeway_model::commands::trace::Connect;

/// Kinds of ports of the service.
const KINDS: &[&causeway_model::KindDefinition] = &[&causeway_model::port::VSOCK];

/// The questions about the destination of traffic that the service answers.
const TRACES: &[TraceDefinition] = &[TraceDefinition::new::<Connect>()];

/// Registers the service with a fabric. Its commands list connections, and add, delete and list
/// forwards; the fabric keeps the rules.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(Socket::new()))
        .with_kinds(KINDS)
        .with_capabilities(&[CARRIES_SOCKETS])
        .with_controller(|| Box::new(control::SocketController::default()))
        .with_sections(forwards::SECTIONS)
        .with_nouns(control::NOUNS)
        .with_traces(TRACES)
        .with_counters(counters::TABLES)
        .with_metrics(metrics::METRICS);
