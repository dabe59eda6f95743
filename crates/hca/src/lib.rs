//! The service of host channel adapters: RDMA verbs and Ethernet for guests, through one PCI
//! function.
//!
//! A port of kind `hca` is an emulated ConnectX virtual function ([`causeway_mlx5`]) that a guest's
//! VMM attaches by vfio-user ([`causeway_attach::vfio_user`]). The guest's unmodified driver posts
//! work by stores to its own memory; the dispatcher polls these queues, so posting, polling and
//! arming need no VM exit (with `doorbell = "trap"` a doorbell takes one). Queue pairs of adapters
//! in one group exchange messages with one copy, from guest to guest ([`causeway_verbs`], the
//! *engine* in the documentation of this crate). The function is also an Ethernet interface, and
//! each port is a station of the service that forwards the group's frames: routes, captures and
//! traces name the port, and RDMA obeys the routes as frames do.
//!
//! A process of the guest also reaches a service of the daemon through its adapter: a port carries
//! sessions of its guest's processes to the service that opened them, here the NIC of MX endpoints
//! whose option `adapter` names the port ([`causeway_fabric::guest_session`]).
//!
//! # Limits
//! RDMA stays on this host and inside the group. An adapter has [`limits::VECTORS`] (8) interrupt
//! vectors. The holder keeps the frontend of a held port over a restart of the daemon, after which
//! the function continues from its record; without a usable record it reports an internal error,
//! and the guest's driver sets it up again. Live migration is not supported. A guest that breaks a
//! rule loses the queue pair, the object or the function concerned; other guests are not affected.
//!
//! A port has one frontend; `fabric` refuses a second one. A second adapter of the group with the
//! same Ethernet address is refused. The service runs in the turns of the group's dispatcher; the
//! registers of each adapter are answered by the control thread of its attachment. Work beyond the
//! limits of a call waits for the next call, frames to an adapter without room are dropped and
//! counted, captures and records beyond a limit are refused ([`limits`]).
//!
//! # Main types
//! [`HcaService`] is the service for one group; [`SERVICE`] registers it with a fabric.
//!
//! ```
//! use causeway_fabric::Service;
//!
//! // A fabric creates the service by its registration, one instance for each group.
//! let service: Box<dyn Service> = Box::new(causeway_hca::HcaService::new());
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

mod adapter_port;
mod call;
mod capture;
mod control;
mod counters;
mod deadlines;
mod device;
mod idle;
mod idle_watches;
mod inbound;
pub mod limits;
mod metrics;
mod noun;
mod packets;
mod policy;
mod rate_limit;
mod recent;
mod record_file;
mod record_memory;
mod resume;
mod service;
mod sessions;
mod share;
mod switch;
mod trace;
mod traffic;
mod uplink;
mod uplink_sender;
mod view;

pub use service::HcaService;

use causeway_fabric::ServiceRegistration;
use causeway_fabric::guest_session::CARRIES_GUEST_SESSIONS;
use causeway_model::TraceDefinition;
use causeway_model::commands::trace::Verbs;

/// Name of the service.
pub(crate) const NAME: &str = "hca";

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::KindDefinition] = &[&causeway_model::port::HCA];

/// The questions about the destination of traffic that the service answers.
const TRACES: &[TraceDefinition] = &[TraceDefinition::new::<Verbs>()];

/// The registration of the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(NAME, || Box::new(HcaService::new()))
        .with_kinds(KINDS)
        .with_capabilities(&[CARRIES_GUEST_SESSIONS])
        .with_controller(|| Box::new(control::HcaController::new()))
        .with_nouns(noun::NOUNS)
        .with_traces(TRACES)
        .with_counters(counters::TABLES)
        .with_metrics(metrics::METRICS);
