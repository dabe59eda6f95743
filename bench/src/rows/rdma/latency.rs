//! Small messages: WRITE, SEND, READ and atomic operations of 64 bytes, one at a time.
//!
//! A half round trip of a WRITE moves 7 cache lines between the cores: doorbell record, entry and
//! payload to the dispatcher; payload and its reader's flag (one line of 64 bytes), completion and
//! the record of the completion queue back.
//!
//! One thread is both guests, on the client's core. Each round waits for its completion, at most 5 s;
//! the content of a WRITE is checked by its number, that of other messages is not.

use std::time::{Duration, Instant};

use causeway_mlx5_driver::Post;
use causeway_wire::mlx5::work_request::{AtomicSegment, RemoteAddressSegment, SendOpcode};

use super::adapters::{Link, Side, VIRTUAL, failed};
use crate::effort::Effort;
use crate::floor;
use crate::rig::Rig;
use crate::row::{Against, Guest, Plan};

/// Round trips of a figure.
const ROUNDS: u64 = 200_000;

/// Length of the messages, in bytes.
const LEN: u32 = 64;

/// Measures `round` on two adapters, in microseconds for each of `parts` parts of a round.
fn us(
    effort: &Effort,
    parts: f64,
    mut round: impl FnMut(&mut Link, u64) -> Result<(), String>,
) -> Result<Vec<f64>, String> {
    let rounds = effort.rounds(ROUNDS);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let mut link = Link::new(&rig)?;
        for number in 1..=rounds / 10 {
            round(&mut link, number)?;
        }
        let since = Instant::now();
        for number in rounds / 10 + 1..=rounds / 10 + rounds {
            round(&mut link, number)?;
        }
        let us = since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / parts;
        link.check_trapped()?;
        Ok(us)
    })
}

/// As [`write()`], with the payload in the entry.
fn write_inline(from: &mut Side, to: &Side, number: u64) -> Result<(), String> {
    let mut bytes = [0; LEN as usize];
    bytes[56..].copy_from_slice(&number.to_ne_bytes());
    let at = RemoteAddressSegment { address: VIRTUAL, key: to.key };
    let post = Post::new(SendOpcode::Write);
    let entry = from.driver.post(&mut from.pair, post, |entry| entry.remote(&at).inline(&bytes));
    entry.map_err(failed)?;
    to.wait_word(number)?;
    from.wait_completion()
}

/// Writes a number to the peer's memory, waits until the peer sees it, and takes the completion.
fn write(from: &mut Side, to: &Side, number: u64) -> Result<(), String> {
    from.write_word(number).map_err(failed)?;
    from.stage_write(LEN, to.key, true).map_err(failed)?;
    from.driver.publish_sends(&from.pair).map_err(failed)?;
    to.wait_word(number)?;
    from.wait_completion()
}

/// Sends a message, waits for the peer's completion, and takes the sender's.
fn send(from: &mut Side, to: &mut Side) -> Result<(), String> {
    to.post_receive().map_err(failed)?;
    let segment = from.segment(LEN);
    let post = Post::new(SendOpcode::Send);
    from.driver.post(&mut from.pair, post, |entry| entry.data(&segment)).map_err(failed)?;
    to.wait_completion()?;
    from.wait_completion()
}

/// Reads the peer's memory.
fn read(link: &mut Link) -> Result<(), String> {
    let Link { a, b, .. } = link;
    let (into, from) = (a.segment(LEN), RemoteAddressSegment { address: VIRTUAL, key: b.key });
    let post = Post::new(SendOpcode::Read);
    a.driver.post(&mut a.pair, post, |entry| entry.remote(&from).data(&into)).map_err(failed)?;
    a.wait_completion()
}

/// Adds to a word of the peer's memory.
fn add(link: &mut Link) -> Result<(), String> {
    let Link { a, b, .. } = link;
    let (into, at) = (a.segment(8), RemoteAddressSegment { address: VIRTUAL, key: b.key });
    let operands = AtomicSegment { swap_or_add: 1, compare: 0 };
    let post = Post::new(SendOpcode::FetchAdd);
    let entry =
        a.driver.post(&mut a.pair, post, |entry| entry.remote(&at).atomic(&operands).data(&into));
    entry.map_err(failed)?;
    a.wait_completion()
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let line = |e: &Effort| e.each(|| Ok(floor::cache_line_us()));
    let row = |name: &str, ours: fn(&Effort) -> Result<Vec<f64>, String>| {
        Plan::new(name, "us", Guest::Native, ours).beside("cache line", line)
    };
    vec![
        row("RDMA WRITE half round trip, 64 B", |e| {
            us(e, 2.0, |link, number| {
                write(&mut link.a, &link.b, number)?;
                write(&mut link.b, &link.a, number)
            })
        })
        .near_cores()
        .aim(Against::Figure, 1.0),
        row("RDMA WRITE half round trip, 64 B in the entry", |e| {
            us(e, 2.0, |link, number| {
                write_inline(&mut link.a, &link.b, number)?;
                write_inline(&mut link.b, &link.a, number)
            })
        })
        .near_cores()
        .aim(Against::Figure, 1.0),
        row("RDMA SEND half round trip, 64 B", |e| {
            us(e, 2.0, |link, _| {
                send(&mut link.a, &mut link.b)?;
                send(&mut link.b, &mut link.a)
            })
        }),
        row("RDMA READ round trip, 64 B", |e| us(e, 1.0, |link, _| read(link))),
        row("RDMA atomic add round trip, 8 B", |e| us(e, 1.0, |link, _| add(link))),
    ]
}
