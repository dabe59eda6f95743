//! The application's memory as the engine sees it, with a head of ours before it where a message
//! has one.

use std::ptr::NonNull;

use causeway_message::library::Buffer;

/// Bytes of a head.
pub const HEAD_BYTES: usize = 16;

/// Where a head lies while a request has it.
pub type Head = NonNull<[u8; HEAD_BYTES]>;

/// Memory of the application, or a copy of it.
#[derive(Debug, Clone)]
pub enum Place {
    /// One piece.
    One(*mut u8, usize),
    /// Several, and their bytes in all.
    Many(Box<[(*mut u8, usize)]>, usize),
    /// Ours.
    Owned(Box<[u8]>),
    /// It was there, and so long: whoever reads it gets zeros, and what is written is nowhere.
    Gone(usize),
}

/// What is read where nothing is any more.
static ZEROS: [u8; 4096] = [0; 4096];

// SAFETY: the application gave the memory to the operation, whichever thread ends it.
unsafe impl Send for Place {}

impl Place {
    /// No bytes.
    pub const NOWHERE: Self = Self::One(std::ptr::null_mut(), 0);

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::One(_, len) | Self::Many(_, len) | Self::Gone(len) => *len,
            Self::Owned(bytes) => bytes.len(),
        }
    }

    /// Where it begins, as the application is told.
    pub fn start(&self) -> usize {
        match self {
            Self::One(start, _) => start.addr(),
            Self::Many(pieces, _) => pieces.first().map_or(0, |(start, _)| start.addr()),
            Self::Owned(_) | Self::Gone(_) => 0,
        }
    }

    /// The piece in which `at` lies, from there on.
    #[inline]
    fn find(&self, at: usize) -> (*mut u8, usize) {
        match self {
            Self::One(start, len) => {
                let at = at.min(*len);
                (start.wrapping_add(at), len.saturating_sub(at))
            }
            Self::Many(pieces, _) => {
                let mut at = at;
                for &(start, len) in pieces {
                    if at < len {
                        return (start.wrapping_add(at), len.saturating_sub(at));
                    }
                    at = at.saturating_sub(len);
                }
                (std::ptr::null_mut(), 0)
            }
            Self::Owned(bytes) => {
                let bytes = bytes.get(at..).unwrap_or_default();
                (bytes.as_ptr().cast_mut(), bytes.len())
            }
            Self::Gone(len) => (ZEROS.as_ptr().cast_mut(), len.saturating_sub(at).min(ZEROS.len())),
        }
    }

    /// The bytes from `at` to the end of the piece in which it lies.
    #[inline]
    pub fn bytes(&self, at: usize) -> &[u8] {
        let (start, len) = self.find(at);
        if len == 0 {
            return &[];
        }
        // SAFETY: the application gave the memory to the operation until that completes, or it is
        // ours; the request that has it ends before.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// The same, to be written.
    #[inline]
    pub fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => return bytes.get_mut(at..).unwrap_or_default(),
            Self::Gone(_) => return &mut [],
            Self::One(..) | Self::Many(..) => {}
        }
        let (start, len) = self.find(at);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and by the interface nobody else looks at it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
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

// SAFETY: the application gave the memory to the operation, whichever thread ends it; heads are
// reached under the lock of their domain.
unsafe impl Send for Parcel {}

impl Parcel {
    /// Without a head.
    pub fn bare(place: Place) -> Self {
        Self { head: None, place }
    }

    /// With the head of an operation, which lives as long as the request does.
    pub fn headed(head: Head, place: Place) -> Self {
        Self { head: Some(head), place }
    }

    /// Its head lies there from now on, with the same bytes.
    pub fn set_head(&mut self, head: Option<Head>) {
        self.head = head;
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
            // SAFETY: heads lie still, and are written by nobody else while a request has them.
            Some(head) if at < HEAD_BYTES => unsafe { head.as_ref() }.get(at..).unwrap_or_default(),
            _ => self.place.bytes(at.saturating_sub(self.head_len())),
        }
    }

    #[inline]
    fn two(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: as above.
        let head = self.head.as_ref().map(|head| unsafe { head.as_ref() }.as_slice());
        let head = head.unwrap_or_default();
        let body = self.place.bytes(0);
        (body.len() == self.place.len()).then_some((head, body))
    }

    #[inline(always)]
    fn two_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: as above.
        let head = self.head.as_mut().map(|head| unsafe { head.as_mut() }.as_mut_slice());
        (head.unwrap_or_default(), self.place.bytes_mut(0))
    }

    #[inline]
    fn bytes_mut(&mut self, at: usize) -> &mut [u8] {
        let before = self.head_len();
        match &mut self.head {
            Some(head) if at < HEAD_BYTES => {
                // SAFETY: as above.
                unsafe { head.as_mut() }.get_mut(at..).unwrap_or_default()
            }
            _ => self.place.bytes_mut(at.saturating_sub(before)),
        }
    }
}
