//! Limits of this crate.
//!
//! The modules of the crate apply them, and other crates read those that concern them. Units are in
//! the description or the name: `_NS` nanoseconds, `_MS` milliseconds, `_BYTES` bytes. The values
//! are fixed at compile time; `causeway_model::limits` has the bounds of the values that an
//! operator gives.
//!
//! | constants | read by | at the limit |
//! |---|---|---|
//! | turns, yields, spins | `dispatcher`, `schedule`, `slice`, `spin_budget`, `yield_backoff`, `shard`, `shard::sources` | the dispatcher serves the next queue or group, or yields |
//! | orders, loads, balance | `dispatcher`, `fabric`, `balance` | a caller of an order blocks; a shard moves |
//! | frontends, messages | `shard::frontend`, `shard::pauses`, `listen` | connections wait in the backlog, messages in the socket |
//! | memory files, stalls | `footprint`, `memory_charge`, `port`, `dispatcher` | the frontend is closed and the port refuses frontends for 30 s or more |
//! | wake-ups | `wakes`, `host`, `stream` | the owner is not woken for 100 ms or more, and closed after 4 strikes |
//! | connects to frontends | `connector` | the port closes the connection and connects again |
//! | log lines | `log_limit` | lines are dropped and counted |
//! | frames of links, notices | `link::io`, `ethernet` | frames are dropped and counted; a notice is logged and lost |
//! | datagrams | `udp`, `link::io` | the rest waits for the next call |
//! | sessions of guests | `guest_session` | the process waits; the session ends |
//! | captures, traffic matrix | `capture`, `traffic` | frames and pairs beyond are counted only |
//!
//! Most run in a dispatcher's thread; `balance` runs in a thread of the fabric, `memory_charge` in
//! a sampling thread, and `capture` and `traffic` also in the threads of control requests.

