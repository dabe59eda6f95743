//! Private memory of this process, in the place of a file's: for an adapter of the machine, which
//! reaches pages and not files.
//!
//! Processes in guests (`clients/endpoint`, in the thread of the call) allocate the rings, the
//! staging and the message buffers of a session by [`Mapping::private`] and register them with
//! their adapter; causewayd does not call it. The memory is zeroed, has at most
//! [`REGION_BYTES_MAX`] (16 TiB), and takes pages only when they are touched. It counts among the
//! mappings and addresses of the process, but no peer's share is checked. A refusal of the kernel,
//! also of the advice for children, and a mapping beyond the limit of the process are a
//! [`MappingError`], and nothing stays mapped. A further call maps further memory; the drop unmaps
//! it.

use std::ptr::{self, NonNull};
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{Mapping, MappingError};
use crate::addresses;
use crate::fault::Guard;
use crate::limits::REGION_BYTES_MAX;
use crate::owner::Owner;
use crate::substitute;

/// Size of a huge page, in bytes.
const HUGE: usize = 2 << 20;

impl Mapping {
    /// Maps `len` bytes of new, zeroed memory of this process, in huge pages where the kernel has
    /// them: the memory begins at a multiple of 2 MiB. A child of `fork(2)` finds zeroes in its
    /// place, so the kernel neither copies pages nor moves those of this process.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn private(len: u64) -> Result<Self, MappingError> {
        let range = || MappingError::Range { offset: 0, len };
        if len == 0 || len > REGION_BYTES_MAX {
            return Err(range());
        }
        let len = usize::try_from(len).map_err(|_| range())?;
        let mapped = len.checked_next_multiple_of(HUGE).ok_or_else(range)?;
        substitute::prepare()?;
        let base = aligned(mapped)?;
        let advise = |advice| {
            // SAFETY: the range was mapped for this call alone; none of these advices loses its contents.
            unsafe { rustix::mm::madvise(base.as_ptr().cast(), mapped, advice) }
        };
        // Without it, pages would move while a child exists.
        let wiped = advise(Advice::LinuxWipeOnFork);
        // Only speed and core dumps suffer if the kernel refuses these.
        let _ = advise(Advice::LinuxHugepage);
        let _ = advise(Advice::LinuxDontDump);
        let guard = Guard::new(base.as_ptr() as usize, mapped);
        let full = guard.is_none();
        // Built even after a failure, so that Drop unmaps.
        let mapping = Self {
            base,
            mapped,
            skip: 0,
            len,
            is_small: false,
            owner: Owner::now(),
            file: None,
            mirrors: Mutex::default(),
            runs: None,
            guard,
        };
        addresses::take(mapped);
        wiped?;
        if full { Err(MappingError::Many) } else { Ok(mapping) }
    }
}

/// Maps `len` bytes at a multiple of [`HUGE`].
fn aligned(len: usize) -> Result<NonNull<u8>, MappingError> {
    let whole = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
    let start = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), whole, access, flags) }?;
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE).min(HUGE);
    let behind = HUGE.saturating_sub(before);
    // SAFETY: `before <= HUGE`, so the parts before and behind the aligned bytes, and their start, lie in
    // the mapping above, which has no other user.
    unsafe {
        let base = start.add(before);
        if before > 0 {
            rustix::mm::munmap(start.cast(), before)?;
        }
        if behind > 0 {
            rustix::mm::munmap(base.add(len).cast(), behind)?;
        }
        NonNull::new(base).ok_or(MappingError::Kernel(Errno::NOMEM))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::View;

    #[test]
    fn mapping_private_is_aligned_zeroed_and_keeps_its_bytes() {
        let mapping = Arc::new(Mapping::private(5000).unwrap());
        assert_eq!(mapping.len(), 5000);
        let view = View::new(mapping, 0, 5000).unwrap();
        assert_eq!(view.as_ptr().align_offset(HUGE), 0);
        assert_eq!(view.read::<5000>(0).unwrap(), [0; 5000]);
        view.write(4990, b"bytes").unwrap();
        assert_eq!(&view.read::<5>(4990).unwrap(), b"bytes");
        assert!(view.read::<5>(4996).is_err() && !view.is_poisoned());
        assert!(matches!(Mapping::private(0), Err(MappingError::Range { .. })));
    }

    #[test]
    fn mapping_private_is_wiped_in_a_child() {
        let view = View::new(Arc::new(Mapping::private(4096).unwrap()), 0, 4096).unwrap();
        view.write(0, b"parent").unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", view.as_ptr() as usize);
        let of = maps.split("\nVmFlags:").find(|part| part.lines().any(|l| l.starts_with(&begin)));
        assert!(of.is_some());
        let flags = maps.split_once(&begin).unwrap().1.split_once("VmFlags:").unwrap().1;
        let flags: Vec<&str> = flags.lines().next().unwrap().split_whitespace().collect();
        assert!(flags.contains(&"wf"), "{flags:?}");
    }
}
