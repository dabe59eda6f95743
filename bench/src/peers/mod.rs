//! What a user could pick instead, as far as it is on this machine. Whatever is
//! not there makes an error that says so, and the row stands without it.

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
