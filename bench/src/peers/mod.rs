//! Alternatives to Causeway, as far as they are installed on this machine.
//!
//! The rows (`rows`) name a peer's function beside Causeway's; `rounds` calls it in each round. A
//! missing program, a missing privilege or a failed run is an error with the reason, and the row
//! stands without the peer. Programs are children that end with the benchmark ([`process`]), with
//! files in temporary folders. Peers run on the cores that Causeway's dispatcher and clients use in
//! the same row.

pub mod af_xdp;
pub mod frames;
pub mod kernel;
pub mod messages;
pub mod mpi;
pub mod netns;
pub mod overlay;
pub mod ovs;
pub mod process;
pub mod relay;
pub mod streams;
pub mod testpmd;
pub mod underlay;
pub mod vsock;
