//! Buffers of requests: the application's memory as the engine sees it, after the provider's head
//! of [`HEAD_BYTES`] (16 bytes) if the message has a head.
//!
//! [`Payload`] is the bytes without the head: several pieces of the application's memory, a copy,
//! or released memory. [`MessageBuffer`] is head and payload together.
//!
//! The buffers do not decide on the life of the memory; the operations do. Offsets count from the
//! first byte of the message; a read beyond the end is empty, and a write beyond the end is
//! dropped. `bytes` returns one piece at most, so callers loop. Copies are unlimited here: callers
//! bound them. All accesses happen under the domain's lock.
//!
//! The modules of `rdm` that send or receive make the buffers and hand them to the engine, which
//! drops them when the request ends.

use std::ptr::NonNull;

use causeway_message::library::Buffer;

use super::span::AppSpan;

/// Length of a head, in bytes.
pub const HEAD_BYTES: usize = 16;

/// The memory of a head while a request uses it.
pub type Head = NonNull<[u8; HEAD_BYTES]>;

/// The bytes of a message without its head: memory of the application, or a copy.
#[derive(Debug)]
pub enum Payload {
    /// A contiguous piece of the application's memory.
    One(AppSpan),
    /// Several pieces, and the sum of their lengths.
    Many(Box<[AppSpan]>, usize),
    /// A copy.
    Owned(Box<[u8]>),
    /// Released memory of this length: reads return zeros, and writes are dropped.
    Gone(usize),
}

/// The bytes that reads of released memory return.
static ZEROS: [u8; 4096] = [0; 4096];

/// Returns the number of the piece that contains byte `at` of all pieces together, and the offset
/// in that piece.
fn find(pieces: &[AppSpan], mut at: usize) -> Option<(usize, usize)> {
    for (number, piece) in pieces.iter().enumerate() {
        if at < piece.len() {
            return Some((number, at));
        }
        at = at.saturating_sub(piece.len());
    }
    None
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self::One(AppSpan::EMPTY);

    /// Returns the payload of several pieces, or `None` if the sum of their lengths overflows.
    pub fn of(mut pieces: Vec<AppSpan>) -> Option<Self> {
        if pieces.len() <= 1 {
            return Some(pieces.pop().map_or(Self::EMPTY, Self::One));
        }
        let sum = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len()))?;
        Some(Self::Many(pieces.into(), sum))
    }

    /// Returns a second payload of the same memory.
    ///
    /// # Safety
    /// As for [`AppSpan::alias`].
    #[inline]
    pub unsafe fn alias(&self) -> Self {
        match self {
            // SAFETY: guaranteed by the caller.
            Self::One(piece) => Self::One(unsafe { piece.alias() }),
            Self::Many(pieces, len) => {
                // SAFETY: guaranteed by the caller.
                let pieces = pieces.iter().map(|piece| unsafe { piece.alias() });
                Self::Many(pieces.collect(), *len)
            }
            Self::Owned(bytes) => Self::Owned(bytes.clone()),
            Self::Gone(len) => Self::Gone(*len),
        }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::One(piece) => piece.len(),
            Self::Many(_, len) | Self::Gone(len) => *len,
            Self::Owned(bytes) => bytes.len(),
        }
    }

    /// Returns the address of the first byte, which completions report; 0 for a copy or released
    /// memory.
    pub fn start(&self) -> usize {
        match self {
            Self::One(piece) => piece.address(),
            Self::Many(pieces, _) => pieces.first().map_or(0, AppSpan::address),
            Self::Owned(_) | Self::Gone(_) => 0,
        }
    }

    /// Returns the bytes from offset `at` to the end of the piece that contains it.
    #[inline]
    pub fn bytes(&self, at: usize) -> &[u8] {
        match self {
            Self::One(piece) => piece.bytes(at),
            Self::Many(pieces, _) => {
                let found = find(pieces, at).and_then(|(n, at)| Some((pieces.get(n)?, at)));
                found.map_or(&[], |(piece, at)| piece.bytes(at))
            }
            Self::Owned(bytes) => bytes.get(at..).unwrap_or_default(),
            Self::Gone(len) => {
                let len = len.saturating_sub(at).min(ZEROS.len());
                ZEROS.get(..len).unwrap_or_default()
            }
        }
    }

    /// Returns the bytes from offset `at` to the end of the piece that contains it, to be written.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        match self {
            Self::One(piece) => piece.bytes_mut(at),
            Self::Many(pieces, _) => match find(pieces, at) {
                Some((n, at)) => pieces.get_mut(n).map_or(&mut [], |piece| piece.bytes_mut(at)),
                None => &mut [],
            },
            Self::Owned(bytes) => bytes.get_mut(at..).unwrap_or_default(),
            Self::Gone(_) => &mut [],
        }
    }

    /// Reads a value that the application may write concurrently ([`AppSpan::load`]), byte by byte
    /// if it crosses pieces.
    pub fn load(&self, at: usize, value: &mut [u8]) {
        if !self.piece(at).is_some_and(|(piece, at)| piece.load(at, value)) {
            for (byte, at) in value.iter_mut().zip(at..) {
                if let Some((piece, at)) = self.piece(at) {
                    piece.load(at, std::slice::from_mut(byte));
                }
            }
        }
    }

    /// Writes a value that the application may poll ([`AppSpan::store`]), byte by byte where it
    /// crosses pieces.
    pub fn store(&mut self, at: usize, value: &[u8]) {
        if !self.piece_mut(at).is_some_and(|(piece, at)| piece.store(at, value)) {
            for (byte, at) in value.iter().zip(at..) {
                if let Some((piece, at)) = self.piece_mut(at) {
                    piece.store(at, std::slice::from_ref(byte));
                }
            }
        }
    }

    /// Writes bytes from the start that the application may poll ([`AppSpan::publish`]); bytes that
    /// do not fit are dropped.
    pub fn publish(&mut self, bytes: &[u8]) {
        let mut done = 0_usize;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let written = self.piece_mut(done).map_or(0, |(piece, at)| piece.publish(at, rest));
            if written == 0 {
                return;
            }
            done = done.saturating_add(written);
        }
    }

    /// Returns the application's piece that contains byte `at`, and the offset in that piece;
    /// `None` for a copy or released memory.
    fn piece(&self, at: usize) -> Option<(&AppSpan, usize)> {
        match self {
            Self::One(piece) => Some((piece, at)),
            Self::Many(pieces, _) => {
                find(pieces, at).and_then(|(n, at)| Some((pieces.get(n)?, at)))
            }
            Self::Owned(_) | Self::Gone(_) => None,
        }
    }

    /// Returns the piece and the offset as [`Self::piece`] does, to be written.
    fn piece_mut(&mut self, at: usize) -> Option<(&mut AppSpan, usize)> {
        match self {
            Self::One(piece) => Some((piece, at)),
            Self::Many(pieces, _) => {
                let (n, at) = find(pieces, at)?;
                Some((pieces.get_mut(n)?, at))
            }
            Self::Owned(_) | Self::Gone(_) => None,
        }
    }

    /// Returns a payload that owns a copy of the bytes.
    pub fn to_owned(&self) -> Self {
        Self::Owned(self.to_vec().into())
    }

    /// Returns a copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        while all.len() < self.len() {
            let piece = self.bytes(all.len());
            if piece.is_empty() {
                break;
            }
            all.extend_from_slice(piece);
        }
        all
    }

    /// Copies bytes to the memory; returns how many fit.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        causeway_message::library::fill(self, 0, bytes.len(), |at, into| {
            let from = bytes.get(at..).unwrap_or_default();
            let len = from.len().min(into.len());
            if let (Some(into), Some(from)) = (into.get_mut(..len), from.get(..len)) {
                into.copy_from_slice(from);
            }
            len
        })
    }
}

