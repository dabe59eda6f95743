//! MXoE, the NIC side of MX endpoints: between the host sides of one host and the network.
//!
//! A [`Nic`] owns the endpoints of one MAC. Its inputs are frames,
//! [requests](causeway_wire::mx::Request) and the time; its outputs go through [`Outside`]: frames,
//! [events](causeway_wire::mx::Event), and reads and writes of regions. The engine connects,
//! numbers, acknowledges, retransmits, and pulls large messages: in the daemon whether or not the
//! applications make calls, in direct mode while the application calls its library.
//!
//! ```text
//!   host side ── Request ──▶ ┌─────┐ ── frame ──▶ network
//!             ◀── Event ──── │ Nic │ ◀── frame ──
//!                            └─────┘ ◀── time
//! ```
//!
//! # Identity
//! A NIC is identified by its MAC, which the network authenticates. A peer is identified by its NIC
//! and endpoint. A packet belongs to a peer if its source, the session of the addressed endpoint
//! and its number match. A send window (the number under which a peer pulls an offered message) is
//! bound to the peer that it was offered to. The engine accepts pulled data only from the NIC that
//! offered the message, with the handle and the random magic of the pull.
//!
//! The engine has no I/O, clock or threads, and does no matching: the host side matches messages to
//! receives.
//!
//! # Example
//! ```
//! use causeway_mxoe::{NicConfig, Nic, OpenError, Outside};
//! use causeway_wire::mx::NicId;
//!
//! /// Creates a NIC with endpoint 0, which may connect to endpoints of the NIC `peer`.
//! fn start(own: NicId, peer: NicId, key: u32, out: &mut dyn Outside) -> Result<Nic, OpenError> {
//!     let mut nic = Nic::new(NicConfig::new(own, "host-a:0"));
//!     nic.nic_add(peer);
//!     nic.open(0, key, out)?;
//!     Ok(nic)
//! }
//! ```
//! The owner then passes frames to [`Nic::receive`], requests to [`Nic::request`], and the time to
//! [`Nic::tick`].
//!
//! # Modules
//! [`driver`] joins the engine to rings, regions and frames; [`discovery`] finds the NICs of the
//! network; [`local`] passes messages between NICs of one daemon without frames. None imports the
//! host side (`causeway-message`): both sides share only the values of [`causeway_wire::mx`] and
//! their encoding.
//!
//! # Limits
//! [`limits`] has the bounds of the engine, [`driver::limits`] those of the driver. At a limit the
//! engine defers requests ([`Admission::Later`]), or drops packets, which the peer retransmits. The
//! engine does not encrypt or authenticate: a node
//! on the path can read frames, and a NIC can forge its own frames only if the network lets it use
//! another MAC. A [`Nic`] is driven by one thread at a time.

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

mod buffer_pool;
mod connect;
mod connect_request;
mod context;
mod counters;
pub mod discovery;
pub mod driver;
mod drop_reason;
mod endpoint;
mod impossible_acks;
mod jumbo_pull;
mod lent;
pub mod limits;
mod liveness;
pub mod local;
mod nic;
mod nic_table;
mod offers;
mod peer;
mod pending_bytes;
mod pending_connect;
mod pull;
mod pull_reply;
mod receive_order;
mod refusal;
mod reorder_quota;
mod request;
mod request_window;
mod send_windows;
mod sequence;
mod sequence_conflict;
mod timers;
mod transmit;
mod undiscovered;

use causeway_wire::mx::{Event, PeerId, RegionId};

pub use counters::{EndpointCounters, NicCounters, PeerCounters};
pub use drop_reason::DropReason;
pub use endpoint::PeerState;
pub use lent::{CopyFault, LentBytes};
pub use nic::{Nic, NicConfig, OpenError};

/// The bytes of a region cannot be reached because their memory was unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory of a region cannot be reached: it was unmapped while it was registered")]
pub struct RegionFault;

/// The surroundings of a NIC: network, host sides, regions and random numbers.
pub trait Outside {
    /// Returns an unpredictable random number.
    fn random(&mut self) -> u32;

    /// Sends a frame that consists of two parts. Frames may be lost, and are rarely reordered.
    fn frame(&mut self, head: &[u8], data: &[u8]);

    /// Sends a frame whose second part is `len` bytes of a region of an endpoint, at most
    /// [`JUMBO_LEN`](causeway_wire::mxoe::JUMBO_LEN) (8,192 bytes). An implementation can read them
    /// in place.
    ///
    /// # Errors
    /// [`RegionFault`]: the frame is not sent, and the engine ends the offered message with
    /// [`Status::BadRdmaWindow`](causeway_wire::mx::Status).
    fn frame_of(
        &mut self,
        head: &[u8],
        endpoint: u8,
        region: RegionId,
        (offset, len): (u64, usize),
    ) -> Result<(), RegionFault> {
        let mut bytes = [0; causeway_wire::mxoe::JUMBO_LEN];
        let data = bytes.get_mut(..len).ok_or(RegionFault)?;
        self.read(endpoint, region, offset, data)?;
        self.frame(head, data);
        Ok(())
    }

    /// Gives an event to the host side of an endpoint. Returns false if there is no room: the
    /// engine keeps the event or message and offers it again in [`Nic::room`], which the caller of
    /// the engine must call when there is room again.
    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool;

    /// Returns whether the host side accepts no messages of a peer now. The caller of the engine
    /// must call [`Nic::room`] when it accepts them again.
    fn holds(&self, _endpoint: u8, _peer: PeerId) -> bool {
        false
    }

    /// Reads a region of an endpoint, within its registered length.
    ///
    /// # Errors
    /// [`RegionFault`]: the bytes are not read, and the engine ends the offered message.
    fn read(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault>;

    /// Writes to a region of an endpoint, within its registered length.
    ///
    /// # Errors
    /// [`RegionFault`]: the engine ends the pull into the region.
    fn write(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault>;

    /// Returns `len` bytes of a region, for [`Self::copy_in`] of another NIC of the same daemon. An
    /// implementation can return a reference to the region, so that the bytes are copied once.
    ///
    /// # Errors
    /// [`RegionFault`]: the engine ends the offered message.
    fn lend(
        &mut self,
        endpoint: u8,
        region: RegionId,
        (offset, len): (u64, usize),
    ) -> Result<LentBytes, RegionFault> {
        let mut bytes = vec![0; len];
        self.read(endpoint, region, offset, &mut bytes)?;
        Ok(LentBytes::copied(bytes))
    }

    /// Copies lent bytes to a region of an endpoint, within its registered length.
    ///
    /// # Errors
    /// [`CopyFault`]: the memory that cannot be reached. Some bytes may have been copied.
    fn copy_in(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        from: &LentBytes,
    ) -> Result<(), CopyFault> {
        let bytes = from.to_bytes().map_err(|RegionFault| CopyFault::Source)?;
        self.write(endpoint, region, offset, &bytes).map_err(|RegionFault| CopyFault::Destination)
    }
}

/// Whether the engine admitted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// The request was admitted. A request with a token ends with its event.
    Yes,
    /// A limit is reached, and the request had no effect. The caller must repeat it before later
    /// requests of the endpoint: after the host side took events, or after sends or connects ended.
    Later,
}
