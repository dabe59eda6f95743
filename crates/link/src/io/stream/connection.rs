//! One TCP connection: queued frames on their way to a socket, plain or sealed by TLS.
//!
//! The group's shard and the links' shard share it under a lock. The group's shard queues frames
//! and writes them itself, with [`Carrier::flush`] or once [`SEND_BYTES`] (65,000) are queued; the
//! links' shard resumes writing when a full socket has room again, and reads. No call blocks.
//!
//! The queue holds the bytes that the path delivers in [`BACKLOG_MS_MAX`] (100 ms), between
//! `BACKLOG_BYTES_MIN` (128 KiB) and `BACKLOG_BYTES_MAX` (1 MiB), as measured when a full socket
//! last had room again, and 1 MiB before; further frames are refused with [`Refusal::NoRoom`] and
//! counted. A write error is kept until the links' shard reads it and closes the connection; until
//! then frames are refused with [`Refusal::Down`]. Frames count as sent once they are queued, and
//! those still queued at the end also as dropped. A connection does not reconnect: [`super::link`]
//! does.
//!
//! # Budget
//! One copy per frame, from the sender's memory into the socket's queue (TLS seals it in one more
//! pass), and one lock per frame; one system call per batch that the socket has room for.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Carrier, Outgoing, Refusal};
use causeway_host::net::tcp_info;

use super::super::limits::{BACKLOG_MS_MAX, SEND_BYTES};
use super::super::stats::{LinkStats, Loss};
use crate::framing::{FrameError, Framer};
use crate::limits::FRAME_BYTES_MAX;

