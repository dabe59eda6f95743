//! The stream side of a port: one connection, which the peer opened or the port itself.
//!
//! A port has one peer at a time. A second connection is closed at once, counted and logged; a QEMU
//! with `reconnect-ms` tries again. A Unix listener is the shard's (`fabric`), which checks users
//! and the rate; a TCP listener is this module's, and refuses connections beyond
//! [`ACCEPTS_PER_SECOND`] (32). The connection ends when the peer closes it, when a length breaks a
//! rule or descriptors arrive (a fault of the port, with the reason), or when reading or writing
//! fails ([`crate::output`]); a port that connects then connects again. [`crate::service`] calls
//! the module in the thread of the dispatcher that owns the port's shard.
//!
//! # Budget
//! One `recv` for up to 128 KiB of frames, straight into the buffer that goes to the forwarding
//! service, and one without result when the socket is drained. Only the bytes of an incomplete
//! frame are copied. A turn ends by its time and after about `budget` frames.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_fabric::rate::Bucket;
use causeway_fabric::{Context, Progress, ServiceWatch, SourceProgress, cost};
use causeway_model::PortState;
use causeway_wire::deframer::Deframer;
use causeway_wire::vmm_socket::LengthHeader;
use rustix::io::Errno;

use crate::connector::{Connector, Remote};
use crate::limits::{ACCEPTS_PER_SECOND, STREAM_BYTES};
use crate::output::{Output, Peer};
use crate::port::PortCore;
use crate::socket::StreamSocket;

/// The present connection.
#[derive(Debug)]
struct Live {
    socket: Arc<StreamSocket>,
    deframer: Deframer<LengthHeader>,
    since_ns: u64,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
}

/// A TCP listener.
#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    accepts: Bucket,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
}

/// The stream side of a port.
#[derive(Debug)]
pub(crate) struct StreamEnd {
    /// Value of the connection's source and watch; the listener has the next.
    value: u32,
    listener: Option<Listener>,
    connector: Option<Connector>,
    live: Option<Live>,
    pub connects_total: u64,
    pub refused_total: u64,
}

/// Makes a socket that listens at a TCP address.
fn listen(local: SocketAddr) -> io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(local);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM.nonblocking(), None)?;
    if local.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&local.into())?;
    socket.listen(16)?;
    Ok(socket.into())
}

impl StreamEnd {
    /// Returns the end of a port to which peers connect by its Unix socket.
    pub fn at_unix_socket(value: u32) -> Self {
        let (listener, connector, live) = (None, None, None);
        Self { value, listener, connector, live, connects_total: 0, refused_total: 0 }
    }

    /// Returns the end of a port that listens at a TCP address.
    ///
    /// # Errors
    /// The address is in use, or not this host's.
    pub fn at_tcp(cx: &Context<'_>, value: u32, local: SocketAddr) -> io::Result<Self> {
        let socket = listen(local)?;
        let watch = cx.watch_listener(socket.as_fd(), value.saturating_add(1))?;
        let listener = Some(Listener { socket, accepts: Bucket::default(), watch });
        Ok(Self { listener, ..Self::at_unix_socket(value) })
    }

    /// Returns the end of a port that connects; the first attempt is due.
    pub fn connecting(value: u32, remote: Remote) -> Self {
        Self { connector: Some(Connector::new(remote)), ..Self::at_unix_socket(value) }
    }

    /// Returns the state for the operator.
    pub fn state(&self) -> PortState {
        match (&self.live, &self.connector) {
            (Some(_), _) => PortState::Running,
            (None, Some(_)) => PortState::Connecting,
            (None, None) => PortState::Listening,
        }
    }

    /// Returns why the port is not connected.
    pub fn connect_error(&self) -> Option<String> {
        self.connector.as_ref().filter(|_| self.live.is_none())?.error.clone()
    }

