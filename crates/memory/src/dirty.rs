//! The dirty log of vhost-user: the pages of a guest that this process wrote to, for live
//! migration.
//!
//! A bit per 4 KiB of guest addresses, in memory shared with the frontend, which clears bits as it
//! copies pages. [`crate::Map`] marks each write of its copies by [`DirtyLog::mark`]; any thread
//! may mark. The log records no reads, and no writes that bypass the map: a [`crate::View`] does
//! not log, so its user marks the bytes (`attach` marks the rings).
//!
//! Pages behind the end of the log are not recorded; no check compares its length with the granted
//! memory, which is the frontend's part. A log whose file shrank is poisoned, as a mapping
//! ([`crate::Map::is_poisoned`]), and the attachment then ends. `attach` sets and removes the log
//! with a new map.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::mapping::{Mapping, MappingError};

/// Pages have 2^12 bytes, independent of the host's page size.
const PAGE_SHIFT: u32 = 12;

/// A dirty log.
#[derive(Debug)]
pub struct DirtyLog {
    bits: Mapping,
}

impl DirtyLog {
    /// Maps the log of `len` bytes at `offset` of a memory file.
    ///
    /// # Errors
    /// As for [`Mapping::new`].
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<Self, MappingError> {
        Mapping::new(file, offset, len).map(|bits| Self { bits })
    }

    /// Marks the pages of `len` bytes at guest address `addr` as written. Call it after the write:
    /// the frontend might otherwise copy a page before it. Addresses behind the log are ignored.
    pub fn mark(&self, addr: u64, len: u64) {
        let Some(more) = len.checked_sub(1) else { return };
        for page in addr >> PAGE_SHIFT..=addr.saturating_add(more) >> PAGE_SHIFT {
            let byte = usize::try_from(page >> 3).ok().and_then(|byte| self.bits.at(byte));
            let Some((byte, _)) = byte else { return };
            // SAFETY: a mapped byte that lives as long as `self`; the frontend uses atomics as
            // well.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            // Even if the bit is set: only a write orders it behind the writes to the page.
            byte.fetch_or(1 << (page & 7), Ordering::SeqCst);
        }
    }

    /// Returns whether the log's file shrank.
    pub fn is_poisoned(&self) -> bool {
        self.bits.is_poisoned()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use super::*;
    use crate::{Cursor, Map, Region, Span, copy};

    const BYTES: u64 = 64 << 12;

    /// Returns guest memory at 1 MiB with a log that covers 2 MiB, and a reader of the log.
    fn logged() -> (Map, impl Fn() -> Vec<u64>) {
        let memory = crate::create("guest", BYTES).unwrap();
        let mapping = Arc::new(Mapping::new(memory.as_fd(), 0, BYTES).unwrap());
        let map = Map::new(vec![Region { guest: 1 << 20, user: 0, mapping }]).unwrap();
        let file = crate::create("log", 64).unwrap();
        let log = Arc::new(DirtyLog::new(file.as_fd(), 0, 64).unwrap());
        let file = std::fs::File::from(file);
        let marked = move || {
            use std::os::unix::fs::FileExt as _;
            let mut bits = [0; 64];
            file.read_exact_at(&mut bits, 0).unwrap();
            file.write_all_at(&[0; 64], 0).unwrap();
            (0..512).filter(|page| bits[*page as usize / 8] >> (page % 8) & 1 == 1).collect()
        };
        (map.logged(Some(log)), marked)
    }

    #[test]
    fn dirty_log_marks_pages_of_every_write() {
        let (map, marked) = logged();
        let at = |page: u64, offset: u64| (256 + page) * 4096 + offset;
        map.write(at(0, 5), &[1]).unwrap();
        assert_eq!(marked(), [256]);
        map.write(at(1, 4095), &[1, 2]).unwrap();
        map.write_headed(at(4, 4090), &[7; 8], &[1]).unwrap();
        assert_eq!(marked(), [257, 258, 260, 261]);
        map.write_changed(at(8, 0), &[7; 12]).unwrap();
        assert_eq!(marked(), [264]);
        let spans = [Span { addr: at(10, 4000), len: 200 }, Span { addr: at(20, 0), len: 100 }];
        Cursor::new(&spans).write(&map, &[3; 250]).unwrap();
        assert_eq!(marked(), [266, 267, 276]);
        let (mut from, mut to) = (Cursor::new(&spans), Cursor::new(&[]));
        assert!(copy::copy((&map, &mut from), (&map, &mut to), 10).is_err());
        let into = [Span { addr: at(30, 0), len: 5000 }];
        let (mut from, mut to) = (Cursor::new(&spans), Cursor::new(&into));
        copy::copy((&map, &mut from), (&map, &mut to), 300).unwrap();
        assert_eq!(marked(), [286]);
        let mut bytes = [0; 9];
        map.read(at(0, 0), &mut bytes).unwrap();
        assert_eq!(marked(), [0; 0], "who reads notes nothing");
    }

    #[test]
    fn dirty_log_survives_hostile_files() {
        let file = crate::create("log", 64).unwrap();
        assert!(DirtyLog::new(file.as_fd(), 1, 64).is_err());
        let log = DirtyLog::new(file.as_fd(), 0, 64).unwrap();
        log.mark(u64::MAX, u64::MAX);
        log.mark(0, u64::MAX);
        log.mark(5, 0);
        let open = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        let log = DirtyLog::new(open.as_fd(), 0, 8192).unwrap();
        rustix::fs::ftruncate(&open, 0).unwrap();
        log.mark(4096, 1);
        assert!(log.is_poisoned());
    }
}
