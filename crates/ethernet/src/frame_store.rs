//! The memory that holds a frame's bytes: a guest's descriptors, or the buffer of a link.
//!
//! The module gives readers over that memory. It checks no header and copies only on request.

use causeway_fabric::carrier::Body;
use causeway_memory::copy::{CopyError, copy};
use causeway_memory::{Cursor, Map};
use causeway_ring::Chain;

use crate::headers::{FrameHeaders, RxFrame};

/// The memory that holds the bytes of frames.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameStore<'a> {
    /// The chains of a guest.
    Guest(&'a Map),
    /// A private buffer, each frame from [`RxFrame::at`] on.
    Link(&'a [u8]),
}

impl<'a> FrameStore<'a> {
    /// Returns the bytes of a frame behind its head.
    #[inline]
    pub fn rest(self, chain: &'a Chain, at: usize, headers: &FrameHeaders) -> Body<'a> {
        match self {
            Self::Guest(map) => Body::Guest(map, Cursor::at(chain.readable(), headers.rest_at)),
            Self::Link(bytes) => Body::Private(part(bytes, at, headers.head().len(), headers.len)),
        }
    }

    /// Returns all bytes of a frame.
    pub fn all(self, chain: &'a Chain, at: usize, headers: &FrameHeaders) -> Body<'a> {
        match self {
            Self::Guest(map) => {
                let start = headers.rest_at.saturating_sub(headers.head().len() as u64);
                Body::Guest(map, Cursor::at(chain.readable(), start))
            }
            Self::Link(bytes) => Body::Private(part(bytes, at, 0, headers.len)),
        }
    }

    /// As [`Self::rest`], for an [`RxFrame`].
    #[inline]
    pub fn behind(self, rx: &'a RxFrame) -> Body<'a> {
        self.rest(&rx.chain, rx.at, &rx.headers)
    }
}

/// Returns bytes `from` to `len` of the frame at `at`.
fn part(bytes: &[u8], at: usize, from: usize, len: usize) -> &[u8] {
    bytes.get(at.saturating_add(from)..at.saturating_add(len)).unwrap_or(&[])
}

/// Copies the next `len` bytes of a body to the writer.
#[inline]
pub(crate) fn put(
    body: &mut Body<'_>,
    map: &Map,
    writer: &mut Cursor<'_>,
    len: u64,
) -> Result<(), CopyError> {
    match body {
        Body::Guest(from, cursor) => copy((from, cursor), (map, writer), len),
        Body::Private(bytes) => {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let (now, rest) = bytes.split_at_checked(len).unwrap_or((*bytes, &[]));
            *bytes = rest;
            writer.write(map, now).map_err(CopyError::Destination)
        }
    }
}

/// Skips `len` bytes of a body.
pub(crate) fn skip(body: &mut Body<'_>, len: usize) {
    match body {
        Body::Guest(_, cursor) => cursor.skip(len as u64),
        Body::Private(bytes) => *bytes = bytes.get(len..).unwrap_or(&[]),
    }
}
