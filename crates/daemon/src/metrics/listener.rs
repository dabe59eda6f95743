//! Serves `GET /metrics` on a TCP address of this host, for scrapers without access to the control
//! socket (`[metrics] listen`).
//!
//! Only addresses of the loopback interface are configurable: every process of the host may read
//! the metrics, and nothing else is served (404; 405 for another method). At most
//! [`METRICS_CONNECTIONS_MAX`] (16) connections are served; a further connection takes the place of
//! the one that has waited longest for its client, if that is at least [`CONNECTION_GRACE`] (250
//! ms), and is closed otherwise. Time limits are those of the control socket, so that a slow client
//! holds a thread, but delays no other client.
//!
//! The acceptor thread (`metrics`) starts a thread (`metrics-request`) for each connection, and
//! closes the connection if the thread cannot be started. If `accept` fails, it is retried after
//! 100 ms. [`crate::lifecycle`] starts and stops the server; threads of requests in progress are
//! not joined.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::connection_slots::{ConnectionSlot, ConnectionSlots, SlotLimits};
use crate::http::{HttpReply, HttpRequest, request};
use crate::limits::{
    ACCEPT_RETRY, CONNECTION_GRACE, METRICS_CONNECTIONS_MAX, REPLY_TIME_MAX, REQUEST_TIME_MAX,
};

/// Returns the reply to `GET /metrics` with this value of the header Accept.
pub type MetricsSource = dyn Fn(&str) -> HttpReply + Send + Sync;

/// A running server. [`MetricsServer::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct MetricsServer {
    /// Shut down to wake the acceptor.
    listener: TcpListener,
    /// Ends the acceptor.
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens at `address` and starts to serve.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be started.
    pub fn start(address: SocketAddr, source: Arc<MetricsSource>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let acceptor = {
            let (listener, stopping) = (listener.try_clone()?, stopping.clone());
            thread::Builder::new()
                .name("metrics".into())
                .spawn(move || accept(&listener, &stopping, &source))?
        };
        Ok(Self { listener, stopping, acceptor: Some(acceptor) })
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
        self.stopping.store(true, Ordering::Release);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// The loop of the acceptor thread. Ends when `stopping` is set and `accept` returns.
fn accept(listener: &TcpListener, stopping: &AtomicBool, source: &Arc<MetricsSource>) {
    let served = ConnectionSlots::new(SlotLimits {
        all: METRICS_CONNECTIONS_MAX,
        waiting_each: METRICS_CONNECTIONS_MAX,
        grace: CONNECTION_GRACE,
    });
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, _)) => start_connection(stream, &served, source),
            Err(error) => {
                log::warn!(error:% = error; "cannot accept a connection for metrics: scrapers wait");
                thread::sleep(ACCEPT_RETRY);
            }
        }
    }
}

/// Takes a slot for an accepted connection and starts its thread; closes it without a slot.
fn start_connection(
    mut stream: TcpStream,
    served: &Arc<ConnectionSlots<()>>,
    source: &Arc<MetricsSource>,
) {
    let Ok(other) = stream.try_clone() else { return };
    let disconnect = move || drop(other.shutdown(Shutdown::Both));
    let Some(slot) = served.take(Instant::now(), (), disconnect) else { return };
    let source = source.clone();
    let spawned = thread::Builder::new().name("metrics-request".into()).spawn(move || {
        serve(&mut stream, &slot, &*source);
        drop(slot);
    });
    if let Err(error) = spawned {
        log::warn!(
            error:% = error;
            "cannot start a thread: a connection for metrics is closed without an answer"
        );
    }
}

/// Serves the single request of a connection.
fn serve(stream: &mut TcpStream, slot: &ConnectionSlot<()>, source: &MetricsSource) {
    let reply = match request::read(stream, Instant::now() + REQUEST_TIME_MAX) {
        Ok(None) => return,
        Ok(Some(request)) => {
            slot.waits(None);
            answer(&request, source)
        }
        Err(reply) => reply,
    };
    slot.waits(Some(Instant::now()));
    let sent = stream.set_write_timeout(Some(REPLY_TIME_MAX)).and_then(|()| reply.write(stream));
    if let Err(error) = sent {
        log::debug!(error:% = error; "cannot send metrics: the client has closed or does not read");
    }
}

/// Answers a request.
fn answer(request: &HttpRequest, source: &MetricsSource) -> HttpReply {
    match (request.path.as_str(), request.method.as_str()) {
        ("/metrics", "GET") => source(&request.accept),
        ("/metrics", _) => HttpReply::method_not_allowed("GET"),
        (path, _) => {
            let text = format!("{path}: this address serves /metrics alone");
            HttpReply::error(404, "no_such_path", text)
        }
    }
}
