//! Time limits of the peers' waits: a datagram that is lost, or a side that does not start, ends
//! the figure with a reason, and the row stands without the peer.
//!
//! The peers' threads call these functions. A limit of a socket (`SO_RCVTIMEO`) makes the kernel
//! start a timer for each receive call that sleeps. A wait that polls reads the clock once in
//! [`POLLS`] (16,384) polls.

use std::io::{Error, ErrorKind, Result};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for a datagram, a frame, a connection, or bytes or room in a stream.
pub const QUIET: Duration = Duration::from_secs(20);
/// Longest time of a measurement without a limit for each wait.
pub const LONG: Duration = Duration::from_secs(60);
/// Polls between two reads of the clock.
const POLLS: u32 = 1 << 14;

/// Returns the error of a wait that was too long.
fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::TimedOut, format!("nothing arrived within {limit:?}"))
}

/// Names an error of a socket with the time limit [`QUIET`]: the kernel reports the limit as
/// `EAGAIN`.
pub fn timed(error: Error) -> Error {
    if error.kind() == ErrorKind::WouldBlock { late(QUIET) } else { error }
}

/// Waits until a descriptor is readable.
///
/// # Errors
/// Nothing arrives within `limit`, or the system call fails.
pub fn readable(fd: impl AsFd, limit: Duration) -> Result<()> {
    let time = Timespec::try_from(limit).map_err(Error::other)?;
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time))? {
        0 => Err(late(limit)),
        _ => Ok(()),
    }
}

/// Accepts a connection.
///
/// # Errors
/// As [`readable`].
pub fn accept(listener: &TcpListener, limit: Duration) -> Result<TcpStream> {
    readable(listener, limit)?;
    listener.accept().map(|(stream, _)| stream)
}

/// Limits the waits of a stream's calls to [`QUIET`].
///
/// # Errors
/// The system call fails.
pub fn limit(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(QUIET))?;
    stream.set_write_timeout(Some(QUIET))
}

/// The polls of a wait without sleep.
#[derive(Debug, Default)]
pub struct Polls {
    count: u32,
    since: Option<Instant>,
}

impl Polls {
    /// Counts a poll that found nothing.
    ///
    /// # Errors
    /// The wait lasts longer than `limit`.
    pub fn vain(&mut self, limit: Duration) -> Result<()> {
        self.count = self.count.wrapping_add(1);
        let is_late = self.count.is_multiple_of(POLLS)
            && self.since.get_or_insert_with(Instant::now).elapsed() > limit;
        if is_late { Err(late(limit)) } else { Ok(()) }
    }
}

/// Runs `work`, and calls `expire` in another thread if it lasts longer than `limit`: `expire` must
/// wake the waits of `work`, which then end with an error.
pub fn within<T>(limit: Duration, expire: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        scope.spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                expire();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::UdpSocket;

    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    #[test]
    fn waits_of_peers_end_without_traffic() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(accept(&listener, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = accept(&listener, SHORT).unwrap();
        limit(&near).unwrap();
        assert_eq!(near.read_timeout().unwrap(), Some(QUIET));
        far.set_read_timeout(Some(SHORT)).unwrap();
        let error = timed(far.read(&mut [0]).unwrap_err());
        assert!(error.to_string().contains("nothing arrived within 20s"), "{error}");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(readable(&socket, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        readable(&socket, QUIET).unwrap();
    }

    #[test]
    fn polls_of_peers_end_after_their_limit() {
        let (mut polls, since) = (Polls::default(), Instant::now());
        while polls.vain(SHORT).is_ok() {
            assert!(since.elapsed() < QUIET, "the limit is not checked");
        }
        assert!(since.elapsed() > SHORT);
    }

    #[test]
    fn measurement_that_takes_too_long_is_woken() {
        let (wake, woken) = channel();
        let ended = within(SHORT, || wake.send(()).unwrap(), || woken.recv_timeout(QUIET));
        assert_eq!(ended, Ok(()));
        let in_time = within(QUIET, || panic!("the work has ended"), || 7);
        assert_eq!(in_time, 7);
    }
}
