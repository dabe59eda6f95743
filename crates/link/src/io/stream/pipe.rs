//! One connection: frames on their way to a socket, bare or sealed by TLS.
//!
//! The group's shard and the links' shard share it. The one puts frames in and writes them itself;
//! the other writes on when a socket that was full has room again.
//!
//! # Budget
//! One copy of a frame, from its sender's memory into what the socket is given (TLS seals it in
//! one more pass), and an uncontended lock for each; one system call for a batch.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Carrier, Outgoing, Refusal};
use causeway_host::net::tcp_info;

use super::super::limits::{BACKLOG_MS_MAX, SEND_BYTES};
use super::super::tally::{Loss, Tally};
use crate::framing::{FrameError, Framer};
use crate::limits::FRAME_BYTES_MAX;

/// What is between frames and a socket.
#[derive(Debug)]
pub enum Layer {
    /// Nothing.
    Bare,
    /// TLS.
    Tls(Box<rustls::Connection>),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// The host says why.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// TLS says why.
    #[error("{}", super::super::tls::explain(.0))]
    Tls(#[from] rustls::Error),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket, which never blocks.
    pub socket: Arc<TcpStream>,
    /// What is between.
    pub layer: Layer,
    framer: Framer,
    /// The socket takes no more: whoever hears that it does again writes on.
    blocked: bool,
    /// Why no more can be written.
    failed: Option<io::Error>,
}

impl Connection {
    /// On a socket that never blocks.
    pub fn new(socket: TcpStream, layer: Layer) -> Self {
        let (framer, blocked, failed) = (Framer::default(), false, None);
        Self { socket: Arc::new(socket), layer, framer, blocked, failed }
    }

    /// Frames that were not written to their end.
    pub fn unsent(&self) -> u64 {
        self.framer.frames()
    }