/// Layer between frames and a socket.
#[derive(Debug)]
pub enum Layer {
    /// No encryption.
    Plain,
    /// TLS.
    Tls(Box<rustls::Connection>),
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionEnd {
    /// The peer closed it.
    #[error("the peer closed the connection")]
    Closed,
    /// A system call failed.
    #[error("{0}")]
    Host(#[from] io::Error),
    /// TLS failed.
    #[error("{}", super::super::tls::explain(.0))]
    Tls(#[from] rustls::Error),
}

/// A connection.
#[derive(Debug)]
pub struct StreamConnection {
    /// Its non-blocking socket.
    pub socket: Arc<TcpStream>,
    /// The layer above the socket.
    pub layer: Layer,
    /// Queued frames.
    framer: Framer,
    /// The socket is full; the links' shard resumes writing when it has room.
    blocked: bool,
    /// The write error that ended the connection.
    failed: Option<io::Error>,
}

impl StreamConnection {
    /// Returns a connection on a non-blocking socket.
    pub fn new(socket: TcpStream, layer: Layer) -> Self {
        let (framer, blocked, failed) = (Framer::default(), false, None);
        Self { socket: Arc::new(socket), layer, framer, blocked, failed }
    }

    /// Returns the number of frames that were not written completely.
    pub fn unsent(&self) -> u64 {
        self.framer.frames()
    }

    /// Writes queued bytes until the socket is full. Returns the number of write calls.
    fn write(&mut self) -> io::Result<u64> {
        for calls in 0.. {
            let written = match &mut self.layer {
                Layer::Plain if self.framer.waiting().is_empty() => return Ok(calls),
                Layer::Plain => {
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

    /// Writes queued bytes, unless the socket is full. An error is kept for the reader.
    pub fn flush(&mut self, stats: &LinkStats) {
        if self.blocked || self.failed.is_some() {
            return;
        }
        match self.write() {
            Ok(calls) => stats.add_transmitted(0, 0, calls),
            Err(error) => {
                self.failed = Some(error);
                // Wakes the reader, which closes the connection.
                let _ = self.socket.shutdown(std::net::Shutdown::Both);
            }
        }
    }

    /// Returns the write error, if there was one.
    pub fn failure(&mut self) -> Option<ConnectionEnd> {
        self.failed.take().map(ConnectionEnd::Host)
    }

    /// Resumes writing: the socket may have room again.
    pub fn writable(&mut self, stats: &LinkStats) {
        self.blocked = false;
        // The socket was full, so the delivery rate is the path's, not the guests'.
        if let Some(known) = tcp_info::connection(self.socket.as_fd()) {
            let bytes = known.delivery_rate.saturating_mul(BACKLOG_MS_MAX) / 1_000;
            self.framer.bound(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        self.flush(stats);
    }

    /// Reads handshake bytes for TLS. Returns whether bytes of frames arrived, or whether the
    /// connection has no TLS.
    ///
    /// # Errors
    /// [`ConnectionEnd`].
    pub fn advance(&mut self, stats: &LinkStats) -> Result<bool, ConnectionEnd> {
        loop {
            let Layer::Tls(tls) = &mut self.layer else { return Ok(true) };
            let taken = take(tls, &self.socket)?;
            self.flush(stats);
            match taken {
                None => return Ok(false),
                Some(0) => {}
                Some(_) => return Ok(true),
            }
        }
    }

    /// Reads bytes of frames into `room`; never returns 0.
    ///
    /// # Errors
    /// [`ConnectionEnd`]; [`io::ErrorKind::WouldBlock`] means that no bytes are available.
    pub fn read(&mut self, room: &mut [u8], stats: &LinkStats) -> Result<usize, ConnectionEnd> {
        loop {
            let Layer::Tls(tls) = &mut self.layer else {
                return read_bare(&self.socket, room);
            };
            match tls.reader().read(room) {
                Ok(0) => return Err(ConnectionEnd::Closed),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(ConnectionEnd::Closed);
                }
                Err(error) => return Err(error.into()),
            }
            if take(tls, &self.socket)?.is_none() {
                return Err(io::Error::from(io::ErrorKind::WouldBlock).into());
            }
            // Replies of TLS itself.
            self.flush(stats);
        }
    }

    /// Notifies the peer of the end (close_notify, FIN), as far as the socket has room.
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
/// As for [`StreamConnection::read`].
pub fn read_bare(mut socket: &TcpStream, room: &mut [u8]) -> Result<usize, ConnectionEnd> {
    loop {
        match socket.read(room) {
            Ok(0) => return Err(ConnectionEnd::Closed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return Ok(read?),
        }
    }
}

/// Moves queued frames into TLS, as much as its buffer holds.
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

/// Reads once for TLS. Returns the number of plaintext bytes now available; `None` if the socket
/// had no data. TLS alerts are sent to the peer.
fn take(
    tls: &mut rustls::Connection,
    mut socket: &TcpStream,
) -> Result<Option<usize>, ConnectionEnd> {
    match tls.read_tls(&mut socket) {
        Ok(0) => return Err(ConnectionEnd::Closed),
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

/// The current connection of a link, for senders.
#[derive(Debug, Default)]
pub struct SharedConnection(Mutex<Option<StreamConnection>>);

impl SharedConnection {
    /// Locks and returns the current connection.
    pub fn lock(&self) -> MutexGuard<'_, Option<StreamConnection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carrier of one link.
#[derive(Debug)]
pub struct StreamCarrier {
    /// The connection, shared with the links' shard.
    pub connection: Arc<SharedConnection>,
    /// The link's counters.
    pub stats: Arc<LinkStats>,
}

impl Carrier for StreamCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let mut now = self.connection.lock();
        let Some(connection) = now.as_mut().filter(|c| c.failed.is_none()) else {
            self.stats.add_drops(Loss::Down, 1);
            return Err(Refusal::Down);
        };
        if connection.framer.waiting().len() >= SEND_BYTES {
            connection.flush(&self.stats);
        }
        let pushed = connection.framer.push(frame.len, |into| frame.write(into));
        let (loss, refusal) = match pushed {
            Ok(()) => {
                self.stats.add_transmitted(1, frame.len as u64, 0);
                return Ok(());
            }
            Err(FrameError::Backlog(_)) => (Loss::NoRoom, Refusal::NoRoom),
            Err(FrameError::Len(_)) => (Loss::TooBig, Refusal::TooBig),
            Err(FrameError::Source(_)) => (Loss::SenderFault, Refusal::Lost),
        };
        self.stats.add_drops(loss, 1);
        Err(refusal)
    }

    fn flush(&mut self) -> u64 {
        if let Some(connection) = self.connection.lock().as_mut() {
            connection.flush(&self.stats);
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
