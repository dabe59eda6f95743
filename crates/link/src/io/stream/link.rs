//! A link over a stream: its connection, connection attempts, and retries.
//!
//! At most one connection is live and carries frames; up to [`ATTEMPTS_MAX`] (8) attempts run
//! beside it (a further attempt closes the oldest). An attempt that completes becomes live and
//! replaces the live connection, whose queued frames are lost; but on the listening side without
//! TLS the live connection stays while it answers. The connecting side tries again after
//! [`CONNECT_AGAIN_NS_MIN`] (0.5 s), doubled up to [`CONNECT_AGAIN_NS_MAX`] (5 s), and never gives
//! up: the peer's next address after a failed attempt, the same address after a live connection
//! ended. The listening side waits for the peer.
//!
//! The shard of links calls [`StreamLink`] for readiness, timers and receiving: bytes are read from
//! the socket, split by [`Deframer`], and passed to the group's mailbox. Up to [`COPIED_BYTES_MAX`]
//! (16 KiB) bytes of frames are copied; more keep their buffer. A stream that lost its framing is
//! closed. [`StreamCarrier`] writes frames in the thread of the group; the shard of links writes
//! those that are queued when a full socket has room again, and with TLS after it has read.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_fabric::carrier::{LinkStatus, OFFLOAD_BYTES, ReceivedFrame, ReceivedFrames};
use causeway_fabric::{Context, LogLimit, Progress, ServiceWatch, SourceProgress, cost};
use causeway_host::net::tcp_info;
use causeway_wire::deframer::Deframer;
use causeway_wire::vnet_stream::VnetHeader;

use super::super::inbox::LinkInbox;
use super::super::limits::{
    ATTEMPTS_MAX, CONNECT_AGAIN_NS_MAX, CONNECT_AGAIN_NS_MIN, COPIED_BYTES_MAX, RENEW_NS,
};
use super::super::stats::Loss;
use super::super::tls::{ExpiryLog, ReloadableTls, days_until};
use super::attempt::{ConnectionAttempt, begin, explain};
use super::connection::{
    ConnectionEnd, SharedConnection, StreamCarrier, StreamConnection, read_bare,
};
use crate::limits::{FRAME_BYTES_MAX, STREAM_BYTES};

/// A connection that carries frames.
#[derive(Debug)]
struct LiveConnection {
    socket: Arc<TcpStream>,
    /// The peer's address and port.
    from: SocketAddr,
    /// Splits the received bytes into frames.
    deframer: Deframer<VnetHeader>,
    /// When the connection became live.
    since_ns: u64,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
}

/// A `tcp` or `tls` link.
#[derive(Debug)]
pub struct StreamLink {
    inbox: LinkInbox,
    /// Source value of its descriptors.
    source: u32,
    /// Possible addresses of the peer; the first is tried next.
    remotes: VecDeque<SocketAddr>,
    /// Whether it connects; otherwise the peer does.
    connects: bool,
    /// TLS configuration; `None` for `tcp`.
    security: Option<ReloadableTls>,
    /// When certificate files are checked next.
    renew_ns: Option<u64>,
    /// The live connection, shared with the carriers.
    connection: Arc<SharedConnection>,
    /// The live connection as its receive side sees it.
    live: Option<LiveConnection>,
    /// Connection attempts, oldest first.
    attempts: VecDeque<ConnectionAttempt>,
    /// Whether the group has joined the link, so that its state is reported.
    started: bool,
    /// When the next connection attempt begins.
    again_ns: Option<u64>,
    /// Pause before the attempt after that.
    pause_ns: u64,
    /// Why the link is down.
    reason: String,
    log: LogLimit,
    /// Limits log lines about our certificate's expiry.
    expiry: ExpiryLog,
    /// How often the link came up.
    pub ups: u64,
    /// Connection attempts that failed, timed out or were closed by us.
    pub refused: u64,
}

impl StreamLink {
    /// Returns a link that is idle until it is started.
    pub fn new(
        inbox: LinkInbox,
        source: u32,
        remote: SocketAddr,
        connects: bool,
        security: Option<ReloadableTls>,
    ) -> Self {
        let waits = if connects { "connecting" } else { "the peer has not connected yet" };
        Self {
            inbox,
            source,
            remotes: VecDeque::from([remote]),
            connects,
            renew_ns: security.as_ref().map(|_| 0),
            security,
            connection: Arc::default(),
            live: None,
            attempts: VecDeque::new(),
            started: false,
            again_ns: None,
            pause_ns: CONNECT_AGAIN_NS_MIN,
            reason: waits.to_owned(),
            log: LogLimit::default(),
            expiry: ExpiryLog::default(),
            ups: 0,
            refused: 0,
        }
    }

