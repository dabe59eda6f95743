//! The connections that requests arrive on: Unix sockets, and TCP for metrics.
//!
//! [`HttpConnection`] is the part of both that [`super::request`] needs. It adds no behaviour: each
//! call blocks and fails as that of the socket, and a time limit holds for each read or write, not
//! for a request as a whole. Each connection is used by one thread, that of its request.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
