//! Kills of causewayd while queue pairs of two guests exchange messages with checked content.
//!
//! A test or the matrix calls [`kill_under_load`], which runs the exchange in threads and, in the
//! calling thread, kills the daemon (SIGKILL) and starts the next one after each interval of
//! traffic. The holder keeps the guests' devices meanwhile. The exchange must begin, and go on
//! after each kill, within 30 s, and its client must end within 120 s (both times
//! `CAUSEWAY_PATIENCE`). A failed exchange, and counters that cannot be read during it, are
//! returned as a result, so that the caller can count; a daemon that does not start, and counters
//! that cannot be read before the exchange, are errors. The call returns after the exchange has
//! ended. The adapters must be `hca1` and `hca2`, as in [`Pair::setup`](super::Pair::setup), and
//! the daemon's records in memory.

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::limits::patient;
use crate::rdma::steps::PORT;
use crate::rdma::{Counters, DEVICE, Exchange, RdmaGuest};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of an exchange in which causewayd is killed.
const LIMIT_BASE: Duration = Duration::from_secs(120);
/// Interval at which the start of the traffic is polled.
const POLL: Duration = Duration::from_millis(50);
/// Time limit until an exchange sends its first messages.
const STARTED: Duration = Duration::from_secs(30);

/// An exchange during which causewayd is killed again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Messages in each direction.
    pub messages: u32,
    /// Whether the programs wait for events, in place of polling.
    pub events: bool,
    /// Most kills.
    pub kills: u32,
    /// Time of traffic between two kills.
    pub pause: Duration,
}

/// Runs one exchange of `load` between the guests and replaces the daemon meanwhile. Returns the
/// number of kills, and the result of the exchange.
///
/// # Errors
/// When a daemon is not ready in time, or its counters cannot be read before the exchange. An error
/// of the exchange is part of the returned value.
pub fn kill_under_load(
    daemon: &mut Daemon,
    [at, from]: &[RdmaGuest; 2],
    load: Load,
) -> Result<(u32, Result<()>)> {
    let (index, ip, count) = (at.gid_index(), at.ip(), load.messages.to_string());
    let mut server = vec!["ibv_rc_pingpong", "-d", DEVICE, "-g", &index, "-n", &count, "-c"];
    if load.events {
        server.push("-e");
    }
    let client = [&server[..], &[&ip]].concat();
    let exchange = Exchange { server: &server, client: &client, listener: PORT, limit: LIMIT_BASE };
    let before = requests(daemon)?;
    thread::scope(|scope| {
        let work = scope.spawn(|| exchange.run(at, from));
        let mut kills = 0;
        let mut started = await_traffic(daemon, before, &|| work.is_finished());
        while started.is_ok() && !work.is_finished() && kills < load.kills {
            thread::sleep(load.pause);
            daemon.replace()?;
            kills += 1;
            // The counters of the next daemon begin at 0.
            started = await_traffic(daemon, 0, &|| work.is_finished());
        }
        let result = work.join().unwrap_or_else(|_| {
            Err(Error::Traffic { what: "the thread of the exchange panicked".into() })
        });
        // A program that failed explains why its peer sends no message.
        let result = match (started, result) {
            (Err(stalled), Err(why)) => {
                Err(Error::Traffic { what: format!("{why}\n--- before ---\n{stalled}") })
            }
            (Err(stalled), Ok(_)) => Err(stalled),
            (Ok(()), Err(why)) => Err(why),
            (Ok(()), Ok((served, _))) if served.contains("invalid data") => {
                Err(Error::Traffic { what: format!("content changed: {served}") })
            }
            (Ok(()), Ok(_)) => Ok(()),
        };
        Ok((kills, result))
    })
}

/// Returns the number of requests of the first guest.
fn requests(daemon: &Daemon) -> Result<u64> {
    Ok(Counters::sample(daemon, "hca1")?.get("requests_total"))
}

/// Waits until the first guest has sent more than `before` requests, or the exchange has ended.
fn await_traffic(daemon: &Daemon, before: u64, has_ended: &dyn Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while requests(daemon)? <= before && !has_ended() {
        if start.elapsed() > patient(STARTED) {
            let ports = ["hca1", "hca2"].map(|port| daemon.cli(&["hca", "show", port]));
            let [a, b] = ports.map(|view| view.unwrap_or_else(|why| why.to_string()));
            return Err(Error::Traffic {
                what: format!("the exchange sends no message\n{a}\n{b}"),
            });
        }
        thread::sleep(POLL);
    }
    Ok(())
}
