//! Every bound of this crate, in one place.

/// Chains served from one queue before the next queue has its turn.
pub const SERVE_CHAINS_MAX: usize = 64;
/// Events taken from the kernel at a time.
pub const EVENTS_MAX: usize = 64;
/// What serving a queue that has work costs, in looks at one that has none.
pub const SERVE_COST: u32 = 8;
/// Cost of turns in vain, in polls of an empty queue, after which a dispatcher yields the processor
/// although some queues were not polled yet.
pub const COST_PER_ROUND: usize = 256;
/// Time between two looks at the kernel's events while queues are served; 50 us. A doorbell of an
/// idle group is heard so soon.
pub const LOOK_NS: u64 = 50_000;
/// Time of one turn of a group of weight 1; 50 us.
pub const QUANTUM_NS: i64 = 50_000;
/// Quanta that a group pays back at most after a turn that took longer than it may. A turn also
/// overruns when the host takes the processor away, so a debt is bounded.
pub const DEBT_QUANTA_MAX: i64 = 4;
/// Charged work after which the clock is read; 10 us.
pub const RESYNC_NS: u64 = 10_000;
/// What an idle dispatcher spends until it lets others have the processor, where processors are
/// scarce, in looks at an empty queue: a few microseconds.
pub const COST_PER_YIELD: usize = 32;
/// A source that gives something within so long after it gave something is waited for, in
/// nanoseconds; 500 us: a message to another host and back, where all sleep between.
pub const SOON_NS: u64 = 500_000;
/// How often in a row that is to be so before it is waited for.
pub const SOON_TIMES: u8 = 4;
/// Who lets others have the processor and gets it back only after so long does not wait for
/// sources awake, in nanoseconds; 150 us: others have work for it...
pub const TAKEN_NS: u64 = 150_000;
/// ... for so long, in nanoseconds; 100 ms: each look whether it is so still costs a slice of the
/// scheduler's, some 3 ms. Who sleeps and is woken gets the processor sooner.
pub const CROWDED_NS: u64 = 100_000_000;
/// Orders waiting for a dispatcher; a caller beyond that waits.
pub const ORDERS_WAITING_MAX: usize = 64;
/// Over how long the loads of shards and dispatchers are measured; 1 s.
pub const LOAD_WINDOW_NS: u64 = 1_000_000_000;
/// How long a port takes no frontend after one held up the dispatcher; 30 s.
pub const BARRED_NS: u64 = 30_000_000_000;
/// Frontends that one port takes in a second, and as many at once: setting one up and tearing it
/// down takes the dispatcher some 100 us, which its neighbours lose.
pub const CONNECTS_PER_SECOND: u64 = 32;
/// Processes that one NIC takes in a second, and as many at once: a job of 256 ranks starts without
/// a wait, and taking a process in costs the dispatcher some 50 us, which other ports lose.
pub const ATTACHES_PER_SECOND: u64 = 256;
/// What the messages of one port's frontends may cost in a second, and as much at once, as
/// [`causeway_attach::Server::cost`] counts it: all that a frontend with 60 queues and 64 regions
/// says at its start, three times.
pub const MESSAGES_PER_SECOND: u64 = 4096;
/// How long a frontend is not read while its earlier grants wait to be unmapped; 10 ms.
pub const UNMAPPING_NS: u64 = 10_000_000;
/// How often the memory files of a port that is served are looked at, in nanoseconds; 100 ms.
pub const FOOTPRINT_LOOK_NS: u64 = 100_000_000;
/// Over how long the growth of a port's files is compared with the daemon's, in nanoseconds; 1 s.
pub const FOOTPRINT_WINDOW_NS: u64 = 1_000_000_000;
/// Most memory of one guest that the daemon pays for by default, in bytes; 1 GiB. A guest's network
/// buffers take less: its kernel uses pages again that it touched before.
pub const FOOTPRINT_MAX_DEFAULT: u64 = 1 << 30;
/// And one part in so many of the memory that the daemon's control group may have.
pub const FOOTPRINT_PART: u64 = 4;
/// A dispatcher that sleeps for so long while it serves, without waiting for anything, looks for the
/// port that caused it, in nanoseconds; 5 ms.
pub const STALL_NS: u64 = 5_000_000;
/// That port's file lost so many bytes meanwhile; 2 MiB: punching fewer takes less than 1 ms.
pub const PUNCHED_BYTES: u64 = 2 << 20;
/// How often the time in which a port takes no frontend doubles; the longest is an hour.
pub const BARRED_DOUBLINGS_MAX: u32 = 7;
/// A wake-up by somebody's descriptor that takes no longer is free, in nanoseconds; 50 us: some
/// times what an interrupt to another virtual processor takes where hypervisors are nested, so that
/// a guest under emulation that another one floods is not charged for being woken often.
pub const WAKE_USUAL_NS: u64 = 50_000;
/// What each byte that a wake-up carries adds to that, in nanoseconds: copies run ten times as fast.
pub const WAKE_BYTE_NS: u64 = 1;
/// What is beyond that may take one part in so many of a dispatcher's time, for each owner; 5 %.
pub const WAKE_SHARE: u64 = 20;
/// What an owner may owe at a time, in nanoseconds; 2 ms.
pub const WAKE_BURST_NS: u64 = 2_000_000;
/// Wake-ups that are measured by the thread's own time once an owner is suspected.
pub const WAKE_MEASURED: u32 = 64;
/// Half of the first pause of an owner beyond its share, in nanoseconds; each next is twice as long.
/// 50 ms.
pub const WAKE_PAUSE_NS: u64 = 50_000_000;
/// An owner that is beyond its share for so many times ...
pub const WAKE_STRIKES_MAX: u32 = 4;
/// ... none of which is so long after the one before is closed; 60 s.
pub const WAKE_STRIKES_NS: u64 = 60_000_000_000;
/// How long a socket is left alone to which more came; 100 ms. They wait in its backlog.
pub const SHUT_NS: u64 = 100_000_000;
/// Guest-triggered log lines of one port in [`LOG_WINDOW_NS`]; the rest is counted.
pub const LOG_LINES_MAX: u32 = 10;
/// See [`LOG_LINES_MAX`]; 5 s.
pub const LOG_WINDOW_NS: u64 = 5_000_000_000;
/// How often a dispatcher that works looks whether processors are scarce; 10 ms.
pub const SHARE_PERIOD_NS: u64 = 10_000_000;
/// The idle spin is not cut below this, in nanoseconds.
pub const SPIN_SCARCE_NS_MIN: u64 = 4_000;
/// How often the loads of dispatchers are compared; 1 s.
pub const BALANCE_MS: u64 = 1_000;
/// Percent of a dispatcher's time: one that is busy for less needs no relief.
pub const BALANCE_BUSY_MIN: u32 = 70;
/// Percent of a dispatcher's time that a move must win, so that shards do not go to and fro.
pub const BALANCE_GAIN_MIN: u32 = 20;
/// Batches of frames from links that may wait for a group; those beyond are dropped.
pub const ARRIVALS_WAITING_MAX: usize = 256;
/// Notices from groups that may wait for the links.
pub const NOTICES_WAITING_MAX: usize = 65_536;
/// How many links a frame may cross.
pub const HOPS_MAX: u8 = 8;
/// Time between ticks of the controllers while one needs them; 1 s.
pub const CONTROL_TICK: std::time::Duration = std::time::Duration::from_secs(1);
/// Datagrams that are given to the kernel in one call (UDP_MAX_SEGMENTS of every Linux with UDP GSO).
pub const UDP_BATCH_MAX: usize = 64;
/// Calls that receive from one socket, before others have their turn.
pub const UDP_RECEIVES_MAX: usize = 8;
/// Room for what comes from one flow in one call, in bytes: the kernel puts at most that together.
pub const UDP_RECEIVE_BYTES: usize = 65_536;
/// How often a polled socket that has just given all is left alone: while what came is delivered,
/// and once more, while the answer leaves.
pub const UDP_REST_TURNS: u8 = 2;
/// What a socket of datagrams holds in each direction, in bytes; 4 MiB.
pub const UDP_SOCKET_BYTES: usize = 4 << 20;
/// Most connections that wait at a listener which goes, and are let go of one by one.
pub const BACKLOG_MAX: usize = 4096;
/// Doorbells of a queue that never had a chain, after which its memory is taken as not shared. A
/// frontend rings once or twice when it starts a queue.
pub const VAIN_DOORBELLS_MAX: u8 = 8;
