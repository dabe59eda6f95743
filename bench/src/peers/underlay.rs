//! Two hosts: network namespaces connected by a veth pair, and the kernel's own paths between them.
//!
//! Rows between hosts run Causeway's two dispatchers on an [`Underlay`], and compare with TCP and
//! UDP over the bare veth pair and over the kernel's VXLAN; other peers (`frames`, `af_xdp`,
//! `relay`, `overlay`, `mpi`) run on one, too. Both sides are threads of the benchmark that enter
//! the namespaces. The ends of UDP are pinned ([`Ends`]), and those of TCP to the core of
//! their host. Root is needed; otherwise the row or peer is left out with
//! the reason. Removed on drop; several may exist at a time, with namespaces of their own.
//!
//! Receivers have 200 ms to listen. A wait ends after 20 s with an error ([`super::wait`]): for a
//! datagram of a round trip that was lost, or for a sender that does not connect or send.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use super::netns::{Namespaces, ip};
use super::tcp;
use super::wait::{Polls, QUIET, timed};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER, pin};

/// Network between the peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerNetwork {
    /// The veth pair itself.
    Veth,
    /// The kernel's VXLAN over it.
    Vxlan,
}

impl PeerNetwork {
    /// Returns the address of host 0 or 1.
    pub const fn address(self, host: usize) -> &'static str {
        match (self, host) {
            (Self::Veth, 0) => "10.198.0.1",
            (Self::Veth, _) => "10.198.0.2",
            (Self::Vxlan, 0) => "10.197.0.1",
            (Self::Vxlan, _) => "10.197.0.2",
        }
    }
}

/// Two namespaces; removed when dropped.
#[derive(Debug)]
pub struct Underlay(Namespaces);

impl Underlay {
    /// Creates them, with an end of the veth pair and a VXLAN device in each.
    pub fn new() -> Result<Self, String> {
        let spaces = Namespaces::new(&["x", "y"])?;
        let (a, b) = (spaces.name(0)?, spaces.name(1)?);
        ip(&format!("link add eth0 netns {a} type veth peer name eth0 netns {b}"))?;
        for (host, name) in spaces.names().iter().enumerate() {
            let (here, there) =
                (PeerNetwork::Veth.address(host), PeerNetwork::Veth.address(1 - host));
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} addr add {here}/24 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            let vxlan = format!(
                "-n {name} link add vx0 type vxlan id 9 local {here} remote {there} dstport 4788"
            );
            ip(&vxlan)?;
            ip(&format!("-n {name} addr add {}/24 dev vx0", PeerNetwork::Vxlan.address(host)))?;
            ip(&format!("-n {name} link set vx0 up"))?;
        }
        Ok(Self(spaces))
    }

    /// Returns the name of the namespace of host 0 or 1.
    pub fn name(&self, host: usize) -> Result<&str, String> {
        self.0.name(host)
    }

    /// Runs a function in a thread of host 0 or 1, and waits for it; threads and processes that it
    /// starts are there too.
    pub fn at<T: Send>(
        &self,
        host: usize,
        act: impl FnOnce() -> Result<T, String> + Send,
    ) -> Result<T, String> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.0.enter(host).and_then(|()| act()));
            thread.join().map_err(|_| "a measuring thread panicked".to_owned())?
        })
    }

    /// Runs both sides concurrently, each host on its own core: `receive` on host 1, and `send` on
    /// host 0, 200 ms later.
    pub fn both<T: Send>(
        &self,
        send: impl FnOnce() -> std::io::Result<()> + Send,
        receive: impl FnOnce() -> std::io::Result<T> + Send,
    ) -> Result<T, String> {
        std::thread::scope(|scope| {
            let far = scope.spawn(|| {
                self.at(1, || {
                    pin(Ends::Apart.core(1));
                    receive().map_err(|e| e.to_string())
                })
            });
            std::thread::sleep(Duration::from_millis(200));
            let sent = self.at(0, || {
                pin(Ends::Apart.core(0));
                send().map_err(|e| e.to_string())
            });
            let received = far.join().map_err(|_| "the receiver's thread panicked".to_owned())?;
            sent.and(received)
        })
    }

    /// TCP from host 0 to an address of host 1, `total` bytes a run with writes of 64 KiB, in
    /// Gbit/s; each end on the core of its host.
    pub fn tcp_gbits(&self, effort: &Effort, far: &str, total: u64) -> Result<Vec<f64>, String> {
        let far = format!("{far}:7001");
        effort.each(|| {
            let receive = || tcp::receive(&far).map(|rate| rate * 8.0 / 1e9);
            self.both(|| tcp::send(&far, total), receive)
        })
    }
}

/// As [`Underlay::tcp_gbits`], over a network of a new underlay.
pub fn tcp_gbits(effort: &Effort, network: PeerNetwork) -> Result<Vec<f64>, String> {
    Underlay::new()?.tcp_gbits(effort, network.address(1), effort.rounds(3 << 30))
}

/// Core assignment and wait mode of a round trip's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Each end polls on its own core.
    Spinning,
    /// The ends sleep, each host on its own core, which is halted when a frame arrives.
    Apart,
    /// The ends sleep, all on one core.
    Together,
}

impl Ends {
    /// Returns the core of host 0 or 1.
    pub const fn core(self, host: usize) -> usize {
        match (self, host) {
            (Self::Together, _) | (_, 0) => CLIENT,
            _ => SERVER,
        }
    }
}

/// Round trips of 64 B over UDP: microseconds.
pub fn udp_round_us(effort: &Effort, network: PeerNetwork, ends: Ends) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let rounds = effort.rounds(30_000);
    let spin = ends == Ends::Spinning;
    let (near, far) =
        (format!("{}:7003", network.address(0)), format!("{}:7002", network.address(1)));
    effort.each(|| {
        let open = |at: &str| {
            let socket = UdpSocket::bind(at)?;
            socket.set_nonblocking(spin)?;
            socket.set_read_timeout(Some(QUIET))?;
            Ok::<_, std::io::Error>(socket)
        };
        let receive = |socket: &UdpSocket, room: &mut [u8]| {
            let mut polls = Polls::default();
            loop {
                match socket.recv_from(room) {
                    Err(error) if spin && error.kind() == std::io::ErrorKind::WouldBlock => {
                        polls.vain(QUIET)?;
                    }
                    other => return other.map_err(timed),
                }
            }
        };
        let echo = || {
            pin(ends.core(1));
            let socket = open(&far)?;
            let mut room = [0; 64];
            for _ in 0..=rounds {
                let (len, from) = receive(&socket, &mut room)?;
                socket.send_to(room.get(..len).unwrap_or(&[]), from)?;
            }
            Ok(())
        };
        let mut round_us = 0.0;
        let ask = || {
            pin(ends.core(0));
            let socket = open(&near)?;
            let mut room = [0; 64];
            let mut since = Instant::now();
            for round in 0..=rounds {
                if round == 1 {
                    since = Instant::now();
                }
                socket.send_to(&[7; 64], &far)?;
                receive(&socket, &mut room)?;
            }
            round_us = since.elapsed().as_secs_f64() * 1e6 / rounds as f64;
            Ok(())
        };
        underlay.both(ask, echo)?;
        Ok(round_us)
    })
}
