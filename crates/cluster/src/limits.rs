//! Limits of the directory of a site.
//!
//! Constants only. At a limit of sizes or numbers, a record is refused and counted; at a limit of
//! the brake, removals are held. The records that were accepted before stay in both cases.

/// Length of the lease of a host's record, in seconds. A host without a live lease is shown as
/// unseen; nothing of it is removed.
pub const LEASE_SECONDS: u64 = 15;
/// Most bytes of a value; a longer value is refused.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// Length of the number of a token, in characters.
pub const TOKEN_ID_LEN: usize = 16;
/// Most bytes of the text of a token; a longer text is refused.
pub const TOKEN_BYTES_MAX: usize = 256;
/// Shortest time of a token, in seconds.
pub const TOKEN_SECONDS_MIN: u64 = 1;
/// Longest time of a token, in seconds; 30 days.
pub const TOKEN_SECONDS_MAX: u64 = 2_592_000;
/// Time for which the record of a token stays after the token expired, in seconds; 1 day. A refusal
/// has its reason until then.
pub const TOKEN_KEPT_SECONDS: u64 = 86_400;
/// Most bytes of a key; a longer key is refused.
pub const KEY_BYTES_MAX: usize = 320;
/// Longest name of a host, in bytes: the names of its links contain the name.
pub const HOST_BYTES_MAX: usize = 40;
/// Most hosts of a site; the record of a further host is refused, except this host's own. Also
/// the most evictions.
pub const HOSTS_MAX: usize = 1_000;
/// Most groups of a site; the record of a further group is refused.
pub const GROUPS_MAX: usize = 4_096;
/// Most claims of another host; its claim on a further address is refused.
pub const HOST_CLAIMS_MAX: usize = 4_096;
/// Most claims; a claim of another host on a further address is refused.
pub const CLAIMS_MAX: usize = 65_536;
/// Most claims that wait for the record of their host; a further claim is refused.
pub const WAITING_MAX: usize = 16_384;
/// Most endpoints of a host's record.
pub const ENDPOINTS_MAX: usize = 16;
/// How far the epoch of a claim or of a host's record may lie ahead of the local time of day, in
/// ns; 1 day. A record with a later epoch is refused: it would never be replaced.
pub const EPOCH_AHEAD_NS: u64 = 86_400_000_000_000;
/// Share of the records, in percent, of which more may not disappear in one step: the step is held.
pub const BRAKE_PERCENT: usize = 20;
/// Fewest records that disappear in a step that is held for its share: in a small site a single
/// removal exceeds the share. The removal of all groups, and of everything, is held at any number.
pub const BRAKE_RECORDS_MIN: usize = 5;
/// Time for which a claim of another host is kept while its key in etcd does not exist or has a
/// refused record, in ns; 1 h. Its host claims anew meanwhile.
pub const MISSING_KEPT_NS: u64 = 3_600_000_000_000;
/// Time for which an address may be away before its claim is withdrawn, in ns; 2 s: a guest that
/// restarts keeps its claim.
pub const ABSENT_KEPT_NS: u64 = 2_000_000_000;
/// Time for which the record of a withdrawal stays in etcd, in ns; 10 s.
pub const WITHDRAWAL_KEPT_NS: u64 = 10_000_000_000;
/// Pause after the second of two equal writes, in ns; 1 s. It doubles with each further one.
pub const RETRY_MIN_NS: u64 = 1_000_000_000;
/// Longest pause between equal writes, in ns; 1 min. If a write is repeated after twice this time
/// or more, the pauses start anew.
pub const RETRY_MAX_NS: u64 = 60_000_000_000;
/// Most writes of one round; the rest follows in the next.
pub const WRITES_MAX: usize = 128;
