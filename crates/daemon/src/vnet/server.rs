//! The TCP server of the VNET language: one thread per connection, within bounds.
//!
//! The acceptor thread (`vnet`) takes a slot for each connection (`causeway_http::slots`): at most
//! [`VNET_CONNECTIONS_MAX`] (16), and [`VNET_STRANGERS_PER_SOURCE_MAX`] (4) of one source without a
//! valid HELLO. A connection beyond either limit takes the slot of one that has been without a
//! valid HELLO for 1 s, which is closed; if there is none, the new connection gets an `ERROR` line
//! and is closed. A session with a valid HELLO keeps its slot until it ends. The connection's
//! thread (`vnet-session`) splits the bytes into lines, gives each to [`super::session`], and
//! writes the answer. A line over [`VNET_LINE_BYTES_MAX`] (256) bytes, no valid HELLO within
//! [`VNET_HELLO_TIME_MAX`] (10 s), silence for [`VNET_IDLE_TIME_MAX`] (5 min), or an answer that
//! the client does not read for 5 s ends the session. A line without a line feed is too long once
//! 259 bytes are there.
//!
//! Lines of one connection are answered in order; a client may send further lines before the
//! answer. A line without its line feed at the end of the connection is not executed; a command
//! whose answer cannot be sent remains executed. [`VnetServer::stop`] leaves sessions running.
//! There is no TLS and no list of permitted addresses.
//!
//! [`crate::lifecycle`] starts and stops the server if `vnet_listen` is configured.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::session::{Session, SessionContext, SessionReply};
use super::source::ClientSource;
use crate::limits::{
    REPLY_TIME_MAX, VNET_CONNECTIONS_MAX, VNET_GRACE, VNET_HELLO_TIME_MAX, VNET_IDLE_TIME_MAX,
    VNET_LINE_BYTES_MAX, VNET_STRANGERS_PER_SOURCE_MAX,
};
use crate::refusals::{RefusalCounters, RefusalReason};
use causeway_http::{Acceptor, ConnectionSlot, ConnectionSlots, SlotLimits};

/// Time limits of a connection; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct SessionTimeouts {
    /// Time from connecting to a valid HELLO.
    pub hello: Duration,
    /// Time between two lines.
    pub idle: Duration,
}

impl Default for SessionTimeouts {
    fn default() -> Self {
        Self { hello: VNET_HELLO_TIME_MAX, idle: VNET_IDLE_TIME_MAX }
    }
}

/// A running server. [`VnetServer::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct VnetServer {
    /// For the address.
    listener: TcpListener,
    acceptor: Acceptor,
}

impl VnetServer {
    /// Listens at `address` and starts to serve.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be started.
    pub fn start(
        address: SocketAddr,
        context: SessionContext,
        timeouts: SessionTimeouts,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let served = ConnectionSlots::new(SlotLimits {
            all: VNET_CONNECTIONS_MAX,
            waiting_each: VNET_STRANGERS_PER_SOURCE_MAX,
            grace: VNET_GRACE,
        });
        let context = Arc::new(context);
        let acceptor = Acceptor::start(listener.try_clone()?, "vnet", move |stream, from| {
            start_connection(stream, from, &served, &context, timeouts);
        })?;
        Ok(Self { listener, acceptor })
    }

    /// Returns the listening address.
    ///
    /// # Errors
    /// The socket is not bound.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Stops accepting connections; sessions in progress continue until they end.
    pub fn stop(&mut self) {
        self.acceptor.stop();
    }
}

/// Takes a slot for an accepted connection, and starts its thread.
fn start_connection(
    mut stream: TcpStream,
    from: SocketAddr,
    served: &Arc<ConnectionSlots<ClientSource>>,
    context: &Arc<SessionContext>,
    timeouts: SessionTimeouts,
) {
    let source = ClientSource::of(&stream, from);
    let Ok(other) = stream.try_clone() else { return };
    let disconnect = move || drop(other.shutdown(Shutdown::Both));
    let Some(slot) = served.take(Instant::now(), source, disconnect) else {
        context.refusals.vnet.count(RefusalReason::Busy);
        let (all, each) = (VNET_CONNECTIONS_MAX, VNET_STRANGERS_PER_SOURCE_MAX);
        let text = format!(
            "ERROR all {all} connections, or all {each} of one source before HELLO, are in use: try \
             again\n"
        );
        // The acceptor's thread must not block: the text fits into the empty send buffer.
        if stream.set_nonblocking(true).is_ok() {
            let _ = stream.write_all(text.as_bytes());
        }
        return;
    };
    let session = Session::new(context.clone(), from.ip()).with_source(source);
    let context = context.clone();
    let spawned = thread::Builder::new().name("vnet-session".into()).spawn(move || {
        let served = serve(&mut stream, session, &slot, &context.refusals.vnet, timeouts);
        if let Err(error) = served {
            log::debug!(error:% = error, from:% = from; "VNET control connection lost");
        }
        drop(slot);
    });
    if let Err(error) = spawned {
        log::warn!(
            error:% = error;
            "cannot start a thread: a VNET control connection is closed without an answer"
        );
    }
}

