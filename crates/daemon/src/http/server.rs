//! Accepts control connections and serves each on a short-lived thread of its own, within bounds.
//!
//! At most [`CONNECTIONS_MAX`] (64) connections are served, of which
//! [`CONNECTIONS_WAITING_PER_USER_MAX`] (48) of one user may wait. A connection beyond either limit
//! takes the slot of one that has waited for 250 ms (`causeway_http::slots`), which is closed
//! without a reply; if none has, the new connection gets 503. A request must be complete within
//! [`REQUEST_TIME_MAX`] (5 s), and each write of a reply must progress within [`REPLY_TIME_MAX`] (5
//! s). The execution of a request has no time limit, and a command whose reply cannot be sent
//! remains executed. If `accept` fails, it is retried after 100 ms and clients wait; if no thread
//! can be started, the connection is closed without a reply.
//!
//! The acceptor thread (`control`) must not block on a client: it checks the peer
//! ([`crate::peer`]), takes a slot, starts the thread (`control-request`) and sends refusals
//! non-blocking. Requests of different connections run concurrently and in no order; serialisation
//! is up to the handler.
//!
//! [`crate::lifecycle`] starts and stops the server; the handler is [`crate::api::answer`]. After
//! [`ControlServer::stop`] no connection is accepted, and threads of requests in progress are not
//! joined.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use causeway_http::connection::drain;
use causeway_http::{Acceptor, ConnectionSlot, ConnectionSlots, SlotLimits};

use super::{HttpReply, HttpRequest, REQUEST_LIMITS, request};
use crate::limits::{
    CONNECTION_GRACE, CONNECTIONS_MAX, CONNECTIONS_WAITING_PER_USER_MAX, REPLY_TIME_MAX,
    REQUEST_TIME_MAX,
};
use crate::peer::{ControlAccess, ControlPeer};
use crate::refusals::{ControlRefusals, RefusalReason};

/// Answers a complete request of an admitted peer; called on the thread of the connection.
pub type RequestHandler = dyn Fn(&ControlPeer, &HttpRequest) -> HttpReply + Send + Sync;

/// A running server. [`ControlServer::stop`] stops it; dropping it does not.
#[derive(Debug)]
pub struct ControlServer(Acceptor);

impl ControlServer {
    /// Starts to serve connections to `listener` from clients that `access` admits; refusals are
    /// counted in `refusals`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        listener: UnixListener,
        access: ControlAccess,
        handler: Arc<RequestHandler>,
        refusals: Arc<ControlRefusals>,
    ) -> std::io::Result<Self> {
        let context = ServerContext { access, handler, refusals };
        let served = ConnectionSlots::new(SlotLimits {
            all: CONNECTIONS_MAX,
            waiting_each: CONNECTIONS_WAITING_PER_USER_MAX,
            grace: CONNECTION_GRACE,
        });
        let serve = move |stream, _| start_connection(stream, &served, &context);
        Acceptor::start(listener, "control", serve).map(Self)
    }

    /// Stops accepting connections; requests in progress are finished by their own threads.
    pub fn stop(&mut self) {
        self.0.stop();
    }
}

/// Values that all connections share.
struct ServerContext {
    access: ControlAccess,
    handler: Arc<RequestHandler>,
    refusals: Arc<ControlRefusals>,
}

/// Admits or refuses an accepted connection, and starts its thread.
fn start_connection(
    mut stream: UnixStream,
    served: &Arc<ConnectionSlots<u32>>,
    context: &ServerContext,
) {
    let ServerContext { access, handler, refusals } = context;
    let peer = match access.admit(&stream) {
        Ok(peer) => peer,
        Err(refused) => {
            refusals.log.refused(&refused);
            refuse(&mut stream, &access.reply(&refused), refusals);
            return;
        }
    };
    let Ok(other) = stream.try_clone() else { return };
    let disconnect = move || drop(other.shutdown(Shutdown::Both));
    let Some(slot) = served.take(Instant::now(), peer.uid, disconnect) else {
        let text = format!(
            "{CONNECTIONS_MAX} control connections are served already, \
             {CONNECTIONS_WAITING_PER_USER_MAX} of one user without a request; try again"
        );
        refuse(&mut stream, &HttpReply::error(503, "busy", text), refusals);
        return;
    };
    let (handler, refusals) = (handler.clone(), refusals.clone());
    let spawned = thread::Builder::new().name("control-request".into()).spawn(move || {
        serve(&mut stream, &peer, &slot, &*handler, &refusals);
        drop(slot);
    });
    if let Err(error) = spawned {
        log::warn!(
            error:% = error;
            "cannot start a thread: a control connection is closed without an answer"
        );
    }
}

/// Refuses from the acceptor's thread, which must not block: the reply fits into the empty send
/// buffer.
fn refuse(stream: &mut UnixStream, reply: &HttpReply, refusals: &ControlRefusals) {
    refusals.control.count(RefusalReason::of_kind(reply.kind));
    if stream.set_nonblocking(true).is_ok() {
        let _ = reply.write(stream);
    }
}

/// Serves the single request of a connection: read, execute, reply.
fn serve(
    stream: &mut UnixStream,
    peer: &ControlPeer,
    slot: &ConnectionSlot<u32>,
    handler: &RequestHandler,
    refusals: &ControlRefusals,
) {
    let (reply, whole) =
        match request::read(stream, &REQUEST_LIMITS, Instant::now() + REQUEST_TIME_MAX) {
            Ok(None) => return,
            Ok(Some(request)) => {
                slot.waits(None);
                (handler(peer, &request), true)
            }
            Err(reply) => (reply, false),
        };
    slot.waits(Some(Instant::now()));
    if !reply.kind.is_empty() {
        refusals.control.count(RefusalReason::of_kind(reply.kind));
    }
    let sent = stream.set_write_timeout(Some(REPLY_TIME_MAX)).and_then(|()| reply.write(stream));
    if let Err(error) = sent {
        log::debug!(
            error:% = error, pid = peer.pid;
            "cannot send a control reply: the client has closed or does not read"
        );
        return;
    }
    if !whole {
        drain(stream);
    }
}
