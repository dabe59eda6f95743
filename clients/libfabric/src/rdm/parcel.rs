//! The application's memory as the engine sees it, with a head of ours before it where a message
//! has one.

use std::ptr::NonNull;

use causeway_message::library::Buffer;

use super::span::Span;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 16;

/// Where a head lies while a request has it.
pub type Head = NonNull<[u8; HEAD_BYTES]>;

/// Memory of the application, or a copy of it.
#[derive(Debug)]
pub enum Place {
    /// One piece.
    One(Span),
    /// Several, and their bytes in all.
    Many(Box<[Span]>, usize),
    /// Ours.
    Owned(Box<[u8]>),
    /// Memory of that length that is the application's again: zeros are read, and what is written is
    /// dropped.
    Gone(usize),
}

/// What is read where nothing is any more.
static ZEROS: [u8; 4096] = [0; 4096];

/// Returns the piece in which the byte `at` of all of them lies, and where it lies there.
fn find(pieces: &[Span], mut at: usize) -> Option<(usize, usize)> {
    for (number, piece) in pieces.iter().enumerate() {
        if at < piece.len() {
            return Some((number, at));
        }
        at = at.saturating_sub(piece.len());
    }
    None
}

impl Place {
    /// No bytes.
    pub const NOWHERE: Self = Self::One(Span::EMPTY);

    /// Returns the place of several pieces, or `None` if they have more bytes than can be counted.
    pub fn of(mut pieces: Vec<Span>) -> Option<Self> {
        if pieces.len() <= 1 {
            return Some(pieces.pop().map_or(Self::NOWHERE, Self::One));
        }
        let sum = pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len()))?;
        Some(Self::Many(pieces.into(), sum))
    }

    /// Returns the same place once more.
    ///
    /// # Safety
    /// As of [`Span::alias`].
    #[inline]
    pub unsafe fn alias(&self) -> Self {
        match self {
            // SAFETY: as the caller says.
            Self::One(piece) => Self::One(unsafe { piece.alias() }),
            Self::Many(pieces, len) => {
                // SAFETY: as the caller says.
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

    /// Returns the address of the first byte, as the application is told.
    pub fn start(&self) -> usize {
        match self {
            Self::One(piece) => piece.address(),
            Self::Many(pieces, _) => pieces.first().map_or(0, Span::address),
            Self::Owned(_) | Self::Gone(_) => 0,
        }
    }

    /// Returns the bytes from `at` to the end of the piece in which it lies.
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

    /// Returns the bytes from `at` to the end of the piece in which it lies, to be written.
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

    /// Reads a value that the application may write meanwhile ([`Span::load`]), byte by byte where it
    /// crosses pieces.
    pub fn load(&self, at: usize, value: &mut [u8]) {
        if !self.piece(at).is_some_and(|(piece, at)| piece.load(at, value)) {
            for (byte, at) in value.iter_mut().zip(at..) {
                if let Some((piece, at)) = self.piece(at) {
                    piece.load(at, std::slice::from_mut(byte));
                }
            }
        }
    }

    /// Writes a value that the application may poll ([`Span::store`]), byte by byte where it crosses
    /// pieces.
    pub fn store(&mut self, at: usize, value: &[u8]) {
        if !self.piece_mut(at).is_some_and(|(piece, at)| piece.store(at, value)) {
            for (byte, at) in value.iter().zip(at..) {
                if let Some((piece, at)) = self.piece_mut(at) {
                    piece.store(at, std::slice::from_ref(byte));
                }
            }
        }
    }

    /// Writes bytes that the application may poll ([`Span::publish`]).
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

    /// Returns the application's piece in which the byte `at` lies, and where it lies there.
    fn piece(&self, at: usize) -> Option<(&Span, usize)> {
        match self {
            Self::One(piece) => Some((piece, at)),
            Self::Many(pieces, _) => {
                find(pieces, at).and_then(|(n, at)| Some((pieces.get(n)?, at)))
            }
            Self::Owned(_) | Self::Gone(_) => None,
        }
    }

    /// Returns the same, to be written.
    fn piece_mut(&mut self, at: usize) -> Option<(&mut Span, usize)> {
        match self {
            Self::One(piece) => Some((piece, at)),
            Self::Many(pieces, _) => {
                let (n, at) = find(pieces, at)?;
                Some((pieces.get_mut(n)?, at))
            }
            Self::Owned(_) | Self::Gone(_) => None,
        }
    }

    /// A copy of all bytes, in place of them.
    pub fn to_owned(&self) -> Self {
        Self::Owned(self.to_vec().into())
    }

    /// A copy of all bytes.
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

    /// Copies bytes in; says how many found room.
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

impl Buffer for Place {
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

/// What a request of the engine sends or receives.
#[derive(Debug)]
pub struct Parcel {
    head: Option<Head>,
    place: Place,
}

// SAFETY: the memory is of spans, which may be sent, and of a head, which `headed` says is reached by
// nobody else meanwhile: in one thread at a time, under the lock of the domain.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Without a head.
    pub fn bare(place: Place) -> Self {
        Self { head: None, place }
    }

    /// Returns what has the head of an operation before its bytes.
    ///
    /// # Safety
    /// Until the parcel is dropped the head is there, and nobody reaches it while a reference from
    /// the parcel is there.
    #[inline]
    pub unsafe fn headed(head: Head, place: Place) -> Self {
        Self { head: Some(head), place }
    }

    /// Puts another head in place of the one before, with the same bytes.
    ///
    /// # Safety
    /// As of [`Self::headed`].
    pub unsafe fn set_head(&mut self, head: Head) {
        self.head = Some(head);
    }

    /// Whether the bytes are its own.
    pub fn is_own(&self) -> bool {
        matches!(self.place, Place::Owned(_))
    }

    /// From now on the bytes are its own.
    pub fn own(&mut self) {
        if !matches!(self.place, Place::Owned(_)) {
            self.place = self.place.to_owned();
        }
    }

    /// The memory is the application's again, although the request goes on.
    pub fn lose(&mut self) {
        self.place = Place::Gone(self.place.len());
    }

    #[inline]
    fn head_len(&self) -> usize {
        if self.head.is_some() { HEAD_BYTES } else { 0 }
    }
}

impl Buffer for Parcel {
    #[inline]
    fn len(&self) -> usize {
        self.head_len().saturating_add(self.place.len())
    }

    #[inline]
    fn bytes(&self, at: usize) -> &[u8] {
        match self.head {
            // SAFETY: `headed` says that the head is there and nobody writes it meanwhile.
            Some(head) if at < HEAD_BYTES => unsafe { head.as_ref() }.get(at..).unwrap_or_default(),
            _ => self.place.bytes(at.saturating_sub(self.head_len())),
        }
    }

    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: as of `bytes`.
        let head = self.head.as_ref().map(|head| unsafe { head.as_ref() }.as_slice());
        let head = head.unwrap_or_default();
        let body = self.place.bytes(0);
        (body.len() == self.place.len()).then_some((head, body))
    }

    #[inline(always)]
    fn two_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: `headed` says that the head is there and nobody reaches it meanwhile.
        let head = self.head.as_mut().map(|head| unsafe { head.as_mut() }.as_mut_slice());
        (head.unwrap_or_default(), self.place.bytes_mut(0))
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let before = self.head_len();
        match &mut self.head {
            Some(head) if at < HEAD_BYTES => {
                // SAFETY: as of `two_mut`.
                unsafe { head.as_mut() }.get_mut(at..).unwrap_or_default()
            }
            _ => self.place.bytes_mut(at.saturating_sub(before)),
        }
    }
}
