//! Fault recovery: a granted file that shrinks must not end this process.
//!
//! An access to a page beyond the end of its file raises SIGBUS. The handler finds the mapping of
//! the address in a fixed, lock-free table, marks it poisoned, and replaces all of it by zeroed
//! memory (`crate::substitute`), so that the access completes (reads return zeros). The code that
//! accesses a guest's memory checks the mark ([`crate::Map::is_poisoned`]) once per batch, and
//! `fabric` ends the attachment of that guest. A SIGBUS at any other address is passed to the
//! previous handler, and ends the process if there is none.
//!
//! The handler runs in the thread that faulted, takes no lock, allocates nothing, and searches at
//! most [`MAPPINGS_MAX`] (60,000) entries; a mapping beyond them is refused with
//! `MappingError::Many`. It is installed with the first mapping and never removed. If a mapping
//! cannot be replaced, single pages are; if that fails too, the signal passes to the previous
//! handler. The data read from a lost page is wrong (zeros), and writes to it are lost: the module
//! does not report a fault to the access itself. Faults inside system calls raise no signal
//! (EFAULT): callers mark them by [`crate::Map::poison`], which replaces nothing.
//!
//! [`crate::Mapping`] registers and frees its entry in the table (`crate::slot`). Wayland
//! compositors use the same technique for client buffers (`wl_shm`).

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::limits::MAPPINGS_MAX;
use crate::slot::MappingSlot;
use crate::substitute;

/// A mapping, as the handler sees it.
struct HandlerEntry {
    slot: MappingSlot<AtomicUsize>,
    /// Whether a page of the mapping was lost.
    poisoned: AtomicBool,
    /// Start of its replacement in the substitute; 0 if it was not replaced.
    replaced: AtomicU64,
}

/// The handler's table of mappings.
static SLOTS: [HandlerEntry; MAPPINGS_MAX] = [const {
    HandlerEntry {
        slot: MappingSlot::new(),
        poisoned: AtomicBool::new(false),
        replaced: AtomicU64::new(0),
    }
}; MAPPINGS_MAX];
/// One past the highest slot ever used: bounds the handler's search.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
/// Index at which the search for a free slot begins.
static HINT: AtomicUsize = AtomicUsize::new(0);
/// Mappings poisoned by the handler so far.
static FAULTS: AtomicU64 = AtomicU64::new(0);
static INSTALL: Once = Once::new();
/// The handler that was installed before; null before the first mapping.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

/// Returns how many mappings the handler has poisoned since the process started.
pub fn faults_total() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// Returns whether a mapping has this address.
#[cfg(feature = "trace")]
pub(crate) fn is_mapped(address: usize) -> bool {
    let used = SLOTS_USED.load(Ordering::Acquire);
    let mut found = SLOTS.iter().take(used).filter_map(|entry| entry.slot.get());
    found.any(|(base, len)| address >= base && address.wrapping_sub(base) < len)
}

/// A mapping's entry in the handler's table; freed on drop, which must come before `munmap`.
#[derive(Debug)]
pub(crate) struct Guard {
    slot: usize,
}

impl Guard {
    /// Registers `[base, base + len)` with the handler; `None` when the table is full.
    pub(crate) fn new(base: usize, len: usize) -> Option<Self> {
        INSTALL.call_once(install);
        // Free slots are mostly where the last was found.
        let start = HINT.load(Ordering::Relaxed);
        let after = SLOTS.iter().enumerate().skip(start);
        let before = SLOTS.iter().enumerate().take(start);
        let (slot, entry) = after.chain(before).find(|(_, entry)| entry.slot.claim())?;
        HINT.store(slot, Ordering::Relaxed);
        SLOTS_USED.fetch_max(slot.saturating_add(1), Ordering::AcqRel);
        entry.poisoned.store(false, Ordering::Relaxed);
        entry.replaced.store(0, Ordering::Relaxed);
        entry.slot.fill(base, len);
        Some(Self { slot })
    }

