//! One-way traffic of many small writes or messages, and the receiver that counts them.
//!
//! A receiver of SEQPACKET messages reads them at its own pace and sends nothing back: its kernel
//! queues each message with its overhead, and decides when to send credit updates. The sender
//! starts no connect after 10 s of failed ones; the receiver accepts one connection, waits for it
//! without a limit, and ends with it. A read or write that makes no progress for 30 s, also the
//! sender's wait for the end of a slow receiver, is an error with the number of writes or reads so
//! far. `main` calls [`flood`] and [`sink`], in guests of tests of small writes.

use crate::limits::{CONNECT, MAX_WRITE_BYTES};
use crate::pattern::Pattern;
use crate::report::{FloodReport, SinkReport};
use crate::transport::{Target, prepare};
use socket2::Socket;
use std::io::{self, Read};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

/// Seed of the pattern, equal on both sides.
const SEED: u64 = 7;
/// Delay between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(50);

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Returns the pattern offset of write or message `number`, preceded by `bytes` bytes. Messages are
/// checked by their numbers, so that a lost message is detected.
fn offset(has_messages: bool, number: u64, bytes: u64) -> u64 {
    if has_messages { number } else { bytes }
}

/// Returns whether the target carries messages, as opposed to a stream.
fn has_messages(target: &Target) -> bool {
    matches!(target, Target::SeqPacket(..))
}

/// Sends `count` writes or messages of `bytes` each, shuts down the sending direction and waits for
/// the receiver's end of stream.
///
/// # Errors
/// `bytes` outside 1 to 1 MiB, any failing socket call, a message that was sent in part, and data
/// from the receiver.
pub fn flood(target: &Target, bytes: usize, count: u64) -> io::Result<FloodReport> {
    if bytes == 0 || bytes > MAX_WRITE_BYTES {
        return Err(invalid(format!("a flood of {bytes} bytes a write: out of range")));
    }
    let socket = connect(target)?;
    let pattern = Pattern::new(SEED);
    let start = Instant::now();
    let elapsed_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let failed = |number: u64, error: io::Error| {
        let text = format!("after {number} writes and {} ms: {error}", elapsed_ms());
        io::Error::new(error.kind(), text)
    };
    let mut sent = 0;
    for number in 0..count {
        let part = pattern.at(offset(has_messages(target), number, sent), bytes);
        let mut done = 0;
        while done < bytes {
            match socket.send(&part[done..]) {
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(number, error)),
            }
            if done < bytes && has_messages(target) {
                return Err(invalid(format!("message {number} was sent in part")));
            }
        }
        sent += bytes as u64;
    }
    socket.shutdown(Shutdown::Write).map_err(|error| failed(count, error))?;
    match (&socket).read(&mut [0]).map_err(|error| failed(count, error))? {
        0 => Ok(FloodReport { writes: count, bytes: sent, elapsed_ms: elapsed_ms() }),
        _ => Err(invalid("the receiver sent unexpected data".into())),
    }
}

/// Connects, with retries: the receiver may not listen yet.
fn connect(target: &Target) -> io::Result<Socket> {
    let start = Instant::now();
    loop {
        match target.connect() {
            Err(_) if start.elapsed() < CONNECT => thread::sleep(AGAIN),
            connected => return connected,
        }
    }
}

/// Accepts one connection and reads it to its end, with a pause after each read.
///
/// # Errors
/// Any failing socket call, a changed byte, a message over 1 MiB, and a message that is joined to
/// another, or missing before another. A loss at the end shows in the report alone.
pub fn sink(target: &Target, pause: Duration) -> io::Result<SinkReport> {
    let (socket, _) = target.listen()?.accept()?;
    prepare(target, &socket)?;
    receive(&socket, has_messages(target), MAX_WRITE_BYTES, pause)
}

/// Reads `socket` to its end. A message over `most` bytes is an error; a stream is read in parts of
/// about this size.
fn receive(
    mut socket: &Socket,
    has_messages: bool,
    most: usize,
    pause: Duration,
) -> io::Result<SinkReport> {
    let pattern = Pattern::new(SEED);
    // A read cuts a longer message: the further byte tells a message of `most` bytes from it.
    let mut buffer = vec![0; most + 1];
    let (mut reads, mut bytes) = (0, 0);
    loop {
        let got = match socket.read(&mut buffer) {
            Ok(0) => return Ok(SinkReport { reads, bytes }),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let text = format!("after {reads} reads and {bytes} bytes: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        };
        if has_messages && got > most {
            return Err(invalid(format!("message {reads} is longer than {most} bytes")));
        }
        let at = offset(has_messages, reads, bytes);
        pattern
            .check(at, &buffer[..got])
            .map_err(|wrong| invalid(format!("read {reads}, byte {bytes}: {wrong}")))?;
        reads += 1;
        bytes += got as u64;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};

    /// Sends the first messages of a flood, of these sizes, to a receiver of at most `most` bytes.
    fn received(sizes: &[usize], most: usize) -> io::Result<SinkReport> {
        let (from, to) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        let pattern = Pattern::new(SEED);
        for (number, &size) in (0..).zip(sizes) {
            assert_eq!(from.send(pattern.at(offset(true, number, 0), size)).unwrap(), size);
        }
        drop(from);
        receive(&to, true, most, Duration::ZERO)
    }

    #[test]
    fn sink_refuses_a_message_that_its_read_would_cut() {
        let report = received(&[4096, 1, 4096], 4096).unwrap();
        assert_eq!(report, SinkReport { reads: 3, bytes: 8193 });
        let why = received(&[1, 4097], 4096).unwrap_err().to_string();
        assert_eq!(why, "message 1 is longer than 4096 bytes");
    }
}
