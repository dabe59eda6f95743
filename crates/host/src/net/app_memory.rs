//! Memory of the application's own process, lent for a time and sent from its place.
//!
//! This process does not touch lent memory; the kernel does, and detects missing pages. An owner
//! that frees or reuses lent memory therefore causes other bytes to be sent, or none, and no fault.
//! A loan ends in two steps: after [`AppMemory::take_back`] no further piece of it is handed out,
//! though earlier pieces stay usable; [`AppMemory::give`] frees its address. Only the second
//! reduces the number of loans.
//!
//! At most [`OWN_LOANS_MAX`] (4,096) ranges of less than 4 GiB are lent at a time;
//! [`AppMemory::lend`] refuses more, and the caller copies. Memory is lent for reading only. A loan
//! does not pin pages and does not stop the owner from changing them. Any thread may call; a lock
//! guards the list of loans.
//!
//! Long MX messages of an endpoint that sends directly to the network pass here: `clients/endpoint`
//! lends the application's buffer, the MXoE engine addresses it as a region, and
//! [`crate::net::send`] sends its pieces.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::limits::OWN_LOANS_MAX;

/// Address range of a loan in the region, in bytes; longer than the longest message.
const LOAN_BYTES: u64 = 1 << 32;

/// A lent range of memory.
#[derive(Debug)]
struct Loan {
    /// Address of the first byte in this process.
    start: usize,
    /// Length, in bytes.
    len: usize,
    /// Set when the owner took the range back, or its pages are missing.
    gone: AtomicBool,
}

/// The list of loans.
#[derive(Debug)]
struct Loans {
    /// By index; the address of a loan in the region is its index times [`LOAN_BYTES`].
    all: Vec<Option<Arc<Loan>>>,
    /// Indices without a loan.
    free: Vec<usize>,
}

/// The state that clones of an [`AppMemory`] share.
#[derive(Debug)]
struct Lender {
    loans: Mutex<Loans>,
    /// A file through which lent memory is read: the kernel copies the bytes into it. So exactly
    /// the pages that a send may read can be read, in any mapping and under any filter of system
    /// calls.
    by: Mutex<OwnedFd>,
}

/// All lent memory of a process, addressed as a region. Clones refer to the same memory.
#[derive(Debug, Clone)]
pub struct AppMemory(Arc<Lender>);

/// A piece of lent memory.
#[derive(Debug, Clone)]
pub struct AppMemoryPiece {
    whole: AppMemory,
    /// The loan in which the piece lies.
    of: Arc<Loan>,
    /// Offset in the loan, in bytes.
    at: usize,
    len: usize,
}

/// Returns the index of the loan at an address of the region.
fn loan_index(at: u64) -> usize {
    usize::try_from(at / LOAN_BYTES).unwrap_or(usize::MAX)
}

impl AppMemory {
    /// Length of the region, in bytes.
    pub const BYTES: u64 = LOAN_BYTES * OWN_LOANS_MAX as u64;

    /// Creates a region in which nothing is lent.
    ///
    /// # Errors
    /// The host refuses the memory file.
    pub fn new() -> io::Result<Self> {
        let by = Mutex::new(memfd_create("causeway-own", MemfdFlags::CLOEXEC)?);
        let loans = Mutex::new(Loans { all: Vec::new(), free: Vec::new() });
        Ok(Self(Arc::new(Lender { loans, by })))
    }

    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.0.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a range of memory until it is [given back](Self::give). Returns its address in the
    /// region, or `None` if 4,096 ranges are lent or the range has 4 GiB or more.
    pub fn lend(&self, start: *const u8, len: usize) -> Option<u64> {
        let start = start.expose_provenance();
        if len as u64 >= LOAN_BYTES {
            return None;
        }
        let mut loans = self.loans();
        let lent = Some(Arc::new(Loan { start, len, gone: AtomicBool::new(false) }));
        let at = match loans.free.pop() {
            Some(at) => {
                *loans.all.get_mut(at)? = lent;
                at
            }
            None if loans.all.len() < OWN_LOANS_MAX => {
                loans.all.push(lent);
                loans.all.len().wrapping_sub(1)
            }
            None => return None,
        };
        Some((at as u64).wrapping_mul(LOAN_BYTES))
    }

    /// Returns the loan at an address of the region.
    fn lent(&self, at: u64) -> Option<Arc<Loan>> {
        self.loans().all.get(loan_index(at))?.clone()
    }

    /// Withdraws a loan before it is given back: no further piece of it is handed out. The owner
    /// must still call [`Self::give`]. No effect if nothing is lent there.
    pub fn take_back(&self, at: u64) {
        if let Some(lent) = self.lent(at) {
            lent.gone.store(true, Ordering::Release);
        }
    }

