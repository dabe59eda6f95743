//! The backend half: what lies between the library halves of a host and the network.
//!
//! A [`Board`] owns the endpoints of one MAC. Frames, [requests](causeway_wire::mx::Request) and time
//! come in; through [`Outside`], frames and [events](causeway_wire::mx::Event) go out, and the bytes of
//! regions are read and written. It connects, numbers, acknowledges, sends again, and pulls large
//! messages, whether or not applications call in.
//!
//! Who is who: a board is known by its MAC alone, which the network vouches for; a partner by its
//! board and endpoint; a packet belongs to a partner by these, by the session of the endpoint that
//! it is for, and by its number. Windows are bound to the partner that they were offered to; what
//! is pulled is taken only from the partner that offered it, with the handle and the random magic
//! of this very pull.

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
mod context;
mod counters;
pub mod discovery;
pub mod driver;
mod endpoint;
mod jumbo_pull;
pub mod limits;
mod nic;
mod nic_table;
mod offers;
mod peer;
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

use causeway_wire::mx::{Event, PeerId, RegionId};

pub use counters::{BoardCounters, EndpointCounters, PeerCounters};
pub use endpoint::PeerState;
pub use nic::{Board, Config, Dropped, OpenError};

/// Bytes of a region that cannot be reached: the memory behind it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory of a region cannot be reached: it was unmapped while it was registered")]
pub struct RegionFault;

/// What a board needs of the world.
pub trait Outside {
    /// A random number that nobody can guess.
    fn random(&mut self) -> u32;

    /// Sends a frame, in two parts. Frames may be lost; they go in order, or nearly.
    fn frame(&mut self, head: &[u8], data: &[u8]);

    /// As [`Self::frame`], where the second part is `len` bytes of a region of an endpoint, at most
    /// [`WIDE_LEN`](causeway_wire::mxoe::WIDE_LEN): who has room for frames reads them there.
    ///
    /// # Errors
    /// [`RegionFault`]: nothing is sent.
    fn frame_of(
        &mut self,
        head: &[u8],
        endpoint: u8,
        region: RegionId,
        (offset, len): (u64, usize),
    ) -> Result<(), RegionFault> {
        let mut bytes = [0; causeway_wire::mxoe::WIDE_LEN];
        let data = bytes.get_mut(..len).ok_or(RegionFault)?;
        self.read(endpoint, region, offset, data)?;
        self.frame(head, data);
        Ok(())
    }

    /// Gives an event to the library half of an endpoint. Without room it is refused, and
    /// [`Board::room`] is to be called when there is room again.
    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool;

    /// Whether the library half takes no messages of a partner now: they are refused, and
    /// [`Board::room`] is to be called when it does.
    fn holds(&self, _endpoint: u8, _peer: PeerId) -> bool {
        false
    }

    /// Reads a region of an endpoint, within the length that it was registered with.
    ///
    /// # Errors
    /// [`RegionFault`]: what was offered of it is withdrawn.
    fn read(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault>;

    /// Writes to a region of an endpoint, within the length that it was registered with.
    ///
    /// # Errors
    /// [`RegionFault`]: the pull into it ends.
    fn write(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault>;
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// It was taken, and ends with its event.
    Yes,
    /// A limit is reached: it is to be made again, as it is, when events were taken.
    Later,
}
