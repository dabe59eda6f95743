//! Lower bound of any user-space overlay: a relay on each host.
//!
//! The relay forwards a guest's eventfd notification to the other host as a UDP datagram, and a
//! received datagram to its guest as a notification. The relay does nothing else. Its round trip is
//! therefore the machine's own cost of the wake-ups and datagrams that Causeway has as well: guest,
//! relay, relay, guest, and back.
//!
//! Rows of links compare with it. Guests and relays are threads of the benchmark, each relay in the
//! namespace of its host, so that root is needed. The waits have no limits of their own, which
//! would cost a system call each; 60 s after the start of a measurement all of them are woken, and
//! it fails ([`super::wait::within`]): a datagram was lost, or a relay does not run.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, epoll, eventfd};

use super::underlay::{Ends, PeerNetwork, Underlay};
use super::wait::{LONG, within};
use crate::effort::Effort;
use crate::pin::pin;

/// The two eventfds between a guest and its relay.
struct Doorbells {
    /// Signalled by the guest.
    out: OwnedFd,
    /// Signalled by the relay.
    back: OwnedFd,
}

fn failed(error: rustix::io::Errno) -> String {
    error.to_string()
}

fn ring(bell: &OwnedFd) -> Result<(), String> {
    rustix::io::write(bell, &1_u64.to_ne_bytes()).map(drop).map_err(failed)
}

/// Sleeps until the eventfd is signalled.
fn wait_for_doorbell(bell: &OwnedFd) -> Result<(), String> {
    rustix::io::read(bell, &mut [0; 8]).map(drop).map_err(failed)
}

impl Doorbells {
    fn new() -> Result<Self, String> {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC).map_err(failed);
        Ok(Self { out: bell()?, back: bell()? })
    }
}

/// Runs the relay of a host.
fn relay(host: usize, doorbells: &Doorbells, stop: &AtomicBool) -> Result<(), String> {
    let at = |host| format!("{}:7004", PeerNetwork::Veth.address(host));
    let io = |error: std::io::Error| error.to_string();
    let socket = UdpSocket::bind(at(host)).map_err(io)?;
    socket.connect(at(1 - host)).map_err(io)?;
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for (fd, number) in [(doorbells.out.as_fd(), 0), (socket.as_fd(), 1)] {
        let data = epoll::EventData::new_u64(number);
        epoll::add(&poller, fd, data, epoll::EventFlags::IN).map_err(failed)?;
    }
    let mut room = [0; 64];
    let mut events = Vec::with_capacity(2);
    while !stop.load(Ordering::Relaxed) {
        epoll::wait(&poller, rustix::buffer::spare_capacity(&mut events), None).map_err(failed)?;
        for event in events.drain(..) {
            if event.data.u64() == 0 {
                wait_for_doorbell(&doorbells.out)?;
                // The other end may have exited already.
                let _ = socket.send(&room);
            } else if socket.recv(&mut room).is_ok() {
                ring(&doorbells.back)?;
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
        let doorbells = [Doorbells::new()?, Doorbells::new()?];
        let [near, far] = &doorbells;
        std::thread::scope(|scope| {
            let run = |(host, doorbells)| {
                let underlay = &underlay;
                scope.spawn(move || {
                    pin(ends.core(host));
                    underlay.at(host, || relay(host, doorbells, stop))
                })
            };
            let relays = [(0, near), (1, far)].map(run);
            scope.spawn(|| {
                pin(ends.core(1));
                while !stop.load(Ordering::Relaxed) {
                    wait_for_doorbell(&far.back)?;
                    ring(&far.out)?;
                }
                Ok::<_, String>(())
            });
            pin(ends.core(0));
            // Both sockets exist after this delay.
            std::thread::sleep(std::time::Duration::from_millis(200));
            let mut since = Instant::now();
            let end = || {
                stop.store(true, Ordering::Relaxed);
                let mut bells = doorbells.iter().flat_map(|pair| [&pair.out, &pair.back]);
                bells.try_for_each(ring)
            };
            let ask = |round| {
                if round == 1 {
                    since = Instant::now();
                }
                ring(&near.out)?;
                wait_for_doorbell(&near.back)?;
                let is_late = stop.load(Ordering::Relaxed);
                if is_late { Err("a datagram was lost".to_owned()) } else { Ok(()) }
            };
            let asked = within(LONG, || drop(end()), || (0..=rounds).try_for_each(ask));
            let took = since.elapsed();
            end()?;
            for relay in relays {
                relay.join().map_err(|_| "the relay's thread panicked".to_owned())??;
            }
            asked.map(|()| took.as_secs_f64() * 1e6 / rounds as f64)
        })
    })
}