/// Chains served from one queue before the next queue is served.
pub const SERVE_CHAINS_MAX: usize = 64;
/// Events read from the kernel in one `epoll_wait`. The rest is read by the next call.
pub const EVENTS_MAX: usize = 64;
/// Cost of serving a queue that has work, in polls of an empty queue.
pub const SERVE_COST: u32 = 8;
/// Cost of turns that found no work, in polls of an empty queue, after which a dispatcher yields
/// the processor although some queues were not polled yet.
pub const COST_PER_ROUND: usize = 256;
/// Time between two reads of the kernel's events while queues are served; 50 us. It bounds how long
/// a doorbell of an idle group waits.
pub const EVENT_READ_NS: u64 = 50_000;
/// Turn of a group of weight 1; 50 us.
pub const QUANTUM_NS: i64 = 50_000;
/// Largest debt of a group after a turn that overran, in quanta. A turn also overruns when the host
/// preempts the dispatcher, so the debt is bounded.
pub const DEBT_QUANTA_MAX: i64 = 4;
/// Charged work after which the clock is read; 10 us.
pub const RESYNC_NS: u64 = 10_000;
/// Work of an idle dispatcher before it yields the processor while processors are scarce, in polls
/// of an empty queue: a few microseconds.
pub const COST_PER_YIELD: usize = 32;
/// Longest gap between two results of a source that counts as quick, in nanoseconds; 500 us: a
/// round trip to another host on which every thread slept.
pub const QUICK_NS: u64 = 500_000;
/// Consecutive quick results after which a dispatcher spins for a source.
pub const QUICK_RESULTS: u8 = 4;
/// Duration of a yield, in nanoseconds, from which the processor counts as contended; 150 us. The
/// dispatcher then does not spin for sources for [`CONTENDED_NS`].
pub const LONG_YIELD_NS: u64 = 150_000;
/// Duration of a yield, in nanoseconds, below which no other thread ran meanwhile; 3 us.
pub const VAIN_YIELD_NS: u64 = 3_000;
/// Yields in vain in a row before the dispatcher skips any.
pub const VAIN_YIELDS_FREE: u32 = 4;
/// Most yields that are skipped in a row, each after a round of polls without work: some
/// microseconds.
pub const YIELD_SKIPS_MAX: u32 = 63;
/// Time without spinning after a long yield, in nanoseconds; 100 ms. Probing more often would cost
/// a scheduler slice of some 3 ms each time, and a sleeping thread that is woken gets the processor
/// sooner than a thread that yields.
pub const CONTENDED_NS: u64 = 100_000_000;
/// Orders queued for a dispatcher; further callers block.
pub const ORDERS_WAITING_MAX: usize = 64;
/// Window over which the loads of shards and dispatchers are measured; 1 s.
pub const LOAD_WINDOW_NS: u64 = 1_000_000_000;
/// Time for which a port refuses frontends after one stalled the dispatcher; 30 s.
pub const BARRED_NS: u64 = 30_000_000_000;
/// Frontends that one port accepts per second, and burst: setting up and tearing down a frontend
/// takes the dispatcher some 100 us, which other ports lose.
pub const CONNECTS_PER_SECOND: u64 = 32;
/// Processes that a port accepts per second, and burst, if its service keeps the attachments (a
/// NIC, a stream port): a job of 256 ranks starts without waiting. Accepting a process takes the
/// dispatcher some 50 us, which other ports lose.
pub const ATTACHES_PER_SECOND: u64 = 256;
/// Cost per second, and burst, of the messages of one port's frontends, as
/// [`causeway_attach::Server::cost`] counts it: three times the setup of a frontend with 60 queues
/// and 64 regions.
pub const MESSAGES_PER_SECOND: u64 = 4096;
/// Time for which a frontend is not read while its earlier grants wait to be unmapped; 10 ms.
pub const UNMAPPING_NS: u64 = 10_000_000;
/// Interval between two samples of the memory files of a served port, in nanoseconds; 100 ms.
pub const FOOTPRINT_SAMPLE_NS: u64 = 100_000_000;
/// Window in which the growth of a port's files is compared with the daemon's charge, in
/// nanoseconds; 1 s.
pub const FOOTPRINT_WINDOW_NS: u64 = 1_000_000_000;
/// Default limit of guest memory that is charged to the daemon, per port, in bytes; 1 GiB. Network
/// buffers of a guest need less: its kernel reuses pages that it touched before.
pub const FOOTPRINT_MAX_DEFAULT: u64 = 1 << 30;
/// Divisor of the memory limit of the daemon's control group; the quotient also caps the default
/// limit of a port.
pub const FOOTPRINT_PART: u64 = 4;
/// Sleep of a dispatcher while it serves, outside of waiting for events, from which it searches for
/// the port that caused it, in nanoseconds; 5 ms.
pub const STALL_NS: u64 = 5_000_000;
/// Bytes that a port's file must have lost meanwhile to make the port a suspect; 2 MiB: punching
/// fewer takes less than 1 ms.
pub const PUNCHED_BYTES: u64 = 2 << 20;
/// Number of times that the refusal period of a port doubles; the longest period is 64 minutes.
pub const BARRED_DOUBLINGS_MAX: u32 = 7;
/// Duration of a wake-up that is free, in nanoseconds; 50 us: several times an interrupt to another
/// virtual processor under nested virtualization, so that a guest under emulation is not charged
/// when another guest floods it.
pub const WAKE_USUAL_NS: u64 = 50_000;
/// Free time per byte that a wake-up carries, in nanoseconds: copies run ten times as fast.
pub const WAKE_BYTE_NS: u64 = 1;
/// Divisor of a dispatcher's time; the quotient is the excess that each owner may use: 5 %.
pub const WAKE_SHARE: u64 = 20;
/// Largest debt of an owner before it becomes a suspect, in nanoseconds; 2 ms.
pub const WAKE_BURST_NS: u64 = 2_000_000;
/// Wake-ups of a suspect that are measured by the thread's processor time.
pub const WAKE_MEASURED: u32 = 64;
/// Half of the first pause of an owner beyond its share, in nanoseconds; each further pause is
/// twice as long. 50 ms.
pub const WAKE_PAUSE_NS: u64 = 50_000_000;
/// Strikes after which an owner is closed.
pub const WAKE_STRIKES_MAX: u32 = 4;
/// Time without a strike after which earlier strikes are forgotten; 60 s.
pub const WAKE_STRIKES_NS: u64 = 60_000_000_000;
/// First pause between two attempts of a port to connect to its frontend; 100 ms. The pause doubles
/// until a queue runs.
pub const CONNECT_PAUSE_NS: u64 = 100_000_000;
/// Longest pause between two such attempts; 1 s.
pub const CONNECT_PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Time within which a frontend to which the port connected must send its first message; 5 s. The
/// port then closes the connection and connects again.
pub const FIRST_MESSAGE_NS: u64 = 5_000_000_000;
/// Pause of a listening socket whose port reached its rate limit; 100 ms. Connections wait in its
/// backlog.
pub const LISTENER_PAUSE_NS: u64 = 100_000_000;
/// Time in which the frontend of a held port returns after the port was added; 200 ms. The holder's relays
/// look for the daemon every 50 ms.
pub const RETURN_NS: u64 = 200_000_000;
/// Time after the addition of a held port in which others may follow; 50 ms.
pub const SETTLE_NS: u64 = 50_000_000;
/// Time for which a shard withholds queues while other frontends return; 500 ms.
pub const WITHHELD_MAX_NS: u64 = 500_000_000;
/// Guest-triggered log lines of one port per [`LOG_WINDOW_NS`]; further lines are counted.
pub const LOG_LINES_MAX: u32 = 10;
/// Window of [`LOG_LINES_MAX`]; 5 s.
pub const LOG_WINDOW_NS: u64 = 5_000_000_000;
/// Interval at which a busy dispatcher checks whether processors are scarce; 10 ms.
pub const SHARE_PERIOD_NS: u64 = 10_000_000;
/// Lower bound of the reduced spin budget, in nanoseconds.
pub const SPIN_SCARCE_NS_MIN: u64 = 4_000;
/// Interval at which the loads of dispatchers are compared; 1 s.
pub const BALANCE_MS: u64 = 1_000;
/// Load of a dispatcher below which no shard leaves it, in percent.
pub const BALANCE_BUSY_MIN: u32 = 70;
/// Percentage points by which the busier of the two dispatchers must be less busy after a move, so
/// that shards do not oscillate.
pub const BALANCE_GAIN_MIN: u32 = 20;
/// Batches of frames from links that may be queued for a group; the frames of further batches are
/// dropped and counted.
pub const ARRIVALS_WAITING_MAX: usize = 256;
/// Notices from groups that may be queued for the links. A further notice is logged and lost.
pub const NOTICES_WAITING_MAX: usize = 65_536;
/// Links that a frame may cross. `ethernet` does not send a frame that crossed so many into a
/// further link.
pub const HOPS_MAX: u8 = 8;
/// Time between ticks of the controllers while at least one needs them; 1 s.
pub const CONTROL_TICK: std::time::Duration = std::time::Duration::from_secs(1);
/// Datagrams per send call (UDP_MAX_SEGMENTS of every Linux with UDP GSO).
pub const UDP_BATCH_MAX: usize = 64;
/// Receive calls on one socket before other sources are served.
pub const UDP_RECEIVES_MAX: usize = 8;
/// Buffer of one receive call, in bytes: the kernel coalesces at most that much of one flow.
pub const UDP_RECEIVE_BYTES: usize = 65_536;
/// Polls for which a drained socket is skipped: while its datagrams are delivered, and once more
/// while the answer leaves.
pub const UDP_REST_TURNS: u8 = 2;
/// Socket buffer of a UDP socket in each direction, in bytes; 4 MiB.
pub const UDP_SOCKET_BYTES: usize = 4 << 20;
/// Waiting connections that a listener closes one by one when it is dropped.
pub const BACKLOG_MAX: usize = 4096;
/// Doorbells of a queue that never had a chain after which its memory counts as private: a warning
/// in the log and a notice at the port follow, nothing else. A frontend rings once or twice when it
/// starts a queue.
pub const EMPTY_DOORBELLS_MAX: u8 = 8;
/// Most bytes of a capture that one fetch returns: 1 MiB. The rest stays for the next fetch.
pub const CAPTURE_FETCH_BYTES: usize = 1 << 20;
/// Capacity of a chunk of a capture, in bytes; a longer frame has a chunk of its own.
pub const CAPTURE_CHUNK_BYTES: usize = 64 << 10;
/// Most bytes of a capture that wait to be fetched: 8 MiB. Frames beyond are counted as dropped.
pub const CAPTURE_BYTES_MAX: usize = 8 << 20;
/// Most address pairs in the traffic matrix of one service in a group.
pub const TRAFFIC_PAIRS_MAX: usize = 4096;
/// Time over which the traffic matrix measures rates: 1 s.
pub const TRAFFIC_WINDOW_NS: u64 = 1_000_000_000;
/// Silence after which a pair may be replaced in a full traffic matrix: 60 s.
pub const TRAFFIC_SILENT_NS: u64 = 60_000_000_000;
/// Shortest time between two searches of a full traffic matrix for silent pairs: 1 s.
pub const TRAFFIC_SWEEP_NS: u64 = 1_000_000_000;
/// Most requests of a session of a guest's process that wait for the serving service. Then the
/// process waits.
pub const SESSION_REQUESTS_MAX: usize = 32;
/// Most answers of a session that wait for the process. With one more, the serving service ends the
/// session.
pub const SESSION_ANSWERS_MAX: usize = 1024;
/// Most views of ports that a dispatcher makes between two turns. A view takes some microseconds.
pub(crate) const PORTS_VIEWED_AT_ONCE: usize = 4;
