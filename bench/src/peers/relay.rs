//! What any overlay in user space is up against: guests behind one process a host, which takes what
//! its guest rings about to the other host by UDP, and rings its guest for what comes. It does
//! nothing else, so its round trip is the machine's own price for the wake-ups and datagrams that
//! ours has: guest, process, process, guest, and back.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::underlay::{Ends, Underlay, Way};
use crate::effort::Effort;
use crate::pin::pin;

/// The two bells between a guest and the process behind it.
struct Bells {
    /// Rung by the guest.
    out: OwnedFd,
    /// Rung by the process.
    back: OwnedFd,
}

fn failed(error: rustix::io::Errno) -> String {
    error.to_string()
}

fn ring(bell: &OwnedFd) -> Result<(), String> {
    rustix::io::write(bell, &1_u64.to_ne_bytes()).map(drop).map_err(failed)
}

/// Sleeps until it is rung.
fn hear(bell: &OwnedFd) -> Result<(), String> {
    rustix::io::read(bell, &mut [0; 8]).map(drop).map_err(failed)
}

impl Bells {
    fn new() -> Result<Self, String> {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC).map_err(failed);
        Ok(Self { out: bell()?, back: bell()? })
    }
}

/// The process of a host.
fn relay(host: usize, bells: &Bells, stop: &AtomicBool) -> Result<(), String> {
    let at = |host| format!("{}:7004", Way::Veth.address(host));
    let io = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind(at(host)).map_err(io)?;
    socket.connect(at(1 - host)).map_err(io)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (fd, number) in [(bells.out.as_fd(), 0), (socket.as_fd(), 1)] {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&poller, fd, data, epoll::EventFlags::IN).map_err(failed)?;
    }
    let mut room = [0; 64];
    let mut events = Vec::with_capacity(2);
    while !stop.load(Ordering::Relaxed) {
        epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None).map_err(failed)?;
        for event in events.drain(..) {
            if event.data.u64() == 0 {
                hear(&bells.out)?;
                // The other may be gone at the end.
                let _ = socket.send(&room);
            } else if socket.recv(&mut room).is_ok() {
                ring(&bells.back)?;
            }
        }
    }
    Ok(())
}

/// Round trips of 64 B: microseconds.
pub fn relay_round_us(effort: &Effort, ends: Ends) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let rounds = effort.rounds(30_000);
    effort.each(|| {
        let stop = &AtomicBool::new(false);
        let bells = [Bells::new()?, Bells::new()?];
        let [near, far] = &bells;
        std::thread::scope(|scope| {
            for (host, bells) in [near, far].into_iter().enumerate() {
                let underlay = &underlay;
                scope.spawn(move || {
                    pin(ends.core(host));
                    underlay.at(host, || relay(host, bells, stop))
                });
            }
            scope.spawn(|| {
                pin(ends.core(1));
                while !stop.load(Ordering::Relaxed) {
                    hear(&far.back)?;
                    ring(&far.out)?;
                }
                Ok::<_, String>(())
            });
            pin(ends.core(0));
            // Until both sockets are there.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let mut since = Instant::now();
            let asked = (0..=rounds).try_for_each(|round| {
                if round == 1 {
                    since = Instant::now();
                }
                ring(&near.out)?;
                hear(&near.back)
            });
            let took = since.elapsed();
            stop.store(true, Ordering::Relaxed);
            for bell in bells.iter().flat_map(|bells| [&bells.out, &bells.back]) {
                ring(bell)?;
            }
            asked.map(|()| took.as_secs_f64() * 1e6 / rounds as f64)
        })
    })
}
