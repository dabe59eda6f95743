//! Bounds of this crate: counts, sizes and times, with the reason for their value.
//!
//! All are constants: neither the operator nor the application can change one. The bounds of
//! messages and requests are in [`causeway_message::limits`].
//!
//! The modules of this crate read them, in the process of the application: `nic`, `place` and
//! `paths` those of NICs, connects and restarts, `adapter` those of sessions, `staging` those of
//! staging, `bypass` and `unknown_nics` those of direct mode, `endpoint` those of polls,
//! [`crate::waiter`] those of sleeps. The API libraries read [`ENDPOINT_ANY`] and some others.

use std::time::Duration;

pub use causeway_memory::limits::PAGE_BYTES;

/// Maximum NICs of one process; further sockets and adapters are ignored.
pub const NICS_MAX: usize = 64;
/// Endpoint number that requests any free endpoint. Valid numbers are 0 to 254.
pub const ENDPOINT_ANY: u8 = 255;
/// Maximum connects without an answer of the daemon. The daemon stops reading from a process that
/// does not read its answers. A further connect waits in the matching engine.
pub const CONNECTS_PENDING_MAX: usize = 256;
/// Maximum time for an answer of the daemon. An open or a query then fails; an attempt to resume is
/// repeated.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time for which a list of NICs reuses the answer of an adapter's daemon. An MPI library lists
/// NICs about ten times at its start, and a session takes tens of commands of the adapter.
pub const ADAPTER_KNOWN: Duration = Duration::from_secs(60);
/// Commands of a session over an adapter that are in flight; as many as the daemon keeps receives.
pub const COMMANDS_IN_FLIGHT_MAX: usize = 32;
/// Commands of a session that wait for room, as on a socket; the session ends at a further one.
pub const COMMANDS_UNSENT_MAX: usize = 1024;
/// Doorbells of a session in flight. Further ones wait; an endpoint waits once.
pub const DOORBELLS_IN_FLIGHT_MAX: usize = 16;
/// Time for which a closing session waits until the daemon has executed its last commands.
pub const FENCE_WAIT: Duration = Duration::from_secs(1);
/// Time for which a closing endpoint waits for the receivers of messages that were reported as
/// sent: as long as a process computes between two calls, but a stopped process must not block
/// another for good.
pub const CLOSE_MAX: Duration = Duration::from_secs(30);
/// Time for which connects wait for the next daemon; then they fail. Longer than a restart by a
/// service manager.
pub const RESUME_WAIT: Duration = Duration::from_secs(5);
/// Time for which a connect is repeated while the next daemon does not know the endpoint: its
/// process resumes with its next call. Afterwards the connect fails with `EndpointClosed`.
pub const RESUME_PEERS: Duration = Duration::from_secs(60);
/// Shortest pause between two attempts to reach the next daemon. The pause doubles after each failed
/// attempt.
pub const RESUME_PAUSE: Duration = Duration::from_millis(10);
/// Longest pause between two such attempts.
pub const RESUME_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Cheap checks before the next poll; each takes 10 to 40 ns. Without the pause in each check, the
/// processor has executed further polls speculatively when an event arrives, and must discard them.
pub const CHEAP_CHECKS: u32 = 6;
/// Value of the poll counter, of [`RARE_CHECK_WEIGHT`], below which a poll without an event is a
/// cheap check only.
pub const CHEAP_CHECK_WEIGHT: u32 = 48;
/// Pause of a receiver in a stream of short messages, in TSC ticks: about 200 ns, or a few
/// messages.
pub const STREAM_TICKS: u64 = 500;
/// Longest sleep while the host's limit of descriptors in flight blocks a send. The send is then
/// tried again.
pub const STUCK_MAX: Duration = Duration::from_millis(10);
/// Shortest interval between checks of daemon and clock, in TSC ticks: about 200 us.
pub const RARE_CHECK_TICKS: u64 = 500_000;
/// As [`RARE_CHECK_TICKS`], during a connect: about 20 us.
pub const CONNECT_CHECK_TICKS: u64 = 50_000;
/// Weight of an empty poll in the poll counter.
pub const EMPTY_POLL_WEIGHT: u32 = 8;
/// Value of the poll counter at which the TSC is read.
pub const RARE_CHECK_WEIGHT: u32 = 64;
/// Largest channel that is mapped, in bytes. A larger one is reported to the daemon as closed, and
/// its connect fails with `NoResources`.
pub const CHANNEL_BYTES_MAX: u64 = 64 << 20;
/// Staging that is lent to the daemon at a time is a multiple of this, in bytes; 4 MiB.
pub const SLAB_BYTES: u64 = 4 << 20;
/// As [`SLAB_BYTES`], of slabs in registered memory. Rings (548 KiB), a slab of each purpose and the
/// registrations of messages (2 MiB) are within the locked memory that Linux gives to ordinary users (8
/// MiB).
pub const REGISTERED_SLAB_BYTES: u64 = 2 << 20;
/// Maximum staging of one endpoint for sends, and again for receives, in bytes; 512 MiB. Messages
/// beyond it wait; for the exception see [`STAGING_ROOM_BYTES`].
pub const STAGING_BYTES_MAX: u64 = 512 << 20;
/// Total of an endpoint's slabs for one purpose up to which a further slab may have any length,
/// also beyond [`STAGING_BYTES_MAX`]; in bytes; 320 MiB.
pub const STAGING_ROOM_BYTES: u64 = 320 << 20;
/// Maximum idle staging that is kept, in bytes; 64 MiB. Idle slabs beyond it are returned to the
/// daemon and unmapped.
pub const STAGING_IDLE_MAX: u64 = 64 << 20;
/// Registrations of application memory of an endpoint.
pub const REGISTRATIONS_MAX: usize = 32;
/// Length of these registrations in total, in bytes; 256 MiB, which is also the longest that a
/// daemon accepts.
pub const REGISTERED_BYTES_MAX: usize = 256 << 20;
/// Registrations that are skipped after a daemon has refused memory of the application: such
/// messages use slabs. A message that waits for a slab counts at each attempt.
pub const REFUSED_PAUSE: u32 = 256;
/// Requests that a NIC side in the process handles before it polls for their results. Further
/// requests wait for the next turn.
pub const REQUESTS_PER_TURN: usize = 256;
/// Frames that a NIC side in the process handles in one turn. Further frames wait in the socket.
pub const FRAMES_PER_TURN: usize = 64;
/// Maximum unknown NICs about which the daemon is asked in [`UNKNOWN_NICS_NS`]. A further NIC is
/// not asked about until one of its frames arrives in a later period.
pub const UNKNOWN_NICS_MAX: usize = 16;
/// Period of [`UNKNOWN_NICS_MAX`], in ns; 1 ms.
pub const UNKNOWN_NICS_NS: u64 = 1_000_000;
/// Longest sleep of a process with a NIC side; it must check its interface.
pub const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Short messages, local and remote, that an endpoint with rings takes in a row before other events
/// have their turn.
pub const SHORTS_IN_ROW_MAX: u32 = 8;
/// Interval of full polls of an idle NIC side in the process, in TSC ticks; about 20 us.
pub const FULL_POLL_TICKS: u64 = 50_000;
/// Time after which a silent peer counts as lost, in ns: a day. A process acknowledges only within
/// calls, and no daemon answers for it.
pub const GIVE_UP_NS: u64 = 86_400_000_000_000;
/// Attempts to send the last frames of a closing endpoint while the host has no room. Frames that
/// have not left by then are lost.
pub const LAST_SEND_TRIES: u32 = 10;
/// Pause between these attempts.
pub const LAST_SEND_PAUSE: Duration = Duration::from_millis(1);
