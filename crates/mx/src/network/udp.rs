//! Frames in datagrams, one in each, between hosts that routers part (`udp = {…}`).
//!
//! # Budget
//! One system call for as many frames of one length to one host as the host cuts at a time, or 64
//! KiB; one for what came from up to [`UDP_RECEIVE_BUFFERS`](causeway_fabric::limits) hosts, with a
//! copy more of each frame.
//!
//! Taken is what comes from an address that the operator named. Which boards are behind which is
//! learnt from what comes ([`super::book`]). What is for everyone, or for a board that was not heard
//! of, goes to all. Nothing is sealed: who is on the path can read and forge.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::Pool;
use causeway_fabric::udp::{Burst, Cut, Receiver, Udp as Socket, is_too_much};
use causeway_fabric::{Context, ServiceWatch};
use causeway_wire::mxoe::{Header, HostQuery, PEER_UNKNOWN, Packet, emit};
use rustix::io::Errno;

use super::book::{Book, Heard};
use super::carried::Came;
use crate::limits::{ALONE_RUNS, SEND_BYTES};

/// Length of an Ethernet header, in bytes.
const HEADER_LEN: usize = 14;

/// The way out.
#[derive(Debug, Clone)]
pub struct Exit {
    socket: Arc<Socket>,
    book: Arc<Mutex<Book>>,
    /// So many more runs leave frame by frame, because the host did not cut one.
    alone: Arc<AtomicU32>,
}

impl Exit {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames that lie one behind the other, `ends` says where each ends, to whom they are
    /// for: from number `from` on those of one length and to one host, as far as they go in one
    /// call. Says how many left.
    ///
    /// # Errors
    /// The first went to none.
    pub fn send(&self, bytes: &[u8], ends: &[usize], from: usize) -> io::Result<usize> {
        let book = self.book();
        let start = from.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
        let one = ends.get(from).and_then(|end| bytes.get(start..*end)).unwrap_or(&[]);
        let Some(to) = mac(one).and_then(|mac| book.place(mac)) else {
            let mut last = Ok(1);
            for peer in book.peers() {
                last = self.socket.send(*peer, one, one.len()).map(|()| 1);
            }
            return last;
        };
        let alone = self.alone.load(Ordering::Relaxed);
        self.alone.store(alone.saturating_sub(1), Ordering::Relaxed);
        let count = if alone > 0 { 1 } else { self.run(bytes, (start, one), ends.get(from..)) };
        let end = ends.get(from.saturating_add(count).saturating_sub(1));
        let all = end.and_then(|end| bytes.get(start..*end)).unwrap_or(one);
        match self.socket.send(to, all, one.len()) {
            Ok(()) => Ok(count),
            Err(error) if count > 1 && is_too_much(&error) => {
                self.alone.store(ALONE_RUNS, Ordering::Relaxed);
                self.socket.send(to, one, one.len()).map(|()| 1)
            }
            Err(error) => Err(error),
        }
    }

    /// How many frames, the first of which begins at `start`, go in one call.
    fn run(&self, bytes: &[u8], (start, one): (usize, &[u8]), ends: Option<&[usize]>) -> usize {
        let (len, mut at, mut count) = (one.len().max(1), start, 0_usize);
        for end in ends.unwrap_or(&[]).iter().take(self.socket.batch()) {
            let frame = bytes.get(at..*end).unwrap_or(&[]);
            let fits = end.saturating_sub(start) <= SEND_BYTES && frame.len() <= len;
            if count > 0 && !(fits && mac(frame) == mac(one)) {
                break;
            }
            (at, count) = (*end, count.saturating_add(1));
            if frame.len() < len {
                // Only the last may be shorter.
                break;
            }
        }
        count.max(1)
    }
}

/// Whom a frame is for.
fn mac(frame: &[u8]) -> Option<[u8; 6]> {
    frame.first_chunk().copied()
}

/// A socket of one board.
#[derive(Debug)]
pub struct Udp {
    exit: Exit,
    own: [u8; 6],
    watch: ServiceWatch,
    /// It is looked at anyway, and is not to wake us.
    hushed: bool,
    receiver: Receiver,
    /// What came and was not looked at, and how far the first of it was.
    bursts: VecDeque<Burst>,
    at: usize,
    /// Nothing more was there: it is not asked again before that was said.
    drained: bool,
    /// By which it is served.
    pub source: u32,
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
        // Frames are longer than what many networks carry: IP cuts them.
        let socket = Socket::bind(listen, Cut::Allowed)?;
        let watch = cx.watch_source(socket.as_fd(), source)?;
        let book = Arc::new(Mutex::new(Book::new(peers)));
        let exit = Exit { socket: Arc::new(socket), book, alone: Arc::default() };
        Ok(Self {
            exit,
            own,
            watch,
            hushed: false,
            receiver: Receiver::new(Pool::default()),
            bursts: VecDeque::new(),
            at: 0,
            drained: false,
            source,
            strangers: 0,
            elsewhere: 0,
        })
    }

    /// The way out.
    pub fn exit(&self) -> Exit {
        self.exit.clone()
    }

    /// Nothing more is there; see [`super::interface::Interface::rest`].
    pub fn rest(&mut self, polled: bool) -> bool {
        super::interface::rest(&self.watch, &mut self.hushed, polled)
    }

    /// What comes is looked for anew. It rang when it came, if it came since the last look, and does
    /// so once.
    pub fn look(&mut self) {
        self.drained = false;
    }

    /// The next datagram, put at the beginning of `room`: its length and where it came from.
    fn next(&mut self, room: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        if self.bursts.is_empty() {
            if std::mem::take(&mut self.drained) {
                return Ok(None);
            }
            let mut came = Vec::new();
            self.drained = !self.receiver.receive(&self.exit.socket, &mut came, false)?;
            self.bursts.extend(came);
            self.at = 0;
        }
        let Some(burst) = self.bursts.front() else {
            self.drained = false;
            return Ok(None);
        };
        let end = self.at.saturating_add(burst.stride.max(1)).min(burst.len);
        let bytes = burst.buffer.get(self.at..end).unwrap_or(&[]);
        let (len, from) = (bytes.len(), burst.from);
        // One that is too long is known by its length.
        let kept = len.min(room.len());
        if let (Some(to), Some(bytes)) = (room.get_mut(..kept), bytes.get(..kept)) {
            to.copy_from_slice(bytes);
        }
        self.at = end;
        if end >= burst.len {
            self.bursts.pop_front();
            self.at = 0;
        }
        Ok(Some((len, from)))
    }

    /// Looks for a frame, which is put at the beginning of `room`.
    pub fn receive(&mut self, room: &mut [u8], now_ns: u64) -> Came {
        let (len, from) = match self.next(room) {
            Ok(Some(came)) => came,
            Ok(None) => return Came::Nothing,
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
                    let _ = self.exit.socket.send(to, head.bytes(), head.bytes().len());
                }
            }
        }
        self.elsewhere = self.elsewhere.wrapping_add(1);
        Came::Odd
    }
}
