//! Limits and timing constants of the holder.
//!
//! Constants only; none can be configured. [`crate::holder`] and [`crate::port`] apply those of
//! ports, [`crate::client`] those of causewayd's side, and the relays ([`crate::relay`],
//! [`crate::vfio`]) those of messages. At a limit a new port is answered with an error, a new
//! frontend is disconnected, a control connection with an oversized packet is closed, and commands
//! of a vfio-user frontend wait unread; connected frontends stay, except at [`TRIES_MAX`],
//! [`DEATHS_MAX`], [`SHARED_DEATHS_MAX`], [`PARTING_GRACE`] and [`ENDING_MAX`]. The time for which
//! frontends wait for the next causewayd is not limited.
//!
//! | constants | read by | process and thread |
//! |---|---|---|
//! | [`CONTROL_BYTES_MAX`] | [`crate::protocol`] | causewayd's calling thread, the holder's main thread |
//! | [`CONTROL_TIMEOUT`], [`CONTROL_START_TIMEOUT`], [`START_TIMEOUT`], [`START_PAUSE`] | [`crate::client`] | causewayd, the calling thread |
//! | ports, accepts, refusals, idle time, stacks | [`crate::holder`], [`crate::port`], [`crate::listen`] | the holder's main thread |
//! | log lines | [`crate::port`] | the holder's main thread, a frontend's thread |
//! | retries, deaths, [`PARTING_GRACE`], [`ENDING_MAX`] | [`crate::route`], relays, `deaths` | a frontend's thread |
//! | commands, answers, registers | modules of [`crate::vfio`] | a frontend's thread |

use std::time::Duration;

pub use causeway_attach::limits::RING_SIZE_MAX;