    /// Returns whether it connects; otherwise the peer does.
    pub const fn connects(&self) -> bool {
        self.connects
    }

    /// Sets the addresses that are tried in turn, beginning with the next attempt; an empty list is
    /// ignored.
    pub fn candidates(&mut self, found: Vec<SocketAddr>) {
        if !found.is_empty() {
            self.remotes = found.into();
        }
    }

    /// Returns when our certificate expires, in seconds since 1970.
    pub fn expires(&self) -> Option<i64> {
        self.security.as_ref()?.expires
    }

    /// Reads certificates and keys again if their files changed; logs a warning if ours expires
    /// soon.
    pub fn renew(&mut self, now_ns: u64) {
        let Some(security) = &mut self.security else { return };
        let link = self.inbox.name.as_str();
        match security.renew() {
            Ok(true) => log::info!(link; "certificate files were read again"),
            Ok(false) => {}
            Err(error) => {
                if let Some(suppressed) = self.log.admit(now_ns) {
                    log::warn!(link, error, suppressed; "cannot read certificate files again: the link keeps the old certificates");
                }
            }
        }
        let due = self.renew_ns.is_none_or(|at| at <= now_ns);
        if due
            && let Some(expires) = security.expires
            && self.expiry.admits(now_ns, expires, days_until(expires))
        {
            let (days, certificate) = (days_until(expires), security.certificate().display());
            log::warn!(link, days, certificate:%; "our certificate expires soon or has expired, and peers refuse it then: replace the file, which is read again automatically");
        }
        if due {
            self.renew_ns = Some(now_ns.saturating_add(RENEW_NS));
        }
    }

    /// Returns the address that is tried next.
    fn remote(&self) -> SocketAddr {
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        self.remotes.front().copied().unwrap_or(none)
    }

    /// Returns the link's carrier.
    pub fn carrier(&self) -> StreamCarrier {
        StreamCarrier { connection: self.connection.clone(), stats: self.inbox.stats.clone() }
    }

    /// Returns why the link is down; `None` if it is up.
    pub fn down_reason(&self) -> Option<&str> {
        self.live.is_none().then_some(&*self.reason)
    }

    /// Returns the peer's address and port.
    pub fn endpoint(&self) -> Option<SocketAddr> {
        self.live.as_ref().map(|live| live.from)
    }

    /// Returns the kernel's statistics of the connection.
    pub fn connection(&self) -> Option<tcp_info::TcpState> {
        tcp_info::connection(self.live.as_ref()?.socket.as_fd())
    }

    /// Starts the link and reports its state to its group.
    pub fn start(&mut self, cx: &mut Context<'_>) {
        self.started = true;
        if self.live.is_some() {
            self.inbox.report_standing(LinkStatus {
                up: true,
                poor: false,
                rtt_ns: None,
                is_dormant: false,
            });
        } else if self.connects {
            self.connect(cx);
        }
    }

    /// Begins an attempt to connect to the next address of the peer.
    fn connect(&mut self, cx: &mut Context<'_>) {
        self.again_ns = None;
        let remote = self.remote();
        match begin(remote) {
            Ok(socket) => self.attempt(cx, socket, remote, false),
            Err(error) => {
                let reason = explain(&error, remote);
                self.fail_attempt(cx.now_ns, reason);
            }
        }
    }

    /// Takes over a connection accepted from the peer's address.
    pub fn accepted(&mut self, cx: &mut Context<'_>, socket: TcpStream, from: SocketAddr) {
        self.attempt(cx, socket, from, true);
        self.advance(cx);
    }

    /// Begins a connection attempt beside those in progress, so that another program on the peer's
    /// host cannot block the peer. Above [`ATTEMPTS_MAX`] (8), the oldest is closed.
    fn attempt(
        &mut self,
        cx: &mut Context<'_>,
        socket: TcpStream,
        from: SocketAddr,
        connected: bool,
    ) {
        self.renew(cx.now_ns);
        let security = self.security.as_ref().map(ReloadableTls::security);
        match ConnectionAttempt::new(cx, self.source, security, (socket, from, connected)) {
            Ok(attempt) => {
                self.attempts.push_back(attempt);
                if self.attempts.len() > ATTEMPTS_MAX
                    && let Some(mut oldest) = self.attempts.pop_front()
                {
                    oldest.connection.close();
                    self.fail_attempt(
                        cx.now_ns,
                        format!("{}: closed in favour of newer connection attempts", oldest.from),
                    );
                }
            }
            Err(ended) => self.fail_attempt(cx.now_ns, ended.to_string()),
        }
    }

