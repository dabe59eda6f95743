//! The network between NICs: loses, duplicates and delays their datagrams.
//!
//! NICs have real UDP sockets on the loopback interface, and each NIC has a relay socket here. A
//! datagram sent to the relay of NIC N reaches NIC N from the relay of its sender. `super` reads
//! the relays ([`Net::take`]) and delivers what is due ([`Net::pass`]) between the turns of hosts,
//! in the thread of the world. Faults are drawn from the world's seed by [`Weather`] and
//! partitions; datagrams are not changed. Datagrams of more than 16,384 bytes do not occur. The
//! host's loopback may itself lose a datagram, which the NICs must survive. A send that the kernel
//! refuses, and a datagram for a NIC that has sent none yet, count as lost; a relay that cannot be
//! opened or read is an error that ends the world. The number of datagrams in transit has no limit.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::rng::Rng;

/// The shortest transit time.
const WAY_NS: u64 = 40_000;
/// Longer than any frame.
const DATAGRAM_MAX: usize = 16_384;

/// Probabilities of datagram faults, in per cent; the last field is a time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Loss.
    pub lost: u64,
    /// Duplication.
    pub doubled: u64,
    /// Additional delay.
    pub late: u64,
    /// Limit of the additional delay, in nanoseconds.
    pub late_ns: u64,
}

/// A datagram in transit: arrival time, sequence number, source NIC, destination NIC, bytes.
type InTransit = Reverse<(u64, u64, usize, usize, Vec<u8>)>;

/// The simulated network.
#[derive(Debug)]
pub struct Net {
    /// The fault probabilities.
    pub weather: Weather,
    /// Partitions, as pairs of a receiver and a sender it does not hear.
    pub partitions: BTreeSet<(usize, usize)>,
    /// The relay socket of each NIC.
    relays: Vec<UdpSocket>,
    /// The socket address of each NIC, once known.
    homes: Vec<Option<SocketAddr>>,
    /// Datagrams in transit, the next first.
    in_transit: BinaryHeap<InTransit>,
    rng: Rng,
    order: u64,
    room: Vec<u8>,
}

/// Returns the listening address of a NIC: an address of its own, with any port.
pub fn home(board: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 77, 1, board as u8 + 1), 0))
}

impl Net {
    /// Creates a network for `boards` NICs.
    ///
    /// # Errors
    /// A relay socket cannot be opened.
    pub fn new(boards: usize, rng: Rng) -> io::Result<Self> {
        let relay = |board: usize| {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 77, 2, board as u8 + 1), 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let relays = (0..boards).map(relay).collect::<io::Result<_>>()?;
        Ok(Self {
            weather: Weather::default(),
            partitions: BTreeSet::new(),
            relays,
            homes: vec![None; boards],
            in_transit: BinaryHeap::new(),
            rng,
            order: 0,
            room: vec![0; DATAGRAM_MAX],
        })
    }

    /// Returns the relay addresses at which a NIC reaches the others.
    ///
    /// # Errors
    /// A relay socket has no address.
    pub fn others(&self, board: usize) -> io::Result<Vec<SocketAddr>> {
        let others = self.relays.iter().enumerate().filter(|(at, _)| *at != board);
        others.map(|(_, relay)| relay.local_addr()).collect()
    }

    /// Forgets the address of a NIC that is gone.
    pub fn left(&mut self, board: usize) {
        self.homes[board] = None;
    }

    /// Reads the datagrams that NICs sent. Returns true if any was available.
    ///
    /// # Errors
    /// A relay socket cannot be read.
    pub fn take(&mut self, now: u64) -> io::Result<bool> {
        let mut some = false;
        for to in 0..self.relays.len() {
            loop {
                let (len, source) = match self.relays[to].recv_from(&mut self.room) {
                    Ok(received) => received,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                    Err(error) => return Err(error),
                };
                some = true;
                let board = |board: &usize| home(*board).ip() == source.ip();
                let Some(from) = (0..self.relays.len()).find(board) else { continue };
                self.homes[from] = Some(source);
                self.send(now, (from, to), len);
            }
        }
        Ok(some)
    }

    fn send(&mut self, now: u64, (from, to): (usize, usize), len: usize) {
        let Weather { lost, doubled, late, late_ns } = self.weather;
        let copies = 1 + u64::from(self.rng.chance(doubled));
        for _ in 0..copies {
            if self.rng.chance(lost) || self.partitions.contains(&(to, from)) {
                continue;
            }
            let late = if self.rng.chance(late) { self.rng.below(late_ns) } else { 0 };
            self.order += 1;
            let datagram = self.room[..len].to_vec();
            self.in_transit.push(Reverse((now + WAY_NS + late, self.order, from, to, datagram)));
        }
    }

    /// Returns the arrival time of the next datagram.
    pub fn next(&self) -> Option<u64> {
        self.in_transit.peek().map(|Reverse((at, ..))| *at)
    }

    /// Delivers the datagrams that are due. Returns the receiving NICs.
    ///
    /// # Errors
    /// None: a failed send counts as a lost datagram.
    pub fn pass(&mut self, now: u64) -> io::Result<BTreeSet<usize>> {
        let mut boards = BTreeSet::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some(Reverse((_, _, from, to, datagram))) = self.in_transit.pop() else { break };
            let Some(home) = self.homes[to] else { continue };
            match self.relays[from].send_to(&datagram, home) {
                // The destination's socket may be closed or full, in which case the datagram is
                // lost.
                Ok(_) | Err(_) => boards.insert(to),
            };
        }
        Ok(boards)
    }
}
