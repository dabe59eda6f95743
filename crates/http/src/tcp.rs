//! Serves a TCP address with one handler, within bounds.
//!
//! At most [`ServerOptions::connections`] connections are served; a further connection takes the
//! place of a waiting connection ([`crate::slots`]) that has waited for at least
//! [`CONNECTION_GRACE`] (250 ms), and is closed without a reply if there is none. A request must be
//! complete within [`REQUEST_TIME_MAX`] (5 s), and each write of a reply must progress within
//! [`REPLY_TIME_MAX`] (5 s): a slow client holds a thread, but delays no other client. A client
//! address with [`ServerOptions::connections_each`] waiting connections loses its oldest to a
//! further connection.
//!
//! The acceptor thread, of the server's name, starts a thread for each connection, and closes the
//! connection if the thread cannot be started. If `accept` fails, it is retried after 100 ms. After
//! [`HttpServer::stop`] no connection is accepted, and threads of requests in progress are not
//! joined. The handler may block its connection's thread; a connection that is being handled is not
//! closed for another. causewayd serves its metrics with the module (`daemon::metrics`), and
//! `causeway web` its page (`causeway_web`).

use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use crate::acceptor::Acceptor;
use crate::limits::{CONNECTION_GRACE, REPLY_TIME_MAX, REQUEST_TIME_MAX};
use crate::slots::{ConnectionSlot, ConnectionSlots, SlotLimits};
use crate::{HttpReply, HttpRequest, RequestLimits, connection, request};

/// Answers a complete request; called on the thread of the connection.
pub type TcpHandler = dyn Fn(&HttpRequest) -> HttpReply + Send + Sync;

/// The name and the bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions {
    /// Name of the threads and in log lines; the kernel shows 15 bytes.
    pub name: &'static str,
    /// Most connections served at the same time.
    pub connections: usize,
    /// Most of these that wait for one address: for its request, or for the reply to be read.
    pub connections_each: usize,
    /// Sizes of requests.
    pub requests: RequestLimits,
}

/// A running server. [`HttpServer::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct HttpServer {
    /// For the address.
    listener: TcpListener,
    acceptor: Acceptor,
}

impl HttpServer {
    /// Listens at `address` and starts to serve.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be started.
    pub fn start(
        address: SocketAddr,
        options: ServerOptions,
        handler: Arc<TcpHandler>,
    ) -> std::io::Result<Self> {
        Self::serve(TcpListener::bind(address)?, options, handler)
    }

    /// Starts to serve connections to a listener.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve(
        listener: TcpListener,
        options: ServerOptions,
        handler: Arc<TcpHandler>,
    ) -> std::io::Result<Self> {
        let served = ConnectionSlots::new(SlotLimits {
            all: options.connections,
            waiting_each: options.connections_each,
            grace: CONNECTION_GRACE,
        });
        let acceptor =
            Acceptor::start(listener.try_clone()?, options.name, move |stream, from| {
                start_connection(stream, from.ip(), &served, options, &handler);
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

    /// Stops accepting connections; requests in progress are finished by their own threads.
    pub fn stop(&mut self) {
        self.acceptor.stop();
    }
}

/// Takes a slot for an accepted connection and starts its thread; closes it without a slot.
fn start_connection(
    mut stream: TcpStream,
    client: IpAddr,
    served: &Arc<ConnectionSlots<IpAddr>>,
    options: ServerOptions,
    handler: &Arc<TcpHandler>,
) {
    let Ok(other) = stream.try_clone() else { return };
    let disconnect = move || drop(other.shutdown(Shutdown::Both));
    let Some(slot) = served.take(Instant::now(), client, disconnect) else { return };
    let (handler, server) = (handler.clone(), options.name);
    let spawned = thread::Builder::new().name(format!("{server}-request")).spawn(move || {
        serve(&mut stream, &slot, options, &*handler);
        drop(slot);
    });
    if let Err(error) = spawned {
        log::warn!(
            error:% = error, server;
            "cannot start a thread: a connection is closed without an answer"
        );
    }
}

/// Serves the single request of a connection.
fn serve(
    stream: &mut TcpStream,
    slot: &ConnectionSlot<IpAddr>,
    options: ServerOptions,
    handler: &TcpHandler,
) {
    let deadline = Instant::now() + REQUEST_TIME_MAX;
    let (reply, is_whole) = match request::read(stream, &options.requests, deadline) {
        Ok(None) => return,
        Ok(Some(request)) => {
            slot.waits(None);
            (handler(&request), true)
        }
        Err(reply) => (reply, false),
    };
    slot.waits(Some(Instant::now()));
    let sent = stream.set_write_timeout(Some(REPLY_TIME_MAX)).and_then(|()| reply.write(stream));
    if let Err(error) = sent {
        let server = options.name;
        log::debug!(
            error:% = error, server;
            "cannot send a reply: the client has closed or does not read"
        );
        return;
    }
    if !is_whole {
        connection::drain(stream);
    }
}