impl Buffer for Payload {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn bytes(&self, at: usize) -> &[u8] {
        Self::bytes(self, at)
    }

    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        Self::bytes_mut(self, at)
    }
}

/// The buffer of a request of the engine: an optional head and the payload.
#[derive(Debug)]
pub struct MessageBuffer {
    /// The head of the request's operation; `None` for bytes without a head.
    head: Option<Head>,
    /// The bytes after the head.
    payload: Payload,
}

// SAFETY: the memory consists of spans, which may be sent, and of a head that no other code
// accesses meanwhile (see `headed`): a thread at a time, under the lock of the domain.
unsafe impl Send for MessageBuffer {}

impl MessageBuffer {
    /// Returns a buffer without a head.
    pub fn bare(payload: Payload) -> Self {
        Self { head: None, payload }
    }

    /// Returns a buffer with the head of an operation before the payload.
    ///
    /// # Safety
    /// The head must live until the buffer is dropped, and no other code may access it while a
    /// reference from the buffer lives.
    #[inline]
    pub unsafe fn headed(head: Head, payload: Payload) -> Self {
        Self { head: Some(head), payload }
    }

    /// Replaces the head.
    ///
    /// # Safety
    /// As for [`Self::headed`].
    pub unsafe fn set_head(&mut self, head: Head) {
        self.head = Some(head);
    }

    /// Returns whether the payload is a copy.
    pub fn is_copy(&self) -> bool {
        matches!(self.payload, Payload::Owned(_))
    }

    /// Replaces the payload by a copy of it.
    pub fn copy_payload(&mut self) {
        if !matches!(self.payload, Payload::Owned(_)) {
            self.payload = self.payload.to_owned();
        }
    }

    /// Releases the application's memory although the request continues: the rest of a send is
    /// zeros, and the rest of a receive is dropped.
    pub fn release(&mut self) {
        self.payload = Payload::Gone(self.payload.len());
    }

    /// Returns the length of the head, 0 or [`HEAD_BYTES`].
    #[inline]
    fn head_len(&self) -> usize {
        if self.head.is_some() { HEAD_BYTES } else { 0 }
    }
}

impl Buffer for MessageBuffer {
    #[inline]
    fn len(&self) -> usize {
        self.head_len().saturating_add(self.payload.len())
    }

    #[inline]
    fn bytes(&self, at: usize) -> &[u8] {
        match self.head {
            // SAFETY: as `headed` requires, the head lives, and no code writes it during the
            // borrow.
            Some(head) if at < HEAD_BYTES => unsafe { head.as_ref() }.get(at..).unwrap_or_default(),
            _ => self.payload.bytes(at.saturating_sub(self.head_len())),
        }
    }

    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: as for `bytes`.
        let head = self.head.as_ref().map(|head| unsafe { head.as_ref() }.as_slice());
        let head = head.unwrap_or_default();
        let body = self.payload.bytes(0);
        (body.len() == self.payload.len()).then_some((head, body))
    }

    #[inline(always)]
    fn two_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: as `headed` requires, the head lives, and no other code accesses it during the
        // borrow.
        let head = self.head.as_mut().map(|head| unsafe { head.as_mut() }.as_mut_slice());
        (head.unwrap_or_default(), self.payload.bytes_mut(0))
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let before = self.head_len();
        match &mut self.head {
            Some(head) if at < HEAD_BYTES => {
                // SAFETY: as for `two_mut`.
                unsafe { head.as_mut() }.get_mut(at..).unwrap_or_default()
            }
            _ => self.payload.bytes_mut(at.saturating_sub(before)),
        }
    }
}
