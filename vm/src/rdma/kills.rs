//! Kills of causewayd while queue pairs of two guests exchange messages with checked content.

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::rdma::steps::PORT;
use crate::rdma::{DEVICE, Exchange, RdmaGuest};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of an exchange in which causewayd is killed, for each message.
const LIMIT_BASE: Duration = Duration::from_secs(120);
/// Pause between the start of a daemon and its kill: longer than the turns in which it continues the
/// adapters.
const PAUSE: Duration = Duration::from_millis(700);
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
}

/// Runs one exchange of `load` between the guests and replaces the daemon meanwhile. Returns the number
/// of kills, and the result of the exchange.
///
/// # Errors
/// When a daemon is not ready in time. An error of the exchange is part of the returned value.
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
    thread::scope(|scope| {
        let work = scope.spawn(|| exchange.run(at, from));
        let mut kills = 0;
        let started = await_traffic(daemon, &|| work.is_finished());
        while started.is_ok() && !work.is_finished() && kills < load.kills {
            daemon.replace()?;
            kills += 1;
            thread::sleep(PAUSE);
        }
        let result = work.join().unwrap_or_else(|_| {
            Err(Error::Traffic { what: "the thread of the exchange panicked".into() })
        });
        started?;
        let result = result.and_then(|(served, _)| match served.contains("invalid data") {
            true => Err(Error::Traffic { what: format!("content changed: {served}") }),
            false => Ok(()),
        });
        Ok((kills, result))
    })
}

/// Waits until queue pairs carry messages, or the exchange has ended.
fn await_traffic(daemon: &Daemon, has_ended: &dyn Fn() -> bool) -> Result<()> {
    let sent = || -> Result<u64> {
        let counters = crate::rdma::Counters::sample(daemon, "hca1")?;
        Ok(counters.get("requests_total"))
    };
    let (before, start) = (sent()?, Instant::now());
    while sent()? <= before && !has_ended() {
        if start.elapsed() > STARTED {
            return Err(Error::Traffic { what: "the exchange sent no message".into() });
        }
        thread::sleep(POLL);
    }
    Ok(())
}
