//! Bounds of the function: numbers of objects, sizes of queues, lengths of commands.
//!
//! The capabilities that the driver reads (`causeway_wire::mlx5::capability`) offer at most these
//! numbers and sizes; those of flow tables and frames are in `ethernet::limits`. A command beyond a
//! number of objects fails with *limit exceeded*, one beyond a size or the length of a list with
//! *bad parameter*, a GID index beyond the table with *bad index*, and a longer command is not
//! delivered; nothing is evicted. Work beyond the limits of a pass waits for the next pass. The
//! options of a port may lower the numbers of queue pairs, completion queues and memory keys
//! ([`crate::FunctionConfig`]). The modules of this crate read the constants in the dispatcher's
//! thread, `registers` and `config_space` also in the control thread, and `causeway-hca` reads
//! some; none changes at run time.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | registers, vectors | `registers`, `config_space`, `function` | the numbers of a port are clamped |
//! | commands | `command::queue`, `poll` | a longer command gets a delivery error; further commands stay rung |
//! | numbers of objects | `function`, modules of `command` | *limit exceeded* |
//! | sizes of queues, alignments | modules of `command` | *bad parameter* |
//! | pages of queues | `page_list` | *limit exceeded* |
//! | events | `event_queue`, `event_pacing` | events of queue pairs wait; beyond the waiting ones they are lost and counted |
//! | passes, slices | `poll`, `open_work`, `reset` | the rest waits for the next pass |
//! | record | modules of `record` | the record is given up, or not restored again |

/// Length of a page of the function's memory, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// First page of BAR 0 that a driver may use for doorbells; lower pages are trapped.
pub const UAR_FIRST: u32 = 16;
/// Length of the trapped part of BAR 0, in bytes.
pub const TRAPPED_BYTES: u64 = UAR_FIRST as u64 * PAGE_BYTES;
/// Maximum number of MSI-X vectors. The number of a port is clamped to it.
pub const VECTORS_MAX: u16 = 64;
/// Length of the region with the MSI-X table, in bytes.
pub const MSIX_REGION_BYTES: u64 = 4096;
/// Offset of the pending bits in that region.
pub const MSIX_PENDING_OFFSET: u64 = 0x800;

/// Binary logarithm of the number of entries of the command queue.
pub const COMMAND_LOG_ENTRIES: u8 = 5;
/// Number of entries of the command queue.
pub const COMMAND_ENTRIES: u32 = 1 << COMMAND_LOG_ENTRIES;
/// Binary logarithm of the length of an entry of the command queue.
pub const COMMAND_LOG_STRIDE: u8 = 6;
/// Maximum length of a command's input, in bytes: the page list of a region of 512 MiB in pages of
/// 4 KiB, with the header. The driver registers larger regions in larger pages or by several
/// updates. A longer input is a delivery error.
pub const COMMAND_INPUT_MAX: usize = 1024 * 1024 + 4096;
/// Maximum length of the input of a command that creates neither a memory key nor a queue, in
/// bytes. A longer input is a delivery error.
pub const COMMAND_SHORT_INPUT_MAX: usize = 8192;
/// Bytes of inputs and outputs of commands after which a call begins no further command.
pub const COMMAND_BYTES_PER_CALL: u64 = 64 * 1024;
/// Maximum length of a command's output, in bytes. A longer output is a delivery error.
pub const COMMAND_OUTPUT_MAX: usize = 64 * 1024;

