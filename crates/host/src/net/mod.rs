//! Packet sockets, batched sends and socket options.

pub mod app_memory;
pub mod bpf;
pub mod guest_io;
pub mod receiver;
pub mod rx_ring;
pub mod send;
pub mod socket;
pub mod tcp_info;
pub mod udp;

pub use app_memory::{OwnMemory, OwnPiece};
