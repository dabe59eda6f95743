//! The thread that accepts the connections of a listener, until it is stopped.
//!
//! [`Acceptor`] is the part that all servers with a thread for each connection share: the control
//! socket, the metrics, the web page, and the VNET language. It calls the server for each accepted
//! connection, in the acceptor thread, so that the server must not block on a client there. If
//! `accept` fails, as for lack of descriptors or memory, it logs a line, and tries again after
//! [`ACCEPT_RETRY`] (100 ms); clients wait meanwhile. A connection that is accepted during the stop
//! is closed. The acceptor bounds nothing: servers take a slot ([`crate::slots`]) for each
//! connection.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::limits::ACCEPT_RETRY;

/// A listening stream socket.
pub trait Listener: AsFd + Send + 'static {
    /// An accepted connection.
    type Stream;
    /// The address of a client.
    type Address;

    /// Waits for a connection.
    ///
    /// # Errors
    /// Those of accept(2).
    fn accept(&self) -> io::Result<(Self::Stream, Self::Address)>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        Self::accept(self)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    type Address = UnixAddress;

    fn accept(&self) -> io::Result<(UnixStream, UnixAddress)> {
        Self::accept(self)
    }
}

/// A running acceptor thread. [`Acceptor::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct Acceptor {
    /// The listening socket, shut down to wake the thread.
    listener: OwnedFd,
    /// Ends the thread.
    stopping: Arc<AtomicBool>,
    /// The thread; `None` after the stop.
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    /// Starts the thread, named `name`, which passes each connection to `serve`.
    ///
    /// # Errors
    /// The process has no descriptor left, or the thread cannot be started.
    pub fn start<L: Listener>(
        listener: L,
        name: &'static str,
        serve: impl Fn(L::Stream, L::Address) + Send + 'static,
    ) -> io::Result<Self> {
        let own = listener.as_fd().try_clone_to_owned()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let ends = stopping.clone();
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || accept(&listener, name, &ends, serve))?;
        Ok(Self { listener: own, stopping, thread: Some(thread) })
    }

    /// Stops accepting connections, and waits for the thread. Accepted connections are not closed.
    /// A second call has no effect.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread, unless it has ended already.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The loop of the thread. Ends when `stopping` is set and `accept` returns.
fn accept<L: Listener>(
    listener: &L,
    server: &str,
    stopping: &AtomicBool,
    serve: impl Fn(L::Stream, L::Address),
) {
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, from)) => serve(stream, from),
            Err(error) => {
                log::warn!(error:% = error, server; "cannot accept a connection: clients wait");
                thread::sleep(ACCEPT_RETRY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn acceptor_passes_connections_until_it_is_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut acceptor = Acceptor::start(listener, "test", |stream, _| drop(stream)).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server closed the connection");
        acceptor.stop();
        acceptor.stop();
        assert!(TcpStream::connect(address).is_err(), "nothing listens");
    }
}
