//! The message-passing service of the daemon: NICs of MX endpoints.
//!
//! A port of kind `mx` is a NIC. Processes attach by its socket ([`causeway_attach::local`]), open
//! endpoints and connect them. For two endpoints of one group on this host, the daemon creates a
//! channel ([`causeway_channel`]) and passes its memory and doorbells to both processes; no message
//! passes through the daemon afterwards. When a process ends, the daemon reports it to the
//! processes that were connected with it.
//!
//! A NIC also runs the NIC side of its endpoints ([`causeway_mxoe`]). If it has a network, each
//! endpoint has rings for messages to other hosts. Endpoints of processes without channels, and
//! those that connect with them, have rings too: the NICs of a group pass their messages to each
//! other in memory. With `bypass`, processes run the NIC side themselves on a packet socket that
//! the daemon opens and filters (direct mode).
//!
//! A NIC with an `adapter` also serves the processes of the guest behind that port: the same
//! requests come through the guest's adapter, and rings and regions lie in memory that the process
//! registered ([`causeway_fabric::guest_session`]). Such a process gets no channel; its messages go
//! through the daemon. The guest may take its memory away at any time.
//!
//! The service does no matching and sees no message of a channel. Processes are hostile, like
//! guests: a process that breaks a rule of the protocol is disconnected and loses its own
//! endpoints; a request beyond a quota is answered with an error.
//!
//! Many processes attach to one NIC, each with endpoints of its own; an endpoint number that is
//! open is refused to a second process with `MX_BUSY`. [`limits`] has the quotas of processes and
//! users: at a quota a request fails, at a rate the process waits, and a process that does not read
//! its messages is disconnected. The service runs in the turns of the group's dispatcher, and
//! starts no thread.
//!
//! # Main types
//! [`MxService`] is the service for one group; [`SERVICE`] registers it with a fabric.
//! [`ServeGuest`] is the request by which the controller joins a NIC to the adapter of its guest.
//!
//! ```
//! use causeway_fabric::Service;
//!
//! // A fabric creates the service by its registration, one instance for each group.
//! let service: Box<dyn Service> = Box::new(causeway_mx::MxService::new());
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

mod attachment;
mod attention;
mod channels;
mod client;
mod connects;
mod control;
mod counters;
mod exchange;
pub mod limits;
mod network;
mod network_slot;
mod nic;
mod noun;
mod process;
mod quotas;
mod requests;
mod service;
mod session_requests;
mod sessions;
mod user;
mod view;

pub use control::ServeGuest;
pub use service::MxService;

use causeway_fabric::ServiceRegistration;

/// The kinds of ports of the service.
const KINDS: &[&causeway_model::KindDefinition] = &[&causeway_model::port::MX];

/// The registration of the service with a fabric.
pub const SERVICE: ServiceRegistration =
    ServiceRegistration::new(service::NAME, || Box::new(MxService::new()))
        .with_kinds(KINDS)
        .with_controller(|| Box::<control::MxController>::default())
        .with_nouns(noun::NOUNS)
        .with_counters(counters::TABLES);
