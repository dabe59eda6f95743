//! The memory of record files: tmpfs pages of the host, allocated before a function uses them.
//!
//! A file is sparse. [`FileMemory`] allocates its parts by `fallocate`, and releases them by
//! punching holes, so that a store to the mapped file never meets a page that the host cannot
//! provide. Three bounds, and an error of `fallocate`, lead to a refusal; the port then goes on
//! without a record (`record_losses_total`):
//!
//! | bound | reason |
//! |---|---|
//! | all files of the process together: [`RECORDS_BYTES_MAX`] (1 GiB) | the run directory is memory of the host |
//! | a file: as much as the other bound leaves for all | a guest that fills its journal leaves the others theirs |
//! | the file system: an eighth of its size stays free ([`RECORD_FREE_SHARE`]) | sockets, ledgers and other programs need it too |
//!
//! [`crate::record_file`] makes a value for each record of a port. The dispatcher's thread makes
//! all calls; each takes a system call or two, and about a microsecond for 16 KiB. The counter of
//! the process is shared by the dispatchers.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_mlx5::RecordMemory;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use crate::limits::{RECORD_FREE_SHARE, RECORDS_BYTES_MAX};

/// The bytes that all record files of the process may have.
pub(crate) static BUDGET: RecordBudget = RecordBudget::new(RECORDS_BYTES_MAX);

/// The bytes that several record files may have together.
#[derive(Debug)]
pub(crate) struct RecordBudget {
    max: u64,
    used: AtomicU64,
}

impl RecordBudget {
    /// Returns a budget without users.
    pub const fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0) }
    }

    /// Takes `bytes` for a file that has `own` bytes. Returns false if the file would have more
    /// than is left for all.
    fn take(&self, own: u64, bytes: u64) -> bool {
        let next = |used: u64| {
            let used = used.checked_add(bytes)?;
            let left = self.max.checked_sub(used)?;
            (own.checked_add(bytes)? <= left).then_some(used)
        };
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Returns bytes to the budget.
    fn give(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// The memory of a record's file. A drop keeps the file's memory, and returns the budget.
#[derive(Debug)]
pub(crate) struct FileMemory {
    file: Arc<File>,
    budget: &'static RecordBudget,
    /// Bytes that were taken from the budget.
    bytes: u64,
}

impl FileMemory {
    /// Returns the memory of a file that has nothing of the budget yet.
    pub fn new(file: Arc<File>, budget: &'static RecordBudget) -> Self {
        Self { file, budget, bytes: 0 }
    }

    /// Returns whether the file system keeps its share if `bytes` are allocated. A file system
    /// without a size has no share.
    fn has_room(&self, bytes: u64) -> bool {
        let Ok(stat) = fstatvfs(&*self.file) else { return false };
        let kept = stat.f_blocks.checked_div(RECORD_FREE_SHARE).unwrap_or(0);
        let free = stat.f_bavail.saturating_sub(kept).saturating_mul(stat.f_frsize);
        stat.f_blocks == 0 || bytes <= free
    }

    fn punch(&self, range: Range<u64>) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = range.end.saturating_sub(range.start);
        // A range that stays allocated is allocated again without cost.
        let _ = fallocate(&*self.file, flags, range.start, len);
    }

    fn give(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.budget.give(bytes);
    }
}

impl RecordMemory for FileMemory {
    fn allocate(&mut self, range: Range<u64>) -> bool {
        let len = range.end.saturating_sub(range.start);
        if !self.has_room(len) || !self.budget.take(self.bytes, len) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(len);
        let allocated = fallocate(&*self.file, FallocateFlags::KEEP_SIZE, range.start, len);
        if allocated.is_err() {
            self.give(len);
        }
        allocated.is_ok()
    }

    fn release(&mut self, range: Range<u64>) {
        self.give(range.end.saturating_sub(range.start));
        self.punch(range);
    }

    fn release_all(&mut self) {
        self.give(self.bytes);
        let len = self.file.metadata().map_or(0, |metadata| metadata.len());
        self.punch(0..len);
    }

    fn invalidate(&mut self) {
        let _ = self.file.write_all_at(&[0; 8], 0);
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_budget_leaves_other_files_as_much_as_the_largest_has() {
        let budget = RecordBudget::new(100);
        let fill = |own: &mut u64| {
            while budget.take(*own, 1) {
                *own += 1;
            }
            *own
        };
        let (mut first, mut second, mut third) = (0, 0, 0);
        assert_eq!(fill(&mut first), 50);
        assert_eq!(fill(&mut second), 25);
        assert_eq!(fill(&mut third), 12);
        budget.give(first);
        assert_eq!(fill(&mut third), 37, "as much as is left");
    }
}
