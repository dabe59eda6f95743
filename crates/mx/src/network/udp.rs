//! Frames in datagrams, one in each, between hosts that routers part (`udp = {…}`).
//!
//! Taken is what comes from an address that the operator named. Which boards are behind which is
//! learnt from what comes: a board is where it was heard of first, and is believed to be elsewhere
//! only when it was silent for long. What is for everyone, or for a board that was not heard of,
//! goes to all. Nothing is sealed: who is on the path can read and forge.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::room::{hold_received, hold_sent};
use causeway_fabric::{Context, ServiceWatch};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use super::carried::Came;
use crate::limits::{BOARDS_PER_ADDRESS_MAX, MOVED_NS, SOCKET_BYTES};

/// Length of an Ethernet header, in bytes.
const HEADER_LEN: usize = 14;

/// Where a board is, and when it was heard of.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: SocketAddr,
    heard_ns: u64,
}

/// Who is where.
#[derive(Debug)]
struct Book {
    peers: Vec<SocketAddr>,
    /// With std's keyed hash: peers choose MACs.
    boards: HashMap<[u8; 6], Place>,
}

impl Book {
    /// Whether a frame from there may be from that board.
    fn note(&mut self, board: [u8; 6], from: SocketAddr, now_ns: u64) -> bool {
        let place = Place { at: from, heard_ns: now_ns };
        match self.boards.get_mut(&board) {
            Some(known) if known.at == from || now_ns.saturating_sub(known.heard_ns) > MOVED_NS => {
                *known = place;
                true
            }
            Some(_) => false,
            None => {
                let its = self.boards.values().filter(|place| place.at == from);
                let room = its.count() < BOARDS_PER_ADDRESS_MAX;
                if room {
                    self.boards.insert(board, place);
                }
                room
            }
        }
    }
}

/// The way out.
#[derive(Debug, Clone)]
pub struct Exit {
    socket: Arc<UdpSocket>,
    book: Arc<Mutex<Book>>,
}

impl Exit {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame to whom it is for.
    ///
    /// # Errors
    /// It went to none.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let book = self.book();
        let board = frame.first_chunk::<6>().and_then(|mac| book.boards.get(mac));
        if let Some(place) = board {
            return self.socket.send_to(frame, place.at).map(drop);
        }
        let mut last = Ok(());
        for peer in &book.peers {
            last = self.socket.send_to(frame, peer).map(drop);
        }
        last
    }
}

/// A socket of one board.
#[derive(Debug)]
pub struct Udp {
    exit: Exit,
    own: [u8; 6],
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
    /// Datagrams from addresses that nobody named, and frames of boards that are elsewhere.
    pub strangers: u64,
    pub elsewhere: u64,
}

impl Udp {
    /// Binds a socket.
    ///
    /// # Errors
    /// The address is taken, or not this host's.
    pub fn bind(
        cx: &Context<'_>,
        listen: SocketAddr,
        peers: Vec<SocketAddr>,
        own: [u8; 6],
        source: u32,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(listen)?;
        socket.set_nonblocking(true)?;
        // Frames are longer than what many networks carry: IP cuts them.
        match listen.ip() {
            IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT)?,
            IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DONT)?,
        }
        hold_received(&socket, SOCKET_BYTES);
        hold_sent(&socket, SOCKET_BYTES);
        let watch = cx.watch_source(socket.as_fd(), source)?;
        let book = Arc::new(Mutex::new(Book { peers, boards: HashMap::new() }));
        let exit = Exit { socket: Arc::new(socket), book };
        Ok(Self { exit, own, watch, strangers: 0, elsewhere: 0 })
    }

    /// The way out.
    pub fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Looks for a frame, which is put at the beginning of `room`.
    pub fn receive(&mut self, room: &mut [u8], now_ns: u64) -> Came {
        let (len, from) = match self.exit.socket.recv_from(room) {
            Ok(came) => came,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => Came::Nothing,
                    _ => Came::Odd,
                };
            }
        };
        let mut book = self.exit.book();
        if !book.peers.contains(&from) {
            drop(book);
            self.strangers = self.strangers.wrapping_add(1);
            return Came::Odd;
        }
        let source = room.get(6..HEADER_LEN).and_then(|rest| rest.first_chunk::<6>()).copied();
        let Some(source) = source.filter(|_| len >= HEADER_LEN && len < room.len()) else {
            return Came::Odd;
        };
        if source == self.own || !book.note(source, from, now_ns) {
            drop(book);
            self.elsewhere = self.elsewhere.wrapping_add(1);
            return Came::Odd;
        }
        Came::Frame(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn hostile_peers_have_few_boards_and_none_of_another() {
        let mut book = Book { peers: vec![at(1), at(2)], boards: HashMap::new() };
        assert!(book.note([1; 6], at(1), 0) && book.note([1; 6], at(1), 5));
        assert!(!book.note([1; 6], at(2), 5), "it is elsewhere");
        assert!(book.note([1; 6], at(2), 6 + MOVED_NS), "it was silent for long");
        let mut taken = 0;
        for number in 0..3000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            taken += usize::from(book.note([2, 0, 0, 0, high, low], at(1), 0));
        }
        assert_eq!(taken, BOARDS_PER_ADDRESS_MAX);
    }
}
