//! `causeway` as a process, with daemons in the test's process. One program: each links the whole
//! daemon.

#[path = "../../../daemon/tests/common/mod.rs"]
mod common;

mod capture;
mod commands;
mod extcap;
mod fabric;
mod forwarder;
mod forwarding;
mod libvirt;
mod links;
mod mpi;
mod port_del;
mod top;
mod web;
