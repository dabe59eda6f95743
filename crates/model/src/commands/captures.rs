//! Commands about captures.

use crate::{CaptureChunk, CaptureSpec, CaptureView, TypedRequest};

/// Begins to copy frames that pass a port or a link.
#[derive(Debug)]
pub struct Begin(pub CaptureSpec);

impl TypedRequest for Begin {
    type Answer = CaptureView;
}

/// Fetches the next bytes of the capture with this number. A capture that no client fetches from
/// for 30 s ends.
#[derive(Debug)]
pub struct Fetch(pub u64);

impl TypedRequest for Fetch {
    type Answer = CaptureChunk;
}

/// Ends the copying of frames for a capture; buffered bytes can still be fetched.
#[derive(Debug)]
pub struct Stop(pub u64);

impl TypedRequest for Stop {
    type Answer = ();
}

/// Ends a capture and drops its buffer.
#[derive(Debug)]
pub struct End(pub u64);

impl TypedRequest for End {
    type Answer = ();
}
