//! Links carry the Ethernet frames of a group to daemons on other hosts.
//!
//! The crate has two parts. The core (all modules but [`io`]) implements encrypted tunnels and is
//! sans-I/O: bytes, time and randomness are arguments ([`Clock`]), datagrams to send and events are
//! values ([`Sink`]). So the daemon, the simulator and the fuzzer run the same code. [`io`] is the
//! service on top: it owns sockets, threads for name resolution, and the other kinds of links
//! (VNET/P, VXLAN, TCP, TLS, raw interfaces).
//!
//! On the way of a frame, `ethernet` decides that a frame leaves by a link and calls the link's
//! `Carrier` in its own thread; [`flood::pack`] and [`Packer`] put it into datagrams. At the peer,
//! [`TunnelSet`] accepts the datagrams, [`unpack`] returns the frames, and [`io`] passes them to
//! the group's shard through a mailbox.
//!
//! The core runs in the thread of its caller: frames are packed and sealed in the dispatcher of the
//! sending group; handshakes, timers and received datagrams are served in that of the shard of
//! links. Only names of hosts are resolved in threads of the crate.
//!
//! A link with a name that exists is refused as a conflict, and so is a second link that would
//! receive the same datagrams. At most 4,096 links exist. At a limit of a queue or of reassembly,
//! frames are dropped and counted by their reason; at a limit of handshakes, the initiation is
//! answered with a cookie or dropped; a connection that is too slow ends and is tried again
//! ([`limits`], [`io::limits`]). A datagram of an encrypted tunnel that arrives twice is dropped
//! ([`replay`]); unencrypted tunnels, `vnet` and `vxlan` links deliver its frames again.
//!
//! This crate does not: decide where a frame goes (`ethernet`), own addresses (`directory`),
//! retransmit lost frames, or restore their order.
//!
//! | module | purpose |
//! |---|---|
//! | [`handshake`] | agreement on a session: Noise IK |
//! | [`handshake_guard`] | rate limits and cookies for initiations of unknown senders |
//! | [`session`] | sealing and opening of datagrams |
//! | [`replay`] | the replay window of a session |
//! | [`tx_path`] | the TX path: session, address and datagram length for sending threads |
//! | [`pack`] | frames into datagrams: small frames share a datagram, long frames are fragmented |
//! | [`flood`] | flood sequence numbers: a flooded frame crosses a loop of links once |
//! | [`unpack`] | datagrams into frames |
//! | [`reassembly`] | reassembly of fragmented frames |
//! | [`health`] | heartbeats, round trips, loss, path MTU |
//! | [`tunnel`] | all of these for one peer |
//! | [`tunnel_set`] | the tunnels of one underlay socket |
//! | [`framing`] | frames on a byte stream |
//! | [`mss`] | maximum segment sizes of local TCP endpoints |
//! | [`partial_offload`] | frames with partial checksums and uncut TCP from VXLAN peers |
//! | [`refusal`] | reasons for dropped datagrams, counted |
//! | [`event`] | changes of a tunnel's state, for the driver |
//! | [`clock`] | clock readings and randomness as arguments |
//! | [`limits`] | limits and timing constants of the core |
//! | [`io`] | the service: sockets, timers and threads around the core |
//!
//! # Example
//!
//! A tunnel without encryption sends its first heartbeat with the first tick:
//!
//! ```
//! use causeway_link::{TunnelConfig, TunnelSet, Clock, Sink};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut random = |bytes: &mut [u8]| bytes.fill(7); // The daemon asks the kernel.
//! let mut clock = Clock { now: 0, wall: 0, random: &mut random };
//! let mut tunnels = TunnelSet::new(None, &mut clock);
//! let peer = "192.0.2.1:9000".parse()?;
//! let config = TunnelConfig { keys: None, remote: Some(peer), longest: 1_472, on_demand: None };
//! let tunnel = tunnels.add(&config, &clock)?;
//! let mut sink = Sink::default();
//! tunnels.tunnel_mut(tunnel).expect("just added").carry(5_000, &mut sink);
//! tunnels.tick(&mut clock, &mut sink);
//! assert_eq!(sink.datagrams[0].0, peer);
//! # Ok(())
//! # }
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

pub mod clock;
pub mod event;
pub mod flood;
pub mod framing;
pub mod handshake;
pub mod handshake_guard;
pub mod health;
pub mod io;
pub mod limits;
pub mod mss;
pub mod pack;
pub mod partial_offload;
pub mod reassembly;
pub mod refusal;
pub mod replay;
pub mod session;
pub mod tunnel;
pub mod tunnel_set;
pub mod tx_path;
pub mod unpack;

pub use clock::{Clock, RandomSource};
pub use event::{Event, EventKind};
pub use io::SERVICE;
pub use pack::{Batch, Packer, PushError};
pub use refusal::{Refusal, RefusalCounters};
pub use session::TunnelSession;
pub use tunnel::{HandshakeFault, OnDemand, Tunnel, TunnelConfig, TunnelState};
pub use tunnel_set::TunnelSet;
pub use tx_path::{Path, TunnelTxPath, WaitRefusal, WaitingFrame};
pub use unpack::{Sink, UnpackedFrame};
