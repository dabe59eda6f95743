//! causewayd: configuration, control socket and lifecycle of the host daemon.
//!
//! The binary is a few lines over this library, so that the tests can drive
//! each part alone: [`config`] reads the file, [`http`] and [`api`] serve the
//! control socket, and [`fabric`] is the one seam to the dispatcher.

pub mod config;
pub mod draft;
pub mod limits;
