//! Counts refused control clients by reason, and limits the log lines about them.
//!
//! Clients reach the daemon at the control socket ([`crate::http`]) and at the port of the VNET
//! language ([`crate::vnet`]). Each interface has its own counters; both are part of `GET
//! /v1/stats`, which `causeway stats` prints, and of `GET /metrics`. [`RefusalLog`] admits 10 lines
//! in 5 s ([`causeway_fabric::LogLimit`]) and is shared by both. A reason that is not listed counts
//! as [`RefusalReason::Host`].
//!
//! The module refuses no client: the servers and sessions decide and count, and the server of the
//! control socket counts the refusals of the API by their `kind`. Log lines are written for users
//! without access, for peers that the kernel does not report and for wrong passwords; all other
//! refusals are only counted. Counters have no labels for users or addresses, are updated without a
//! lock or ordering by the acceptors and the threads of connections, and start at 0 with each
//! process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use causeway_fabric::LogLimit;

use crate::peer::{AdmissionError, ControlPeer};

/// The reason why a client was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// All connections, or all that one client may have, are in use.
    Busy,
    /// The user may not control the daemon, or the kernel does not report the user.
    Forbidden,
    /// The bytes are no request or command.
    Garbage,
    /// The client closed the connection within a line or a request.
    Unfinished,
    /// A line or request exceeds its limit.
    TooLong,
    /// No complete line or request arrived in time.
    Late,
    /// A wrong password.
    Password,
    /// A password was not checked because of too many wrong passwords.
    Waiting,
    /// A HELLO names another version of the VNET language.
    Version,
    /// The API has no such path, or the path has no such method.
    Unknown,
    /// A value is invalid.
    Invalid,
    /// The object that the command names does not exist.
    NotFound,
    /// The object of the command exists already, or is in use.
    Conflict,
    /// A table of the fabric or of a service is full.
    Full,
    /// An operation of this host failed; also every kind that has no reason of its own.
    Host,
}

impl RefusalReason {
    const ALL: [Self; 15] = [
        Self::Busy,
        Self::Forbidden,
        Self::Garbage,
        Self::Unfinished,
        Self::TooLong,
        Self::Late,
        Self::Password,
        Self::Waiting,
        Self::Version,
        Self::Unknown,
        Self::Invalid,
        Self::NotFound,
        Self::Conflict,
        Self::Full,
        Self::Host,
    ];

    /// Returns the part of the counter's name that stands for the reason.
    const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Forbidden => "forbidden",
            Self::Garbage => "garbage",
            Self::Unfinished => "unfinished",
            Self::TooLong => "too_long",
            Self::Late => "late",
            Self::Password => "password",
            Self::Waiting => "waiting",
            Self::Version => "version",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Full => "full",
            Self::Host => "host",
        }
    }

    /// Returns the reason for the `kind` of a [`crate::http::HttpReply`]; [`Self::Host`] for kinds
    /// that are not listed.
    pub fn of_kind(kind: &str) -> Self {
        match kind {
            "busy" => Self::Busy,
            "forbidden" => Self::Forbidden,
            "bad_request" => Self::Garbage,
            "unfinished" => Self::Unfinished,
            "too_large" => Self::TooLong,
            "timeout" => Self::Late,
            "no_such_path" | "method_not_allowed" => Self::Unknown,
            "not_found" => Self::NotFound,
            "conflict" => Self::Conflict,
            "full" => Self::Full,
            "invalid" => Self::Invalid,
            _ => Self::Host,
        }
    }
}

/// The refusal counters of one control interface. They only grow, and wrap at 2^64.
#[derive(Debug, Default)]
pub struct RefusalCounters([AtomicU64; RefusalReason::ALL.len()]);

impl RefusalCounters {
    /// Counts a refusal.
    pub fn count(&self, why: RefusalReason) {
        if let Some(cell) = self.0.get(why as usize) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counters by name: `refused_<reason>_total`.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let all = RefusalReason::ALL.iter().zip(&self.0);
        let named = all.map(|(why, cell)| {
            (format!("refused_{}_total", why.name()), cell.load(Ordering::Relaxed))
        });
        named.collect()
    }
}

/// Limits the rate of log lines about refusals, which clients can cause at will.
#[derive(Debug)]
pub struct RefusalLog {
    /// Zero of the limit's clock.
    start: Instant,
    limit: Mutex<LogLimit>,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self { start: Instant::now(), limit: Mutex::default() }
    }
}

impl RefusalLog {
    /// Returns the number of lines suppressed since the last line, or `None` if this line must be
    /// suppressed.
    pub fn admit(&self) -> Option<u64> {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.limit.lock().unwrap_or_else(PoisonError::into_inner).admit(now)
    }

    /// Logs a refused control connection.
    pub fn refused(&self, refused: &AdmissionError) {
        let Some(suppressed) = self.admit() else { return };
        match refused {
            AdmissionError::Unknown(error) => {
                log::warn!(
                    error:% = error, suppressed;
                    "control connection refused: the kernel does not report the peer"
                );
            }
            AdmissionError::Forbidden(ControlPeer { pid, uid, gid }) => {
                log::warn!(
                    pid, uid, gid, suppressed;
                    "control connection refused: the user may not control this daemon; add it to \
                     control_group"
                );
            }
        }
    }
}

/// The refusal counters of all control interfaces.
#[derive(Debug, Default)]
pub struct ControlRefusals {
    /// The rate limit of log lines about refusals.
    pub log: RefusalLog,
    /// The counters of the control socket.
    pub control: RefusalCounters,
    /// The counters of the port of the VNET language.
    pub vnet: RefusalCounters,
}

impl ControlRefusals {
    /// Returns the name of each interface and its counters.
    pub fn by_interface(&self) -> [(&'static str, BTreeMap<String, u64>); 2] {
        [("control socket", self.control.by_name()), ("VNET control", self.vnet.by_name())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_log_has_a_bounded_rate() {
        let log = RefusalLog::default();
        let lines = (0..10_000).filter(|_| log.admit().is_some()).count();
        assert!((1..=100).contains(&lines), "{lines}");
    }

    #[test]
    fn refusal_reasons_have_a_counter_each() {
        let refusals = RefusalCounters::default();
        for (index, why) in RefusalReason::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
            (0..=index).for_each(|_| refusals.count(why));
        }
        let names = refusals.by_name();
        assert_eq!(names.len(), RefusalReason::ALL.len());
        assert_eq!((names["refused_busy_total"], names["refused_host_total"]), (1, 15));
    }
}
