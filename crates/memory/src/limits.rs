//! The limits of this crate.
//!
//! Constants only, fixed at compile time. Most limits are enforced where they are used, by an error
//! of the call that would exceed them: a grant beyond a limit is not added, and grants of other
//! peers stay. The table names the effect of the others. Limits of addresses and mappings hold for
//! the whole process.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | regions of a map | `map` | `MapError` |
//! | windows of a map | `map` | further grants are found by a search |
//! | bytes of a region | `map`, `mapping` | `MapError`, `MappingError` |
//! | grants, files | `grants` | `GrantError` |
//! | keys | `regions` | `RegionError::Full` |
//! | addresses | `addresses` | `MappingError` |
//! | mappings | `mapping`, `fault` | `MappingError::Many` |
//! | runs of mirrors | `mirror` | `MirrorError::Many` |
//! | bytes of the substitute | `substitute` | later faults replace single pages |
//! | bytes to unmap | `addresses`, which `attach` asks | the peer's messages are not read |
//! | unmapping threads | `unmap` | mappings wait in the queue of these threads |
//!
//! The caller's thread runs all but the unmapping: dispatchers, control threads of frontends, and
//! applications.

/// Length of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Most regions in one map. QEMU with hot-plugged memory stays below (vhost-user allows 509). A map
/// with more is refused.
pub const REGIONS_MAX: usize = 64;
/// Most grants in one table. A guest with an IOMMU grants single pages: 1 GiB of memory in pages of
/// 4 KiB. A further grant is refused.
pub const GRANTS_MAX: usize = 262_144;
/// Most grants in one chunk of the table: a chunk has 8 KiB at most, and an addition copies one.
pub const GRANTS_PER_CHUNK: usize = 256;
/// Most files that the grants of one table lie in. QEMU has one for each memory device and ROM. A
/// grant in a further file is refused.
pub const GRANT_FILES_MAX: usize = 64;
/// Windows (the largest regions or grants of a map) that a look-up scans before it searches the
/// sorted table. The others are found in the table.
pub const WINDOWS_MAX: usize = 8;
/// Most regions of one table of keys: a key has an index of 24 bits. A further region is refused.
pub const REGION_KEYS_MAX: usize = 1 << 24;
/// Largest region, in bytes (16 TiB). A larger one is refused.
pub const REGION_BYTES_MAX: u64 = 1 << 44;
/// Most bytes of all mappings together (112 TiB): of the 128 TiB of addresses of a process on most
/// processors, less the needs of the rest of the process. A further mapping is refused.
pub const ADDRESSES_MAX: u64 = 112 << 40;
/// A peer may map this fraction of the remaining addresses: 7 TiB if nothing is mapped, and still
/// 11 GiB after a hundred peers that mapped all they could. A larger mapping is refused.
pub const ADDRESS_SHARES: u64 = 16;
/// Most bytes of one peer that may wait for `munmap` before no more is mapped for it (7 TiB, one
/// share of empty address space): the largest guest may replace its memory table once meanwhile.
pub const UNMAPPING_BYTES_MAX: u64 = ADDRESSES_MAX / ADDRESS_SHARES;
/// Most threads that unmap. Freeing a file with its mapping takes 0.1 s per GiB, and the mappings
/// of other peers must not wait behind it. Further mappings wait for a free thread.
pub const UNMAPPERS_MAX: usize = 4;
/// Most mappings alive at a time in this process; the fault handler searches them. The limit is
/// below the 65,530 that Linux allows a process (`vm.max_map_count`), which includes mappings of
/// threads and libraries: the fault handler must never meet that limit. A further mapping is
/// refused.
pub const MAPPINGS_MAX: usize = 60_000;
/// Most runs of adjacent pages in all mirrors ([`crate::Map::mirror`]) of this process. Each is a
/// mapping beside the [`MAPPINGS_MAX`]; both together stay below the kernel's limit. A further
/// mirror is refused.
pub const MIRROR_RUNS_MAX: usize = 4096;
/// Size of the sparse file whose ranges replace mappings that lost their file, in bytes. Each range
/// is used once: at 7 TiB each, as many as a port can lose in four hours without a pause. Later
/// faults replace single pages.
pub const SUBSTITUTE_BYTES_MAX: u64 = 1 << 62;
/// Size of a cache line, in bytes: the unit of transfer between processors.
pub const CACHE_LINE_BYTES: usize = 64;
/// Largest mapping that is unmapped in the thread that drops it, in bytes; 1 MiB: that takes about
/// 100 us. Larger mappings are unmapped in another thread.
pub const UNMAP_INLINE_BYTES_MAX: usize = 1 << 20;
/// The unit in which the kernel counts the allocated bytes of a file (`st_blocks`).
pub const BLOCK_BYTES: u64 = 512;
