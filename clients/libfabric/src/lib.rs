//! `libcauseway-fi.so`: a libfabric provider for processes on a host with a Causeway daemon, and in
//! its guests with an RDMA adapter.
//!
//! MPI libraries and other users of libfabric send messages and access remote memory over the MX
//! NICs of the host: endpoints of type `FI_EP_RDM` with tagged and untagged messages, RMA and
//! atomic operations, completion queues and counters. The provider implements no connections
//! (`FI_EP_MSG`), datagrams, shared contexts, multicast or collectives, and needs no rights beyond
//! those of its user on the NIC's socket or, in a guest, on the adapter. It sends nothing by
//! network sockets of its own; `info::node` binds some to recognise addresses of this host.
//!
//! # Place
//! The crate is a client: it stands beside `clients/myriexpress` on `causeway-endpoint`, which
//! attaches to the daemon, and `causeway-message`, which matches messages. A message goes from the
//! application through `shell` (C objects), `domain` (their state under one lock) and `rdm` (the
//! endpoint) to the engine of `causeway-message`; a received message goes the other way when the application makes a call,
//! usually a read of a completion queue, or in the progress thread of a domain with
//! `FI_PROGRESS_AUTO`.
//!
//! # Modules
//! libfabric's core loads the library and calls [`fi_prov_ini`]. `provider` describes the provider,
//! `info` answers `fi_getinfo` from the NICs that `nics` finds, `shell` opens a fabric and the
//! objects in it. `domain` has the state of these objects and the threads that wait for them, `rdm`
//! an endpoint. Of the modules below all, `abi` is the layout of libfabric's C structures, `errno`
//! maps errors, `log` writes diagnostics. No module uses one above it.
//!
//! # Threads and limits
//! Calls run in the application's threads. The crate starts a progress thread for a domain with
//! `FI_PROGRESS_AUTO`, and in other domains a thread while messages wait for a connect; both are
//! named `causeway-fi`. Behind an adapter, `causeway-endpoint` starts another (`causeway-watch`).
//! Each object may be opened several times; at a limit of the provider (`limits`) or the NIC a call
//! returns a negative libfabric error and starts nothing, or messages wait. `scenario` is for fuzz
//! targets, with the feature `scenario` only.
//!
//! # Example
//! The core calls the entry point as follows:
//! ```no_run
//! let provider = causeway_provider::fi_prov_ini();
//! // SAFETY: the description is static, and its name is a C string.
//! let name = unsafe { std::ffi::CStr::from_ptr((*provider).name) };
//! assert_eq!(name, c"causeway");
//! ```
#![allow(unsafe_code, reason = "the C ABI: pointers of the caller, and functions of it")]
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

mod abi;
mod address;
mod domain;
mod errno;
mod identity;
mod info;
mod limits;
mod log;
mod nics;
mod provider;
mod rdm;
#[cfg(feature = "scenario")]
pub mod scenario;
mod shell;

pub use provider::fi_prov_ini;
