//! Mirrors: scattered pages of a guest as one contiguous mapping.
//!
//! A guest registers memory as a list of pages, while a ring needs one row of bytes.
//! [`Map::mirror`] maps the pages once more, in the order of the list, behind each other: the
//! kernel duplicates each run of adjacent pages of a shared mapping (`mremap` with an old length of
//! 0). No byte is copied, and the file's descriptor is not needed.
//!
//! A mirror is a [`Mapping`] of its own: it stays mapped after its source, is poisoned by itself if
//! the file shrinks, and is withdrawn with each of its sources ([`Mapping::withdraw`]). It does not
//! notice that the guest takes the memory away; the owner drops it then. A run of pages takes an
//! entry of the kernel's table of mappings, so that a mirror has at most the runs that its caller
//! permits, and all mirrors of the process at most [`MIRROR_RUNS_MAX`] (4,096); more is a
//! [`MirrorError`]. Pages of hugetlbfs are not mirrored: the kernel refuses to duplicate them. Any
//! thread may make mirrors; a run takes about 3 us. The service `mx` makes one for the rings of a
//! guest's process, in the dispatcher's turn; every call maps the pages once more.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, mremap_fixed, munmap};

use crate::limits::MIRROR_RUNS_MAX;
use crate::map::{Map, OutOfGrant};
use crate::mapping::{Mapping, MappingError};
use crate::mirror_runs::Runs;
use crate::rights::Rights;

/// Why pages are not mirrored.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// Bytes are not granted for reading and writing.
    #[error(transparent)]
    OutOfGrant(#[from] OutOfGrant),
    /// A range does not begin and end at a page, or there are no bytes.
    #[error("the range at guest address {0:#x} does not consist of whole pages")]
    Unaligned(u64),
    /// The pages lie in more runs than permitted.
    #[error("the pages lie in more than {0} places: use huge pages")]
    Scattered(usize),
    /// The process has [`MIRROR_RUNS_MAX`] (4,096) runs of mirrored pages.
    #[error(
        "this host mirrors as many runs of pages as it may ({MIRROR_RUNS_MAX}); try again later"
    )]
    Many,
    /// The guest's memory was withdrawn at the same time.
    #[error("the memory of the guest was withdrawn")]
    Withdrawn,
    /// The address space cannot be mapped.
    #[error(transparent)]
    Mapping(#[from] MappingError),
}

impl MirrorError {
    /// Returns whether this host lacks a resource; otherwise the ranges are wrong.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Many | Self::Withdrawn => true,
            // The kernel duplicates no pages of hugetlbfs.
            Self::Mapping(MappingError::Kernel(Errno::INVAL)) => true,
            Self::Mapping(error) => error.is_shortage(),
            _ => false,
        }
    }
}

/// Returns the first `len` bytes of ranges (guest addresses and lengths); `None` if they have fewer.
pub fn first_bytes(spans: &[(u64, u64)], len: u64) -> Option<Vec<(u64, u64)>> {
    let mut left = len;
    let mut first = Vec::new();
    for (guest, len) in spans {
        let now = left.min(*len);
        if now > 0 {
            first.push((*guest, now));
        }
        left = left.saturating_sub(now);
    }
    (left == 0).then_some(first)
}

/// Adjacent pages of one mapping.
#[derive(Debug)]
struct Run<'a> {
    start: NonNull<u8>,
    len: usize,
    source: &'a Arc<Mapping>,
}

