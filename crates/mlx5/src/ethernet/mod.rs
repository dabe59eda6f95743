//! The function as an Ethernet adapter: the queues of frames, and the rules that steer them.
//!
//! ```text
//!   send queue ──▶ next_frame ──▶ Frame ──▶ the caller's switch ──▶ FrameRef ──▶ receive_frame
//!                                                                                     │
//!              complete_frame ◀── (copied)       address filter ─▶ flow tables ─▶ TIR ┤
//!                                                                                     ▼
//!                                                          (RQT by hash) ─▶ receive queue
//! ```
//!
//! [`next_frame`] takes frames from the send queues of the adapter's driver in turn. The caller
//! (`hca::switch`, in the dispatcher's turn) decides which adapters receive a frame and offers it
//! to them with [`receive_frame`], straight from the sender's memory; then [`complete_frame`]
//! returns the entry to the sender's driver. Checksums and the cutting of long frames are done by
//! the receiver, so that a frame may also leave uncut, to a virtio receiver.
//!
//! The source address of a frame is the caller's to check. Frames are never merged: a driver has to
//! prepare its buffers for merged frames. Rates, priorities and the loopback switches of transport
//! interfaces have no effect.
//!
//! # Limits
//! The numbers are in [`limits`]. A frame without a posted receive entry, and every other frame
//! that cannot be delivered (`receive`), is dropped and counted: Ethernet does not wait, and the
//! sender's entry completes as usual. [`Frame::looks`] and [`Deliveries`] tell the caller what a
//! call cost. Rules that a driver creates cost a receiver bounded time per frame (`flow`).

pub(crate) mod command;
mod counters;
mod filter;
pub(crate) mod flow;
mod frame;
mod hash;
mod headers;
pub(crate) mod interface;
pub mod limits;
mod offload;
mod receive;
mod receive_queue;
mod send_queue;
pub(crate) mod state;
mod transmit;
mod verify;

pub use counters::{EthernetCounters, Traffic, TrafficByCast};
pub use frame::{Body, Deliveries, Frame, FrameRef};
pub use receive::receive_frame;
pub use transmit::{complete_frame, has_frames, next_frame};

use crate::function::Function;

/// Result of [`next_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A frame was taken.
    Frame,
    /// No polled send queue has a posted entry, as far as the call looked.
    Empty,
    /// Entries were taken, and none of them had a frame that can be forwarded. More may be posted.
    Dropped,
}

/// Result of [`receive_frame`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// The frame, or its first pieces, is in receive queues.
    Delivered {
        /// Number of frames in receive queues.
        frames: u32,
    },
    /// The receive queue had no posted entry.
    NoBuffer,
    /// The frame is longer than the driver's MTU, or than its receive entry.
    TooLong,
    /// No filter or flow entry accepts the frame, or its headers are malformed.
    Filtered,
    /// The receive queue does not exist, is not ready, or failed at this frame.
    Down,
    /// The sender's memory was revoked.
    Lost,
    /// The frame had [`limits::DELIVERIES_PER_FRAME_MAX`] (4,096) deliveries already.
    OverLimit,
}

impl Function {
    /// Returns the counters of frames since the function was made.
    pub fn ethernet_counters(&self) -> EthernetCounters {
        self.objects.ethernet.counters()
    }
}
