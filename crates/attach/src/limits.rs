//! Every bound of this crate, in one place.

/// Guest addresses that each byte of a log of written pages is counted as, against what one frontend
/// may grant: a quarter of those that it stands for, because guests' addresses have holes.
pub const LOG_SPREAD: u64 = 8192;
/// Longest payload of a message, in bytes. The longest that frontends send is a memory table of
/// 8 regions (264 bytes) or a configuration space (12 + 256 bytes).
pub const PAYLOAD_BYTES_MAX: usize = 4096;
/// Most descriptors with one message (the specification's limit for a memory table).
pub const DESCRIPTORS_MAX: usize = 8;
/// Most messages handled in one turn; the rest waits for the next one.
pub const MESSAGES_PER_TURN: usize = 64;
/// What a message costs for which memory is mapped or let go of, in plain ones: all processors that
/// run us forget where that memory was.
pub const MAPPING_COST: u64 = 16;
/// What a queue that starts or stops costs, in plain messages: its doorbell is watched, its service
/// looks for what waits for it.
pub const QUEUE_COST: u64 = 4;
/// A message that takes more of this thread's time is charged for all of it, in nanoseconds; 500 us:
/// several times what the fixed costs stand for.
pub const MESSAGE_SLOW_NS: u64 = 500_000;
/// The time that one unit of cost stands for, in nanoseconds; 5 us.
pub const COST_NS: u64 = 5_000;
/// Most regions that a frontend may grant one by one.
pub const MEMORY_SLOTS_MAX: usize = causeway_memory::limits::REGIONS_MAX;
/// Most regions in one memory table: each comes with a descriptor.
pub const TABLE_REGIONS_MAX: usize = DESCRIPTORS_MAX;
/// Most queues of one device.
pub const QUEUES_MAX: usize = 64;
/// Largest ring, in descriptors (virtio 1.3, section 2.7).
pub const RING_SIZE_MAX: u16 = 32768;
/// Largest device configuration space, in bytes (what QEMU asks for at most).
pub const CONFIG_BYTES_MAX: usize = 256;
/// How long the native frontend waits for a backend's reply, in milliseconds.
pub const REPLY_TIMEOUT_MS: u64 = 5000;
/// How long the native frontend pauses between two tries to connect, in milliseconds.
pub const CONNECT_PAUSE_MS: u64 = 10;
/// Bytes that a native connection takes before its owner has read them.
pub const NATIVE_BUFFER_BYTES: u32 = 256 * 1024;
/// Most connections over one native vsock port.
pub const NATIVE_CONNECTIONS_MAX: usize = 4096;
/// How often a backend in the native frontend's own thread is driven for one reply.
pub const PUMP_TURNS_MAX: usize = 1024;

/// Descriptors of one message of the local attachment.
pub const LOCAL_DESCRIPTORS_MAX: usize = 4;
/// Rings of a doorbell that are heard at a time, in bytes: more than a socket holds as it comes.
pub const RINGS_BYTES: usize = 4096;
/// As many times a doorbell's rings are taken out before it is closed.
pub const RINGS_LEFT_MAX: usize = 256;
/// Messages of the local attachment that wait for their reader.
pub const LOCAL_UNSENT_MAX: usize = 1024;
