//! causewayd: configuration, control socket and lifecycle of the host daemon.
//!
//! The crate stands on the highest floor and is the only place that lists the services
//! ([`services`]). It reads the configuration ([`config`]), starts the dispatchers ([`run`],
//! [`lifecycle`]), serves the control socket ([`http`], [`api`]) and the VNET language ([`vnet`]),
//! and restricts its own threads ([`sandbox`]). It forwards no frame and touches no guest memory:
//! dispatchers of `causeway-fabric` do. A stalled client or a slow request delays no traffic.
//!
//! A request of an operator passes [`http`] (bytes to [`causeway_http::HttpRequest`]), [`api`] (to
//! a [`causeway_model::Command`]), and [`fabric::FabricControl`], the interface to the dispatchers.
//! Tests replace that interface by a model and drive each part alone; the binary only calls
//! [`run::run`].
//!
//! # Clients, threads, limits
//! Each connection to the control socket carries one request and has a thread of its own. At most
//! 64 are served at a time; then a waiting one of the user with the most is closed, or, if it has
//! not waited 250 ms, the new one is answered with 503 ([`limits`]). Commands of several clients
//! are executed one after another, under the lock of the fabric's registry. A repeated addition of
//! a group, port, link or route is refused with a conflict, and a repeated deletion with *not
//! found*; rules may be equal. A second causewayd with the same control socket does not start
//! ([`instance`]). The main thread claims the control socket, starts the dispatchers and waits for
//! them, the thread `lifecycle` opens and closes everything else; no thread of this crate is a
//! dispatcher.
//!
//! | module | content |
//! |---|---|
//! | [`run`], [`args`], [`manual`] | modes of the program, its command line, the manual page of the configuration |
//! | [`lifecycle`], [`stop`], [`service_manager`] | start and end, a stop by a client, reports to the service manager |
//! | [`config`], [`plan`] | the configuration file; the changes from the running state to it |
//! | [`kept`] | the state file: objects that were added while the daemon ran |
//! | [`instance`], [`directory`] | one daemon per control socket; safety of the directories of sockets |
//! | [`http`], [`api`], [`metrics`] | requests and replies, their meaning, Prometheus metrics |
//! | [`peer`], [`accounts`] | users that may use the control socket; their numbers by name |
//! | [`refusals`] | counted refusals; shares of clients in connections are in crate `http` |
//! | [`vnet`] | the VNET/P language: sessions over TCP, files |
//! | [`fabric`], [`services`] | the interface to the dispatchers; the list of services |
//! | [`held_ports`], [`held_files`] | ports with a frontend that outlives the daemon; files that they leave |
//! | [`sandbox`], [`logger`], [`limits`] | restrictions of threads, log lines, bounds |
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
