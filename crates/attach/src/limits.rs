//! Bounds of attachments: message sizes, descriptor counts, queues, costs and time-outs.
//!
//! The constants are fixed at compile time. The module only names them: `vhost_user` ends the
//! attachment of a frontend that exceeds a bound on messages, descriptors or regions, and `local`
//! that of a process. `vfio_user` ends an attachment for a message that is too long or has too many
//! descriptors, and refuses a command beyond another size or number with an errno. `native` returns
//! an error to its caller. A bound for a turn or a read only postpones the rest. Bounds of guest
//! memory are in `causeway_memory::limits`, those of file descriptors in `causeway_host::limits`.
//! In the comments of this module, "descriptors" are file descriptors unless a ring is named.
//!
//! | constants | read by | thread |
//! |---|---|---|
//! | messages, costs, queues of vhost-user | `vhost_user`, `stream` | dispatcher, holder, client |
//! | local attachment, doorbells | [`crate::local`], [`crate::doorbell`] | dispatcher, client |
//! | vfio-user | `vfio_user`, [`crate::allowance`] | control thread, dispatcher, holder, client |
//! | native frontends | [`crate::native`] | client, which blocks |
//!
//! *Holder* is the thread of a frontend in `causeway-holder`, which also reads some limits itself;
//! *client* is the thread of a process that calls [`crate::native`] or `clients/endpoint`.

/// Guest addresses that each byte of a dirty log counts as, against the addresses that one frontend
/// may grant. It is a quarter of the addresses that a byte stands for, because guest memory has
/// holes. A longer log ends the attachment.
pub const LOG_SPREAD: u64 = 8192;
/// Longest payload of a message, in bytes. The longest that frontends send is a memory table of 8
/// regions (264 bytes) or a configuration space (12 + 256 bytes). A longer payload ends the
/// attachment.
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Most descriptors with one message of vhost-user or vfio-user: the specification's limit for a
/// memory table. More end the attachment.
pub const STREAM_DESCRIPTORS_MAX: usize = 8;
/// Longest header of both protocols, in bytes.
pub const STREAM_HEADER_BYTES_MAX: usize = 16;
/// Most descriptors with one message of vhost-user.
pub const DESCRIPTORS_MAX: usize = STREAM_DESCRIPTORS_MAX;
/// Most messages of a vhost-user frontend handled in one turn; the rest wait for the next turn.
pub const MESSAGES_PER_TURN: usize = 64;
/// Cost of a message that maps or unmaps memory, in units of a plain message. Unmapping interrupts
/// every processor that runs the daemon to flush its TLB.
pub const MAPPING_COST: u64 = 16;
/// Cost of a queue that starts or stops, in plain messages: the dispatcher changes its epoll set,
/// and the service checks for pending work.
pub const QUEUE_COST: u64 = 4;
/// Thread time above which a message is charged for all of its time, in nanoseconds: 500 us,
/// several times the fixed costs.
pub const MESSAGE_SLOW_NS: u64 = 500_000;
/// Thread time that one unit of cost stands for, in nanoseconds: 5 us.
pub const COST_NS: u64 = 5_000;
/// Most regions that a frontend may grant by single messages. A further region ends the attachment.
/// As many removed regions are remembered, so that a repeated removal is no fault; the oldest is
/// forgotten.
pub const MEMORY_SLOTS_MAX: usize = causeway_memory::limits::REGIONS_MAX;
/// Most regions in one memory table; each needs a descriptor. A table with more, or with none, ends
/// the attachment.
pub const TABLE_REGIONS_MAX: usize = DESCRIPTORS_MAX;
/// Most queues of one device; the backend leaves out further queues of a model.
pub const QUEUES_MAX: usize = 64;
/// Largest ring, in descriptors (virtio 1.3, 2.7). A larger ring ends the attachment.
pub const RING_SIZE_MAX: u16 = 32768;
/// Largest device configuration space, in bytes: the most that QEMU requests. A request beyond it
/// ends the attachment; bytes behind the model's own space read as 0.
pub const CONFIG_BYTES_MAX: usize = 256;
/// Time for which the native frontend waits for a backend's reply, in milliseconds. The request
/// then fails with an error.
pub const REPLY_TIMEOUT_MS: u64 = 5000;
/// Pause of the native frontend between two attempts to connect, in milliseconds.
pub const CONNECT_PAUSE_MS: u64 = 10;
/// Receive buffer of a native connection, in bytes; the peer may send no more unread bytes, or the
/// connection is reset.
pub const NATIVE_BUFFER_BYTES: u32 = 256 * 1024;
/// Most connections over one native vsock port. A further `connect` fails, and further requests of
/// peers are answered with a reset.
pub const NATIVE_CONNECTIONS_MAX: usize = 4096;
/// Most calls of [`Pump::pump`](crate::native::Pump::pump) for one reply; the request then fails as
/// after [`REPLY_TIMEOUT_MS`].
pub const PUMP_TURNS_MAX: usize = 1024;

