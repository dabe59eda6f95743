//! The Ethernet service: a virtio-net switch between the ports and links of one group, after
//! VNET/P.
//!
//! The service pops frames from transmit queues (virtio 1.3, 5.1), copies and checks their headers
//! once in private memory (`headers`), resolves the egress from the address table and the routes
//! (`classify`, `forward`), and copies the payload straight from the sender's descriptors into the
//! receivers' buffers (`deliver`). A frame whose receiver has no buffer waits in a bounded queue
//! (`pending`), for 100 ms at most; a copy for one of several receivers does not wait.
//! Links to other hosts are further egresses (`uplink`).
//!
//! # Place
//!
//! Fifth floor: above `ring`, `memory` and `fabric`, beside the other services, below the daemon.
//! The dispatcher owns one [`Ethernet`] for each group and calls it through
//! `causeway_fabric::Service`; the control socket reaches it through one controller (`control`) and
//! typed requests (`request`). On the way of a frame, the crate stands between the sender's
//! transmit ring and the receiver's receive ring.
//!
//! # Limits
//!
//! The crate opens no sockets and maps no memory, and no frame crosses groups. It encrypts and
//! encapsulates nothing: that is the work of a link's carrier. The tables and queues have named
//! bounds in [`limits`], in `causeway_fabric::limits` (the mailbox of links) and in
//! `causeway_model::limits` (routes): a frame beyond one is dropped and counted by its reason, an
//! address is not learnt, a route, link or capture of the operator is refused. A second port with
//! the same MAC address, and a route that exists, are refused. [`features`] has the feature bits
//! that a guest is offered.
//!
//! # Main types
//!
//! - [`SERVICE`] registers the service with a fabric.
//! - [`table::AddressTable`] maps MAC addresses to ports and peers; [`route::RouteTable`] overrides it.
//! - [`offload`] completes checksums and cuts segments that a receiver did not negotiate.
//! - [`counters::DropReason`] names each reason for a dropped frame.
//!
//! # Example
//!
//! ```
//! use causeway_ethernet::table::{AddressTable, Learnt};
//!
//! let mut table = AddressTable::new();
//! table.add([2, 0, 0, 0, 0, 1], 7)?;
//! assert_eq!(table.learn([2, 0, 0, 0, 0, 9], 7, 0), Learnt::New);
//! assert_eq!(table.lookup([2, 0, 0, 0, 0, 9], 1), Some(7));
//! # Ok::<(), causeway_ethernet::table::AddressInUse>(())
//! ```
//!
//! A daemon starts the service with `Fabric::start(&[causeway_ethernet::SERVICE], options)`.

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

mod batch;
mod classify;
mod control;
pub mod counters;
mod deliver;
mod duplicates;
mod fast_path;
pub mod features;
mod flood_sequence;
mod forward;
mod frame_store;
mod guest_mac;
mod headers;
pub mod limits;
mod link_inbox;
mod link_rx;
mod link_tx;
mod mirror;
mod noun;
pub mod offload;
mod pending;
mod pending_queue;
mod port;
mod receivers;
mod request;
mod resume;
mod resume_link;
pub mod route;
mod section;
mod service;
mod spare_chains;
mod spoofing;
mod standby;
mod station;
pub mod table;
mod trace;
mod transmit_turn;
mod uplink;
mod wakeup;

pub use service::Ethernet;

use causeway_fabric::ServiceRegistration;
use causeway_fabric::carrier::FORWARDS_FRAMES;
use causeway_model::TraceDefinition;
use causeway_model::commands::trace::Frame;

/// The kinds of ports that the service serves.
const KINDS: &[&causeway_model::KindDefinition] = &[&causeway_model::port::NET];

/// The questions about the destination of traffic that the service answers.
const TRACES: &[TraceDefinition] = &[TraceDefinition::new::<Frame>()];

/// Registers the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(Ethernet::new()))
        .with_kinds(KINDS)
        .with_controller(|| Box::<control::EthernetController>::default())
        .with_capabilities(&[FORWARDS_FRAMES])
        .with_nouns(noun::NOUNS)
        .with_sections(section::SECTIONS)
        .with_traces(TRACES)
        .with_counters(counters::TABLES);