    /// Processes readiness of a descriptor.
    pub fn ready(&mut self, cx: &mut Context<'_>, readable: bool, writable: bool) {
        self.advance(cx);
        if self.live.is_none() {
            return;
        }
        if writable && let Some(connection) = self.connection.lock().as_mut() {
            connection.writable(&self.inbox.stats);
        }
        if readable {
            cx.wake_source(self.source);
        }
    }

    /// Continues the connection attempts.
    fn advance(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.attempts.len() {
            let Some(mut attempt) = self.attempts.pop_front() else { return };
            match attempt.advance(cx.now_ns, &self.inbox) {
                Ok(true) if self.keeps_live(&attempt) => {
                    attempt.connection.close();
                    let text = "closed: the peer is connected already, and that connection answers";
                    self.fail_attempt(cx.now_ns, format!("{}: {text}", attempt.from));
                }
                Ok(true) => self.go_live(cx, attempt),
                // Behind the others, which are continued first in the next call.
                Ok(false) => self.attempts.push_back(attempt),
                Err(ended) => {
                    attempt.connection.close();
                    let reason = match ended {
                        ConnectionEnd::Host(error) if !attempt.connected => {
                            explain(&error, attempt.from)
                        }
                        other => format!("{}: {other}", attempt.from),
                    };
                    self.fail_attempt(cx.now_ns, reason);
                }
            }
        }
    }

    /// Returns whether the live connection stays although another was accepted.
    ///
    /// Without TLS a peer is identified by its address alone, so any user of the peer's host can
    /// open a connection. Such a connection does not replace one that answers. If the peer
    /// restarted, the old connection fails its next keepalive probe, and the peer's next attempt
    /// succeeds.
    fn keeps_live(&self, attempt: &ConnectionAttempt) -> bool {
        let answers = |live: &LiveConnection| {
            tcp_info::connection(live.socket.as_fd()).is_some_and(|c| c.answers)
        };
        self.security.is_none()
            && attempt.connected
            && !self.connects
            && self.live.as_ref().is_some_and(answers)
    }

    /// Makes a connection live.
    fn go_live(&mut self, cx: &mut Context<'_>, attempt: ConnectionAttempt) {
        let was_up = self.live.is_some();
        self.drop_live();
        self.live = Some(LiveConnection {
            socket: attempt.connection.socket.clone(),
            from: attempt.from,
            deframer: Deframer::new(STREAM_BYTES, FRAME_BYTES_MAX),
            since_ns: cx.now_ns,
            watch: attempt.watch,
        });
        *self.connection.lock() = Some(attempt.connection);
        self.ups = self.ups.saturating_add(1);
        if self.started && !was_up {
            self.inbox.report_standing(LinkStatus {
                up: true,
                poor: false,
                rtt_ns: None,
                is_dormant: false,
            });
        }
        if let Some(more) = self.log.admit(cx.now_ns) {
            let (link, from) = (self.inbox.name.as_str(), attempt.from);
            log::info!(link, peer:% = from, suppressed = more; "link is up");
        }
        // Frames may have arrived already, without another readiness event.
        cx.wake_source(self.source);
    }

    /// Closes the live connection. Its queued frames are lost.
    fn drop_live(&mut self) {
        self.live = None;
        if let Some(mut connection) = self.connection.lock().take() {
            connection.close();
            self.inbox.stats.add_drops(Loss::Down, connection.unsent());
        }
    }

    /// Handles a failed connection attempt.
    fn fail_attempt(&mut self, now_ns: u64, reason: String) {
        self.refused = self.refused.saturating_add(1);
        self.log_end(now_ns, &reason);
        if self.live.is_none() {
            self.reason = reason;
            // The next attempt goes to the next address.
            self.remotes.rotate_left(usize::from(self.remotes.len() > 1));
            self.schedule_connect(now_ns);
        }
    }

    /// Handles the end of the live connection.
    fn end_live(&mut self, now_ns: u64, reason: String) {
        let lasted = self.live.as_ref().map_or(0, |live| now_ns.saturating_sub(live.since_ns));
        if lasted >= CONNECT_AGAIN_NS_MAX {
            self.pause_ns = CONNECT_AGAIN_NS_MIN;
        }
        self.drop_live();
        self.log_end(now_ns, &reason);
        self.reason = reason;
        if self.started {
            self.inbox.report_standing(LinkStatus {
                up: false,
                poor: false,
                rtt_ns: None,
                is_dormant: false,
            });
        }
        self.schedule_connect(now_ns);
    }

