//! Limits and intervals of the process `causeway-directory`.
//!
//! Constants only; none can be configured.

use std::time::Duration;

/// Longest time of a connect to an address of etcd, and of each read and write; a watch reads
/// without limit.
pub const ETCD_TIME_MAX: Duration = Duration::from_secs(3);
/// Time after a request, to etcd or the daemon, from which no further read of its reply begins: the
/// exchange fails.
pub const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time of a write to the daemon; a read may take [`LOCAL_WAIT`] longer.
pub const CONTROL_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest wait of a request for the addresses of this host.
pub const LOCAL_WAIT: Duration = Duration::from_secs(1);
/// Pause after a failed request for the addresses of this host.
pub const CONTROL_RETRY: Duration = Duration::from_millis(200);
/// First pause after etcd failed; doubled each time.
pub const ETCD_RETRY_MIN: Duration = Duration::from_millis(200);
/// Longest pause after etcd failed.
pub const ETCD_RETRY_MAX: Duration = Duration::from_secs(3);
/// First pause after the host's record was refused, by etcd or by the rules; doubled each time.
pub const REFUSED_RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest pause after the host's record was refused.
pub const REFUSED_RETRY_MAX: Duration = Duration::from_secs(60);
/// Difference between the time of day and the elapsed time, in ns, that counts as a change of the
/// clock; 1 h.
pub const CLOCK_STEP_NS: u64 = 3_600_000_000_000;
/// Interval in which the lease of the host's record is renewed.
pub const KEEPALIVE: Duration = Duration::from_secs(4);
/// Interval in which the watch is probed.
pub const PROBE: Duration = Duration::from_secs(10);
/// Time within which the watch must deliver a change that a probe found.
pub const PROBE_GRACE: Duration = Duration::from_secs(2);
/// Idle time after which the kernel probes a connection to etcd, that of the watch included.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(10);
/// Interval in which the state of the process is reported to the daemon without a change.
pub const REPORT: Duration = Duration::from_secs(2);
/// Interval in which a changed state is written to the snapshot.
pub const SNAPSHOT: Duration = Duration::from_secs(2);
/// Bytes of a head of a reply, or of a chunk's header, above which an incomplete one is refused.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers of a reply; a reply with more is malformed.
pub const HEADERS_MAX: usize = 64;
/// Most characters of a reason of etcd; a longer one is cut.
pub const REASON_CHARS_MAX: usize = 256;
/// Most bytes of a reply of etcd or the daemon: a list of etcd has several pages.
pub const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most keys of a page of a list; fewer if their values are long.
pub const PAGE_KEYS: usize = 512;
/// Most keys of a page after a page that did not come in time.
pub const SLOW_PAGE_KEYS: usize = 32;
/// Time after which no further page of a list is asked for: the list fails.
pub const LIST_TIME_MAX: Duration = Duration::from_secs(60);
/// Most bytes of the keys and values of a list, each value at most as long as a record: 65,536 claims
/// have about 40 MiB. A longer list fails.
pub const LIST_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes that each key of a list counts besides the key and the value.
pub const ITEM_BYTES: usize = 64;
/// Most bytes of one message of a watch. A longer one ends the watch, and a list follows.
pub const WATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that are read of the snapshot, and most bytes of a file to import.
pub const SNAPSHOT_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Most bytes of a file of rules.
pub const RULES_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Most messages that wait for the main thread; a sender waits for room.
pub const MESSAGES_MAX: usize = 16;
/// Most new hosts in one update of the daemon: a host may have many groups.
pub const UPDATE_HOSTS: usize = 4;
/// Most policies of groups in one update of the daemon: a record has up to 4,096 bytes.
pub const UPDATE_POLICIES: usize = 8;
/// Most addresses, or removed entries, in one update of the daemon.
pub const UPDATE_ENTRIES: usize = 128;
/// Most evicted hosts in a report to the daemon; further ones are not shown.
pub const EVICTED_SHOWN: usize = 64;
/// Attempts to count a refused join while others count too.
pub const COUNT_TRIES: usize = 4;
