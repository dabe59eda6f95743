//! The network between boards: their datagrams, which it loses, doubles and delays as it likes.
//!
//! Boards have real sockets, on the loopback interface. Each knows the others by sockets of ours,
//! one for each board, which take what is for it and pass it on.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::rng::Rng;

/// Time on the way, at least.
const WAY_NS: u64 = 40_000;
/// Longer than any frame.
const DATAGRAM_MAX: usize = 16_384;

/// What happens to datagrams, in percent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    /// By how much they are late, at most.
    pub late_ns: u64,
}

/// When, in which order; from which board to which; what.
type Underway = Reverse<(u64, u64, usize, usize, Vec<u8>)>;

/// See the module.
#[derive(Debug)]
pub struct Net {
    pub weather: Weather,
    /// Boards that do not hear others: who, and whom.
    pub parted: BTreeSet<(usize, usize)>,
    relays: Vec<UdpSocket>,
    /// Where boards are, when they were heard of.
    homes: Vec<Option<SocketAddr>>,
    underway: BinaryHeap<Underway>,
    rng: Rng,
    order: u64,
    room: Vec<u8>,
}

/// Where a board listens: any port of an address of its own.
pub fn home(board: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 77, 1, board as u8 + 1), 0))
}

impl Net {
    /// For so many boards.
    pub fn new(boards: usize, rng: Rng) -> io::Result<Self> {
        let relay = |board: usize| {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 77, 2, board as u8 + 1), 0))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let relays = (0..boards).map(relay).collect::<io::Result<_>>()?;
        Ok(Self {
            weather: Weather::default(),
            parted: BTreeSet::new(),
            relays,
            homes: vec![None; boards],
            underway: BinaryHeap::new(),
            rng,
            order: 0,
            room: vec![0; DATAGRAM_MAX],
        })
    }

    /// Where a board finds the others.
    pub fn others(&self, board: usize) -> io::Result<Vec<SocketAddr>> {
        let others = self.relays.iter().enumerate().filter(|(at, _)| *at != board);
        others.map(|(_, relay)| relay.local_addr()).collect()
    }

    /// A board is gone.
    pub fn left(&mut self, board: usize) {
        self.homes[board] = None;
    }

    /// Takes what boards sent: whether there was something.
    pub fn take(&mut self, now: u64) -> io::Result<bool> {
        let mut some = false;
        for to in 0..self.relays.len() {
            loop {
                let (len, source) = match self.relays[to].recv_from(&mut self.room) {
                    Ok(came) => came,
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
            if self.rng.chance(lost) || self.parted.contains(&(to, from)) {
                continue;
            }
            let late = if self.rng.chance(late) { self.rng.below(late_ns) } else { 0 };
            self.order += 1;
            let datagram = self.room[..len].to_vec();
            self.underway.push(Reverse((now + WAY_NS + late, self.order, from, to, datagram)));
        }
    }

    /// When the next datagram is there.
    pub fn next(&self) -> Option<u64> {
        self.underway.peek().map(|Reverse((at, ..))| *at)
    }

    /// Passes on what is there: which boards have something.
    pub fn pass(&mut self, now: u64) -> io::Result<BTreeSet<usize>> {
        let mut boards = BTreeSet::new();
        while self.next().is_some_and(|at| at <= now) {
            let Some(Reverse((_, _, from, to, datagram))) = self.underway.pop() else { break };
            let Some(home) = self.homes[to] else { continue };
            match self.relays[from].send_to(&datagram, home) {
                // Its socket may be gone, or full.
                Ok(_) | Err(_) => boards.insert(to),
            };
        }
        Ok(boards)
    }
}
