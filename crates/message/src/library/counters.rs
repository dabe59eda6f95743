//! Message counters of an endpoint, over all transports.
//!
//! Length classes are those of MX: *tiny* up to [`TINY_BYTES_MAX`] (32) bytes, *small* up to
//! [`SMALL_BYTES_MAX`] (128), *medium* up to [`MEDIUM_BYTES_MAX`] (32 KiB), *large* above. The
//! class depends on the length alone, not on the path that the message took.
//!
//! A send counts when it is made, also if it fails later. A receive counts when it ends with a
//! message, also a truncated message, with the bytes that were received. There are no counters per
//! peer and no packet counters (those are in `mxoe`). Counters wrap at 2^64 and are not reset.
//!
//! Written by the other modules of `library`; the API libraries read them by
//! [`Library::counters`](super::Library::counters): `libmyriexpress` for `mx_get_info`, the
//! libfabric provider for its statistics at the close of an endpoint. All under the lock of the
//! endpoint.

use causeway_wire::mx::Status;

use super::request::RequestKind;
use crate::limits::{MEDIUM_BYTES_MAX, SMALL_BYTES_MAX, TINY_BYTES_MAX};

/// Classes of message lengths: tiny, small, medium, large.
const CLASSES: usize = 4;

/// Messages of one direction by length class, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Messages {
    /// Messages by length class.
    by_class: [u64; CLASSES],
    /// Bytes of all messages.
    bytes: u64,
}

impl Messages {
    /// Counts a message.
    #[inline]
    pub(super) fn count(&mut self, len: u32) {
        let size = len as usize;
        let class = usize::from(size > TINY_BYTES_MAX)
            .wrapping_add(usize::from(size > SMALL_BYTES_MAX))
            .wrapping_add(usize::from(size > MEDIUM_BYTES_MAX));
        if let Some(counter) = self.by_class.get_mut(class) {
            *counter = counter.wrapping_add(1);
        }
        self.bytes = self.bytes.wrapping_add(len.into());
    }
}

/// Counters of an endpoint. Values wrap at 2^64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub(super) sent: Messages,
    pub(super) received: Messages,
    /// Messages of peers that were kept without a receive.
    pub(super) unexpected: u64,
    /// Requests that ended with [`Status::Truncated`]: a receive, and a send of which not all bytes
    /// were pulled.
    pub(super) truncated: u64,
    /// Requests that ended with another failure.
    pub(super) failed: u64,
    /// Connects that were begun.
    pub(super) connects: u64,
}

impl Counters {
    /// Number of counters.
    pub const COUNT: usize = 14;

    /// Counts a request that ended with a status other than success, after `bytes` bytes.
    #[cold]
    pub(super) fn count_failure(&mut self, kind: RequestKind, status: Status, bytes: u32) {
        if status == Status::Truncated {
            self.truncated = self.truncated.wrapping_add(1);
            if kind == RequestKind::Receive {
                self.received.count(bytes);
            }
        } else {
            self.failed = self.failed.wrapping_add(1);
        }
    }

    /// Returns names and values, always in the same order.
    pub fn named(&self) -> [(&'static str, u64); Self::COUNT] {
        let ([tiny, small, medium, large], bytes) = (self.sent.by_class, self.sent.bytes);
        let [its_tiny, its_small, its_medium, its_large] = self.received.by_class;
        [
            ("sends_tiny", tiny),
            ("sends_small", small),
            ("sends_medium", medium),
            ("sends_large", large),
            ("bytes_sent", bytes),
            ("receives_tiny", its_tiny),
            ("receives_small", its_small),
            ("receives_medium", its_medium),
            ("receives_large", its_large),
            ("bytes_received", self.received.bytes),
            ("unexpected", self.unexpected),
            ("truncated", self.truncated),
            ("failed", self.failed),
            ("connects", self.connects),
        ]
    }
}
