//! Bounds of the HCA service: polling, frames in transit, shares, rates, records, captures,
//! sessions and interrupt vectors.
//!
//! The modules of this crate read these constants; none can be configured. Work beyond a limit of a
//! call waits for the next call. Frames to an adapter beyond a limit are dropped, frames from an
//! adapter wait in its send queue. A capture or a record beyond a limit is refused. The operator's
//! limits of an adapter (queue pairs, regions, registered memory) are options of the port
//! (`model::port`), within those of `causeway-mlx5` and `causeway-verbs`. Times with *estimated*
//! are charged to a turn, and need not be exact: the dispatcher reads its clock now and then.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | inbox, uplink | `uplink`, `uplink_sender`, `switch` | frames to the adapter are refused and counted; its own wait in the send queue |
//! | sessions, offers | `sessions`, `service`, `view` | the further session or offer is refused; answers wait |
//! | work of a call | `call`, `share`, `rate_limit`, `switch` | the rest waits for the next call, or for the end of a pause |
//! | idle polls | `idle`, `idle_watches` | pauses double, up to `idle_poll_us` of the port |
//! | restart | `service` | retries of the waiting requests begin |
//! | samples, traces, captures | `recent`, `trace`, `capture`, `packets` | the oldest sample is dropped; the others are counted only, or refused |
//! | record files | `record_memory` | the record is given up: the adapter goes on, and is not restored after a restart |
//!
//! The modules run in the dispatcher's thread of the group, but for the adapter's end of the uplink
//! (`uplink`: inbox, longest frame), which runs in that of the forwarding service.

