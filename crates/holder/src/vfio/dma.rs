//! The DMA mappings of a frontend, with their files.
//!
//! While causewayd runs, it decides on each mapping, and the record follows its replies
//! ([`super::record`], in the relay's thread). While none runs, the holder accepts mappings that
//! keep the rules of causewayd's table, except those about access flags and the length of the file,
//! so that a frontend need not wait; such a mapping is *unconfirmed*, and is dropped if the next
//! causewayd refuses it ([`super::replay`]): the device then uses less memory than the frontend
//! granted. Mappings without a descriptor grant nothing and are not recorded.
//!
//! As in causewayd, at most 262,144 mappings ([`GRANTS_MAX`], about 100 bytes each) in 64 files are
//! accepted; [`DmaRecord::map`] refuses a further one with ENOSPC, and one that overlaps another
//! with EEXIST; [`DmaRecord::note`] does not record a mapping beyond the first number. A file that
//! is mapped often is kept open once for each access mode. No file is mapped here.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use causeway_attach::limits::DMA_ALIGN;
use causeway_attach::vfio_user::message::{DmaMap, DmaUnmap, UNMAP_ALL};
use causeway_host::ReceivedFd;
use causeway_host::fd::received_fd::FdKind;
use causeway_memory::limits::{GRANT_FILES_MAX, GRANTS_MAX};
use rustix::io::Errno;

/// A mapping of a file.
#[derive(Debug)]
pub struct DmaEntry {
    /// The mapping.
    pub map: DmaMap,
    /// The file.
    pub file: Arc<ReceivedFd>,
    /// Whether a causewayd has accepted the mapping.
    pub is_confirmed: bool,
}

/// A file that a mapping may still use: device, inode and access mode.
type KnownFile = ((u64, u64, u32), Weak<ReceivedFd>);

/// The mappings, by guest address.
#[derive(Debug, Default)]
pub struct DmaRecord {
    entries: BTreeMap<u64, DmaEntry>,
    files: Vec<KnownFile>,
}

/// Returns the last address of a range that is not empty.
fn last_of(address: u64, size: u64) -> u64 {
    address.saturating_add(size.saturating_sub(1))
}

impl DmaRecord {
    /// Returns the mappings.
    pub fn entries(&self) -> impl Iterator<Item = &DmaEntry> {
        self.entries.values()
    }

    /// Records a mapping that causewayd has accepted.
    pub fn note(&mut self, map: DmaMap, file: Option<ReceivedFd>) {
        let Some(file) = file else { return };
        if self.entries.len() < GRANTS_MAX {
            let file = self.share(file);
            self.entries.insert(map.address, DmaEntry { map, file, is_confirmed: true });
        }
    }

    /// Accepts a mapping while no causewayd runs.
    ///
    /// # Errors
    /// Returns the errno that causewayd would return: EINVAL for a range that is empty, wraps or is
    /// not aligned to pages, and for a file that is not memory; EEXIST for an overlap; ENOSPC when
    /// the table is full.
    pub fn map(&mut self, map: DmaMap, file: Option<ReceivedFd>) -> Result<(), Errno> {
        let DmaMap { address, size, .. } = map;
        let is_aligned = |value: u64| value.checked_rem(DMA_ALIGN) == Some(0);
        let wraps = address.checked_add(size.saturating_sub(1)).is_none();
        if size == 0 || wraps || !is_aligned(address) || !is_aligned(size) {
            return Err(Errno::INVAL);
        }
        let Some(file) = file else { return Ok(()) };
        if file.kind() != FdKind::Memory {
            return Err(Errno::INVAL);
        }
        if self.last_within(last_of(address, size)).is_some_and(|end| end >= address) {
            return Err(Errno::EXIST);
        }
        if self.entries.len() >= GRANTS_MAX {
            return Err(Errno::NOSPC);
        }
        let file = self.share(file);
        if self.files.len() > GRANT_FILES_MAX {
            return Err(Errno::NOSPC);
        }
        self.entries.insert(address, DmaEntry { map, file, is_confirmed: false });
        Ok(())
    }

    /// Returns the last address of the mapping that begins at or before `address`.
    fn last_within(&self, address: u64) -> Option<u64> {
        let (start, entry) = self.entries.range(..=address).next_back()?;
        Some(last_of(*start, entry.map.size))
    }

    /// Removes the mappings in a range.
    pub fn note_unmap(&mut self, unmap: &DmaUnmap) {
        if unmap.flags & UNMAP_ALL != 0 {
            self.entries.clear();
            return;
        }
        let within = unmap.address..=last_of(unmap.address, unmap.size);
        let starts: Vec<u64> = self.entries.range(within).map(|(start, _)| *start).collect();
        for start in starts {
            self.entries.remove(&start);
        }
    }