impl Map {
    /// Returns a mapping of the pages of `spans` (guest addresses and lengths), in this order, and
    /// the number of runs of pages in it. All bytes must be granted for reading and writing, and
    /// lie in at most `most` runs of pages that are adjacent in their file.
    ///
    /// # Errors
    /// [`MirrorError`]; nothing is mapped.
    pub fn mirror(
        &self,
        spans: &[(u64, u64)],
        most: usize,
    ) -> Result<(Arc<Mapping>, usize), MirrorError> {
        let runs = self.runs(spans, most)?;
        let len = runs.iter().fold(0_usize, |sum, run| sum.saturating_add(run.len));
        if len == 0 {
            return Err(MirrorError::Unaligned(0));
        }
        let counted = Runs::take(runs.len()).ok_or(MirrorError::Many)?;
        let mirror = Arc::new(Mapping::reserve(len, counted)?);
        // A source that is withdrawn from now on withdraws the mirror after itself: a run that is
        // duplicated later has the source's replacement.
        runs.iter().for_each(|run| run.source.add_mirror(&mirror));
        fill(&mirror, &runs)?;
        // A source that was withdrawn meanwhile has withdrawn the mirror; later runs came back into it.
        if mirror.is_withdrawn() || runs.iter().any(|run| run.source.is_withdrawn()) {
            return Err(MirrorError::Withdrawn);
        }
        Ok((mirror, runs.len()))
    }

    /// Returns the runs of pages of `spans`.
    fn runs(&self, spans: &[(u64, u64)], most: usize) -> Result<Vec<Run<'_>>, MirrorError> {
        let page = rustix::param::page_size();
        let mut runs: Vec<Run<'_>> = Vec::new();
        for &(guest, len) in spans {
            let (mut guest, mut left) = (guest, len);
            while left > 0 {
                let outside = OutOfGrant { addr: guest, len: left };
                let (start, here) = self.pointer(guest, Rights::READ_WRITE).ok_or(outside)?;
                let source = self.mapping(guest).ok_or(outside)?;
                let now = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                let is_whole = start.as_ptr().addr().is_multiple_of(page);
                if !is_whole || !now.is_multiple_of(page) {
                    return Err(MirrorError::Unaligned(guest));
                }
                let follows = |run: &&mut Run<'_>| {
                    Arc::ptr_eq(run.source, source)
                        && run.start.as_ptr().addr().checked_add(run.len)
                            == Some(start.as_ptr().addr())
                };
                let count = runs.len();
                match runs.last_mut().filter(follows) {
                    Some(last) => last.len = last.len.saturating_add(now),
                    None if count >= most => return Err(MirrorError::Scattered(most)),
                    None => runs.push(Run { start, len: now, source }),
                }
                guest = guest.checked_add(now as u64).ok_or(outside)?;
                left = left.saturating_sub(now as u64);
            }
        }
        Ok(runs)
    }
}

