//! Memory of the application's own process, lent for a while and sent from its place.
//!
//! This process does not touch lent memory; the kernel does, and detects missing pages. An owner that
//! frees or reuses lent memory therefore causes other bytes to be sent, or none, and no fault. After
//! memory was taken back no further piece of it is handed out; earlier pieces stay usable.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::limits::OWN_PLACES_MAX;

/// Addresses that each place has: more than the longest message has bytes.
const PLACE_BYTES: u64 = 1 << 32;

/// What is lent of one message.
#[derive(Debug)]
struct Lent {
    start: usize,
    len: usize,
    /// It was taken back, or is not there.
    gone: AtomicBool,
}

#[derive(Debug)]
struct Places {
    all: Vec<Option<Arc<Lent>>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Whole {
    places: Mutex<Places>,
    /// What is read goes by way of it: the kernel reads there what it may read to send it, from any
    /// mapping and under any filter of system calls.
    by: Mutex<OwnedFd>,
}

/// All that is lent, as if it were one region. Clones are the same.
#[derive(Debug, Clone)]
pub struct OwnMemory(Arc<Whole>);

/// Some bytes that are lent.
#[derive(Debug, Clone)]
pub struct OwnPiece {
    whole: OwnMemory,
    of: Arc<Lent>,
    at: usize,
    len: usize,
}

/// Which place of the region it is.
fn place(at: u64) -> usize {
    usize::try_from(at / PLACE_BYTES).unwrap_or(usize::MAX)
}

impl OwnMemory {
    /// Length of the region, in bytes.
    pub const BYTES: u64 = PLACE_BYTES * OWN_PLACES_MAX as u64;

    /// Nothing is lent yet.
    ///
    /// # Errors
    /// The host has no room for a file.
    pub fn new() -> io::Result<Self> {
        let by = Mutex::new(memfd_create("causeway-own", MemfdFlags::CLOEXEC)?);
        let places = Mutex::new(Places { all: Vec::new(), free: Vec::new() });
        Ok(Self(Arc::new(Whole { places, by })))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends so many bytes until they are [given back](Self::give): where they are in the region.
    /// None: too many are lent, or they are too long.
    pub fn lend(&self, start: *const u8, len: usize) -> Option<u64> {
        let start = start.expose_provenance();
        if len as u64 >= PLACE_BYTES {
            return None;
        }
        let mut places = self.places();
        let lent = Some(Arc::new(Lent { start, len, gone: AtomicBool::new(false) }));
        let at = match places.free.pop() {
            Some(at) => {
                *places.all.get_mut(at)? = lent;
                at
            }
            None if places.all.len() < OWN_PLACES_MAX => {
                places.all.push(lent);
                places.all.len().wrapping_sub(1)
            }
            None => return None,
        };
        Some((at as u64).wrapping_mul(PLACE_BYTES))
    }

    fn lent(&self, at: u64) -> Option<Arc<Lent>> {
        self.places().all.get(place(at))?.clone()
    }

    /// Their owner needs them, although they are not given back: they are not sent from now on.
    pub fn take_back(&self, at: u64) {
        if let Some(lent) = self.lent(at) {
            lent.gone.store(true, Ordering::Release);
        }
    }

    /// Nobody asks for them any more: the place is another's.
    pub fn give(&self, at: u64) {
        let (mut places, place) = (self.places(), place(at));
        if places.all.get_mut(place).is_some_and(|lent| lent.take().is_some()) {
            places.free.push(place);
        }
    }

    /// So many bytes of the region, if they are lent.
    pub fn piece(&self, at: u64, len: usize) -> Option<OwnPiece> {
        let of = self.lent(at).filter(|lent| !lent.gone.load(Ordering::Acquire))?;
        let at = usize::try_from(at % PLACE_BYTES).ok()?;
        (at.checked_add(len)? <= of.len).then(|| OwnPiece { whole: self.clone(), of, at, len })
    }
}

impl OwnPiece {
    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte, for the kernel: nobody else is to follow it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.of.start.wrapping_add(self.at))
    }

