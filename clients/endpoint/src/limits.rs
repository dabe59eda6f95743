//! Every bound of this crate, in one place.

use std::time::Duration;

/// Boards of one process.
pub const BOARDS_MAX: usize = 64;
/// Endpoint numbers of one board: 0 to 254; 255 asks for any.
pub const ENDPOINT_ANY: u8 = 255;
/// Connects that the daemon was asked for and has not answered: it does not listen to who does not
/// read what it is told.
pub const CONNECTS_ASKED_MAX: usize = 256;
/// How long an answer of the daemon may take.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long an endpoint that is closed waits until the receivers of messages that were reported as
/// sent have taken them: as long as a process computes between two calls, and not so long that a
/// stopped process holds another up for good.
pub const CLOSE_MAX: Duration = Duration::from_secs(30);
/// How long connects wait for the next daemon after one went, and fail then: longer than a service
/// manager takes to start it again.
pub const RESUME_WAIT: Duration = Duration::from_secs(5);
/// How long after that a connect to an endpoint that the next daemon does not know is asked for
/// again, until it takes too long: its process goes on by that daemon with its next call.
pub const RESUME_PEERS: Duration = Duration::from_secs(60);
/// Shortest and longest pause between two looks whether the next daemon is there.
pub const RESUME_PAUSE: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(200));
/// How often it only glances whether something comes, which it does instead of looking again where
/// it can: some ten to forty nanoseconds each, because a processor that looks without a pause has
/// looked ahead in vain when something is there.
pub const GLANCES: u32 = 6;
/// Of [`RARELY_CALLS`], those in which a glance is enough where nothing comes.
pub const STILL_CALLS: u32 = 48;
/// How long nobody looks whether a stream of short messages goes on, when its sender is not ahead, in
/// ticks of the processor's counter: some 200 ns, a few messages.
pub const STREAM_TICKS: u64 = 500;
/// Longest sleep while the host lets no more descriptors pass.
pub const STUCK_MAX: Duration = Duration::from_millis(10);
/// How often the daemon's socket and the clock are looked at, at most: in ticks of the processor's
/// counter, about 20 us while a connect goes on, and about 200 us else.
pub const RARELY_TICKS: (u64, u64) = (50_000, 500_000);
/// How often nothing is found, or something is, before that counter is looked at.
pub const IDLE_WEIGHT: u32 = 8;
/// See [`IDLE_WEIGHT`].
pub const RARELY_CALLS: u32 = 64;
/// Largest channel that is mapped, in bytes.
pub const CHANNEL_BYTES_MAX: u64 = 64 << 20;
/// Least memory for large messages to other hosts that is lent to the daemon at a time, in bytes,
/// and what it is a multiple of; 4 MiB.
pub const SLAB_BYTES: u64 = 4 << 20;
/// All such memory of one endpoint for messages that it sends, and again for those that it receives,
/// in bytes; 512 MiB: what finds no place waits.
pub const STAGING_BYTES_MAX: u64 = 512 << 20;
/// While no more than this is there, one message of any length finds a place, in bytes; 320 MiB.
pub const STAGING_ROOM_BYTES: u64 = 320 << 20;
/// Such memory that is kept although no message is in it, in bytes; 64 MiB.
pub const STAGING_IDLE_MAX: u64 = 64 << 20;
/// Requests and frames that are taken at a time where the backend half is in the process, before it is
/// looked what came of them.
pub const REQUESTS_OF_TURN: usize = 256;
/// See [`REQUESTS_OF_TURN`].
pub const FRAMES_OF_TURN: usize = 64;
/// Boards that the daemon is asked about at most, in so many ns: 16 in 1 ms.
pub const ASKED_MAX: usize = 16;
/// See [`ASKED_MAX`].
pub const ASKED_NS: u64 = 1_000_000;
/// Longest sleep of a process that has the backend half: it looks after its interface.
pub const SLEEP_MAX: Duration = Duration::from_secs(60);
/// How many short messages of partners near and far are taken in a row, before all else has a turn.
pub const SHORTS_IN_A_ROW_MAX: u32 = 8;
/// How often it is looked there whether anything is due, while nothing comes, in ticks of the
/// processor's counter: about 20 us.
pub const LOOK_TICKS: u64 = 50_000;
/// A partner that is not heard of for so long is gone, in ns, where nobody answers for who does not
/// call: a day.
pub const GIVE_UP_NS: u64 = 86_400_000_000_000;
/// How often it is tried to send the last frames of an endpoint that the host has no room for, and
/// how long is waited in between.
pub const LAST_TRIES: u32 = 10;
/// See [`LAST_TRIES`].
pub const LAST_PAUSE: Duration = Duration::from_millis(1);
