//! Wire formats: conversion between bytes and checked values.
//!
//! The lowest floor: every crate that reads or writes a packet, a virtio header or a message of a
//! local socket imports these modules; this crate imports no other crate of the workspace. It must
//! not perform I/O, read a clock or touch shared memory: a caller copies bytes into private memory
//! first, once. No module contains `unsafe`, and only [`pcapng`], [`vsock_monitor`] (both append to
//! a vector of the caller) and [`deframer`] allocate.
//!
//! Most formats are modules of the same shape: `parse` reads private bytes and returns a checked
//! value or a typed error, `emit` writes the value, and `parse(emit(x)) == x`. No parser panics on
//! any input. A parser checks the fields of one header; checks that need state (a session, a
//! window, a sequence number) belong to the caller.
//!
//! Main types: [`ethernet::Header`] and [`frame::Frame`] (headers of a frame),
//! [`virtio_net::Offload`] (checked offload request), [`vsock::Header`], [`mxoe::Packet`] (MX over
//! Ethernet), [`tunnel::Outer`] (datagrams between daemons), [`local`] (socket between process and
//! daemon), [`mx`] (requests and events of an MX endpoint), [`mlx5`] (ConnectX function).
//!
//! Further formats: [`ipv4`], [`ipv6`], [`tcp`], [`udp`] and [`checksum`] for offloads of frames,
//! [`session`] for processes in guests, [`multiplex`] for sockets between hosts, [`ecn`] for congestion marks, [`virtio`] for common feature
//! bits, [`roce`] for captures of RDMA, [`hello`] for the search of loops, [`vxlan`] and
//! [`vnet_stream`] for links of those kinds.
//!
//! The functions keep no state (the buffer of a [`deframer::Deframer`] excepted), so that any
//! thread may call them, and a repeated call returns the same. Lengths are bounded by the formats:
//! a longer or cut input is an error of its parser.
//!
//! ```
//! use causeway_wire::ethernet::{self, Header};
//!
//! let bytes = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45];
//! let header = Header::parse(&bytes)?;
//! assert_eq!(header.ether_type, ethernet::TYPE_IPV4);
//! assert!(Header::parse(&bytes[..13]).is_err());
//! # Ok::<(), causeway_wire::Truncated>(())
//! ```

#![forbid(unsafe_code)]
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

pub mod checksum;
pub mod deframer;
pub mod ecn;
pub mod ethernet;
pub mod exchange;
mod field;
pub mod frame;
pub mod hello;
pub mod ipv4;
pub mod ipv6;
pub mod local;
pub mod mlx5;
pub mod multiplex;
pub mod mx;
pub mod mxoe;
pub mod pcapng;
pub mod roce;
pub mod session;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod virtio;
pub mod virtio_net;
pub mod vmm_socket;
pub mod vnet_stream;
pub mod vsock;
pub mod vsock_monitor;
pub mod vxlan;

pub use field::Truncated;
