//! Tests of the daemon through its control socket: one program, because linking is most of the
//! build.

mod adapter_links;
mod adapters;
mod apply;
mod client_mode;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod control;
mod forwards;
mod kept;
mod log;
mod metrics;
mod process;
mod renewal;
mod resets;
mod restart;
mod restart_adapter;
mod restart_frames;
mod restart_pairs;
mod tap;
mod vnet;
