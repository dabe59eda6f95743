//! What the machine itself can do: the least that anything between two cores costs.

use std::hint::{black_box, spin_loop};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::pin::{CLIENT, SERVER, pin};

#[repr(align(128))]
struct Line(AtomicU64);

/// A cache line handed over between the two cores, half a round trip, in microseconds.
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

/// A thread woken through an eventfd, half a round trip, in microseconds.
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

/// `memcpy` of `bytes`, warm, in GB/s.
pub fn memcpy_gbps(bytes: usize) -> f64 {
    pin(CLIENT);
    let from = vec![1_u8; bytes];
    let mut to = vec![0_u8; bytes];
    let rounds = ((1_usize << 30) / bytes).max(1);
    let since = Instant::now();
    for _ in 0..rounds {
        black_box(&mut to).copy_from_slice(black_box(&from));
    }
    (rounds * bytes) as f64 / since.elapsed().as_secs_f64() / 1e9
}