    /// Returns the time at which [`Self::advance`] must be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.connector.as_ref().filter(|_| self.live.is_none())?.deadline_ns()
    }

    /// Takes a connection that the peer opened.
    pub fn accepted(&mut self, cx: &mut Context<'_>, core: &mut PortCore, socket: StreamSocket) {
        if self.live.is_some() {
            self.refused_total = self.refused_total.saturating_add(1);
            let text = "a second connection was refused: the port has one peer at a time; add a port \
                        for each guest";
            return cx.warn(core.id, text);
        }
        match cx.watch(socket.as_fd(), self.value) {
            Ok(watch) => self.go_live(cx, core, Arc::new(socket), watch),
            Err(error) => cx.warn(core.id, format_args!("cannot watch a connection: {error}")),
        }
    }

    fn go_live(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut PortCore,
        socket: Arc<StreamSocket>,
        watch: ServiceWatch,
    ) {
        socket.enlarge();
        core.output.attach(Peer::Stream(socket.clone()));
        let deframer = Deframer::new(STREAM_BYTES, core.frame_max);
        self.live = Some(Live { socket, deframer, since_ns: cx.now_ns, watch });
        self.connects_total = self.connects_total.saturating_add(1);
        core.log_state(cx.now_ns, "the peer is connected");
        // Frames may have arrived already.
        cx.wake_source(self.value);
    }

    /// Accepts connections at the TCP address.
    pub fn accept(&mut self, cx: &mut Context<'_>, core: &mut PortCore) {
        let Some(listener) = &mut self.listener else { return };
        // Level-triggered: further connections are accepted in the next call.
        match listener.socket.accept() {
            Ok((socket, _)) if !listener.accepts.take(cx.now_ns, ACCEPTS_PER_SECOND) => {
                self.refused_total = self.refused_total.saturating_add(1);
                drop(socket);
                cx.warn(core.id, "connections come too fast: a connection was refused");
            }
            Ok((socket, _)) => {
                if socket.set_nonblocking(true).is_ok() {
                    self.accepted(cx, core, StreamSocket::tcp(socket));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => cx.warn(core.id, format_args!("cannot accept a connection: {error}")),
        }
    }

    /// Continues an attempt to connect.
    pub fn advance(&mut self, cx: &mut Context<'_>, core: &mut PortCore) {
        if self.live.is_some() {
            return;
        }
        let Some(connector) = &mut self.connector else { return };
        let before = connector.error.clone();
        match connector.advance(cx, self.value) {
            Some((socket, watch)) => self.go_live(cx, core, socket, watch),
            None if connector.error != before => {
                if let Some(error) = connector.error.clone() {
                    cx.warn(core.id, format_args!("{error}; the port tries again"));
                }
            }
            None => {}
        }
    }

    /// Handles readiness of the connection's socket.
    pub fn ready(&mut self, cx: &mut Context<'_>, core: &mut PortCore, writable: bool) {
        if self.live.is_none() {
            return self.advance(cx, core);
        }
        if writable {
            core.output.resume();
        }
        cx.wake_source(self.value);
    }

    /// Receives about `budget` frames, until the turn's time is over.
    pub fn serve(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut PortCore,
        budget: usize,
    ) -> SourceProgress {
        let mut count = 0_usize;
        let progress = loop {
            let Some(live) = &mut self.live else { break Progress::Parked };
            match core.has_room() {
                None => break Progress::Parked,
                Some(false) => break Progress::Worked,
                Some(true) => {}
            }
            if count >= budget || (count > 0 && cx.is_over()) {
                break Progress::Worked;
            }
            match live.socket.receive(live.deframer.room()) {
                Ok(0) => self.end(cx, core, None),
                Ok(len) => {
                    cx.charge(cost::CALL_NS.saturating_add(cost::bytes(len)));
                    live.deframer.filled(len);
                    match live.deliver(core) {
                        Ok(frames) => count = count.saturating_add(frames.max(1)),
                        Err(reason) => self.end(cx, core, Some(reason)),
                    }
                }
                Err(Errno::AGAIN) if cx.polls_source(self.value) => break Progress::Idle,
                Err(Errno::AGAIN) => break Progress::Parked,
                Err(Errno::INTR) => {}
                Err(error) => {
                    let reason = match error {
                        Errno::BADMSG => "the peer sent file descriptors".to_owned(),
                        other => io::Error::from(other).to_string(),
                    };
                    let is_fault = error == Errno::BADMSG;
                    self.lose(cx, core, &reason, is_fault);
                }
            }
        };
        core.report(cx);
        SourceProgress { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// Ends the connection: by a fault of the peer, or because the peer closed it or writing
    /// failed.
    fn end(&mut self, cx: &mut Context<'_>, core: &mut PortCore, fault: Option<String>) {
        let held = self.live.as_ref().map_or(0, |live| live.deframer.held());
        match (fault, core.output.take_failure(), held) {
            (Some(fault), ..) => self.lose(cx, core, &fault, true),
            (None, Some(failure), _) => {
                self.lose(cx, core, &format!("sending failed: {failure}"), false);
            }
            (None, None, 0) => self.lose(cx, core, "the peer closed the connection", false),
            (None, None, _) => {
                self.lose(cx, core, "the peer closed the connection inside a frame", false);
            }
        }
    }

    fn lose(&mut self, cx: &mut Context<'_>, core: &mut PortCore, reason: &str, is_fault: bool) {
        let Some(live) = self.live.take() else { return };
        core.output.detach();
        live.socket.shut_down();
        if is_fault {
            cx.note(core.id, format_args!("{reason}; the connection was closed"));
        } else {
            core.log_state(cx.now_ns, reason);
        }
        if let Some(connector) = &mut self.connector {
            let lasted_ns = cx.now_ns.saturating_sub(live.since_ns);
            let text = format!("{}: {reason}", connector.remote);
            connector.ended(cx.now_ns, lasted_ns, text);
        }
    }
}

impl Live {
    /// Passes complete frames on. Returns their number.
    ///
    /// # Errors
    /// The stream lost its framing; the frames before went on.
    fn deliver(&mut self, core: &mut PortCore) -> Result<usize, String> {
        let (mut frames, mut count) = (Vec::new(), 0_usize);
        let broken = loop {
            match self.deframer.take() {
                Ok(Some(at)) => {
                    count = count.saturating_add(1);
                    if core.ingress.admit(self.deframer.bytes().get(at.clone()).unwrap_or(&[])) {
                        frames.push(at);
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        if let Some(sender) = core.sender.as_mut().filter(|_| !frames.is_empty()) {
            let fresh = sender.buffer(STREAM_BYTES).into_bytes();
            let bytes = sender.adopt(self.deframer.exchange(fresh));
            sender.send(bytes, frames);
        }
        broken.map_or(Ok(count), Err)
    }
}

/// Returns the output of a port on a stream.
pub(crate) fn output(frame_max: usize) -> Arc<Output> {
    Arc::new(Output::new(frame_max, None))
}
