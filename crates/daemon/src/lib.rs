//! causewayd: configuration, control socket and lifecycle of the host daemon.
//!
//! The crate stands on the highest floor and is the only place that lists the services
//! ([`services`]). It reads the configuration ([`config`]), starts the dispatchers ([`run`],
//! [`lifecycle`]), serves the control socket ([`http`], [`api`]) and the VNET language ([`vnet`]),
//! and restricts its own threads ([`sandbox`]). It forwards no frame and touches no guest memory:
//! dispatchers of `causeway-fabric` do. A stalled client or a slow request delays no traffic.
//!
//! A request of an operator passes [`http`] (bytes to [`causeway_http::HttpRequest`]), [`api`] (to a
//! [`causeway_model::Command`]), and [`fabric::FabricControl`], the interface to the dispatchers.
//! Tests replace that interface by a model and drive each part alone; the binary only calls
//! [`run::run`].
//!
//! ```no_run
//! use causeway_daemon::{args::Args, run::run, services::SERVICES};
//! use clap::Parser as _;
//!
//! run(&Args::parse(), SERVICES).unwrap();
//! ```

pub mod accounts;
pub mod api;
pub mod args;
pub mod config;
pub mod directory;
pub mod fabric;
pub mod held_files;
pub mod held_ports;
pub mod http;
pub mod instance;
pub mod kept;
pub mod lifecycle;
pub mod limits;
pub mod logger;
pub mod manual;
pub mod metrics;
pub mod peer;
pub mod plan;
pub mod refusals;
pub mod run;
pub mod sandbox;
pub mod service_manager;
pub mod services;
pub mod stop;
pub mod vnet;