    /// Returns whether a page of the mapping was lost.
    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        SLOTS.get(self.slot).is_none_or(|s| s.poisoned.load(Ordering::Relaxed))
    }

    /// Returns the start of the mapping's replacement in the substitute, if it was replaced.
    pub(crate) fn replaced(&self) -> Option<u64> {
        let at = SLOTS.get(self.slot)?.replaced.load(Ordering::Relaxed);
        Some(at).filter(|at| *at > 0)
    }

    /// Replaces the mapping `[base, base + len)` of the guard by zeroed memory. Returns whether it
    /// is replaced now.
    ///
    /// # Safety
    /// The range is the mapping that the guard was made for, and nothing holds a reference into it.
    pub(crate) unsafe fn withdraw(&self, base: usize, len: usize) -> bool {
        let Some(entry) = SLOTS.get(self.slot) else { return false };
        if self.replaced().is_some() {
            return true;
        }
        // SAFETY: as the caller guarantees.
        let replaced = unsafe { substitute::replace(base, len) };
        if let Some(at) = replaced {
            entry.replaced.store(at, Ordering::Relaxed);
        }
        replaced.is_some()
    }

    /// Makes the next fault find its mapping already replaced.
    #[cfg(test)]
    fn pretend_replaced(&self) {
        SLOTS[self.slot].replaced.store(u64::MAX, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn forget_replaced(&self) {
        SLOTS[self.slot].replaced.store(0, Ordering::Relaxed);
    }

    /// Marks the mapping, for faults that a system call reported instead of a signal.
    pub(crate) fn poison(&self) {
        if let Some(slot) = SLOTS.get(self.slot) {
            slot.poisoned.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(entry) = SLOTS.get(self.slot) {
            entry.slot.empty();
            HINT.fetch_min(self.slot, Ordering::Relaxed);
        }
    }
}

/// Installs the handler. Stores the previous handler first: a fault of the application may occur as
/// soon as ours is in place, and ends the process if no previous handler is known.
fn install() {
    let known = action(None).inspect(remember);
    // SAFETY: an all-zero sigaction is a valid value (default handler, empty mask).
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handle as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // Another thread may have installed a handler meanwhile.
    let replaced = action(Some(&new));
    let is_known = |old: &libc::sigaction| {
        known.is_some_and(|known| {
            (known.sa_sigaction, known.sa_flags) == (old.sa_sigaction, old.sa_flags)
        })
    };
    if let Some(old) = replaced.filter(|old| !is_known(old)) {
        remember(&old);
    }
}

/// Stores the handler for foreign faults. Both handlers that a process stores stay allocated: the
/// signal handler may read either.
fn remember(old: &libc::sigaction) {
    PREVIOUS.store(Box::into_raw(Box::new(*old)), Ordering::Release);
}

/// Returns the action of SIGBUS, and replaces it by `new` if given.
fn action(new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an all-zero sigaction is a valid value (default handler, empty mask).
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `old` is a live value, and `new` is null or one whose handler has the signature that
    // SA_SIGINFO asks for and uses nothing but atomics and system calls.
    let done = unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut old) };
    (done == 0).then_some(old)
}

/// The SIGBUS handler: async-signal-safe (atomics, and the system calls `mmap`, `mremap`, `fstat`
/// and `sigaction`).
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo_t to an SA_SIGINFO handler, and SIGBUS carries an
    // address.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = SLOTS_USED.load(Ordering::Acquire);
    for entry in SLOTS.iter().take(used) {
        let Some((base, len)) = entry.slot.get() else { continue };
        if address < base || address.wrapping_sub(base) >= len {
            continue;
        }
        // A second fault of one mapping: its substitute gets no memory either.
        let again = entry.replaced.load(Ordering::Relaxed) > 0;
        // SAFETY: [base, base + len) was a mapping of ours at one time since the fault, and so
        // was the one that is touched, which outlives the access; mappings do not overlap, so it
        // is that one. Nothing holds a reference into it.
        let whole = if again { None } else { unsafe { substitute::replace(base, len) } };
        if let Some(at) = whole {
            entry.replaced.store(at, Ordering::Relaxed);
        }
        // SAFETY: as above, of a page of it.
        if whole.is_some() || unsafe { substitute::replace_page(address) } {
            if !entry.poisoned.swap(true, Ordering::Relaxed) {
                FAULTS.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
    }
    forward(signal, info, context);
}

/// Passes a foreign fault to the previous handler, or lets the default action end the process.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.load(Ordering::Acquire);
    // SAFETY: PREVIOUS is null or a leaked, never changed sigaction.
    let action = unsafe { previous.as_ref() };
    match action {
        Some(old) if old.sa_flags & libc::SA_SIGINFO != 0 && old.sa_sigaction > 1 => {
            // SAFETY: with SA_SIGINFO the field holds a three-argument handler.
            let run: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(old.sa_sigaction) };
            run(signal, info, context);
        }
        Some(old) if old.sa_sigaction > 1 => {
            // SAFETY: without SA_SIGINFO the field holds a one-argument handler.
            let run: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(old.sa_sigaction) };
            run(signal);
        }
        _ => {
            // SAFETY: an all-zero sigaction is the default action; the faulting instruction then
            // runs again and ends the process as it would have without us.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, std::ptr::null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use crate::Mapping;

    #[test]
    fn hostile_shrink_with_no_memory_for_a_substitute_reads_zeros_from_the_sink() {
        let file = rustix::fs::memfd_create("sink", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 20).unwrap();
        let mapping = Mapping::new(file.as_fd(), 0, 1 << 20).unwrap();
        mapping.guard().pretend_replaced();
        rustix::fs::ftruncate(&file, 0).unwrap();
        for at in [5000, 5001, 900_000] {
            let (byte, _) = mapping.at(at).unwrap();
            // SAFETY: a mapped byte of this test alone.
            let read = unsafe {
                let read = byte.read_volatile();
                byte.write_volatile(7);
                read
            };
            // The second byte lies on the page that the first was written to.
            assert_eq!(read, 0, "{at}");
        }
        assert!(mapping.is_poisoned());
        mapping.guard().forget_replaced();
    }
}
