//! The limits of this crate.

/// Most regions in one map. QEMU with hot-plugged memory stays below (vhost-user allows 509).
pub const REGIONS_MAX: usize = 64;
/// Most grants in one table. A guest with an IOMMU grants single pages: 1 GiB of memory in pages of
/// 4 KiB.
pub const GRANTS_MAX: usize = 262_144;
/// Most grants in one chunk of the table: a change copies 8 KiB at most.
pub const GRANTS_PER_CHUNK: usize = 256;
/// Most files that the grants of one table lie in. QEMU has one for each memory device and ROM.
pub const GRANT_FILES_MAX: usize = 64;
/// Largest regions or grants of a map that a look-up scans before it searches the sorted table.
pub const WINDOWS_MAX: usize = 8;
/// Most regions of one table of keys: a key has an index of 24 bits.
pub const REGION_KEYS_MAX: usize = 1 << 24;
/// Largest region, in bytes (16 TiB).
pub const REGION_BYTES_MAX: u64 = 1 << 44;
/// What all mappings together may take, in bytes (112 TiB): of the 128 TiB of addresses that a
/// process has on most processors, what others need of them left out.
pub const ADDRESSES_MAX: u64 = 112 << 40;
/// One who grants memory may take one part in so many of the addresses that are left: 7 TiB where
/// nothing is mapped, and after a hundred who took all they could still 11 GiB.
pub const ADDRESS_SHARES: u64 = 16;
/// Most bytes of one peer that may wait for `munmap` before no more is mapped for it (7 TiB, one
/// share of empty address space): the largest guest may replace its memory table once meanwhile.
pub const UNMAPPING_BYTES_MAX: u64 = ADDRESSES_MAX / ADDRESS_SHARES;
/// Most threads that unmap. A file that is freed with its mapping takes 0.1 s for each GiB, and
/// the mappings of other peers must not wait behind it.
pub const UNMAPPERS_MAX: usize = 4;
/// Most mappings alive at a time in this process; the fault handler looks through them.
/// Of the 65,530 that Linux allows a process (`vm.max_map_count`), those of threads and libraries
/// left out: the fault handler must never meet the limit.
pub const MAPPINGS_MAX: usize = 60_000;
/// Size of the sparse file whose ranges replace mappings that lost their file, in bytes. Each range
/// is used once: at 7 TiB each, as many as a port can lose in four hours without a pause. Later
/// faults replace single pages.
pub const SUBSTITUTE_BYTES_MAX: u64 = 1 << 62;
/// What processors move between them, in bytes.
pub const CACHE_LINE_BYTES: usize = 64;
/// Largest mapping that is given back by whoever lets go of it, in bytes; 1 MiB: that takes some
/// 100 us.
pub const UNMAPPED_AT_ONCE_MAX: usize = 1 << 20;
/// The unit in which the kernel counts the allocated bytes of a file (`st_blocks`).
pub const BLOCK_BYTES: u64 = 512;