/// Answers the lines of a connection until its session ends.
fn serve(
    stream: &mut TcpStream,
    mut session: Session,
    slot: &ConnectionSlot<ClientSource>,
    refusals: &RefusalCounters,
    timeouts: SessionTimeouts,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(REPLY_TIME_MAX))?;
    let mut lines = LineReader::default();
    let begun = Instant::now();
    let mut until = begun + timeouts.hello;
    loop {
        let line = match lines.next(stream, until)? {
            ReceivedLine::Whole(line) => line,
            ReceivedLine::End { half } => {
                if half {
                    refusals.count(RefusalReason::Unfinished);
                }
                return Ok(());
            }
            ReceivedLine::Late => {
                refusals.count(RefusalReason::Late);
                return refuse(stream, "ERROR no line in time\n");
            }
            ReceivedLine::TooLong => {
                refusals.count(RefusalReason::TooLong);
                let most = VNET_LINE_BYTES_MAX;
                let text = format!("ERROR a line of more than {most} bytes: the session ends\n");
                return refuse(stream, &text);
            }
        };
        let SessionReply { text, end } = session.line(Instant::now(), &line);
        stream.write_all(text.as_bytes())?;
        if end {
            return refuse(stream, "");
        }
        if session.is_authenticated() {
            slot.waits(None);
            until = Instant::now() + timeouts.idle;
        }
    }
}

/// Sends the last line and closes the session. Drains the input, so that the line arrives even if
/// the client has sent more.
fn refuse(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(crate::limits::DRAIN_TIME_MAX))?;
    let (mut chunk, until) = ([0; 1024], Instant::now() + crate::limits::DRAIN_TIME_MAX);
    while Instant::now() < until && matches!(stream.read(&mut chunk), Ok(1..)) {}
    Ok(())
}

/// The result of reading a line.
enum ReceivedLine {
    /// A line with its line end.
    Whole(Vec<u8>),
    /// The client closed the connection, possibly within a line.
    End { half: bool },
    /// No complete line arrived within 10 s of the connect before HELLO, or 300 s of the last line.
    Late,
    /// A line has more than [`VNET_LINE_BYTES_MAX`] (256) bytes, without its line end.
    TooLong,
}

/// Splits received bytes into lines.
#[derive(Debug, Default)]
struct LineReader {
    /// Received bytes that were not returned yet.
    bytes: Vec<u8>,
}

impl LineReader {
    /// Returns the next line, received until `until`.
    fn next(&mut self, stream: &mut TcpStream, until: Instant) -> std::io::Result<ReceivedLine> {
        loop {
            if let Some(at) = self.bytes.iter().position(|b| *b == b'\n') {
                let line = self.bytes.get(..at).unwrap_or_default();
                if line.strip_suffix(b"\r").unwrap_or(line).len() > VNET_LINE_BYTES_MAX {
                    return Ok(ReceivedLine::TooLong);
                }
                let rest = self.bytes.split_off(at + 1);
                return Ok(ReceivedLine::Whole(std::mem::replace(&mut self.bytes, rest)));
            }
            // With the two bytes of a line end.
            if self.bytes.len() > VNET_LINE_BYTES_MAX + 2 {
                return Ok(ReceivedLine::TooLong);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Ok(ReceivedLine::Late);
            }
            stream.set_read_timeout(Some(left))?;
            let mut chunk = [0; 512];
            match stream.read(&mut chunk) {
                // An incomplete line is no command.
                Ok(0) => return Ok(ReceivedLine::End { half: !self.bytes.is_empty() }),
                Ok(n) => self.bytes.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
        }
    }
}