/// Most sessions of processes that a port carries to a service of the daemon (`sessions`). The
/// first message of a further one fails, and the fault of the port shows the reason.
pub const SESSIONS_MAX: usize = 256;
/// Most answers that a call passes to the processes of a guest. Further ones wait for the next
/// call.
pub const ANSWERS_PER_CALL_MAX: u32 = 64;
/// Estimated time of a look at a session for answers, in nanoseconds.
pub const SESSION_LOOK_NS: u64 = 50;
/// Most bytes of memory that a process offers by a message: 256 MiB. A longer offer breaks the
/// protocol, and its session ends.
pub const OFFER_BYTES_MAX: u64 = 256 << 20;
/// Most pages of the registration that offered memory has: 64 MiB of pages of 4 KiB, 256 MiB of
/// longer ones. Each is looked up in one step. Memory of more pages is refused with an error of the
/// request.
pub const OFFER_RANGES_MAX: usize = 16_384;
/// Most ranges of all memory that the processes of a port's guest have offered: 4 GiB of scattered
/// pages of 4 KiB, and 16 MiB of memory of the daemon. Further offers are refused with an error of
/// the request until memory is released.
pub const OFFERED_RANGES_OF_PORT_MAX: usize = 1 << 20;
/// Interrupt vectors of an adapter: one for events, the others for completions.
pub const VECTORS: u16 = 8;
/// First pause after an adapter has been idle for the idle spin, in nanoseconds: 20 us. Each
/// further idle poll doubles it, up to `idle_poll_us` of the port.
pub const FIRST_PAUSE_NS: u64 = 20_000;
/// Most frames of the forwarding service that wait for an adapter. A further frame is refused and
/// counted.
pub const INBOX_FRAMES_MAX: usize = 512;
/// Frames in the inbox of an adapter from which on an adapter that sends to it through the
/// forwarding service waits, with all its frames, in its send queues.
pub const CROWDED_FRAMES: usize = INBOX_FRAMES_MAX / 2;
/// Most frames that are taken from the inbox or the send queues of an adapter in a call. The rest
/// waits for the next call.
pub const FRAMES_PER_CALL_MAX: usize = 64;
/// Most frames in one batch to the shard that forwards the group's frames. A full batch is sent at
/// once.
pub const UPLINK_BATCH_FRAMES_MAX: usize = 32;
/// Most batches of an adapter that the forwarding service has. Beyond it, frames wait in the send
/// queues of the adapter.
pub const UPLINK_BATCHES_MAX: usize = 2;
/// Most bytes in one such batch. A batch without room for the longest frame is sent at once.
pub const UPLINK_BATCH_BYTES_MAX: usize = 256 * 1024;
/// Longest frame that the uplink takes to an adapter, in bytes, and room that a batch keeps for the
/// next frame: a segment of 64 KiB with headers.
pub const FRAME_BYTES_MAX: usize = 65536 + 256;
/// Bytes in the memory window of doorbell pages: 8,192 pages.
pub const UAR_BYTES: u64 = 32 << 20;
/// Estimated time of a message between two guests without its bytes, in nanoseconds.
pub const MESSAGE_NS: u64 = 200;
/// Estimated time of a piece of a frame in a receive queue without its bytes, in nanoseconds.
pub const PIECE_NS: u64 = 200;
/// Estimated time of a look at a send queue of frames or at an entry, in nanoseconds.
pub const LOOK_NS: u64 = 40;
/// Estimated time of a poll of an adapter that has no work, in nanoseconds.
pub const POLL_NS: u64 = 100;
/// Estimated time of the comparison of a word of an idle adapter, and of the look at the adapter.
pub const WORD_NS: u64 = 20;
/// Estimated time of the wake-up of a port with a passed deadline, in nanoseconds.
pub const WAKE_NS: u64 = 100;
/// Estimated time of a command of a driver, in nanoseconds.
pub const COMMAND_NS: u64 = 3_000;
/// Copies of the same length that take the time of a command's input or output: bytes lie in
/// mailboxes of 512 bytes each, and are parsed.
pub const COMMAND_BYTE_COPIES: u64 = 8;
/// Most commands of a driver in one call. Further commands stay rung.
pub const COMMANDS_PER_CALL_MAX: u32 = 8;
/// Least bytes that a call may copy, so that a port with work makes progress.
pub const BYTES_PER_CALL_MIN: u64 = 64 << 10;
/// Rate that a limit saves while a port is idle, in nanoseconds of the rate: 4 ms, more than a
/// dispatcher is late.
pub const RATE_BURST_NS: u64 = 4_000_000;
/// Pause of an adapter whose frames wait for room in the uplink, in nanoseconds: 20 us.
pub const ROOM_PAUSE_NS: u64 = 20_000;
/// Rate that must be free before a port beyond its limit is served again: 0.5 ms.
pub const RATE_RESUME_NS: u64 = 500_000;
/// Least messages of a call of a port with a limit of messages. A pass pays for looks at queue
/// pairs by messages, so fewer would find no work.
pub const RATE_MESSAGES_MIN: u64 = 64;
/// Longest call of a port, and lead of a port over the others before it cedes: 20 us.
pub const SHARE_NS: u64 = 20_000;
/// Time after the restoration of an adapter in which requests of its queue pairs wait for adapters
/// that are not restored yet, beside the times of their retries: 60 s, as long as the holder waits
/// for a restoration.
pub const RESTART_WAIT_NS: u64 = 60_000_000_000;
/// Shortest time between two samples of a port's counters: 1 s.
pub const SAMPLE_NS: u64 = 1_000_000_000;
/// Samples that are kept: rates are means over the last 5 seconds. The oldest is dropped.
pub const SAMPLES_MAX: usize = 6;
/// Most connected queue pairs of an adapter in a trace. Further queue pairs are left out.
pub const TRACED_QUEUE_PAIRS_MAX: usize = 64;
/// Most bytes of a message that a capture copies; its further packets count as dropped.
pub const CAPTURE_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of all record files of the process: 1 GiB. A file may have as many as are left.
/// Without room, the record of the adapter is given up.
pub const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Part of a file system that record files leave free: an eighth.
pub const RECORD_FREE_SHARE: u64 = 8;
/// Most captures of a group's adapters at the same time. A further capture is refused.
pub const CAPTURES_MAX: usize = 16;
/// Estimated time of a captured byte: its copies and its CRC.
pub const CAPTURE_BYTE_NS: u64 = 4;
/// Most queue pairs whose sequence numbers a capture knows. With so many, all are forgotten.
pub const SEQUENCES_MAX: usize = 1 << 16;
/// Most adapters of a group whose multicast frames go directly: a frame is copied to all in one
/// step. With more adapters, multicast frames go through the forwarding service.
pub const DIRECT_MULTICAST_ADAPTERS_MAX: usize = 8;