/// Binary logarithm of the largest page of a queue or region, in bytes. A larger one is a *bad
/// parameter*.
pub const PAGE_SHIFT_MAX: u8 = 31;
/// Maximum number of pages in the page lists of all queues of a function: 16 MiB of entries. A
/// queue that needs more is refused with *limit exceeded*.
pub const QUEUE_PAGES_MAX: u64 = 1 << 21;
/// Maximum number of event queues.
pub const EVENT_QUEUES_MAX: usize = 16;
/// Binary logarithm of the largest event queue.
pub const EVENT_QUEUE_LOG_MAX: u8 = 16;
/// Time in which events of queue pairs use at most a quarter of an event queue, in nanoseconds.
pub const EVENT_WINDOW_NS: u64 = 10_000_000;
/// Maximum number of queue pairs with events that wait. The event of a further one is lost and
/// counted.
pub const DELAYED_EVENTS_MAX: usize = 2 * QUEUE_PAIRS_MAX;
/// Entries of an event queue that are kept free for events that are not completions. A completion
/// queue that would take them is refused with *limit exceeded*.
pub const EVENT_QUEUE_RESERVE: u32 = 16;
/// Binary logarithm of the largest completion queue.
pub const COMPLETION_QUEUE_LOG_MAX: u8 = 20;
/// Binary logarithm of the largest send queue, in units of 64 bytes, and of the largest receive
/// queue.
pub const WORK_QUEUE_LOG_MAX: u8 = 15;
/// Smallest and largest binary logarithm of a receive entry's length.
pub const RECEIVE_STRIDE_LOG: std::ops::RangeInclusive<u8> = 4..=11;
/// Maximum number of 64-byte blocks of a send entry: the length has 6 bits, in units of 16 bytes.
pub const SEND_BLOCKS_MAX: usize = 16;
/// Maximum number of MAC addresses in each list of a vport. A longer list is a *bad parameter*.
pub const VPORT_ADDRESSES_MAX: usize = 1 << 4;
/// Number of entries of the GID table. A higher index is a *bad index*.
pub const GIDS_MAX: usize = 256;
/// Maximum number of queue pairs.
pub const QUEUE_PAIRS_MAX: usize = 1 << 14;
/// Maximum number of completion queues.
pub const COMPLETION_QUEUES_MAX: usize = 1 << 16;
/// Maximum number of shared receive queues; also bounded by the number of queue pairs and
/// [`RECEIVE_POOLS_SPARE`].
pub const RECEIVE_POOLS_MAX: usize = 1 << 14;
/// Shared receive queues beyond the number of queue pairs: those that drivers make at their start.
pub const RECEIVE_POOLS_SPARE: usize = 16;
/// Returns the number of shared receive queues of a function with at most `queue_pairs` queue
/// pairs.
pub(crate) fn receive_pools_max(queue_pairs: usize) -> usize {
    queue_pairs.saturating_add(RECEIVE_POOLS_SPARE).min(RECEIVE_POOLS_MAX)
}
/// Length of the journal in the record of a function, in bytes; the file takes memory in steps of
/// [`RECORD_STEP_BYTES`] as it is filled. Without room, the record is given up.
pub const RECORD_HEAP_BYTES: usize = 64 << 20;
/// Step in which the memory of a record's file is allocated, in bytes.
pub const RECORD_STEP_BYTES: usize = 16 << 10;
/// Restorations of a record, without a served call of the function between them, after which the
/// record is not restored again.
pub const RESTORES_MAX: u32 = 3;
/// Maximum number of protection domains, and of transport and XRC domains each.
pub const DOMAINS_MAX: usize = 1 << 16;
/// Maximum number of counter sets: their numbers have 8 bits.
pub const COUNTER_SETS_MAX: usize = 128;
/// Maximum number of Ethernet send queues, receive queues and steering objects of each kind.
pub const ETHERNET_QUEUES_MAX: usize = 1 << 10;
/// Maximum number of log lines about failed commands in the life of a function. Further lines are
/// not logged; the driver gets its answer.
pub const LOG_LINES_MAX: u8 = 16;
/// Length of a stored input of a steering object, in bytes.
pub const STEERING_INPUT_MAX: usize = 8192;
/// Maximum length of a receive work queue entry, in bytes.
pub const RECEIVE_ENTRY_BYTES_MAX: usize = 2048;
/// Alignment of a doorbell record, in bytes, so that each word is loaded as a whole.
pub const DOORBELL_RECORD_ALIGNMENT: u64 = 8;
/// Queue pairs that a pass polls, and completion queues that a pass evaluates. The rest follows in
/// later passes.
pub const PASS_QUEUES_MAX: usize = 256;
/// Most queues of an idle function that are watched by their doorbell records; a function with more
/// is polled.
pub const WATCHED_QUEUES_MAX: usize = 256;
/// Messages of queue pairs which a reset removed that end at their peers in a pass. The rest ends
/// in later passes.
pub const ENDED_PER_PASS: usize = 64;
/// Most sets of objects that wait for the thread that drops them; a reset makes up to two. Beyond
/// it, the caller drops the objects itself.
pub const RECLAIMS_WAITING_MAX: usize = 8;
/// Queue pairs or completion queues without work that a pass looks at for the price of a message.
pub const LOOKS_PER_MESSAGE: usize = 8;
/// Messages of a queue pair before the next queue pair is served.
pub const SLICE_MESSAGES: u32 = 64;
/// Bytes of a queue pair before the next queue pair is served.
pub const SLICE_BYTES: u64 = 1 << 20;