    /// Writes what waits, until the socket takes no more. Says how often it wrote.
    fn write(&mut self) -> io::Result<u64> {
        for calls in 0.. {
            let written = match &mut self.layer {
                Layer::Bare if self.framer.waiting().is_empty() => return Ok(calls),
                Layer::Bare => {
                    let written = (&*self.socket).write(self.framer.waiting());
                    written.map(|len| self.framer.sent(len))
                }
                Layer::Tls(tls) => {
                    seal(tls, &mut self.framer)?;
                    if !tls.wants_write() {
                        return Ok(calls);
                    }
                    tls.write_tls(&mut &*self.socket).map(|_| ())
                }
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(calls);
                }
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(0)
    }

    /// Writes what waits, unless the socket is full. What fails is kept for who reads.
    pub fn flush(&mut self, tally: &Tally) {
        if self.blocked || self.failed.is_some() {
            return;
        }
        match self.write() {
            Ok(calls) => tally.transmitted(0, 0, calls),
            Err(error) => {
                self.failed = Some(error);
                // Wakes who reads, who ends it.
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Why no more could be written, if that is so.
    pub fn failure(&mut self) -> Option<Ended> {
        self.failed.take().map(Ended::Host)
    }

    /// The socket may have room again.
    pub fn writable(&mut self, tally: &Tally) {
        self.blocked = false;
        // It was full: the rate is the path's, not the guests'.
        if let Some(known) = tcp_info::connection(self.socket.as_fd()) {
            let bytes = known.delivery_rate.saturating_mul(BACKLOG_MS_MAX) / 1_000;
            self.framer.bound(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        self.flush(tally);
    }

    /// Takes from the socket what is there for TLS. Says whether bytes of frames came.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn advance(&mut self, tally: &Tally) -> Result<bool, Ended> {
        loop {
            let Layer::Tls(tls) = &mut self.layer else { return Ok(true) };
            let taken = take(tls, &self.socket)?;
            self.flush(tally);
            match taken {
                None => return Ok(false),
                Some(0) => {}
                Some(_) => return Ok(true),
            }
        }
    }

    /// Reads the bytes of frames. Never gives none.
    ///
    /// # Errors
    /// [`Ended`]; [`io::ErrorKind::WouldBlock`] means that nothing is there.
    pub fn read(&mut self, room: &mut [u8], tally: &Tally) -> Result<usize, Ended> {
        loop {
            let Layer::Tls(tls) = &mut self.layer else {
                return read_bare(&self.socket, room);
            };
            match tls.reader().read(room) {
                Ok(0) => return Err(Ended::Closed),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Ended::Closed);
                }
                Err(error) => return Err(error.into()),
            }
            if take(tls, &self.socket)?.is_none() {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            // Answers of TLS itself.
            self.flush(tally);
        }
    }

    /// Says to the peer that this is the end, if it may be said.
    pub fn close(&mut self) {
        if let Layer::Tls(tls) = &mut self.layer {
            tls.send_close_notify();
        }
        let _ = self.write();
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }
}

/// Reads from a socket without TLS.
///
/// # Errors
/// As for [`Connection::read`].
pub fn read_bare(mut socket: &TcpStream, room: &mut [u8]) -> Result<usize, Ended> {
    loop {
        match socket.read(room) {
            Ok(0) => return Err(Ended::Closed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
}

/// Moves frames into TLS, as many as it holds.
fn seal(tls: &mut rustls::Connection, framer: &mut Framer) -> io::Result<()> {
    while !framer.waiting().is_empty() {
        let sealed = tls.writer().write(framer.waiting())?;
        if sealed == 0 {
            break;
        }
        framer.sent(sealed);
    }
    Ok(())
}

/// Reads once for TLS. Says how many bytes of frames are there then; `None`: nothing came. What TLS
/// refuses it tells the peer.
fn take(tls: &mut rustls::Connection, mut socket: &TcpStream) -> Result<Option<usize>, Ended> {
    match tls.read_tls(&mut socket) {
        Ok(0) => return Err(Ended::Closed),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Some(0)),
        Err(error) => return Err(error.into()),
    }
    match tls.process_new_packets() {
        Ok(state) => Ok(Some(state.plaintext_bytes_to_read())),
        Err(error) => {
            let _ = tls.write_tls(&mut socket);
            Err(error.into())
        }
    }
}

/// Where senders find the connection of the day.
#[derive(Debug, Default)]
pub struct Pipe(Mutex<Option<Connection>>);

impl Pipe {
    /// What is there now, for as long as it is looked at.
    pub fn now(&self) -> MutexGuard<'_, Option<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way out of one link.
#[derive(Debug)]
pub struct StreamCarrier {
    /// The connection, shared with the links' shard.
    pub pipe: Arc<Pipe>,
    /// What is counted.
    pub tally: Arc<Tally>,
}

impl Carrier for StreamCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let mut now = self.pipe.now();
        let Some(connection) = now.as_mut().filter(|c| c.failed.is_none()) else {
            self.tally.lost(Loss::Down, 1);
            return Err(Refusal::Down);
        };
        if connection.framer.waiting().len() >= SEND_BYTES {
            connection.flush(&self.tally);
        }
        let pushed = connection.framer.push(frame.len, |into| frame.write(into));
        let (loss, refusal) = match pushed {
            Ok(()) => {
                self.tally.transmitted(1, frame.len as u64, 0);
                return Ok(());
            }
            Err(FrameError::Backlog(_)) => (Loss::NoRoom, Refusal::NoRoom),
            Err(FrameError::Len(_)) => (Loss::TooBig, Refusal::TooBig),
            Err(FrameError::Source(_)) => (Loss::SenderFault, Refusal::Lost),
        };
        self.tally.lost(loss, 1);
        Err(refusal)
    }

    fn flush(&mut self) -> u64 {
        if let Some(connection) = self.pipe.now().as_mut() {
            connection.flush(&self.tally);
        }
        0
    }

    fn takes_offloads(&self) -> bool {
        false
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}
