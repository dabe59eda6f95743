//! The registration of memory: CREATE_MKEY with a list of pages in descending order, so that no two
//! pages are one range. The time includes the driver's mailboxes, the doorbell message and the
//! wait. The dispatcher executes the commands on the other core; each registration is destroyed
//! again, and a refused one fails the row. The peer writes and reads the same list without a
//! command. Each figure has a dispatcher and an adapter of its own, and at least 4 registrations. A
//! command without an answer within 10 s fails the row.

use std::time::{Duration, Instant};

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
/// Pages registered for a figure, at full effort.
const ALL_PAGES: u64 = 1 << 19;
/// Bytes of a mailbox's data.
const MAILBOX: usize = 512;

/// Registers the pages of a list. Returns the time for each page in microseconds.
fn register(
    (bar, driver): (&mut VfioBar, &Driver),
    pages: &[u64],
    rounds: u64,
) -> Result<f64, String> {
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
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let since = Instant::now();
        let key = driver.create_key(bar, &context, pages).map_err(failed)?;
        spent += since.elapsed();
        let (number, _) = split(key);
        driver.simple(bar, Opcode::DestroyMemoryKey, number).map_err(failed)?;
    }
    Ok(spent.as_secs_f64() * 1e6 / (rounds * pages.len() as u64) as f64)
}

/// Returns the number of registrations of `pages` pages for a figure.
fn rounds(effort: &Effort, pages: u64) -> u64 {
    effort.rounds((ALL_PAGES / pages).clamp(4, 2000))
}

fn ours(effort: &Effort, pages: u64) -> Result<Vec<f64>, String> {
    let rounds = rounds(effort, pages);
    effort.each(|| {
        let rig = Rig::new(Duration::from_millis(100));
        let memory = pages * PAGE + (64 << 20);
        let (mut bar, mut driver) = VfioBar::start(&rig.idle_hca(1), memory).map_err(failed)?;
        let first = driver.allocate(pages * PAGE).map_err(failed)?;
        let list: Vec<u64> = (0..pages).rev().map(|page| first + page * PAGE).collect();
        register((&mut bar, &driver), &list, rounds)
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
        Plan::new(name, "us", Guest::Native, move |e| ours(e, pages))
            .beside("copies of the list", move |e| list_only(e, pages))
            .at("rdma-registration-pages", pages as usize)
    };
    PAGES.map(row).into()
}
