//! Commands about captures ([`crate::CaptureSpec`]), answered by the Ethernet service.
//!
//! A client of the control socket (`/v1/captures`) sends [`Begin`], then [`Fetch`] until the chunk
//! is closed, or [`Stop`] or [`End`] before; the controller of the service answers in the thread of
//! the connection. Captures are numbered by the daemon; a number is not reused while the daemon
//! runs. A capture without a fetch for 30 s ends by itself. A number that does not exist is
//! refused, as is a capture beyond 16 in a group or 64 in the daemon, and a port or link that does
//! not exist.

use crate::{CaptureChunk, CaptureSpec, CaptureView, TypedRequest};

/// Begins to copy frames that pass a port or a link.
#[derive(Debug)]
pub struct Begin(pub CaptureSpec);

impl TypedRequest for Begin {
    type Answer = CaptureView;
}

/// Fetches the next bytes of the capture with this number; the chunk is empty if no bytes wait. A
/// capture that no client fetches from for 30 s ends and loses its buffer.
#[derive(Debug)]
pub struct Fetch(pub u64);

impl TypedRequest for Fetch {
    type Answer = CaptureChunk;
}

/// Ends the copying of frames for the capture with this number; buffered bytes can still be
/// fetched.
#[derive(Debug)]
pub struct Stop(pub u64);

impl TypedRequest for Stop {
    type Answer = ();
}

/// Ends the capture with this number and drops its buffer.
#[derive(Debug)]
pub struct End(pub u64);

impl TypedRequest for End {
    type Answer = ();
}