    /// Ends a loan that no request refers to any more; a later loan may have its address. No effect
    /// if nothing is lent there.
    pub fn give(&self, at: u64) {
        let (mut loans, place) = (self.loans(), loan_index(at));
        if loans.all.get_mut(place).is_some_and(|lent| lent.take().is_some()) {
            loans.free.push(place);
        }
    }

    /// Returns `len` bytes at an address of the region, or `None` if they are not lent.
    pub fn piece(&self, at: u64, len: usize) -> Option<AppMemoryPiece> {
        let of = self.lent(at).filter(|lent| !lent.gone.load(Ordering::Acquire))?;
        let at = usize::try_from(at % LOAN_BYTES).ok()?;
        (at.checked_add(len)? <= of.len).then(|| AppMemoryPiece {
            whole: self.clone(),
            of,
            at,
            len,
        })
    }
}

impl AppMemoryPiece {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, for the kernel: this process must not dereference it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.of.start.wrapping_add(self.at))
    }

    /// Copies the first bytes out by the kernel. Returns `false` if pages are missing, or if `into`
    /// is longer than the piece; the loan is withdrawn then.
    pub fn read_into(&self, into: &mut [u8]) -> bool {
        let by = self.whole.0.by.lock().unwrap_or_else(PoisonError::into_inner);
        let len = into.len();
        // SAFETY: only the kernel dereferences the address, and detects missing pages.
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
    use crate::net::send::{FrameBody, OutgoingFrame, send_each};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd as _;

    #[test]
    fn app_memory_is_lent_until_it_is_given_or_taken_back() {
        let (own, first, second) = (AppMemory::new().unwrap(), vec![1; 100], vec![2; 50]);
        let lend = |bytes: &[u8]| own.lend(bytes.as_ptr(), bytes.len());
        let (a, b) = (lend(&first).unwrap(), lend(&second).unwrap());
        let read = |at, len| {
            let mut bytes = vec![0; len];
            own.piece(at, len).is_some_and(|piece| piece.read_into(&mut bytes)).then_some(bytes)
        };
        assert_eq!(read(a + 10, 90), Some(vec![1; 90]));
        assert_eq!(read(b, 50), Some(vec![2; 50]));
        for (at, len) in [(a, 101), (a + 100, 1), (b + 1, 50), (b + LOAN_BYTES, 1), (u64::MAX, 2)] {
            assert!(own.piece(at, len).is_none(), "{at} {len}");
        }
        own.take_back(a);
        assert!(own.piece(a, 1).is_none());
        // The address is reused only after the loan is given back.
        let c = lend(&second).unwrap();
        assert!(c != a && c != b);
        own.give(a);
        own.give(a);
        assert_eq!(lend(&second), Some(a));
        assert_eq!(lend(&first), Some(c + LOAN_BYTES), "given once");
        assert_eq!(read(a, 50), Some(vec![2; 50]));
    }

    #[test]
    fn app_memory_loans_are_bounded() {
        let own = AppMemory::new().unwrap();
        let lend = |bytes: &[u8]| own.lend(bytes.as_ptr(), bytes.len());
        let all: Vec<u64> = (0..OWN_LOANS_MAX).map(|_| lend(&[1]).unwrap()).collect();
        let last = all[OWN_LOANS_MAX - 1];
        assert!(last + LOAN_BYTES <= AppMemory::BYTES);
        assert_eq!(lend(&[1]), None);
        own.give(last);
        assert_eq!(lend(&[1]), Some(last));
    }

    #[test]
    fn hostile_owners_who_unmap_what_they_lent_lose_their_frames_and_nothing_else() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let own = AppMemory::new().unwrap();
        let protect = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), 8192, protect, MapFlags::PRIVATE) }
                .unwrap();
        // SAFETY: these bytes are mapped, and no other code refers to them.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), 8192) };
        let at = own.lend(bytes.as_ptr(), bytes.len()).unwrap();
        let body = FrameBody::Own(own.piece(at, 5000).unwrap());
        let frame = OutgoingFrame { head: b"head", body: Some(&body) };
        assert_eq!(send_each(a.as_fd(), std::iter::once(frame)).unwrap(), 1);
        let mut room = vec![1; 6000];
        assert_eq!(rustix::io::read(&b, &mut room).unwrap(), 5004);
        assert_eq!(room[..5004], [&b"head"[..], &[0; 5000]].concat());
        // SAFETY: no reference to the mapping is used after this.
        unsafe { munmap(start, 8192) }.unwrap();
        let sent = send_each(a.as_fd(), std::iter::once(frame)).unwrap_err();
        assert_eq!(sent.raw_os_error(), Some(libc::EFAULT));
        assert!(own.piece(at, 1).is_some());
        assert!(!body.read_into(&mut [0; 5000]));
        assert!(own.piece(at, 1).is_none(), "the loss is remembered");
    }
}
