//! Packet sockets, their filters and receive rings, TAP interfaces, batched sends, and options of
//! UDP and TCP sockets.
//!
//! The modules move bytes between sockets and memory; they read no header beyond the link layer,
//! choose no destination, and retry nothing. No call blocks. Links (`link::io`), the network side
//! of MX NICs (`mx::network`) and the fabric's UDP sockets stand above them, the kernel below.

pub mod app_memory;
pub mod bpf;
pub mod guest_io;
pub mod receiver;
pub mod rx_ring;
pub mod send;
pub mod socket;
pub mod tap;
pub mod tcp_info;
pub mod udp;

pub use app_memory::{AppMemory, AppMemoryPiece};
