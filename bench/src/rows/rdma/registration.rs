//! The registration of memory: CREATE_MKEY with a list of pages in descending order, so that no two
//! pages are one range. The time includes the driver's mailboxes, the doorbell message and the
//! wait. The dispatcher executes the commands on the other core; each registration is destroyed
//! again, and a refused one fails the row. The peer writes and reads a list of that length without
//! a command. Each figure has a dispatcher and an adapter of its own, and 4 to 2,000 registrations,
//! a twentieth of them (at least one) with `--quick`. A command without an answer within 10 s fails
//! the row.
//!
//! Rows by length show what a long message from application memory pays: a registration and its end
//! (`MX_RCACHE=0`), beside the check of one that is kept. The system call of a guest's `ibv_reg_mr`
//! is not included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_endpoint::{MemoryWatch, WatchedRange};
use causeway_memory::{Mapping, View};
use causeway_mlx5_driver::limits::PAGE;
use causeway_mlx5_driver::{Driver, VfioBar};
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::memory_key::{ANY_QUEUE_PAIR, MemoryKeyContext, split};

use super::adapters::failed;
use crate::effort::Effort;
use crate::rig::Rig;
use crate::row::{Guest, Plan};

/// Numbers of pages of the rows.
const PAGES: [u64; 5] = [1, 16, 256, 4096, 65_536];
/// Pages registered for a figure, at full effort, as far as 4 to 2,000 registrations have them.
const ALL_PAGES: u64 = 1 << 19;
/// Lengths of the messages of the rows, in bytes.
const LENGTHS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Checks of a kept registration for a figure, at full effort.
const CHECKS: u64 = 100_000;
/// Bytes of a mailbox's data.
const MAILBOX: usize = 512;

/// Registers the pages of a list `rounds` times. Returns the microseconds of a registration,
/// without and with its end.
fn register(
    (bar, driver): (&mut VfioBar, &Driver),
    pages: &[u64],
    rounds: u64,
) -> Result<(f64, f64), String> {
    let context = MemoryKeyContext {
        access_mode: 1,
        local_read: true,
        local_write: true,
        queue_pair: ANY_QUEUE_PAIR,
        domain: driver.domain(),
        len: pages.len() as u64 * PAGE,
        list_size: 8,
        log_page_size: 12,
        ..Default::default()
    };
    let (mut spent, mut with_end) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let since = Instant::now();
        let key = driver.create_key(bar, &context, pages).map_err(failed)?;
        spent += since.elapsed();
        let (number, _) = split(key);
        driver.simple(bar, Opcode::DestroyMemoryKey, number).map_err(failed)?;
        with_end += since.elapsed();
    }
    let each = |all: Duration| all.as_secs_f64() * 1e6 / rounds as f64;
    Ok((each(spent), each(with_end)))
}

/// Returns the number of registrations of `pages` pages for a figure.
fn rounds(effort: &Effort, pages: u64) -> u64 {
    effort.rounds((ALL_PAGES / pages).clamp(4, 2000))
}

/// Registers pages: microseconds for each page.
fn for_each_page(effort: &Effort, pages: u64) -> Result<Vec<f64>, String> {
    ours(effort, pages, |(registered, _)| registered / pages as f64)
}

/// Registers the memory of a message and ends the registration: microseconds.
fn for_each_message(effort: &Effort, len: u64) -> Result<Vec<f64>, String> {
    ours(effort, len.div_ceil(PAGE), |(_, with_end)| with_end)
}

/// Checks that a kept registration is still that of the memory: microseconds. An error if the
/// kernel refuses userfaultfd(2).
fn kept(effort: &Effort, len: u64) -> Result<Vec<f64>, String> {
    let mapping = Arc::new(Mapping::private(len).map_err(|e| e.to_string())?);
    let bytes = usize::try_from(len).map_err(|e| e.to_string())?;
    let memory = View::new(mapping, 0, bytes).map_err(|e| e.to_string())?;
    let start = memory.as_ptr().expose_provenance();
    let watch = MemoryWatch::of_process().ok_or("the kernel refuses userfaultfd(2)")?;
    let watched = WatchedRange::new(&watch, start..start + bytes);
    let watched = watched.ok_or("the kernel refuses to watch the memory")?;
    let rounds = effort.rounds(CHECKS);
    effort.each(|| {
        let since = Instant::now();
        let all = (0..rounds).all(|_| watched.is_unchanged(start));
        let each = since.elapsed().as_secs_f64() * 1e6 / rounds as f64;
        all.then_some(each).ok_or_else(|| "the memory has changed".to_owned())
    })
}

fn ours(
    effort: &Effort,
    pages: u64,
    figure: impl Fn((f64, f64)) -> f64,
) -> Result<Vec<f64>, String> {
    let rounds = rounds(effort, pages);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let memory = pages * PAGE + (64 << 20);
        let (mut bar, mut driver) = VfioBar::start(&rig.idle_hca(1), memory).map_err(failed)?;
        let first = driver.allocate(pages * PAGE).map_err(failed)?;
        let list: Vec<u64> = (0..pages).rev().map(|page| first + page * PAGE).collect();
        register((&mut bar, &driver), &list, rounds).map(&figure)
    })
}

/// Writes a page list to mailboxes and reads it again: microseconds for each page.
fn list_only(effort: &Effort, pages: u64) -> Result<Vec<f64>, String> {
    let rounds = rounds(effort, pages);
    effort.each(|| {
        let list: Vec<u8> = (0..pages).flat_map(|page| (page * PAGE).to_be_bytes()).collect();
        let (mut boxes, mut private) = (vec![0_u8; list.len()], vec![0_u8; list.len()]);
        let since = Instant::now();
        for _ in 0..rounds {
            for (to, from) in boxes.chunks_mut(MAILBOX).zip(list.chunks(MAILBOX)) {
                std::hint::black_box(to).copy_from_slice(std::hint::black_box(from));
            }
            for (to, from) in private.chunks_mut(MAILBOX).zip(boxes.chunks(MAILBOX)) {
                std::hint::black_box(to).copy_from_slice(std::hint::black_box(from));
            }
        }
        Ok(since.elapsed().as_secs_f64() * 1e6 / (rounds * pages) as f64)
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let row = |pages: u64| {
        let name = format!("RDMA registration for each page, {pages} pages");
        Plan::new(name, "us", Guest::Native, move |e| for_each_page(e, pages))
            .beside("copies of the list", move |e| list_only(e, pages))
            .at("rdma-registration-pages", pages as usize)
    };
    let message = |len: u64| {
        let name = format!("Memory of a message, {} KiB, registered", len >> 10);
        Plan::new(name, "us", Guest::Native, move |e| for_each_message(e, len))
            .beside("kept registration", move |e| kept(e, len))
            .at("message-registration-bytes", usize::try_from(len).unwrap_or(usize::MAX))
    };
    PAGES.map(row).into_iter().chain(LENGTHS.map(message)).collect()
}
