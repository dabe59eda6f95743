//! Frames in datagrams, one in each, between hosts that routers part (`udp = {…}`).
//!
//! # Budget
//! One system call for as many frames of one length to one host as the host cuts at a time, or 64
//! KiB; one for what came from a host.
//!
//! Taken is what comes from an address that the operator named. Which boards are behind which is
//! learnt from what comes ([`super::book`]). What is for everyone, or for a board that was not heard
//! of, goes to all. Nothing is sealed: who is on the path can read and forge.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::Pool;
use causeway_fabric::udp::{Burst, Cut, Receiver, Udp as Socket, is_too_much};
use causeway_fabric::{Context, ServiceWatch};
use causeway_host::net::send::Frame;
use causeway_mxoe::discovery::Discovery;
use causeway_mxoe::driver::limits::FRAME_ROOM;
use causeway_wire::mxoe::{Header, HostQuery, PEER_UNKNOWN, Packet, emit};
use rustix::io::Errno;

use super::book::{Book, Heard};
use super::carried::Came;
use crate::limits::SEND_BYTES;

/// Length of an Ethernet header, in bytes.
const HEADER_LEN: usize = 14;

/// The way out.
#[derive(Debug, Clone)]
pub struct Exit {
    socket: Arc<Socket>,
    book: Arc<Mutex<Book>>,
}

