//! Links: paths between daemons, on which frames of a group travel to other hosts.
//!
//! The core is free of I/O: bytes, time and randomness are arguments ([`Moment`]), what is to be
//! sent and what was learnt are values ([`Sink`]). So the same core runs in the daemon, in the
//! simulator and under the fuzzer.
//!
//! | module | idea |
//! |---|---|
//! | [`handshake`] | two daemons agree on a session: Noise IK |
//! | [`gate`] | what strangers may cost: rates and cookies |
//! | [`session`] | sealing and opening datagrams |
//! | [`replay`] | no datagram counts twice |
//! | [`outlet`] | where senders find the session of the day |
//! | [`pack`] | frames into datagrams, many in one or one in many |
//! | [`flood`] | frames for many cross a circle of links once |
//! | [`unpack`] | datagrams into frames |
//! | [`fragment`] | frames put together again |
//! | [`health`] | heartbeats, round trips, loss, and how long a datagram may be |
//! | [`tunnel`] | all of that for one peer |
//! | [`hub`] | the tunnels of one underlay socket |
//! | [`framing`] | frames on a byte stream |
//! | [`mss`] | the largest segments that TCP endpoints here take |
//! | [`unfinished`] | what the far end's kernel left to hardware |
//! | `rate` | how often something may happen |
//! | [`refusal`] | why something was not taken, counted |
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

pub mod event;
pub mod flood;
pub mod fragment;
pub mod framing;
pub mod gate;
pub mod handshake;
pub mod health;
pub mod hub;
pub mod io;
pub mod limits;
pub mod moment;
pub mod mss;
pub mod outlet;
pub mod pack;
pub mod refusal;
pub mod replay;
pub mod session;
pub mod tunnel;
pub mod unfinished;
pub mod unpack;

pub use event::{Event, What};
pub use hub::Hub;
pub use io::SERVICE;
pub use moment::{Entropy, Moment};
pub use outlet::{Outlet, Path};
pub use pack::{Batch, Packer, PushError};
pub use refusal::{Refusal, Refusals};
pub use session::Session;
pub use tunnel::{Config, State, Trouble, Tunnel};
pub use unpack::{Arrived, Sink};
