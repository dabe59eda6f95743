//! Page lists: the addresses of the pages of a queue or of a memory key, behind the context of the
//! command that creates the object.
//!
//! Each entry has 8 bytes: the guest address of a page, with flags in the lower 12 bits. All pages
//! of a list have the same size, a power of two of at least [`PAGE_MIN`] (4,096) bytes. A queue
//! begins inside of its first page: see [`buffer_offset`].
//!
//! Drivers ([`super`]) write the lists; the device parses them (`mlx5::page_list` for queues,
//! `mlx5::command::memory_key` and `mlx5::send_entry` for memory keys). The flags are masked off
//! and ignored: rights are those of the memory key. This module does not check that an address is
//! aligned to the page size or granted, that the list is long enough for its object, or the page
//! size; `mlx5::page_list` refuses a list that is too short, and pages above 2 GiB, and checks the
//! grant at each access. The device runs in the dispatcher's turn.

/// Length of an entry, in bytes.
pub const ENTRY_LEN: usize = 8;
/// Binary logarithm of the size to which contexts add their `log_page_size`.
pub const LOG_PAGE_MIN: u32 = 12;
/// Smallest page size, in bytes.
pub const PAGE_MIN: u64 = 1 << LOG_PAGE_MIN;
/// Bits of an entry that are not part of the address.
pub const FLAGS: u64 = 0xfff;
/// Flag of an entry: the device may write to the page.
pub const FLAG_WRITE: u64 = 1 << 1;
/// Flag of an entry: the device may read the page.
pub const FLAG_READ: u64 = 1 << 0;

/// Returns the address of an entry.
#[inline]
pub const fn address(entry: [u8; ENTRY_LEN]) -> u64 {
    u64::from_be_bytes(entry) & !FLAGS
}

/// Returns the addresses of a list, in order. An incomplete entry at the end is omitted.
pub fn addresses(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + '_ {
    let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
    entries.iter().map(|entry| address(*entry))
}

/// Writes the entries of `pages` to the front of `bytes`, without flags. Returns the number of
/// entries written, which is less than that of `pages` if `bytes` is too short.
pub fn emit(pages: &[u64], bytes: &mut [u8]) -> usize {
    let (entries, _) = bytes.as_chunks_mut::<ENTRY_LEN>();
    for (entry, page) in entries.iter_mut().zip(pages) {
        *entry = page.to_be_bytes();
    }
    entries.len().min(pages.len())
}

/// Returns the page size, in bytes, of a queue whose context has `log_page_size`: 5 bits, relative
/// to [`PAGE_MIN`].
#[inline]
pub const fn page_size(log_page_size: u8) -> u64 {
    PAGE_MIN.wrapping_shl(log_page_size as u32 & 0x1f)
}

/// Returns the distance between the beginnings of a queue's first page and of the queue, in bytes.
/// The context counts the distance in 64ths of a page; 6 bits.
#[inline]
pub const fn buffer_offset(page_offset: u8, log_page_size: u8) -> u64 {
    (page_size(log_page_size) >> 6).wrapping_mul(page_offset as u64 & 0x3f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mlx5_page_list_drops_flags_and_incomplete_entries() {
        let mut bytes = [0; 20];
        assert_eq!(emit(&[0x1_2345_6000, 0x7000, 0x8000], &mut bytes), 2);
        assert_eq!(bytes[..8], [0, 0, 0, 1, 0x23, 0x45, 0x60, 0]);
        bytes[7] = 3;
        let list: Vec<u64> = addresses(&bytes).collect();
        assert_eq!(list, [0x1_2345_6000, 0x7000]);
    }

    #[test]
    fn mlx5_queue_begins_at_a_64th_of_its_page() {
        assert_eq!(page_size(0), 4096);
        assert_eq!(buffer_offset(1, 0), 64);
        // A page of 32 KiB has units of 512 bytes.
        assert_eq!((page_size(3), buffer_offset(3, 3)), (32768, 1536));
        assert_eq!(buffer_offset(0x3f, 31), (1 << 43) / 64 * 63);
        let _ = (page_size(255), buffer_offset(255, 255));
    }
}
