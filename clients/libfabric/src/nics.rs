//! Finds the NICs of this machine, by asking the daemon at each place (a socket, or an adapter in a
//! guest) that `causeway-endpoint` lists. `fi_getinfo` reports a domain for each NIC.
//!
//! # Limits
//! The module opens no endpoint and keeps no connection. A NIC with two places is reported once.
//! Places without an answer are skipped; if none answers, the error of the first is returned, and
//! without any place the error that no NIC is found. In a guest, the answer of an adapter's daemon is
//! reused for 60 s ([`ADAPTER_KNOWN`](causeway_endpoint::limits::ADAPTER_KNOWN)), or until an endpoint
//! cannot be opened: a query is a session with a queue pair. A query blocks its caller for at most
//! [`ANSWER_MAX`](causeway_endpoint::limits::ANSWER_MAX) (10 s) for the connect and again for each
//! answer. After a place that takes more than 1 s ([`SLOW`]) to fail, the places behind it are not
//! queried; if no NIC was found before it, [`all`] returns the same error for the next 60 s
//! ([`RETRY_AFTER`]) without a query. Answers of sockets are not cached. Callers in several
//! threads take turns, so a caller may also wait for the queries of others.
//!
//! # Place
//! `info` calls [`all`] for `fi_getinfo`, and `shell::domain` when it opens a domain, both in the
//! thread of the application's call.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_endpoint::Error;
use causeway_endpoint::nic::{Place, places, recent};

/// A NIC that the daemon reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNic {
    /// The index of its place, by which endpoints are opened.
    pub index: u32,
    /// The NIC's address (48 bits).
    pub address: u64,
    /// The NIC's name, which is the name of the domain.
    pub name: String,
}

/// The reason why no NIC is available; its text contains the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicsUnavailable {
    /// The first place that failed; `None` if there is none.
    place: Option<Place>,
    /// The error of that place.
    reason: Error,
}

impl std::fmt::Display for NicsUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(place) = &self.place else {
            return f.write_str(
                "no NIC is found: give causewayd a port of kind mx with a socket \
                 /run/causeway/mx*.sock, or set CAUSEWAY_MX to socket:PATH or, in a guest, to \
                 adapter:DEVICE",
            );
        };
        write!(f, "{place}: ")?;
        match self.reason {
            Error::NoPermission => f.write_str(
                "permission denied: give the user access to the NIC by socket_group and \
                 socket_mode in causewayd's configuration",
            ),
            Error::Version => f.write_str(
                "the daemon has another version: use the library and the daemon of one release",
            ),
            Error::NoDaemon | Error::DaemonGone => f.write_str(
                "the daemon does not answer: start causewayd, or set CAUSEWAY_MX to the \
                 path of another socket",
            ),
            reason => write!(f, "{reason}"),
        }
    }
}

/// If a daemon takes longer than this to fail, the other places are not tried: a daemon usually
/// serves several.
const SLOW: Duration = Duration::from_secs(1);
/// Time until places are tried again after a slow failure. An MPI library calls `fi_getinfo` about
/// ten times at its start.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The last slow failure and its time.
static LAST_SLOW: Mutex<Option<(Instant, NicsUnavailable)>> = Mutex::new(None);

/// Returns the NICs that answer now, in the order of their places, up to a place that fails slowly.
///
/// # Errors
/// No NIC answers, or none did less than 60 s ago and slowly; the error contains the first reason.
pub fn all() -> Result<Vec<LocalNic>, NicsUnavailable> {
    // A concurrent caller waits for the result of the first.
    let mut slowest = LAST_SLOW.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, missing)) = slowest.as_ref().filter(|(when, _)| when.elapsed() < RETRY_AFTER) {
        return Err(missing.clone());
    }
    *slowest = None;
    let places = places();
    let mut missing = NicsUnavailable { place: places.first().cloned(), reason: Error::NoNic };
    let mut nics: Vec<LocalNic> = Vec::new();
    for (number, place) in (0_u32..).zip(places) {
        let since = Instant::now();
        match recent(number, &place) {
            Ok(known) => {
                if nics.iter().all(|nic| nic.address != known.nic) {
                    nics.push(LocalNic { index: number, address: known.nic, name: known.name });
                }
            }
            Err(reason) => {
                if missing.reason == Error::NoNic {
                    missing = NicsUnavailable { place: Some(place), reason };
                }
                if since.elapsed() > SLOW {
                    *slowest = nics.is_empty().then(|| (Instant::now(), missing.clone()));
                    break;
                }
            }
        }
    }
    if nics.is_empty() { Err(missing) } else { Ok(nics) }
}

#[cfg(test)]
mod tests {
    use super::{Error, NicsUnavailable, Place};

    #[test]
    fn nics_unavailable_names_the_remedy() {
        for (path, reason, remedy) in [
            (None, Error::NoNic, "CAUSEWAY_MX"),
            (Some("/x/mx0.sock"), Error::NoPermission, "/x/mx0.sock: permission denied"),
            (Some("/x/mx0.sock"), Error::NoDaemon, "start causewayd"),
            (Some("/x/mx0.sock"), Error::Version, "of one release"),
            (Some("/x/mx0.sock"), Error::NoResources, "/x/mx0.sock: a limit of the host"),
        ] {
            let place = path.map(|path: &str| Place::Socket(path.into()));
            let text = NicsUnavailable { place, reason }.to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }
}