    /// Logs the end of a connection or attempt, within the link's log limit.
    fn log_end(&mut self, now_ns: u64, reason: &str) {
        if let Some(more) = self.log.admit(now_ns) {
            let link = self.inbox.name.as_str();
            log::warn!(link, reason, suppressed = more; "a connection of a link ended");
        }
    }

    /// Schedules the next connection attempt.
    fn schedule_connect(&mut self, now_ns: u64) {
        if self.connects {
            self.again_ns = Some(now_ns.saturating_add(self.pause_ns));
            self.pause_ns = self.pause_ns.saturating_mul(2).min(CONNECT_AGAIN_NS_MAX);
        }
    }

    /// Returns when [`Self::tick`] must be called.
    pub fn deadline(&self) -> u64 {
        let attempts = self.attempts.iter().map(ConnectionAttempt::deadline);
        attempts.chain(self.again_ns).chain(self.renew_ns).min().unwrap_or(u64::MAX)
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        if self.attempts.iter().any(|attempt| attempt.deadline() <= cx.now_ns) {
            self.advance(cx);
        }
        if self.renew_ns.is_some_and(|at| at <= cx.now_ns) {
            self.renew(cx.now_ns);
        }
        if self.again_ns.is_some_and(|at| at <= cx.now_ns) {
            self.connect(cx);
        }
    }

    /// Receives about `budget` frames, until the turn's time is over.
    pub fn serve(&mut self, cx: &mut Context<'_>, budget: usize) -> SourceProgress {
        let (now_ns, mut count) = (cx.now_ns, 0_u32);
        while (count as usize) < budget && !(count > 0 && cx.is_over()) {
            let Some(live) = &mut self.live else { break };
            let read = match &self.security {
                None => read_bare(&live.socket, live.deframer.room()),
                Some(_) => match self.connection.lock().as_mut() {
                    Some(connection) => connection.read(live.deframer.room(), &self.inbox.stats),
                    None => Err(ConnectionEnd::Closed),
                },
            };
            match read {
                Ok(len) => {
                    cx.charge(cost::CALL_NS.saturating_add(cost::bytes(len).saturating_mul(2)));
                    live.deframer.filled(len);
                    match live.deliver(&self.inbox) {
                        Ok(frames) => count = count.saturating_add(frames.max(1)),
                        Err(error) => {
                            self.inbox.stats.add_drops(Loss::OutOfStep, 1);
                            self.end_live(now_ns, error.to_string());
                        }
                    }
                }
                Err(ConnectionEnd::Host(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return SourceProgress { progress: Progress::Idle, count };
                }
                Err(ended) => {
                    // The cause may be an earlier write error.
                    let failure =
                        self.connection.lock().as_mut().and_then(StreamConnection::failure);
                    let reason = format!("{}: {}", live.from, failure.unwrap_or(ended));
                    self.end_live(now_ns, reason);
                }
            }
        }
        let progress = if self.live.is_some() { Progress::Worked } else { Progress::Parked };
        SourceProgress { progress, count }
    }
}

impl Drop for StreamLink {
    fn drop(&mut self) {
        self.drop_live();
    }
}

impl LiveConnection {
    /// Passes complete frames to the group. Returns their number.
    fn deliver(&mut self, inbox: &LinkInbox) -> Result<u32, causeway_wire::vnet_stream::Error> {
        let mut frames = Vec::new();
        let mut bytes = 0_usize;
        let broken = loop {
            match self.deframer.take() {
                Ok(Some(at)) => {
                    bytes = bytes.saturating_add(at.len());
                    let offload = [0; OFFLOAD_BYTES];
                    frames.push(ReceivedFrame { at, offload, hops: 1, flood: None });
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        if bytes > COPIED_BYTES_MAX {
            let fresh = inbox.pool.take(STREAM_BYTES).into_bytes();
            let bytes = inbox.pool.adopt(self.deframer.exchange(fresh));
            inbox.deliver(ReceivedFrames { link: inbox.id, bytes, frames });
        } else if !frames.is_empty() {
            let mut copy = inbox.pool.take(bytes);
            let mut used = 0_usize;
            for frame in &mut frames {
                let end = used.saturating_add(frame.at.len());
                let from = self.deframer.bytes().get(frame.at.clone());
                if let (Some(room), Some(from)) = (copy.get_mut(used..end), from) {
                    room.copy_from_slice(from);
                }
                frame.at = used..end;
                used = end;
            }
            inbox.deliver(ReceivedFrames { link: inbox.id, bytes: copy, frames });
        }
        broken.map_or(Ok(count), Err)
    }
}
