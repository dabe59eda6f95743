//! Frames in datagrams, one in each, between hosts that routers part (`udp = {…}`).
//!
//! Taken is what comes from an address that the operator named. Which boards are behind which is
//! learnt from what comes ([`super::book`]). What is for everyone, or for a board that was not heard
//! of, goes to all. Nothing is sealed: who is on the path can read and forge.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::room::{hold_received, hold_sent};
use causeway_fabric::{Context, ServiceWatch};
use causeway_wire::mxoe::{Header, HostQuery, PEER_UNKNOWN, Packet, emit};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use super::book::{Book, Heard};
use super::carried::Came;
use crate::limits::SOCKET_BYTES;

/// Length of an Ethernet header, in bytes.
const HEADER_LEN: usize = 14;

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
        let place = frame.first_chunk::<6>().and_then(|mac| book.place(*mac));
        if let Some(place) = place {
            return self.socket.send_to(frame, place).map(drop);
        }
        let mut last = Ok(());
        for peer in book.peers() {
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
        let book = Arc::new(Mutex::new(Book::new(peers)));
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
        if !book.knows(&from) {
            drop(book);
            self.strangers = self.strangers.wrapping_add(1);
            return Came::Odd;
        }
        let source = room.get(6..HEADER_LEN).and_then(|rest| rest.first_chunk::<6>()).copied();
        let Some(source) = source.filter(|_| len >= HEADER_LEN && len < room.len()) else {
            return Came::Odd;
        };
        let frame = room.get(..len).unwrap_or(&[]);
        let heard = match source == self.own {
            true => Heard::Elsewhere,
            false => book.heard(source, from, frame, now_ns, crate::service::random_number),
        };
        drop(book);
        match heard {
            Heard::Here => return Came::Frame(len),
            Heard::Elsewhere => {}
            Heard::Ask { both, magic } => {
                let query = HostQuery { index_of_destination: PEER_UNKNOWN, magic };
                let header =
                    Header { destination: source, source: self.own, peer_index: PEER_UNKNOWN };
                let (head, _) = emit(&header, &Packet::HostQuery(query));
                for to in both {
                    // Lost, it is asked again.
                    let _ = self.exit.socket.send_to(head.bytes(), to);
                }
            }
        }
        self.elsewhere = self.elsewhere.wrapping_add(1);
        Came::Odd
    }
}
