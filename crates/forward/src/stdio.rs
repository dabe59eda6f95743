//! A single connection over standard input and output, for `ssh -o ProxyCommand=…`.
//!
//! [`run`] connects to the target, then copies in two threads, because a file or terminal at
//! standard input cannot be waited for with epoll. The end of standard input is passed on; the call
//! returns when the target has ended its data, as `ssh` and `socat` expect. Data of standard input
//! that the target does not read any more is lost then.
//!
//! `causeway forward --stdio` calls [`run`] once, in its main thread, and ends afterwards: the
//! thread that reads standard input ends with the process. There is no sandbox, no counter, and no
//! limit of time after the connect.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::dial::{Dial, DialOutcome};
use crate::{ForwardError, SocketAddress};

/// Connects to `to`, and copies until the target ends its data.
///
/// # Errors
/// The target refuses or does not answer within 10 s, or the connection or standard output fails.
pub fn run(to: &SocketAddress) -> Result<(), ForwardError> {
    let (socket, first) = connect(to)?;
    let lost = |error| ForwardError::Lost { address: to.to_string(), error };
    rustix::io::ioctl_fionbio(&socket, false).map_err(|error| lost(error.into()))?;
    let socket = std::net::TcpStream::from(socket);
    let mut sender = socket.try_clone().map_err(lost)?;
    // The thread ends with the process: a read of standard input cannot be cancelled.
    std::thread::spawn(move || {
        // The receiving half reports a failure of the connection.
        let _ = copy(&mut io::stdin().lock(), &mut sender);
        let _ = sender.shutdown(std::net::Shutdown::Write);
    });
    let mut output = io::stdout().lock();
    output.write_all(&first).and_then(|()| output.flush()).map_err(lost)?;
    copy(&mut &socket, &mut output).map_err(lost)
}

/// Copies to the end, and passes each piece on at once.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0_u8; crate::limits::BUFFER_BYTES];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => {
                to.write_all(chunk.get(..len).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Connects, waiting at most [`DIAL_TIME`](crate::limits::DIAL_TIME) (10 s). Returns the bytes that
/// followed the handshake.
fn connect(to: &SocketAddress) -> Result<(OwnedFd, Vec<u8>), ForwardError> {
    let mut dial = Dial::new(Instant::now());
    loop {
        let until = match dial.advance(to, Instant::now())? {
            DialOutcome::Connected(socket, first) => return Ok((socket, first)),
            DialOutcome::Opened => continue,
            DialOutcome::Wait(at) => at.unwrap_or(dial.deadline).min(dial.deadline),
        };
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        // While the answer is awaited, the socket is writable all the time.
        let flags = if dial.is_answering() { PollFlags::IN } else { PollFlags::OUT };
        let fd = dial.socket().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), flags));
        let mut fds: Vec<_> = fd.into_iter().collect();
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ForwardError::Wait(error.into())),
        }
    }
}
