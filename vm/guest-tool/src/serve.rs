//! The service for clients, with a thread for each connection.
//!
//! A stream connection opens with a header of fixed size that names the client's exchange. A
//! SEQPACKET connection has no header: every message of up to 1 MiB is echoed, and an empty message
//! ends the connection. Content is checked for a stream alone, and a mismatch is reported to the
//! client. The number of connections has no limit, and clients are not authenticated: the service
//! is for test guests. A malformed header, 30 s without progress and an error of a socket end that
//! connection, with a line on standard error; a failed accept is repeated after 100 ms. [`spawn`]
//! returns when it listens; its thread ends with the process. `init` and `main` call it, and tests
//! and the demo on the host.

use crate::limits::{MAX_ROUND_BYTES, MAX_WRITE_BYTES};
use crate::pattern::Pattern;
use crate::report::StreamReport;
use crate::transport::{Target, prepare};
use socket2::Socket;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;

/// Size of the header that opens a stream connection, in bytes.
pub const HEADER_BYTES: usize = 48;

/// Exchange of a stream connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Rounds of this many bytes, each echoed as a whole, until the client closes.
    PingPong(usize),
    /// A one-way stream of the pattern with this seed; a line answers its end.
    Stream(u64),
    /// After the client's half-close, the service sends the pattern: seed, bytes.
    Reply(u64, u64),
}

impl Exchange {
    /// Encodes the header: words, padded with blanks.
    #[must_use]
    pub fn header(self) -> [u8; HEADER_BYTES] {
        let words = match self {
            Self::PingPong(bytes) => format!("pingpong {bytes}"),
            Self::Stream(seed) => format!("stream {seed}"),
            Self::Reply(seed, bytes) => format!("reply {seed} {bytes}"),
        };
        let mut header = [b' '; HEADER_BYTES];
        for (to, from) in header.iter_mut().zip(words.bytes()) {
            *to = from;
        }
        header
    }

    /// Parses a header; `None` when it is malformed.
    #[must_use]
    pub fn parse(header: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(header).ok()?.split_whitespace();
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        match kind {
            "pingpong" => {
                let bytes = usize::try_from(number()?).ok()?;
                (bytes > 0 && bytes <= MAX_ROUND_BYTES).then_some(Self::PingPong(bytes))
            }
            "stream" => Some(Self::Stream(number()?)),
            "reply" => Some(Self::Reply(number()?, number()?)),
            _ => None,
        }
    }
}

/// Serves connections on `target` for the lifetime of this process.
///
/// # Errors
/// When listening fails; an error of a connection is only logged.
pub fn spawn(target: Target) -> io::Result<()> {
    let listener = target.listen()?;
    thread::Builder::new().name(format!("serve {target}")).spawn(move || {
        loop {
            match listener.accept() {
                Ok((socket, _)) => answer(target.clone(), socket),
                Err(e) => {
                    eprintln!("causeway-guest: accept on {target}: {e}");
                    thread::sleep(std::time::Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(())
}

fn answer(target: Target, socket: Socket) {
    let work = move || {
        let done = prepare(&target, &socket).and_then(|()| match target {
            Target::SeqPacket(..) => echo_messages(&socket),
            _ => serve_stream(&socket),
        });
        if let Err(e) = done {
            eprintln!("causeway-guest: connection on {target}: {e}");
        }
    };
    if let Err(e) = thread::Builder::new().spawn(work) {
        eprintln!("causeway-guest: cannot start a thread for a connection: {e}");
    }
}

/// Serves a stream connection to its end.
///
/// # Errors
/// The socket's error, or a malformed header.
pub fn serve_stream(mut socket: &Socket) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    socket.read_exact(&mut header)?;
    match Exchange::parse(&header) {
        Some(Exchange::PingPong(bytes)) => echo_rounds(socket, bytes),
        Some(Exchange::Stream(seed)) => {
            let received = receive(socket, &Pattern::new(seed))?;
            let mut line = serde_json::to_vec(&received)?;
            line.push(b'\n');
            socket.write_all(&line)?;
            socket.shutdown(Shutdown::Write)
        }
        Some(Exchange::Reply(seed, bytes)) => {
            io::copy(&mut socket, &mut io::sink())?;
            send_pattern(socket, &Pattern::new(seed), bytes)?;
            socket.shutdown(Shutdown::Write)
        }
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "malformed header of a stream connection",
        )),
    }
}

fn echo_rounds(mut socket: &Socket, bytes: usize) -> io::Result<()> {
    let mut round = vec![0; bytes];
    loop {
        // The whole round is received before its echo is sent: two sides that both write more than
        // the buffers hold would deadlock.
        match socket.read(&mut round)? {
            0 => return Ok(()),
            n => socket.read_exact(&mut round[n..])?,
        }
        socket.write_all(&round)?;
    }
}

fn receive(mut socket: &Socket, pattern: &Pattern) -> io::Result<StreamReport> {
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0u64;
    let mut wrong = None;
    loop {
        let n = match socket.read(&mut buffer) {
            Ok(0) => return Ok(StreamReport { bytes, wrong }),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if wrong.is_none() {
            wrong = pattern.check(bytes, &buffer[..n]).err().map(|m| m.to_string());
        }
        bytes += n as u64;
    }
}

/// Sends `bytes` of the pattern in writes of 64 KiB.
fn send_pattern(mut socket: &Socket, pattern: &Pattern, bytes: u64) -> io::Result<()> {
    let mut sent = 0;
    while sent < bytes {
        let n = usize::try_from(bytes - sent).unwrap_or(usize::MAX).min(64 << 10);
        socket.write_all(pattern.at(sent, n))?;
        sent += n as u64;
    }
    Ok(())
}

fn echo_messages(socket: &Socket) -> io::Result<()> {
    let mut message = vec![0; MAX_WRITE_BYTES];
    loop {
        let n = (&mut &*socket).read(&mut message)?;
        if n == 0 {
            return Ok(());
        }
        let sent = socket.send(&message[..n])?;
        if sent != n {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("a message of {n} bytes was sent as {sent}"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_parses_its_own_encoding() {
        for exchange in [
            Exchange::PingPong(64),
            Exchange::Stream(u64::MAX),
            Exchange::Reply(u64::MAX, u64::MAX),
        ] {
            assert_eq!(Exchange::parse(&exchange.header()), Some(exchange));
        }
        assert_eq!(Exchange::parse(b"pingpong 0"), None);
        assert_eq!(Exchange::parse(b"pingpong 99999999999"), None);
        assert_eq!(Exchange::parse(b"CONNECT 7001"), None);
        assert_eq!(Exchange::parse(b""), None);
    }
}