/// Most descriptors with one message of the local attachment. More end the attachment.
pub const LOCAL_DESCRIPTORS_MAX: usize = 4;
/// Bytes that are read from a doorbell at a time: more than its socket holds by default. The rest
/// stays readable.
pub const RINGS_BYTES: usize = 4096;
/// Most reads that drain a doorbell before it is closed; another thread closes the rest.
pub const RINGS_LEFT_MAX: usize = 256;
/// Most messages of the local attachment that wait for the peer to read. The next send fails, and
/// the daemon disconnects the process.
pub const LOCAL_UNSENT_MAX: usize = 1024;

/// Largest read or write of a region in one vfio-user message, in bytes (64 KiB); a longer access
/// is refused with EINVAL. Guests access registers by at most 8 bytes.
pub const REGION_ACCESS_BYTES_MAX: usize = 64 << 10;
/// Longest payload of a vfio-user message, in bytes: the largest region access and its header of 16
/// bytes. A longer payload ends the attachment.
pub const VFIO_PAYLOAD_BYTES_MAX: usize = REGION_ACCESS_BYTES_MAX + 16;
/// Most file descriptors with one vfio-user message. More end the attachment.
pub const VFIO_DESCRIPTORS_MAX: usize = STREAM_DESCRIPTORS_MAX;
/// Longest text of capabilities in a VERSION message of vfio-user, in bytes. A longer text is
/// refused with EINVAL.
pub const VERSION_BYTES_MAX: usize = 4096;
/// Alignment of DMA mappings, in bytes: the smallest page of guests and IOMMUs. A mapping that is
/// not aligned is refused with EINVAL.
pub const DMA_ALIGN: u64 = 4096;
/// Most interrupt vectors of one interrupt type of a vfio-user device. Further vectors of a
/// description are left out.
pub const VECTORS_MAX: usize = 64;
/// Most doorbells that a write to a region rings by a message: one bit of a 64-bit set each. Higher
/// numbers are ignored.
pub const REGION_DOORBELLS_MAX: usize = 64;
/// Most mappable areas of one region; the server and the client leave out the rest.
pub const AREAS_MAX: usize = 64;
/// Most DMA messages of vfio-user that share one epoch and one acknowledgement of the dispatcher.
/// After so many the batch is published.
pub const DMA_BATCH_MAX: usize = 64;
/// Time for which the reply to a DMA or RESET message waits until the dispatcher uses the new
/// state, in milliseconds (4 s). After an unmap or a reset, the attachment then ends: a success
/// reply would be wrong, and QEMU gives a request up after 5 s. The reply to a mapping is sent
/// then.
pub const DMA_ACK_MS: u64 = 4000;
/// Time for which the reply to the end of a resumption waits, in milliseconds (60 s). The holder
/// answers the frontend meanwhile; the dispatcher may restore several devices one after another.
/// After it the attachment ends.
pub const RESUME_ACK_MS: u64 = 60_000;
/// Longest time for which a register read waits while the reply to a DMA or RESET message is due,
/// in milliseconds.
pub const READ_CHECK_MS: u64 = 10;
/// Most register reads that are answered before the control thread checks again whether the
/// dispatcher uses the new state.
pub const READS_PER_CHECK: usize = 64;
/// First pause between two checks whether the dispatcher has dropped an epoch, in microseconds.
pub const EPOCH_CHECK_US: u64 = 20;
/// Longest pause between two such checks, in microseconds.
pub const EPOCH_CHECK_US_MAX: u64 = 1000;
/// Time for which a send of vfio-user waits for room in the socket, in milliseconds; after that the
/// attachment of a frontend that reads no replies ends, or the call of a native client fails.
pub const REPLY_STALL_MS: u64 = 2000;
/// Processor time that a control thread may use at once, in nanoseconds (1 s): the DMA mappings of
/// 1 GiB in pages of 4 KiB take several seconds. After it, the thread pauses.
pub const CONTROL_BURST_NS: u64 = 1_000_000_000;
/// Wall time in which a control thread earns 1 ns of processor time, in nanoseconds: a flood of
/// messages uses half a processor at most.
pub const CONTROL_NS_PER_CPU_NS: u64 = 2;
/// Processor time that all control threads of the process may use at once, in nanoseconds (4 s).
/// Beyond it, threads that have used half of their own time pause.
pub const CONTROL_SHARED_BURST_NS: u64 = 4_000_000_000;
/// Processors that the control threads of all flooding frontends use together in the long run.
pub const CONTROL_PROCESSORS: u64 = 2;
/// Processor time that a newly mapped file counts as, in nanoseconds (100 us): its removal
/// interrupts every processor that runs the daemon.
pub const FILE_MAPPING_NS: u64 = 100_000;
/// Longest pause of a control thread that used its processor time up, in milliseconds.
pub const CONTROL_PAUSE_MS: u64 = 100;
/// Pause of a control thread while too many earlier grants of its frontend are still mapped, in
/// milliseconds.
pub const UNMAP_PAUSE_MS: u64 = 10;
