//! causewayd: configuration, control socket and lifecycle of the host daemon.
//!
//! The binary is a few lines over this library, so that the tests can drive
//! each part alone: [`config`] reads the file, [`http`] and [`api`] serve the
//! control socket, [`life`] starts and stops, and [`fabric`] is the one seam to
//! the dispatcher.

pub mod accounts;
pub mod api;
pub mod args;
pub mod config;
pub mod directory;
pub mod fabric;
pub mod hold;
pub mod http;
pub mod instance;
pub mod life;
pub mod limits;
pub mod logger;
pub mod notify;
pub mod peer;
pub mod places;
pub mod plan;
pub mod refusals;
pub mod run;
pub mod sandbox;
pub mod services;
pub mod stop;
pub mod vnet;
