//! Packet sockets, their filters and receive rings, TAP interfaces with their IP addresses, batched
//! sends, I/O between sockets and guest memory, and options of UDP and TCP sockets.
//!
//! The modules move bytes between sockets and memory; they read no header beyond the link layer,
//! choose no destination, and retry nothing. No call waits for a peer; opening a TAP interface and
//! reading its state wait for a lock of the kernel ([`tap`]). Links (`link::io`), the network side
//! of MX NICs (`mx::network`), TAP and stream ports, and the fabric's UDP and Unix sockets stand
//! above them, the kernel below. Calls run in the caller's thread, usually a dispatcher's.

pub mod app_memory;
pub mod bpf;
pub mod guest_io;
mod interface_request;
mod ip_address;
mod option;
pub mod receiver;
pub mod rx_ring;
pub mod send;
pub mod socket;
pub mod tap;
pub mod tcp_info;
pub mod udp;

pub use app_memory::{AppMemory, AppMemoryPiece};
