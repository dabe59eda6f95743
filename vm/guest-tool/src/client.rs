//! Client side of every exchange. An exchange succeeds only if every byte arrived unchanged.
//!
//! Each function opens one connection to a [`Target`], in the caller's thread, and closes it at the
//! end. A read or write without progress for 30 s ([`STALL`](crate::limits::STALL)) is an error,
//! and nothing is retried. [`ping_pong`] and [`stream`] have a time limit beside, which interrupts
//! no read or write: a ping-pong ends after the current round, a warm-up after the current round and
//! one more; a stream after up to 16 KiB of further writes, and waits for its verdict. Lengths of
//! ping-pongs and writes out of range are errors before the connect; [`messages`] does not check
//! lengths, and panics above 1 MiB. `main` calls the functions, in guests and on the host, and so
//! do the demo and tests on the host. The other side is [`serve`](crate::serve).

use crate::limits::{MAX_ROUND_BYTES, MAX_WRITE_BYTES};
use crate::pattern::Pattern;
use crate::report::{HalfClose, Messages, PingPong, Stream, StreamReport};
use crate::serve::Exchange;
use crate::transport::Target;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn context<T>(step: &str, target: &Target, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| io::Error::new(e.kind(), format!("{step} {target}: {e}")))
}

/// A seed that differs from run to run.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |d| d.as_nanos() as u64) ^ u64::from(std::process::id())
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends `bytes` and waits for their echo, for `rounds` rounds or until `limit` has passed (at
/// least one round). A warm-up of a tenth of the rounds, and one more, is not measured. `limit`
/// counts from the begin of the warm-up; a warm-up that it ends is followed by one measured round.
///
/// # Errors
/// `bytes` outside 1 to 1 MiB, no rounds, any failing socket call, and any byte that came back
/// changed.
pub fn ping_pong(
    target: &Target,
    bytes: usize,
    rounds: usize,
    limit: Duration,
) -> io::Result<PingPong> {
    if bytes == 0 || bytes > MAX_WRITE_BYTES.min(MAX_ROUND_BYTES) || rounds == 0 {
        return Err(invalid(format!("ping-pong of {bytes} bytes, {rounds} rounds: out of range")));
    }
    let socket = context("connect to", target, target.connect())?;
    let socket = &mut &socket;
    context("write to", target, socket.write_all(&Exchange::PingPong(bytes).header()))?;
    let pattern = Pattern::new(seed());
    let mut back = vec![0; bytes];
    let mut warm_up = rounds / 10 + 1;
    let mut times = Vec::new();
    let mut offset = 0;
    let begin = Instant::now();
    while times.len() < rounds {
        let start = Instant::now();
        context("write to", target, socket.write_all(pattern.at(offset, bytes)))?;
        context("read from", target, socket.read_exact(&mut back))?;
        let took = nanos(start.elapsed());
        pattern.check(offset, &back).map_err(|m| invalid(format!("{target}: {m}")))?;
        offset += bytes as u64;
        let is_late = begin.elapsed() > limit;
        if warm_up > 0 {
            warm_up = if is_late { 0 } else { warm_up - 1 };
            continue;
        }
        times.push(took);
        if is_late {
            break;
        }
    }
    Ok(PingPong::from_rounds(bytes, times))
}

/// Streams the pattern in one direction in writes of `write_bytes`, until at least `max_bytes` are
/// sent or `limit` has passed, and waits for the receiver's verdict. The last write is a whole one.
///
/// # Errors
/// `write_bytes` outside 1 to 1 MiB, any failing socket call, a byte that arrived changed, or a
/// wrong count.
pub fn stream(
    target: &Target,
    write_bytes: usize,
    max_bytes: u64,
    limit: Duration,
) -> io::Result<Stream> {
    if write_bytes == 0 || write_bytes > MAX_WRITE_BYTES {
        return Err(invalid(format!("a stream of writes of {write_bytes} bytes: out of range")));
    }
    let seed = seed();
    let pattern = Pattern::new(seed);
    let socket = context("connect to", target, target.connect())?;
    if let Target::Tcp(_) = target {
        // Nagle's algorithm stays on: TCP may coalesce the writes of a stream.
        context("configure", target, socket.set_tcp_nodelay(false))?;
    }
    let mut writer = &socket;
    context("write to", target, writer.write_all(&Exchange::Stream(seed).header()))?;
    // A clock read is expensive in an emulated guest: it is not done before every small write.
    let clock_every = (16 << 10) / write_bytes as u64 + 1;
    let start = Instant::now();
    let (mut sent, mut writes) = (0u64, 0u64);
    while sent < max_bytes && (writes % clock_every != 0 || start.elapsed() < limit) {
        context("write to", target, writer.write_all(pattern.at(sent, write_bytes)))?;
        sent += write_bytes as u64;
        writes += 1;
    }
    context("shut down", target, socket.shutdown(Shutdown::Write))?;
    let mut line = String::new();
    context("read from", target, BufReader::new(&socket).read_line(&mut line))?;
    let elapsed_ns = nanos(start.elapsed());
    verdict(target, &line, sent)?;
    Ok(Stream { write_bytes, total_bytes: sent, elapsed_ns })
}

fn verdict(target: &Target, line: &str, sent: u64) -> io::Result<()> {
    let received: StreamReport = serde_json::from_str(line)
        .map_err(|e| invalid(format!("{target}: verdict '{}': {e}", line.trim_end())))?;
    match received.wrong {
        Some(wrong) => Err(invalid(format!("{target}: {wrong}"))),
        None if received.bytes != sent => {
            Err(invalid(format!("{target}: {sent} bytes sent, {} received", received.bytes)))
        }
        None => Ok(()),
    }
}

/// Sends 1,000 bytes, shuts down the sending direction, and only then receives `bytes`.
///
/// # Errors
/// Any failing socket call, a changed byte, or a wrong count.
pub fn half_close(target: &Target, bytes: u64) -> io::Result<HalfClose> {
    let seed = seed();
    let pattern = Pattern::new(seed);
    let socket = context("connect to", target, target.connect())?;
    let mut stream = &socket;
    context("write to", target, stream.write_all(&Exchange::Reply(seed, bytes).header()))?;
    context("write to", target, stream.write_all(pattern.at(0, 1000)))?;
    context("shut down", target, socket.shutdown(Shutdown::Write))?;
    let mut buffer = vec![0; 64 << 10];
    let mut got = 0u64;
    loop {
        match context("read from", target, stream.read(&mut buffer))? {
            0 => break,
            n => {
                pattern.check(got, &buffer[..n]).map_err(|m| invalid(format!("{target}: {m}")))?;
                got += n as u64;
            }
        }
    }
    if got != bytes {
        return Err(invalid(format!("{target}: {bytes} bytes expected, {got} received")));
    }
    Ok(HalfClose { bytes })
}

/// Sends a message of each size and waits for its echo as a single message. The target must be
/// [`Target::SeqPacket`].
///
/// # Errors
/// Any failing socket call, a message that was cut, joined or changed.
///
/// # Panics
/// When a size is over [`MAX_WRITE_BYTES`].
pub fn messages(target: &Target, sizes: &[usize]) -> io::Result<Messages> {
    let pattern = Pattern::new(seed());
    let socket = context("connect to", target, target.connect())?;
    let mut buffer = vec![0; MAX_WRITE_BYTES];
    // Two messages are in flight at a time, so that joined messages are detected.
    for pair in sizes.chunks(2) {
        for &size in pair {
            let sent = context("send to", target, socket.send(pattern.at(size as u64, size)))?;
            if sent != size {
                return Err(invalid(format!("{target}: message of {size} bytes sent as {sent}")));
            }
        }
        for &size in pair {
            let got = context("receive from", target, (&socket).read(&mut buffer))?;
            if got != size {
                return Err(invalid(format!("{target}: message of {size} came back as {got}")));
            }
            pattern
                .check(size as u64, &buffer[..got])
                .map_err(|m| invalid(format!("{target}: {m}")))?;
        }
    }
    let largest_bytes = sizes.iter().copied().max().unwrap_or(0);
    Ok(Messages { count: sizes.len(), largest_bytes })
}
