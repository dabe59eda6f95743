//! MX message passing: the engine.
//!
//! An endpoint has two halves, as in Xen2MX. The *library half* is in the
//! application: requests, matching, unexpected messages. The *backend half* is in
//! the daemon: connections, sequence numbers, acknowledgements, retransmission and the
//! receiver-driven pull of large messages, in MXoE's packets. So what
//! was sent arrives whether or not its application calls in. Between the halves go the values of
//! [`split`], by rings in shared memory. Two endpoints of one host and group talk without the
//! backend: the library half is given the same events by a channel of their own.
//!
//! Both halves are sans-I/O: bytes, time and randomness come in, actions go out.

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

pub mod library;
pub mod limits;

pub use causeway_wire::mx as split;
/// See [`split::Status`].
pub mod status {
    pub use causeway_wire::mx::Status;
}