impl Exit {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends frames to whom they are for: the first ones, of one length and to one host, as far as
    /// they go in one call. Says how many left.
    ///
    /// # Errors
    /// The first went to none.
    pub fn send<'a>(&self, frames: impl Iterator<Item = Frame<'a>> + Clone) -> io::Result<usize> {
        let mut book = self.book();
        let Some(one) = frames.clone().next() else { return Ok(0) };
        let alone = || std::iter::once(one);
        let Some(to) = mac(one.head).and_then(|mac| book.place(mac)) else {
            let mut last = Ok(1);
            for peer in book.peers() {
                last = self.socket.send_frames(*peer, alone()).map(|()| 1);
            }
            return last;
        };
        let together = book.leaves_together(to);
        let count = if together { self.run(one, frames.clone()) } else { 1 };
        match self.socket.send_frames(to, frames.take(count)) {
            Ok(()) => Ok(count),
            Err(error) if count > 1 && is_too_much(&error) => {
                book.leaves_alone(to);
                self.socket.send_frames(to, alone()).map(|()| 1)
            }
            Err(error) => Err(error),
        }
    }

    /// How many frames go in one call.
    fn run<'a>(&self, one: Frame<'a>, frames: impl Iterator<Item = Frame<'a>>) -> usize {
        let (len, mut bytes, mut count) = (one.len().max(1), 0_usize, 0_usize);
        for frame in frames.take(self.socket.batch()) {
            bytes = bytes.saturating_add(frame.len());
            let fits = bytes <= SEND_BYTES && frame.len() <= len;
            if count > 0 && !(fits && mac(frame.head) == mac(one.head)) {
                break;
            }
            count = count.saturating_add(1);
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

/// Datagrams that came.
#[derive(Debug)]
struct Arrivals {
    receiver: Receiver,
    /// What was taken from the host and not looked at to its end.
    bursts: VecDeque<Burst>,
    /// Where in the first of it the last datagram lies, if one was looked at.
    last: Option<Range<usize>>,
    /// Nothing more was there: it is not asked again before that was said.
    drained: bool,
}

impl Arrivals {
    fn new() -> Self {
        let receiver = Receiver::new(Pool::default());
        Self { receiver, bursts: VecDeque::new(), last: None, drained: false }
    }

    /// Looks for the next datagram: where it came from.
    fn next(&mut self, socket: &Socket) -> io::Result<Option<SocketAddr>> {
        let mut at = 0;
        if let (Some(last), Some(burst)) = (self.last.take(), self.bursts.front()) {
            at = last.end;
            if at >= burst.len {
                self.bursts.pop_front();
                at = 0;
            }
        }
        if self.bursts.is_empty() {
            if std::mem::take(&mut self.drained) {
                return Ok(None);
            }
            let mut came = Vec::new();
            self.drained = !self.receiver.receive(socket, &mut came, false, usize::MAX)?;
            self.bursts.extend(came);
        }
        let Some(burst) = self.bursts.front() else {
            self.drained = false;
            return Ok(None);
        };
        let end = at.saturating_add(burst.stride.max(1)).min(burst.len);
        self.last = Some(at..end);
        Ok(Some(burst.from))
    }

    /// The datagram that was looked for last.
    fn last(&self) -> &[u8] {
        let (burst, last) = (self.bursts.front(), self.last.clone());
        burst.zip(last).and_then(|(burst, last)| burst.buffer.get(last)).unwrap_or(&[])
    }
}

/// A socket of one board.
#[derive(Debug)]
pub struct Udp {
    exit: Exit,
    own: [u8; 6],
    watch: ServiceWatch,
    /// It is looked at anyway, and is not to wake us.
    hushed: bool,
    came: Arrivals,
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
        let exit = Exit { socket: Arc::new(socket), book };
        Ok(Self {
            exit,
            own,
            watch,
            hushed: false,
            came: Arrivals::new(),
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
        self.came.drained = false;
    }

    /// The frame that came last.
    pub fn frame(&self) -> &[u8] {
        self.came.last()
    }

    /// Looks for a frame.
    pub fn receive(&mut self, now_ns: u64) -> Came {
        let from = match self.came.next(&self.exit.socket) {
            Ok(Some(from)) => from,
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
        let frame = self.came.last();
        let source = frame.get(6..HEADER_LEN).and_then(|rest| rest.first_chunk::<6>()).copied();
        let Some(source) = source.filter(|_| frame.len() < FRAME_ROOM) else { return Came::Odd };
        let heard = match source == self.own {
            // An announcement by our address is another board's that has it.
            true if Discovery::takes(frame) => Heard::Here,
            true => Heard::Elsewhere,
            false => book.heard(source, from, frame, now_ns, causeway_mxoe::driver::random),
        };
        drop(book);
        match heard {
            Heard::Here => return Came::Frame,
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

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 60;

    /// A socket, and one that sends to it.
    fn pair() -> (Socket, impl Fn(usize, usize)) {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bind = || Socket::bind(local, Cut::Allowed).unwrap();
        let (ours, theirs) = (bind(), bind());
        let to = ours.local().unwrap();
        let send = move |count: usize, len: usize| {
            theirs.send(to, &vec![7; count * len], len.max(1)).unwrap();
        };
        (ours, send)
    }

    /// So many datagrams at most: their lengths.
    fn take(came: &mut Arrivals, socket: &Socket, most: usize) -> Vec<usize> {
        let mut one = || came.next(socket).unwrap().map(|_| came.last().len());
        std::iter::from_fn(&mut one).take(most).collect()
    }

    #[test]
    fn datagrams_that_come_between_two_looks_are_heard() {
        let ((socket, send), mut came) = (pair(), Arrivals::new());
        send(60, LEN);
        send(60, LEN);
        // More than is served at once. The host has no more, and says so before it is asked again.
        assert_eq!(take(&mut came, &socket, 64), [LEN; 64]);
        assert!(came.drained);
        send(1, 1);
        // It rings while we are served anyway: it rings no more.
        came.drained = false;
        let rest = take(&mut came, &socket, 64);
        assert_eq!(rest, [&[LEN; 56][..], &[1]].concat());
        send(1, 2);
        assert_eq!(take(&mut came, &socket, 64), [2], "nothing was said to be there, once");
    }

    #[test]
    fn the_host_is_not_asked_twice_in_one_look() {
        let ((socket, send), mut came) = (pair(), Arrivals::new());
        send(2, LEN);
        assert_eq!(take(&mut came, &socket, 2), [LEN; 2]);
        send(1, 1);
        assert_eq!(take(&mut came, &socket, 9), [0; 0], "it is another look's");
        assert_eq!(take(&mut came, &socket, 9), [1]);
    }

    #[test]
    fn hostile_datagrams_that_are_empty_or_too_long_are_taken_one_by_one() {
        let ((socket, send), mut came) = (pair(), Arrivals::new());
        send(1, LEN);
        send(1, 0);
        send(1, 5000);
        send(1, 1);
        assert_eq!(take(&mut came, &socket, 9), [LEN, 0, 5000, 1]);
    }
}
