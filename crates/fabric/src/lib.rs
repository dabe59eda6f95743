//! The fabric: ports, groups, and the dispatch loop that serves them.
//!
//! The fabric stands between attachments (`causeway_attach`) and services. A dispatcher is a thread
//! that serves *shards*; a shard holds the ports of one group and one service. The fabric polls
//! rings and descriptors, calls the service of a shard for each queue with work, publishes used
//! entries and notifies guests. It knows no service, and parses no frame, packet or message: a
//! service registers itself with its part of a shard ([`Service`]) and its control-plane part
//! ([`Controller`]). Services send each other, and their own shards, typed requests
//! ([`causeway_model::TypedRequest`]).
//!
//! The fabric does not read configuration files, keeps nothing on disk and opens no connection to
//! other hosts by itself: the daemon and the services do. It never moves traffic between groups.
//! The commands of [`Handle`] block their caller and may be sent from any thread except a
//! dispatcher's. A service runs in the thread that serves its shard. [`limits`] has the bounds.
//!
//! | type | content |
//! |---|---|
//! | [`Fabric`], [`Handle`] | the dispatchers, and access to them from any thread |
//! | [`ServiceRegistration`] | a service for [`Fabric::start`] |
//! | [`Service`], [`Context`] | the data-path part of a service, and the state that it reaches |
//! | [`Controller`], [`Control`] | the control-plane part of a service, and the state that it reaches |
//! | [`Port`], [`Ports`] | attached devices and their rings |
//! | [`Shard`] | the ports of one group and service; tests and the simulator drive it by hand |
//! | [`carrier`] | the interface between links and services that forward frames |
//! | [`station`] | members of a group that another service serves, and the group's policy for them |
//! | [`guest_session`] | sessions of guests' processes, between the service of a device and the service that they use |
//! | [`station_control`] | joins the ports of a service to the service that forwards frames |
//! | [`traffic`] | the traffic matrix of a service |
//! | [`mailbox`], [`udp`], [`host`] | messages between shards, UDP sockets, Unix sockets |
//!
//! # Frontends and limits
//! A port has one frontend at a time: the connection of a second one is closed at once, and the
//! next is accepted after the first left or broke a rule. A port whose service keeps the
//! attachments (a NIC) has any number of processes. A name that exists is refused as a conflict, by
//! `Handle::call` and without any change. At most 1,024 ports and 1,024 groups exist
//! (`causeway_model::limits`); a further one is refused. At a rate limit, connections wait in the
//! backlog and messages in their socket; a frontend that stalls its dispatcher is disconnected, and
//! its port refuses frontends for 30 s ([`limits`]).
//!
//! # Further modules
//! [`mod@fabric`] starts and stops the dispatchers, [`shard`] is their unit of work, [`mod@slice`]
//! its time, [`port`] its ports, [`dispatch_mode`] the choice between polling and doorbells.
//! [`service`], [`controller`] and [`registration`] are the interfaces that services implement.
//! [`rules`] has the connect rules, [`capture`] the buffers of captures. [`wakes`] charges wake-ups
//! to the owners of descriptors, [`rate`] has leaky buckets, [`keyed`] hash tables with secret
//! seeds, [`dense_map`] maps of small keys, and [`socket_buffers`] the kernel's buffer sizes.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use causeway_attach::Model;
//! use causeway_fabric::{Context, Fabric, Options, PortId, ServiceRegistration, Service};
//! use causeway_model::{CommandError, PortSpec};
//!
//! /// A service without ports.
//! #[derive(Debug, Default)]
//! struct Quiet;
//!
//! impl Service for Quiet {
//!     fn model(&self, _: &PortSpec) -> Model {
//!         Model::new(0, 0, Vec::new())
//!     }
//!
//!     fn added(&mut self, _: &mut Context<'_>, _: PortId) -> Result<(), CommandError> {
//!         Err(CommandError::Invalid("the service has no ports".into()))
//!     }
//!
//!     fn removed(&mut self, _: &mut Context<'_>, _: PortId) {}
//!
//!     fn counters(&self, _: PortId) -> BTreeMap<String, u64> {
//!         BTreeMap::new()
//!     }
//! }
//!
//! let quiet = ServiceRegistration::new("quiet", || Box::<Quiet>::default());
//! let fabric = Fabric::start(&[quiet], Options::default())?;
//! fabric.handle().stop();
//! fabric.wait()?;
//! # Ok::<(), std::io::Error>(())
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

mod balance;
pub mod capability;
pub mod capture;
pub mod carrier;
mod connector;
pub mod dense_map;
pub mod dispatch_mode;
mod dispatcher;
pub mod fabric;
mod footprint;
pub mod guest_session;
pub mod host;
pub mod keyed;
pub mod limits;
mod link_id;
mod listen;
mod load;
mod log_limit;
pub mod mailbox;
mod memory_charge;
mod peer_user;
pub mod port;
mod progress;
pub mod rate;
pub mod registration;
mod registry;
pub mod rules;
mod schedule;
pub mod service;
pub mod shard;
mod shard_table;
pub mod slice;
pub mod socket_buffers;
mod source_doorbell;
mod spin_budget;
pub mod station;
pub mod station_control;
pub mod traffic;
mod turn_times;
pub mod udp;
pub mod wakes;
mod watch;
mod yield_backoff;

pub use capability::Capability;
pub use dispatch_mode::PollConfig;
pub use fabric::{Fabric, Handle, ManualFabric, Options};
pub use log_limit::LogLimit;
pub use port::{GroupId, Port, PortId, Ports};
pub use registration::ServiceRegistration;
pub use registry::controller;
pub use registry::controller::{Control, Controller, NoCommands, ServiceObject};
pub use rules::{RuleEnd, RuleMatch, Rules};
pub use service::{
    AttachmentStatus, Context, Maker, Progress, Service, ServiceWatch, SourceProgress,
};
pub use shard::{Shard, ShardKey};
pub use slice::{Slice, cost};
pub use wakes::WakeAccount;
