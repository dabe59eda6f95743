//! Costs of adapters without traffic, and the wait that their pauses cause.
//!
//! 100 adapters of a daemon in a process of its own ([`crate::inner`]) are started and armed by
//! drivers of the benchmark, which then sleep; a row samples the daemon's processor time. Another
//! row measures the longest wait of the first WRITE after a pause of 20 to 25 ms, which the option
//! `idle_poll_us` of the port bounds, apart from the wake-up of the dispatcher's thread. A driver
//! that fails ends the row with the reason.

use std::time::{Duration, Instant};

use super::adapters::{Link, Side, failed};
use crate::effort::Effort;
use crate::inner::Daemon;
use crate::row::{Against, Guest, Plan};
use crate::rows::idle::busy_percent;

/// Idle adapters.
const ADAPTERS: u8 = 100;
/// First messages after a pause.
const MESSAGES: u64 = 200;

/// Returns a started adapter with an armed completion queue and a queue pair that is ready to send.
fn armed(daemon: &mut Daemon, number: u8) -> Result<Side, String> {
    let mut side = Side::start(&daemon.hca(number)?).map_err(failed)?;
    let (mac, peer) = (crate::rig::hca_mac(number), side.pair.number);
    side.connect(mac, peer).map_err(failed)?;
    side.driver.arm(&side.cq, 1, false).map_err(failed)?;
    Ok(side)
}

/// Processor time of 100 armed, quiet adapters, in percent of one core.
fn percent(effort: &Effort) -> Result<Vec<f64>, String> {
    let mut daemon = Daemon::start()?;
    let sides = (1..=ADAPTERS).map(|number| armed(&mut daemon, number));
    let sides = sides.collect::<Result<Vec<_>, _>>()?;
    let percents = busy_percent(&mut daemon, effort);
    drop(sides);
    percents
}

/// Longest time of the first WRITE after a pause, in microseconds.
fn longest_wait_us(effort: &Effort) -> Result<Vec<f64>, String> {
    let mut daemon = Daemon::start()?;
    let mut link = Link::between(&daemon.hca(1)?, &daemon.hca(2)?).map_err(failed)?;
    let (messages, mut number) = (effort.rounds(MESSAGES), 0_u64);
    effort.each(|| {
        let mut longest = Duration::ZERO;
        for _ in 0..messages {
            // Different pauses, so that messages come at all phases of the poll schedule.
            std::thread::sleep(Duration::from_micros(20_000 + number * 377 % 5_000));
            number += 1;
            link.a.write_mark(64, number as u8).map_err(failed)?;
            let since = Instant::now();
            link.a.stage_write(64, link.b.key, true).map_err(failed)?;
            link.a.driver.publish_sends(&link.a.pair).map_err(failed)?;
            link.b.wait_mark(64, number as u8)?;
            longest = longest.max(since.elapsed());
            link.a.wait_completion()?;
        }
        link.check_trapped()?;
        Ok(longest.as_secs_f64() * 1e6)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    vec![
        Plan::new("processor time of 100 idle adapters", "%", Guest::Native, percent)
            .aim(Against::Figure, 1.0),
        Plan::new("RDMA longest wait of the first message", "us", Guest::Native, longest_wait_us)
            .aim(Against::Figure, 2000.0)
            .note(
                "Default idle_poll_us (2,000). The wake-up of the dispatcher's thread is included.",
            ),
    ]
}
