//! WRITEs in flight: messages and bytes per second of one queue pair, and register messages.
//!
//! One thread posts and polls on the client's core, and the rig's dispatcher executes on the other.
//! Messages below 64 KiB go in batches of 16 with one doorbell, 8 batches in flight; of longer
//! messages 8 are in flight; the curve of bandwidth has both kinds. A completion with an error, or
//! none for 5 s, fails the row, and so does a register message on the data path. One row counts
//! register messages with events. The content is not checked.

use std::time::{Duration, Instant};

use causeway_wire::mlx5::event_queue::Event;

use super::adapters::{Link, failed, wait};
use crate::effort::Effort;
use crate::floor;
use crate::rig::Rig;
use crate::row::{Against, Guest, Plan};

/// Messages of a batch with one doorbell; the last completes.
const BATCH: u64 = 16;
/// Batches in flight of small messages.
const BATCHES: u64 = 8;
/// Bytes of a run at full effort, and most messages.
const BYTES: u64 = 200_000 << 16;
const MESSAGES_MAX: u64 = 5_000_000;
/// Least length of a long message.
const LONG: u64 = 64 << 10;
/// Lengths of the curve of bandwidth beside 64 KiB. Shorter messages have rows of their rate.
const LENGTHS: [(u32, &str); 3] = [(1024, "1 KiB"), (8192, "8 KiB"), (1 << 20, "1 MiB")];
/// Long messages in flight.
const LONG_IN_FLIGHT: u64 = 8;
/// Rounds of the count of register messages.
const ARM_ROUNDS: u64 = 20_000;

/// Writes `total` messages of `len` bytes in batches of `batch`, `in_flight` batches ahead. Returns
/// messages per second.
fn rate(
    link: &mut Link,
    len: u32,
    (batch, in_flight): (u64, u64),
    total: u64,
) -> Result<f64, String> {
    let (key, batches) = (link.b.key, total / batch);
    let (mut sent, mut done) = (0_u64, 0_u64);
    let since = Instant::now();
    while done < batches {
        while sent < batches && sent < done + in_flight {
            for number in 1..=batch {
                link.a.stage_write(len, key, number == batch).map_err(failed)?;
            }
            link.a.driver.publish_sends(&link.a.pair).map_err(failed)?;
            sent += 1;
        }
        let (driver, cq) = (&link.a.driver, &mut link.a.cq);
        let mut count = 0;
        wait(|| {
            count = driver.drain_cq(cq, in_flight as u32)?;
            Ok(count > 0)
        })?;
        done += u64::from(count);
    }
    link.check_trapped()?;
    Ok(batches as f64 * batch as f64 / since.elapsed().as_secs_f64())
}

/// Messages of `len` bytes: millions per second.
fn small(effort: &Effort, len: u32) -> Result<Vec<f64>, String> {
    let total = effort.rounds(MESSAGES_MAX);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let mut link = Link::new(&rig)?;
        rate(&mut link, len, (BATCH, BATCHES), total / 10)?;
        Ok(rate(&mut link, len, (BATCH, BATCHES), total)? / 1e6)
    })
}

/// Messages of `len` bytes: GB/s.
fn gbps(effort: &Effort, len: u32) -> Result<Vec<f64>, String> {
    let total = effort.rounds((BYTES / u64::from(len)).min(MESSAGES_MAX));
    let window = if u64::from(len) < LONG { (BATCH, BATCHES) } else { (1, LONG_IN_FLIGHT) };
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let mut link = Link::new(&rig)?;
        rate(&mut link, len, window, total / 10)?;
        Ok(rate(&mut link, len, window, total)? * f64::from(len) / 1e9)
    })
}

/// Register messages in rounds of a post, an arm, the event and the poll.
fn trapped(effort: &Effort) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(ARM_ROUNDS);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let mut link = Link::new(&rig)?;
        let (key, mut events) = (link.b.key, link.a.driver.events());
        for round in 0..rounds {
            link.a.driver.arm(&link.a.cq, round as u32 + 1, false).map_err(failed)?;
            link.a.stage_write(64, key, true).map_err(failed)?;
            link.a.driver.publish_sends(&link.a.pair).map_err(failed)?;
            let (driver, number) = (&link.a.driver, link.a.cq.number);
            wait(|| {
                let event = driver.take_event(&mut events)?;
                Ok(event == Some(Event::Completion { completion_queue: number }))
            })?;
            link.a.wait_completion()?;
        }
        Ok(link.trapped() as f64)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let memcpy = |e: &Effort| e.each(|| Ok(floor::memcpy_gbps(65_536)));
    let mut plans = vec![
        Plan::new("RDMA WRITE rate, 64 B", "M/s", Guest::Native, |e| small(e, 64))
            .aim(Against::Figure, 5.0)
            .note("One queue pair and one dispatcher; batches of 16 with one doorbell and completion."),
        Plan::new("RDMA WRITE rate, 1 B", "M/s", Guest::Native, |e| small(e, 1)),
        Plan::new("RDMA WRITE bandwidth, 64 KiB", "GB/s", Guest::Native, |e| gbps(e, 65_536))
            .beside("memcpy", memcpy)
            .aim(Against::Peer("memcpy"), 0.85)
            .at("rdma-bandwidth", 65_536),
        Plan::new("RDMA register messages of post, arm and poll", "messages", Guest::Native, trapped)
            .aim(Against::Figure, 0.0),
    ];
    plans.extend(LENGTHS.map(|(len, text)| {
        let name = format!("RDMA WRITE bandwidth, {text}");
        Plan::new(name, "GB/s", Guest::Native, move |e| gbps(e, len))
            .at("rdma-bandwidth", len as usize)
    }));
    plans
}