/// Duplicates runs of pages into a mirror, which has as many bytes.
fn fill(mirror: &Mapping, runs: &[Run<'_>]) -> Result<(), MirrorError> {
    let mut at = 0_usize;
    for run in runs {
        let (to, _) = mirror.at(at).ok_or(MirrorError::Unaligned(0))?;
        let from = run.start.as_ptr().cast();
        // The kernel removes a target before it finds out that it cannot duplicate the source, and the
        // addresses could then belong to another mapping of this process, which the drop of the mirror
        // would unmap. So it chooses the addresses of the duplicate, which is then moved.
        // SAFETY: an old length of 0 leaves the source as it is, which is a shared mapping that lives as
        // long as its map; the duplicate replaces nothing.
        let copy = unsafe { mremap(from, 0, run.len, MremapFlags::MAYMOVE) };
        let copy = copy.map_err(MappingError::Kernel)?;
        // SAFETY: `to` and the `run.len` bytes behind it were reserved for this mirror, which nothing
        // reads before it is complete; `copy` has this length, and nothing else knows it.
        let moved =
            unsafe { mremap_fixed(copy, run.len, run.len, MremapFlags::MAYMOVE, to.cast()) };
        if let Err(errno) = moved {
            // SAFETY: a move that failed leaves the duplicate where it was.
            let _ = unsafe { munmap(copy, run.len) };
            refill(to, run.len);
            return Err(MappingError::Kernel(errno).into());
        }
        at = at.saturating_add(run.len);
    }
    Ok(())
}

/// Reserves addresses of a mirror again that a failed move may have left free. No effect if they are
/// in use.
fn refill(to: *mut u8, len: usize) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the mapping replaces nothing.
    let _ = unsafe { mmap_anonymous(to.cast(), len, ProtFlags::empty(), flags) };
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, OwnedFd};

    use super::*;
    use crate::{Grant, Grants, Region, View, create};

    const PAGE: u64 = 4096;

    /// Returns memory of 16 pages at guest address 1 MiB, page `n` filled with `n`.
    fn memory() -> (OwnedFd, Map) {
        let file = create("mirror", 16 * PAGE).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 16 * PAGE).unwrap());
        let map = Map::new(vec![Region { guest: 1 << 20, user: 0, mapping }]).unwrap();
        for page in 0..16 {
            map.write((1 << 20) + page * PAGE, &[page as u8; PAGE as usize]).unwrap();
        }
        (file, map)
    }

    fn page(number: u64) -> (u64, u64) {
        ((1 << 20) + number * PAGE, PAGE)
    }

    #[test]
    fn first_bytes_of_ranges_end_within_a_range() {
        let spans = [(0x1000, 0x2000), (0x9000, 0x1000)];
        assert_eq!(first_bytes(&spans, 0x2800), Some(vec![(0x1000, 0x2000), (0x9000, 0x800)]));
        assert_eq!(first_bytes(&spans, 0x1000), Some(vec![(0x1000, 0x1000)]));
        assert_eq!(first_bytes(&spans, 0x3000).map(|spans| spans.len()), Some(2));
        assert_eq!(first_bytes(&spans, 0x3001), None);
    }

    #[test]
    fn mirror_shows_scattered_pages_as_one_row_in_both_directions() {
        let (_file, map) = memory();
        let spans = [page(7), page(3), (page(4).0, 2 * PAGE), page(0), page(3)];
        let (mirror, runs) = map.mirror(&spans, 4).unwrap();
        assert_eq!(runs, 4);
        let view = View::new(mirror.clone(), 0, mirror.len()).unwrap();
        assert_eq!(view.len() as u64, 6 * PAGE);
        let first = |at: u64| view.read::<1>((at * PAGE) as usize).unwrap()[0];
        assert_eq!([0, 1, 2, 3, 4, 5].map(first), [7, 3, 4, 5, 0, 3]);
        // A write that crosses two pages reaches both, and a page that appears twice changes twice.
        view.write(PAGE as usize - 2, b"over").unwrap();
        let mut got = [0; 2];
        map.read(page(7).0 + PAGE - 2, &mut got).unwrap();
        assert_eq!(&got, b"ov");
        map.read(page(3).0, &mut got).unwrap();
        assert_eq!(&got, b"er");
        assert_eq!(view.read::<2>(5 * PAGE as usize).unwrap(), *b"er");
        map.write(page(0).0, b"back").unwrap();
        assert_eq!(view.read::<4>(4 * PAGE as usize).unwrap(), *b"back");
        drop(map);
        assert_eq!(view.read::<4>(4 * PAGE as usize).unwrap(), *b"back", "it outlives its source");
    }

    #[test]
    fn mirror_of_foreign_unaligned_or_too_scattered_pages_is_refused() {
        let (_file, map) = memory();
        let many = [page(0), page(2), page(4)];
        assert!(matches!(map.mirror(&many, 2), Err(MirrorError::Scattered(2))));
        assert!(map.mirror(&many, 3).is_ok());
        let outside = [page(0), page(16)];
        assert!(matches!(map.mirror(&outside, 9), Err(MirrorError::OutOfGrant(_))));
        let past = [(page(15).0, 2 * PAGE)];
        assert!(matches!(map.mirror(&past, 9), Err(MirrorError::OutOfGrant(_))));
        for odd in [(page(0).0 + 8, PAGE), (page(0).0, 100), (page(0).0 + 2048, 2048)] {
            let refused = map.mirror(&[odd], 9);
            assert!(matches!(refused, Err(MirrorError::Unaligned(_))), "{refused:?}");
        }
        assert!(matches!(map.mirror(&[], 9), Err(MirrorError::Unaligned(_))));
        // Memory that may only be read.
        let file = create("read-only", PAGE).unwrap();
        let mut grants = Grants::new();
        let grant = Grant { guest: 0, len: PAGE, offset: 0, rights: Rights::READ };
        grants.grant(grant, file).unwrap();
        let read_only = grants.epoch();
        assert!(matches!(read_only.mirror(&[(0, PAGE)], 9), Err(MirrorError::OutOfGrant(_))));
    }

    /// Returns the pages of `len` bytes at an address that are mapped.
    fn mapped_pages(address: usize, len: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let ranges = maps.lines().map(|line| {
            let (range, _) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start), number(end))
        });
        let inside = ranges.map(|(start, end)| {
            end.min(address + len).saturating_sub(start.max(address)) / PAGE as usize
        });
        inside.sum()
    }

    #[test]
    fn mirror_whose_pages_the_kernel_refuses_keeps_its_addresses() {
        let (_file, map) = memory();
        // The kernel duplicates no private mapping, nor pages of hugetlbfs.
        let private = Mapping::reserve(2 * PAGE as usize, Runs::take(0).unwrap()).unwrap();
        let regions = vec![Region { guest: 0, user: 0, mapping: Arc::new(private) }];
        let refused = Map::new(regions).unwrap();
        let good = map.runs(&[page(1), page(3)], 9).unwrap();
        let bad = refused.runs(&[(0, PAGE)], 9).unwrap();
        let runs: Vec<Run<'_>> = good.into_iter().chain(bad).collect();
        let len = 3 * PAGE as usize;
        let mirror = Mapping::reserve(len, Runs::take(3).unwrap()).unwrap();
        let failed = fill(&mirror, &runs);
        assert!(matches!(&failed, Err(error) if error.is_shortage()), "{failed:?}");
        let (start, _) = mirror.at(0).unwrap();
        assert_eq!(mapped_pages(start.addr(), len), 3, "another mapping could take the addresses");
        // A move that fails may leave addresses free.
        let third = start.wrapping_add(2 * PAGE as usize);
        // SAFETY: a page of this mirror, which nothing uses.
        unsafe { munmap(third.cast(), PAGE as usize) }.unwrap();
        assert_eq!(mapped_pages(start.addr(), len), 2);
        refill(third, PAGE as usize);
        assert_eq!(mapped_pages(start.addr(), len), 3);
        // The failed mirror of a map leaves no trace, and others are still made.
        assert!(refused.mirror(&[(0, PAGE)], 9).is_err());
        assert!(map.mirror(&[page(1), page(3)], 9).is_ok());
    }

    #[test]
    fn mirror_is_withdrawn_with_its_source() {
        let (_file, map) = memory();
        let (mirror, _) = map.mirror(&[page(5), page(1)], 9).unwrap();
        let view = View::new(mirror.clone(), 0, mirror.len()).unwrap();
        assert_eq!(view.read::<1>(0).unwrap(), [5]);
        let other = Mapping::new(_file.as_fd(), 0, 16 * PAGE).unwrap();
        assert!(map.regions().first().unwrap().mapping.withdraw());
        assert_eq!(view.read::<1>(0).unwrap(), [0]);
        view.write(0, b"lost").unwrap();
        let (byte, _) = other.at(5 * PAGE as usize).unwrap();
        // SAFETY: a mapped byte of this test alone.
        assert_eq!(unsafe { byte.read_volatile() }, 5, "the file is not reached");
        assert!(!mirror.is_poisoned());
    }

    #[test]
    fn mirror_of_a_file_that_shrinks_is_poisoned_and_reads_zeros() {
        let file = rustix::fs::memfd_create("shrinks", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4 * PAGE).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, 4 * PAGE).unwrap());
        let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap();
        map.write(0, &[9; 4 * PAGE as usize]).unwrap();
        let (mirror, _) = map.mirror(&[(2 * PAGE, PAGE), (0, PAGE)], 9).unwrap();
        let view = View::new(mirror.clone(), 0, mirror.len()).unwrap();
        rustix::fs::ftruncate(&file, PAGE).unwrap();
        assert_eq!(view.read::<1>(10).unwrap(), [0]);
        assert_eq!(view.read::<1>(PAGE as usize + 10).unwrap(), [0], "all of it is replaced");
        assert!(mirror.is_poisoned() && !map.is_poisoned());
    }
}