    /// Removes the mappings in a range while no causewayd runs.
    ///
    /// # Errors
    /// Returns EINVAL if the range covers a mapping in part, or flags and range are invalid.
    pub fn unmap(&mut self, unmap: &DmaUnmap) -> Result<(), Errno> {
        let DmaUnmap { flags, address, size } = *unmap;
        if flags & UNMAP_ALL != 0 {
            if flags != UNMAP_ALL || address != 0 || size != 0 {
                return Err(Errno::INVAL);
            }
        } else {
            let before = address.checked_sub(1).and_then(|before| self.last_within(before));
            let last = last_of(address, size);
            let cuts_first = before.is_some_and(|end| end >= address);
            let cuts_last = self.last_within(last).is_some_and(|end| end > last);
            if flags != 0 || size == 0 || cuts_first || cuts_last {
                return Err(Errno::INVAL);
            }
        }
        self.note_unmap(unmap);
        Ok(())
    }

    /// Records that causewayd refused the mappings at these addresses, and accepted all others.
    pub fn settle(&mut self, refused: &[u64]) {
        for address in refused {
            self.entries.remove(address);
        }
        self.entries.values_mut().for_each(|entry| entry.is_confirmed = true);
    }

    /// Returns the descriptor of the same file that is open already, or `file`.
    fn share(&mut self, file: ReceivedFd) -> Arc<ReceivedFd> {
        self.files.retain(|(_, known)| known.strong_count() > 0);
        let Some(identity) = identity_of(&file) else { return Arc::new(file) };
        let same = self.files.iter().find(|(known, _)| *known == identity);
        if let Some(known) = same.and_then(|(_, known)| known.upgrade()) {
            return known;
        }
        let file = Arc::new(file);
        self.files.push((identity, Arc::downgrade(&file)));
        file
    }
}

/// Returns device, inode and access mode of a file.
fn identity_of(file: &ReceivedFd) -> Option<(u64, u64, u32)> {
    let stat = rustix::fs::fstat(file.as_fd()).ok()?;
    let flags = rustix::fs::fcntl_getfl(file.as_fd()).ok()?;
    let mode = flags.intersection(rustix::fs::OFlags::RWMODE).bits();
    Some((stat.st_dev, stat.st_ino, mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = DMA_ALIGN;

    fn file() -> ReceivedFd {
        causeway_memory::create("guest", PAGE).unwrap().into()
    }

    fn map(address: u64, pages: u64) -> DmaMap {
        DmaMap { flags: 3, offset: 0, address, size: pages * PAGE }
    }

    fn starts(record: &DmaRecord) -> Vec<u64> {
        record.entries().map(|entry| entry.map.address / PAGE).collect()
    }

    #[test]
    fn vfio_dma_record_accepts_what_causewayd_accepts() {
        let mut record = DmaRecord::default();
        assert_eq!(record.map(map(4 * PAGE, 2), Some(file())), Ok(()));
        assert_eq!(record.map(map(8 * PAGE, 2), None), Ok(()));
        for (wrong, errno) in [
            (map(5 * PAGE, 1), Errno::EXIST),
            (map(3 * PAGE, 2), Errno::EXIST),
            (map(0, 9), Errno::EXIST),
            (map(7, 1), Errno::INVAL),
            (map(0, 0), Errno::INVAL),
            (map(u64::MAX - PAGE + 1, 2), Errno::INVAL),
        ] {
            assert_eq!(record.map(wrong, Some(file())), Err(errno), "{wrong:?}");
        }
        assert_eq!(record.map(map(6 * PAGE, 1), Some(file())), Ok(()));
        assert_eq!(starts(&record), [4, 6]);
    }

    #[test]
    fn vfio_dma_record_unmaps_whole_mappings_alone() {
        let mut record = DmaRecord::default();
        for page in [4, 6, 8] {
            record.map(map(page * PAGE, 2), Some(file())).unwrap();
        }
        let unmap =
            |at: u64, pages: u64| DmaUnmap { flags: 0, address: at * PAGE, size: pages * PAGE };
        assert_eq!(record.unmap(&unmap(5, 3)), Err(Errno::INVAL));
        assert_eq!(record.unmap(&unmap(4, 3)), Err(Errno::INVAL));
        assert_eq!(record.unmap(&unmap(20, 1)), Ok(()));
        assert_eq!(record.unmap(&unmap(4, 4)), Ok(()));
        assert_eq!(starts(&record), [8]);
        let wraps = DmaUnmap { flags: 0, address: PAGE, size: u64::MAX };
        assert_eq!(record.unmap(&wraps), Ok(()));
        assert!(starts(&record).is_empty());
    }

    #[test]
    fn vfio_dma_record_keeps_one_descriptor_of_a_file() {
        let mut record = DmaRecord::default();
        let memory = causeway_memory::create("guest", 4 * PAGE).unwrap();
        for page in 0..4 {
            let again = memory.try_clone().unwrap();
            record.note(map(page * PAGE, 1), Some(again.into()));
        }
        let first = Arc::clone(&record.entries().next().unwrap().file);
        assert!(record.entries().all(|entry| Arc::ptr_eq(&entry.file, &first)));
    }
}
