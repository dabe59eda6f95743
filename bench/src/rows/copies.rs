//! The copy, the basis of the paths between guests: from one guest's memory into another's,
//! compared with `memcpy` of private memory and with two copies through a buffer; in cache, and out
//! of cache.
//!
//! The rows call `causeway_memory` in the benchmark's thread, without a dispatcher, ports or checks
//! of headers: two maps of memory files stand for two guests. The figures are therefore upper
//! bounds of a path that copies pieces of that length in one thread. 1 GiB is copied for a figure,
//! less with `--quick`; an error is a memory file that the host refuses.

use std::hint::black_box;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use causeway_memory::copy::copy;
use causeway_memory::{Cursor, Map, Mapping, Region, Span, create};

use crate::effort::Effort;
use crate::floor::PageAligned;
use crate::pin::{CLIENT, pin};
use crate::row::{Guest, Plan};

/// Bytes copied for a figure.
const ALL: usize = 1 << 30;
/// Memory size of the out-of-cache rows, copied place by place: far more than a core's own caches.
const COLD: usize = 64 << 20;

/// Length of a virtio header in front of a frame, in bytes.
const HEADER: usize = 12;

/// Creates a guest with `bytes` bytes of memory, all of them touched.
fn guest(bytes: usize) -> Result<Map, String> {
    let file = create("bench", bytes as u64).map_err(|e| e.to_string())?;
    let mapping = Mapping::new(file.as_fd(), 0, bytes as u64).map_err(|e| e.to_string())?;
    let whole = Region { guest: 0, user: 0, mapping: Arc::new(mapping) };
    let map = Map::new(vec![whole]).map_err(|e| e.to_string())?;
    map.write(0, &vec![1; bytes]).map_err(|e| e.to_string())?;
    Ok(map)
}

/// Returns the rate of `one`, in GB/s; it copies `len` bytes at a place of `within` bytes.
fn gb_s(
    effort: &Effort,
    len: usize,
    within: usize,
    mut one: impl FnMut(usize) -> Result<(), String>,
) -> Result<Vec<f64>, String> {
    pin(CLIENT);
    let rounds = effort.rounds((ALL / len) as u64);
    let step = len.next_multiple_of(64);
    effort.each(|| {
        let (mut at, since) = (0, Instant::now());
        for _ in 0..rounds {
            one(at)?;
            at = if at + 2 * step <= within { at + step } else { 0 };
        }
        Ok(rounds as f64 * len as f64 / since.elapsed().as_secs_f64() / 1e9)
    })
}

/// Copies directly from one guest into the other. The destination begins `ahead` bytes further in
/// its page than the source.
fn copy_directly(
    effort: &Effort,
    len: usize,
    within: usize,
    ahead: usize,
) -> Result<Vec<f64>, String> {
    let (from, to) = (guest(within)?, guest(within + ahead)?);
    gb_s(effort, len, within, |at| {
        let taken = [Span { addr: at as u64, len: len as u32 }];
        let given = [Span { addr: (at + ahead) as u64, len: len as u32 }];
        let (mut source, mut sink) = (Cursor::new(&taken), Cursor::new(&given));
        copy((&from, &mut source), (&to, &mut sink), len as u64).map_err(|e| e.to_string())
    })
}

/// Copies into a private buffer and out of it again, as an implementation that does not trust guest
/// memory would.
fn by_way_of_a_buffer(effort: &Effort, len: usize, within: usize) -> Result<Vec<f64>, String> {
    let (from, to) = (guest(within)?, guest(within)?);
    let mut buffer = vec![0; len];
    gb_s(effort, len, within, |at| {
        from.read(at as u64, &mut buffer).map_err(|e| e.to_string())?;
        to.write(at as u64, black_box(&buffer)).map_err(|e| e.to_string())
    })
}

/// Copies private memory.
fn memcpy(effort: &Effort, len: usize, within: usize) -> Result<Vec<f64>, String> {
    let (from, mut to) = (PageAligned::new(within, 1), PageAligned::new(within, 0));
    gb_s(effort, len, within, |at| {
        let place = at..at + len;
        black_box(&mut to.bytes_mut()[place.clone()])
            .copy_from_slice(black_box(&from.bytes()[place]));
        Ok(())
    })
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, len) in [("64 B", 64), ("1500 B", 1500), ("4 KiB", 4096), ("64 KiB", 65_536)] {
        for (within, where_) in [(len.max(64), "in the cache"), (COLD, "out of the cache")] {
            let title = format!("Copy between guests of {name}, {where_}");
            plans.push(
                Plan::new(title, "GB/s", Guest::Native, move |e| copy_directly(e, len, within, 0))
                    .beside("memcpy", move |e| memcpy(e, len, within))
                    .beside("two copies", move |e| by_way_of_a_buffer(e, len, within))
                    .note("Basis, with the rows of frames, of the choice of copy kernels."),
            );
        }
    }
    plans.push(
        Plan::new(
            "Copy between guests of 64 KiB, 12 B further in the page",
            "GB/s",
            Guest::Native,
            |e| copy_directly(e, 65_536, 65_536, HEADER),
        )
        .beside("memcpy", |e| memcpy(e, 65_536, 65_536))
        .note("The receiver has a header of 12 bytes: the position that is slow for `rep movsb`."),
    );
    plans
}
