//! Alternatives to Causeway, as far as they are installed on this machine. A missing program is
//! reported as an error, and the row stands without it.

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
