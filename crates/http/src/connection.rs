//! The connections that requests arrive on: Unix sockets and TCP.
//!
//! [`HttpConnection`] is the part of both that [`crate::request`], [`drain`] and the writers of
//! replies need. It adds no behaviour: each call blocks and fails as that of the socket, and a time
//! limit holds for each read or write, not for a request as a whole. [`drain`] ends the connection
//! of a refused request. The thread of a request reads and writes its connection; the acceptor
//! thread shuts it down if [`crate::slots`] evicts it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::limits::DRAIN_TIME_MAX;

/// A connected stream socket with time limits.
pub trait HttpConnection: Read + Write {
    /// Sets the time limit of each read.
    ///
    /// # Errors
    /// The system call fails.
    fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()>;

    /// Sets the time limit of each write.
    ///
    /// # Errors
    /// The system call fails.
    fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()>;

    /// Ends the connection in one direction or both.
    ///
    /// # Errors
    /// The system call fails.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

/// Reads the rest of a refused request for at most [`DRAIN_TIME_MAX`] (500 ms), after the reply was
/// sent: an immediate close would break the client's write before it reads the reply.
pub fn drain(stream: &mut impl HttpConnection) {
    let _ = stream.shutdown(Shutdown::Write);
    let until = Instant::now() + DRAIN_TIME_MAX;
    let mut chunk = [0_u8; 4096];
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) {
        if stream.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Implements the trait by the methods of the same names.
macro_rules! connection {
    ($stream:ty) => {
        impl HttpConnection for $stream {
            fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                Self::set_read_timeout(self, limit)
            }

            fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
                Self::set_write_timeout(self, limit)
            }

            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                Self::shutdown(self, how)
            }
        }
    };
}

connection!(UnixStream);
connection!(TcpStream);