/// Longest control message in either direction, in bytes. A longer one ends the control connection.
pub const CONTROL_BYTES_MAX: usize = 8192;
/// Most ports held; as many as the fabric serves. A further port is refused with a reason.
pub const PORTS_MAX: usize = 1024;
/// Backlog of each listening socket. A further frontend waits in connect(2), or gets EAGAIN if its
/// socket does not block.
pub const BACKLOG: i32 = 16;
/// How long the holder's main thread waits for the hello of a causewayd that it answers with a
/// refusal; 100 ms. The refusal is sent in any case.
pub const REFUSAL_WAIT: Duration = Duration::from_millis(100);
/// Timeout of causewayd for an answer of the holder. The request then fails, and the connection is
/// unusable.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while causewayd starts: a busy host delays the start, in place of failing it. The
/// guests of held ports wait in any case, and the holder answers queries of vfio-user frontends
/// meanwhile.
pub const CONTROL_START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a started holder may take until it listens; after that the addition of the port fails.
pub const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which causewayd tries to connect to a started holder.
pub const START_PAUSE: Duration = Duration::from_millis(5);
/// A causewayd that closes a frontend's connection and still runs after this time has closed it on
/// purpose: the frontend is disconnected.
pub const PARTING_GRACE: Duration = Duration::from_millis(250);
/// Longest time for which the process of a causewayd may run on after its connections closed,
/// before its frontends are disconnected: QEMU gives an unmapping up after 5 s.
pub const ENDING_MAX: Duration = Duration::from_secs(4);
/// Shortest interval between attempts to reach an absent causewayd.
pub const RETRY_PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest interval between such attempts.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Retries of a connection that causewayd closes before the replay is complete: causewayd may not
/// have noticed yet that the previous frontend left. Then the frontend is disconnected.
pub const TRIES_MAX: u32 = 10;
/// Ends of causewayd during one message or command after which its frontend is disconnected.
pub const DEATHS_MAX: u32 = 3;
/// Such ends during the replay of another frontend, counted apart, after which the frontend is
/// disconnected.
pub const SHARED_DEATHS_MAX: u32 = 12;
/// How long a new frontend waits for the previous frontend to leave before it is disconnected.
pub const SUCCESSOR_WAIT: Duration = Duration::from_millis(500);
/// Pause after a failed accept, for example without a free descriptor.
pub const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Without causewayd and frontends for this time, the holder exits.
pub const IDLE_LEAVE: Duration = Duration::from_secs(60);
/// Longest sleep of the holder's main thread between its periodic checks.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for which the main thread waits for the threads of frontends that are disconnected
/// together. Threads that run longer end by themselves.
pub const RELAYS_END_MAX: Duration = Duration::from_millis(500);
/// Interval at which the main thread looks whether such a thread has ended.
pub const RELAY_END_CHECK: Duration = Duration::from_millis(1);
/// Stack size of a frontend's thread, in bytes.
pub const STACK_BYTES: usize = 256 * 1024;
/// Most log lines about one port per [`LOG_WINDOW`]; further lines are dropped and not counted.
pub const LOG_LINES_MAX: u32 = 10;
/// Period of [`LOG_LINES_MAX`].
pub const LOG_WINDOW: Duration = Duration::from_secs(60);
/// Most vfio-user commands of a frontend that causewayd has not answered. The frontend is not read
/// while there are so many.
pub const IN_FLIGHT_MAX: usize = 64;
/// Bytes of unanswered vfio-user commands from which on no further command is read; with one more
/// message they fit a socket's buffer.
pub const IN_FLIGHT_BYTES: usize = 64 << 10;
/// Descriptors of unanswered vfio-user commands from which on no further command is read.
pub const IN_FLIGHT_FDS: usize = 64;
/// Most vfio-user commands that are kept for the next causewayd; a further register write waits
/// unanswered.
pub const DEFERRED_MAX: usize = 64;
/// Bytes of such commands from which on a further register write waits unanswered.
pub const DEFERRED_BYTES_MAX: usize = 64 << 10;
/// Longest time for which a vfio-user query waits for the next causewayd: QEMU declares a device
/// dead that is silent for 5 s. The query is then refused with EIO.
pub const WAIT_MAX: Duration = Duration::from_secs(4);
/// Most vfio-user commands that are answered without causewayd in one turn. Further commands wait
/// for [`AWAY_TURN`].
pub const ANSWERS_PER_TURN: usize = 64;
/// Pause after a turn of [`ANSWERS_PER_TURN`] answers.
pub const AWAY_TURN: Duration = Duration::from_millis(1);
/// Longest time during a replay until the frontend's queries are answered.
pub const REPLAY_CHECK: Duration = Duration::from_millis(10);
/// Most replies that are remembered for a vfio-user frontend. A further reply is not remembered, at
/// this limit and at the following three: without causewayd its query waits, and is refused with
/// EIO after [`WAIT_MAX`].
pub const ANSWERS_MAX: usize = 1024;
/// Most replies with a file that are remembered for a vfio-user frontend: descriptors of the
/// holder.
pub const ANSWER_FILES_MAX: usize = 16;
/// Longest command and reply that are remembered, in bytes.
pub const ANSWER_BYTES_MAX: usize = 2048;
/// Most bytes of all remembered commands and replies.
pub const ANSWERS_BYTES_MAX: usize = 256 << 10;
/// Most places of registers of which the last write is recorded. A write to a further place reaches
/// causewayd, and the next causewayd does not receive it.
pub const REGISTERS_MAX: usize = 1024;
/// Region of a PCI function (BAR 0) in which writes at [`REGISTER_SPACE_BYTES`] and beyond are
/// doorbells.
pub const DOORBELL_REGION: u32 = 0;
/// Length of the registers in [`DOORBELL_REGION`], in bytes (64 KiB). Behind them lie doorbell
/// pages.
pub const REGISTER_SPACE_BYTES: u64 = 64 << 10;
/// Longest register write that is recorded, in bytes. A longer write reaches causewayd only.
pub const REGISTER_BYTES_MAX: usize = 64;
