//! Every bound of this crate, in one place.

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
/// Most pieces handed to the kernel in one scatter-gather call.
pub const IOVECS_MAX: usize = 64;
/// What processors move between them, in bytes.
pub const CACHE_LINE_BYTES: usize = 64;
/// Largest mapping that is given back by whoever lets go of it, in bytes; 1 MiB: that takes some
/// 100 us.
pub const UNMAPPED_AT_ONCE_MAX: usize = 1 << 20;
/// Most pieces of its own memory that a process lends at a time to be sent from where they lie;
/// what there are more is copied.
pub const OWN_PLACES_MAX: usize = 4096;
/// Frames that are sent to an interface in one system call.
pub const FRAMES_PER_CALL_MAX: usize = 64;
/// How often the socket of an empty ring is asked whether the interface is still there; 100 ms. Who
/// is woken for nothing asks as well.
pub const ASK_NS: u64 = 100_000_000;
/// How often it is asked while nobody polls and nothing is missed; 1 s.
pub const ASK_IDLE_NS: u64 = 1_000_000_000;
/// Least time between two rings that are made anew; 100 ms: what disturbs one may come often.
pub const RENEW_NS: u64 = 100_000_000;
/// Most descriptors that the kernel lets come with one message; all are received, so that none is
/// closed on the way.
pub const DESCRIPTORS_RECEIVED_MAX: usize = 253;
/// Most messages left in a socket, and in sockets that lie there, that are looked through before it
/// is closed.
pub const LOOK_MESSAGES_MAX: usize = 4096;
/// Most sockets and files that are found so.
pub const LOOK_DESCRIPTORS_MAX: usize = 256;
/// Most threads that close large memory files.
pub const CLOSERS_MAX: usize = 4;
/// Most threads that close, for the accounts of one port, descriptors whose close may block.
pub const REAPERS_PER_OWNER_MAX: usize = 4;
/// Most such threads of this process: one for each port that a host may have, and some.
pub const REAPERS_MAX: usize = 2048;
/// Stack of such a thread, in bytes; it needs some 10 KiB for what it looks through.
pub const REAPER_STACK_BYTES: usize = 256 << 10;
/// How long the close of a socket lingers at most, in nanoseconds; 100 ms.
pub const CLOSE_PATIENCE_NS: i64 = 100_000_000;
/// Descriptors of one account that may wait to be closed before its peer is turned away.
pub const UNCLOSED_MAX: usize = 128;
