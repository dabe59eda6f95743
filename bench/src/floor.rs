//! Floor of the machine: the minimum cost of any communication between two cores.
//!
//! `rounds` measures the cache line before and after each figure, and rows have the floors as
//! peers. Each function runs the calling thread on the core [`CLIENT`], where it stays pinned, and
//! (except [`memcpy_gbps`]) a new thread on [`SERVER`]. The number of rounds is fixed, or follows
//! from the length; `--quick` does not change it. No dispatcher takes part; the bare ring uses the
//! copy of `causeway_memory`. On a machine with cores that move, the result is that of the present
//! placement.

use std::hint::{black_box, spin_loop};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use causeway_memory::{Mapping, View, create};
use rustix::event::{EventfdFlags, eventfd};

use crate::pin::{CLIENT, SERVER, pin};

#[repr(align(128))]
struct Line(AtomicU64);

/// Returns half a round trip of a cache line between the two cores, in microseconds.
pub fn cache_line_us() -> f64 {
    const ROUNDS: u64 = 200_000;
    let (ping, pong) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(SERVER);
            for i in 1..=ROUNDS {
                while ping.0.load(Ordering::Acquire) != i {
                    spin_loop();
                }
                pong.0.store(i, Ordering::Release);
            }
        });
        pin(CLIENT);
        let since = Instant::now();
        for i in 1..=ROUNDS {
            ping.0.store(i, Ordering::Release);
            while pong.0.load(Ordering::Acquire) != i {
                spin_loop();
            }
        }
        since.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64 / 2.0
    })
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd")
}

/// Returns half a round trip of a thread's wake-up through an eventfd, in microseconds.
pub fn eventfd_us() -> f64 {
    const ROUNDS: u64 = 20_000;
    let (ping, pong) = (event(), event());
    let take = |fd: &OwnedFd| rustix::io::read(fd.as_fd(), &mut [0_u8; 8]).is_ok();
    let give = |fd: &OwnedFd| rustix::io::write(fd.as_fd(), &1_u64.to_ne_bytes()).is_ok();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(SERVER);
            for _ in 0..ROUNDS {
                take(&ping);
                give(&pong);
            }
        });
        pin(CLIENT);
        let since = Instant::now();
        for _ in 0..ROUNDS {
            give(&ping);
            take(&pong);
        }
        since.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64 / 2.0
    })
}

/// A minimal ring of two pieces between two threads: two copies, and nothing else.
struct BareRing {
    data: View,
    put: Line,
    taken: Line,
}

/// Bytes of a piece: the fastest size while both threads copy concurrently.
const PIECE: usize = 4096;

impl BareRing {
    fn new() -> Result<Self, String> {
        let len = 2 * PIECE;
        let file = create("bare-ring", len as u64).map_err(|e| e.to_string())?;
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(|e| e.to_string())?;
        let data = View::new(Arc::new(mapping), 0, len).map_err(|e| e.to_string())?;
        let line = || Line(AtomicU64::new(0));
        Ok(Self { data, put: line(), taken: line() })
    }

    /// Sends bytes as pieces from `number` on; returns the next number.
    fn send(&self, mut number: u64, bytes: &[u8]) -> u64 {
        for piece in bytes.chunks(PIECE) {
            while number - self.taken.0.load(Ordering::Acquire) >= 2 {
                spin_loop();
            }
            let done = self.data.write(number as usize % 2 * PIECE, piece);
            assert!(done.is_ok(), "a piece lies in the ring");
            number += 1;
            self.put.0.store(number, Ordering::Release);
        }
        number
    }

    fn receive(&self, mut number: u64, into: &mut [u8]) -> u64 {
        for piece in into.chunks_mut(PIECE) {
            while self.put.0.load(Ordering::Acquire) <= number {
                spin_loop();
            }
            let done = self.data.read_into(number as usize % 2 * PIECE, piece);
            assert!(done.is_ok(), "a piece lies in the ring");
            number += 1;
            self.taken.0.store(number, Ordering::Release);
        }
        number
    }
}

/// Returns half a round trip of bytes from one private memory into another through a bare ring, in
/// microseconds: the minimum for any message of that length that is copied twice.
///
/// # Errors
/// The memory of a ring is refused.
pub fn bare_ring_us(bytes: usize) -> Result<f64, String> {
    let rounds = (1_u64 << 28) / (bytes as u64 + 10_000);
    let (there, back) = (BareRing::new()?, BareRing::new()?);
    let rooms = || [vec![1_u8; bytes], vec![2_u8; bytes]];
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(SERVER);
            let ([from, mut into], mut got, mut sent) = (rooms(), 0, 0);
            for _ in 0..rounds {
                got = there.receive(got, &mut into);
                sent = back.send(sent, &from);
            }
        });
        pin(CLIENT);
        let ([from, mut into], mut got, mut sent) = (rooms(), 0, 0);
        let since = Instant::now();
        for _ in 0..rounds {
            sent = there.send(sent, &from);
            got = back.receive(got, &mut into);
        }
        since.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0
    }))
}

/// Private memory that begins at a page, for `memcpy`. The rate of `memcpy` falls to a twentieth on
/// some processors when the destination begins a few bytes further in its page than the source, as
/// the allocator may place it: that would not be a floor.
pub struct PageAligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageAligned {
    /// Allocates `len` bytes, each of them `value`.
    pub fn new(len: usize, value: u8) -> Self {
        const PAGE: usize = 4096;
        let bytes = vec![value; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, len }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

/// Returns the rate of `memcpy` of the same `bytes` bytes, 1 GiB in all, in GB/s; both ranges begin
/// at a page.
pub fn memcpy_gbps(bytes: usize) -> f64 {
    pin(CLIENT);
    let from = PageAligned::new(bytes, 1);
    let mut to = PageAligned::new(bytes, 0);
    let rounds = ((1_usize << 30) / bytes).max(1);
    let since = Instant::now();
    for _ in 0..rounds {
        black_box(to.bytes_mut()).copy_from_slice(black_box(from.bytes()));
    }
    (rounds * bytes) as f64 / since.elapsed().as_secs_f64() / 1e9
}
