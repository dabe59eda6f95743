//! Small messages: WRITE and SEND of 1 byte to 4 KiB, READ and atomic operations, one at a time.
//!
//! A half round trip of a WRITE of 64 bytes moves 6 cache lines between the cores: doorbell record,
//! entry and payload to the dispatcher; payload and its reader's flag (one line of 64 bytes),
//! completion and the record of the completion queue back.
//!
//! One thread is both guests, on the client's core. Each round waits for its completion, at most 5
//! s; the content of the WRITEs of half round trips is checked by their last byte, that of other
//! messages is not. One row sleeps until the interrupt of its completion queue, in place of
//! polling.

use std::time::{Duration, Instant};

use causeway_mlx5_driver::Post;
use causeway_wire::mlx5::work_request::{AtomicSegment, RemoteAddressSegment, SendOpcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::adapters::{Link, Side, VIRTUAL, failed};
use crate::effort::Effort;
use crate::floor;
use crate::rig::Rig;
use crate::row::{Against, Guest, Plan};

/// Rounds of a figure, at full effort, after a tenth as many of warm-up.
const ROUNDS: u64 = 200_000;

/// Length of the messages of rows without other lengths, in bytes.
const LEN: u32 = 64;
/// Further lengths of WRITE and SEND, in bytes.
const LENGTHS: [u32; 3] = [1, 1024, 4096];
/// Interrupt vector of the completion queues.
const VECTOR: usize = 1;
/// Longest wait for an interrupt.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Measures `round` on two adapters of a new dispatcher for each run, in microseconds for each of
/// `parts` parts of a round.
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

/// As [`write()`] with [`LEN`] bytes, which are in the entry.
fn write_inline(from: &mut Side, to: &Side, mark: u8) -> Result<(), String> {
    let mut bytes = [0; LEN as usize];
    bytes[63] = mark;
    let at = RemoteAddressSegment { address: VIRTUAL, key: to.key };
    let post = Post::new(SendOpcode::Write);
    let entry = from.driver.post(&mut from.pair, post, |entry| entry.remote(&at).inline(&bytes));
    entry.map_err(failed)?;
    to.wait_mark(LEN, mark)?;
    from.wait_completion()
}

/// Writes `len` bytes to the peer's memory, waits until the peer sees the last, and takes the
/// completion.
fn write(from: &mut Side, to: &Side, len: u32, mark: u8) -> Result<(), String> {
    from.write_mark(len, mark).map_err(failed)?;
    from.stage_write(len, to.key, true).map_err(failed)?;
    from.driver.publish_sends(&from.pair).map_err(failed)?;
    to.wait_mark(len, mark)?;
    from.wait_completion()
}

/// Returns the last bytes of the two messages of a round: they differ from each other, and from
/// those of the round before.
fn marks(number: u64) -> (u8, u8) {
    let first = number.wrapping_mul(2) as u8;
    (first, first.wrapping_add(1))
}

/// Half round trips of WRITEs of `len` bytes.
fn writes(effort: &Effort, len: u32) -> Result<Vec<f64>, String> {
    us(effort, 2.0, |link, number| {
        let (there, back) = marks(number);
        write(&mut link.a, &link.b, len, there)?;
        write(&mut link.b, &link.a, len, back)
    })
}

/// Sends a message, waits for the peer's completion, and takes the sender's.
fn send(from: &mut Side, to: &mut Side, len: u32) -> Result<(), String> {
    to.post_receive(len).map_err(failed)?;
    let segment = from.segment(len);
    let post = Post::new(SendOpcode::Send);
    from.driver.post(&mut from.pair, post, |entry| entry.data(&segment)).map_err(failed)?;
    to.wait_completion()?;
    from.wait_completion()
}

/// Half round trips of SENDs of `len` bytes.
fn sends(effort: &Effort, len: u32) -> Result<Vec<f64>, String> {
    us(effort, 2.0, |link, _| {
        send(&mut link.a, &mut link.b, len)?;
        send(&mut link.b, &mut link.a, len)
    })
}

/// WRITEs of [`LEN`] bytes, each from its post to its completion. With `sleeps`, the thread arms
/// the completion queue and sleeps until the interrupt.
fn completions(effort: &Effort, sleeps: bool) -> Result<Vec<f64>, String> {
    let mut ring = None;
    us(effort, 1.0, |link, number| {
        let (side, key) = (&mut link.a, link.b.key);
        // Each run has a new driver, and begins with the first number.
        let events = match &mut ring {
            Some(events) if number > 1 => events,
            none => none.insert(side.driver.events()),
        };
        if sleeps {
            side.driver.arm(&side.cq, number as u32, false).map_err(failed)?;
        }
        side.stage_write(LEN, key, true).map_err(failed)?;
        side.driver.publish_sends(&side.pair).map_err(failed)?;
        if sleeps {
            sleep(side)?;
            side.driver.take_event(events).map_err(failed)?.ok_or("an interrupt has no event")?;
        }
        side.wait_completion()
    })
}

/// Sleeps until the interrupt of the completion queue.
fn sleep(side: &Side) -> Result<(), String> {
    let vector = side.bar.vector(VECTOR).ok_or("the function has too few vectors")?;
    let mut polled = [PollFd::new(&vector, PollFlags::IN)];
    poll(&mut polled, Some(&PATIENCE)).map_err(|error| error.to_string())?;
    match side.bar.take_interrupts(VECTOR).map_err(failed)? {
        true => Ok(()),
        false => Err("the adapter raised no interrupt".into()),
    }
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
    let mut plans = vec![
        row("RDMA WRITE half round trip, 64 B", |e| writes(e, LEN))
            .near_cores()
            .aim(Against::Figure, 1.0)
            .at("rdma-write-latency", LEN as usize),
        row("RDMA WRITE half round trip, 64 B in the entry", |e| {
            us(e, 2.0, |link, number| {
                let (there, back) = marks(number);
                write_inline(&mut link.a, &link.b, there)?;
                write_inline(&mut link.b, &link.a, back)
            })
        })
        .near_cores()
        .aim(Against::Figure, 1.0),
        row("RDMA SEND half round trip, 64 B", |e| sends(e, LEN))
            .at("rdma-send-latency", LEN as usize),
        row("RDMA READ round trip, 64 B", |e| us(e, 1.0, |link, _| read(link))),
        row("RDMA atomic add round trip, 8 B", |e| us(e, 1.0, |link, _| add(link))),
        row("RDMA WRITE of 64 B and the interrupt of its completion", |e| completions(e, true))
            .beside("polling", |e| completions(e, false))
            .note("The thread sleeps on an eventfd, as a VMM's interrupt; no guest is woken."),
    ];
    for len in LENGTHS {
        let at = len as usize;
        let writes = Plan::new(
            format!("RDMA WRITE half round trip, {len} B"),
            "us",
            Guest::Native,
            move |e| writes(e, len),
        );
        let sends = Plan::new(
            format!("RDMA SEND half round trip, {len} B"),
            "us",
            Guest::Native,
            move |e| sends(e, len),
        );
        plans.push(writes.beside("cache line", line).at("rdma-write-latency", at));
        plans.push(sends.beside("cache line", line).at("rdma-send-latency", at));
    }
    plans
}