    /// Copies it out, by the kernel. False: it is not there, which is so from now on.
    pub fn read_into(&self, into: &mut [u8]) -> bool {
        let by = self.whole.0.by.lock().unwrap_or_else(PoisonError::into_inner);
        let len = into.len();
        // SAFETY: only the kernel follows the address, and finds out what is there.
        let put =
            unsafe { libc::pwrite(by.as_raw_fd(), self.as_ptr().cast_const().cast(), len, 0) };
        let whole = len <= self.len
            && usize::try_from(put) == Ok(len)
            && rustix::io::pread(&*by, &mut *into, 0) == Ok(len);
        if !whole {
            self.of.gone.store(true, Ordering::Release);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::send::{Body, Frame, send_each};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd as _;

    #[test]
    fn what_is_lent_is_there_until_it_is_given_or_taken_back() {
        let (own, first, second) = (OwnMemory::new().unwrap(), vec![1; 100], vec![2; 50]);
        let lend = |bytes: &[u8]| own.lend(bytes.as_ptr(), bytes.len());
        let (a, b) = (lend(&first).unwrap(), lend(&second).unwrap());
        let read = |at, len| {
            let mut bytes = vec![0; len];
            own.piece(at, len).is_some_and(|piece| piece.read_into(&mut bytes)).then_some(bytes)
        };
        assert_eq!(read(a + 10, 90), Some(vec![1; 90]));
        assert_eq!(read(b, 50), Some(vec![2; 50]));
        for (at, len) in [(a, 101), (a + 100, 1), (b + 1, 50), (b + PLACE_BYTES, 1), (u64::MAX, 2)]
        {
            assert!(own.piece(at, len).is_none(), "{at} {len}");
        }
        own.take_back(a);
        assert!(own.piece(a, 1).is_none());
        // Its place is another's only when it is given.
        let c = lend(&second).unwrap();
        assert!(c != a && c != b);
        own.give(a);
        own.give(a);
        assert_eq!(lend(&second), Some(a));
        assert_eq!(lend(&first), Some(c + PLACE_BYTES), "given once");
        assert_eq!(read(a, 50), Some(vec![2; 50]));
    }

    #[test]
    fn so_many_and_no_more() {
        let own = OwnMemory::new().unwrap();
        let lend = |bytes: &[u8]| own.lend(bytes.as_ptr(), bytes.len());
        let all: Vec<u64> = (0..OWN_PLACES_MAX).map(|_| lend(&[1]).unwrap()).collect();
        let last = all[OWN_PLACES_MAX - 1];
        assert!(last + PLACE_BYTES <= OwnMemory::BYTES);
        assert_eq!(lend(&[1]), None);
        own.give(last);
        assert_eq!(lend(&[1]), Some(last));
    }

    #[test]
    fn hostile_owners_who_unmap_what_they_lent_lose_their_frames_and_nothing_else() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let own = OwnMemory::new().unwrap();
        let protect = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 8192, protect, MapFlags::PRIVATE) }
                .unwrap();
        // SAFETY: so many bytes are mapped there, and nobody else has them.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), 8192) };
        let at = own.lend(bytes.as_ptr(), bytes.len()).unwrap();
        let body = Body::Own(own.piece(at, 5000).unwrap());
        let frame = Frame { head: b"head", body: Some(&body) };
        assert_eq!(send_each(a.as_fd(), std::iter::once(frame)).unwrap(), 1);
        let mut room = vec![1; 6000];
        assert_eq!(rustix::io::read(&b, &mut room).unwrap(), 5004);
        assert_eq!(room[..5004], [&b"head"[..], &[0; 5000]].concat());
        // SAFETY: nobody follows references to it any more.
        unsafe { munmap(start, 8192) }.unwrap();
        let sent = send_each(a.as_fd(), std::iter::once(frame)).unwrap_err();
        assert_eq!(sent.raw_os_error(), Some(libc::EFAULT));
        assert!(own.piece(at, 1).is_some());
        assert!(!body.read_into(&mut [0; 5000]));
        assert!(own.piece(at, 1).is_none(), "known from then on");
    }
}
