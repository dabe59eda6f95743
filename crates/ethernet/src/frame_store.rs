//! The memory that holds a frame's bytes: a guest's descriptors, or the buffer of a link.
//!
//! [`FrameStore`] lets `crate::deliver`, `crate::fast_path`, `crate::link_tx`, `crate::mirror` and
//! `crate::guest_mac` treat frames of guests and of links alike: it gives a [`Body`], a reader over
//! the bytes. The *head* of a frame is the part that `crate::headers` copied into private memory;
//! the *rest* follows it.
//!
//! The module checks no header and copies only on request ([`put`]). A range beyond the buffer of a
//! link yields an empty body. Bytes of a guest may change between two reads, and a read fails if
//! the guest's memory is gone. All of it runs in the dispatcher's thread of the group.

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
    /// Returns the bytes of a frame that follow its head (`headers.head()`). `at` is the offset of
    /// the frame in the buffer of a link.
    #[inline]
    pub fn rest(self, chain: &'a Chain, at: usize, headers: &FrameHeaders) -> Body<'a> {
        match self {
            Self::Guest(map) => Body::Guest(map, Cursor::at(chain.readable(), headers.rest_at)),
            Self::Link(bytes) => Body::Private(part(bytes, at, headers.head().len(), headers.len)),
        }
    }

    /// Returns all bytes of a frame, its head included.
    pub fn all(self, chain: &'a Chain, at: usize, headers: &FrameHeaders) -> Body<'a> {
        match self {
            Self::Guest(map) => {
                let start = headers.rest_at.saturating_sub(headers.head().len() as u64);
                Body::Guest(map, Cursor::at(chain.readable(), start))
            }
            Self::Link(bytes) => Body::Private(part(bytes, at, 0, headers.len)),
        }
    }

    /// Returns the bytes of a frame that follow its head, as [`Self::rest`].
    #[inline]
    pub fn behind(self, rx: &'a RxFrame) -> Body<'a> {
        self.rest(&rx.chain, rx.at, &rx.headers)
    }
}

/// Returns the bytes of the frame at offset `at`, from its byte `from` up to, not including, its
/// byte `len`. Empty if the buffer is shorter.
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
