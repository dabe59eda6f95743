//! The datagram side of a port: each datagram is a frame.
//!
//! A Unix port sends to one socket: the configured `peer`, else the socket that sent first. The
//! datagram `VFKT` (vfkit, krunkit, libkrun) announces a socket and replaces the last, as its VMM
//! was started again; a frame from another socket replaces a peer only if its socket is gone, and
//! is dropped and counted otherwise. The port looks for the peer's socket at most once in
//! [`PROBE_NS`] (100 ms), and drops such frames in between. A configured `peer` is never replaced,
//! and gets frames as soon as its socket is there, also before it sends. A sender without an
//! address cannot be answered and is dropped too. UDP is connected to its remote address, so that
//! the kernel drops all other datagrams; nothing proves that the source address is genuine.
//!
//! Datagrams wait in the socket while the forwarding service has no room for them; the kernel lets
//! a Unix sender wait, and drops UDP. A datagram longer than the MTU permits is dropped. A peer
//! that does not read is offered its frames again after [`RETRY_NS`] (1 ms), because the kernel
//! does not report room in the queue of another process (net.unix.max_dgram_qlen).
//!
//! [`crate::service`] calls the module in the thread of the dispatcher that owns the port's shard.
//!
//! # Budget
//! One `recvmsg` per frame, for UDP `recv` (its control buffer keeps descriptors from closing in
//! this thread), straight into the buffer that goes to the forwarding service, at most 64 frames a
//! batch, and one call without result when the socket is drained; one `sendmmsg` per 64 frames to
//! the peer.

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use causeway_fabric::mailbox::Mailbox;
use causeway_fabric::{Context, Progress, ServiceWatch, SourceProgress, cost};
use causeway_host::fd::receive::ReceivedDatagram;
use causeway_model::port::DgramSpec;
use causeway_model::{CommandError, PortSpec, PortState};
use causeway_wire::vmm_socket::VFKT;
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::bound_path::{self, BoundPath};
use crate::limits::{BATCH_BYTES, BATCH_DATAGRAMS_MAX, PROBE_NS, RETRY_NS};
use crate::output::{Output, Peer};
use crate::port::PortCore;
use crate::socket::{DatagramSocket, is_gone};

/// The datagram side of a port.
#[derive(Debug)]
pub(crate) struct DatagramEnd {
    /// Value of the socket's source and watch; the mailbox of a stalled output has the next.
    value: u32,
    socket: Arc<DatagramSocket>,
    #[expect(dead_code, reason = "held for its drop")]
    watch: ServiceWatch,
    /// Removes the file of the socket.
    #[expect(dead_code, reason = "held for its drop")]
    file: Option<BoundPath>,
    /// The configured peer.
    fixed: Option<SocketAddrUnix>,
    /// The socket to which frames go, once known.
    peer: Option<SocketAddrUnix>,
    /// A frame of the peer arrived.
    is_heard: bool,
    /// Time of the last check whether the peer is gone.
    probed_ns: u64,
    stalled: Mailbox<()>,
    /// Time at which frames are offered to the socket again.
    retry_ns: Option<u64>,
    pub connects_total: u64,
}

impl DatagramEnd {
    /// Opens the sockets of a port. Returns its output too.
    ///
    /// # Errors
    /// A socket cannot be bound or watched.
    pub fn open(
        cx: &mut Context<'_>,
        value: u32,
        spec: &PortSpec,
        options: &DgramSpec,
        frame_max: usize,
    ) -> Result<(Self, Arc<Output>), CommandError> {
        let host = |e: std::io::Error| CommandError::Host(format!("port {}: {e}", spec.name));
        let fixed = options.peer.as_deref().map(SocketAddrUnix::new).transpose();
        let fixed = fixed.map_err(|errno| host(errno.into()))?;
        let (socket, file) = match (options.udp, options.remote) {
            (Some(local), Some(remote)) => {
                let socket = DatagramSocket::bind_udp(local, remote).map_err(|error| {
                    CommandError::Host(format!("port {}: udp {local}: {error}", spec.name))
                })?;
                (socket, None)
            }
            _ => {
                let (socket, file) = bound_path::bind(&spec.socket)?;
                (socket, Some(file))
            }
        };
        let socket = Arc::new(socket);
        let watch = cx.watch_heard(socket.as_ref().as_fd(), value).map_err(host)?;
        let (sender, stalled) = cx.mailbox(1, value.saturating_add(1)).map_err(host)?;
        let output = Arc::new(Output::new(frame_max, Some(sender)));
        let peer = fixed.clone();
        match &peer {
            _ if socket.is_udp() => output.attach(Peer::Udp(socket.clone())),
            Some(at) => output.attach(Peer::Unix {
                socket: socket.clone(),
                to: at.clone(),
                is_configured: true,
            }),
            None => {}
        }
        let end = Self {
            value,
            socket,
            watch,
            file,
            fixed,
            peer,
            is_heard: false,
            probed_ns: 0,
            stalled,
            retry_ns: None,
            connects_total: 0,
        };
        Ok((end, output))
    }

    /// Returns the state for the operator: running once a frame came from the peer.
    pub fn state(&self, core: &PortCore) -> PortState {
        if self.is_heard && core.output.has_peer() {
            PortState::Running
        } else {
            PortState::Listening
        }
    }

    /// Returns the time at which [`Self::retry`] must be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.retry_ns
    }

    /// Plans to offer the frames that wait again: the socket had no room for them.
    pub fn stalled(&mut self, now_ns: u64) -> SourceProgress {
        while self.stalled.next().is_some() {}
        self.stalled.arm();
        self.retry_ns = Some(now_ns.saturating_add(RETRY_NS));
        SourceProgress { progress: Progress::Parked, count: 0 }
    }

    /// Offers the frames that wait again.
    pub fn retry(&mut self, now_ns: u64, core: &PortCore) {
        self.retry_ns = core.output.resume().then(|| now_ns.saturating_add(RETRY_NS));
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
            match core.has_room() {
                None => break Progress::Parked,
                Some(false) => break Progress::Worked,
                Some(true) if count >= budget || (count > 0 && cx.is_over()) => {
                    break Progress::Worked;
                }
                Some(true) => {}
            }
            let (came, is_drained) = self.receive_batch(cx, core);
            count = count.saturating_add(came);
            if is_drained {
                let polls = cx.polls_source(self.value);
                break if polls { Progress::Idle } else { Progress::Parked };
            }
        };
        core.report(cx);
        SourceProgress { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// Receives a batch and passes its frames on. Returns the number of datagrams, and whether the
    /// socket has no more.
    fn receive_batch(&mut self, cx: &mut Context<'_>, core: &mut PortCore) -> (usize, bool) {
        let Some(sender) = core.sender.as_ref() else { return (0, true) };
        let mut buffer = sender.buffer(BATCH_BYTES);
        let (mut used, mut count) = (0_usize, 0_usize);
        let (mut frames, mut is_drained) = (Vec::<Range<usize>>::new(), false);
        while count < BATCH_DATAGRAMS_MAX && !(count > 0 && cx.is_over()) {
            let end = used.saturating_add(core.frame_max);
            let Some(room) = buffer.get_mut(used..end) else { break };
            match self.socket.receive(room) {
                Ok(came) => {
                    count = count.saturating_add(1);
                    cx.charge(cost::CALL_NS.saturating_add(cost::bytes(came.bytes)));
                    let at = used..used.saturating_add(came.bytes);
                    let bytes = buffer.get(at.clone()).unwrap_or(&[]);
                    if self.admit(cx.now_ns, core, &came, bytes) {
                        used = at.end;
                        frames.push(at);
                    }
                }
                Err(Errno::INTR) => {}
                // An ICMP error of an earlier UDP datagram: the peer's program does not run.
                Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => {
                    count = count.saturating_add(1);
                    self.is_heard = false;
                }
                Err(_) => {
                    is_drained = true;
                    break;
                }
            }
        }
        if let Some(sender) = core.sender.as_mut() {
            sender.send(buffer, frames);
        }
        (count, is_drained)
    }

    /// Checks a datagram and its sender. Returns whether it is a frame that goes on.
    fn admit(
        &mut self,
        now_ns: u64,
        core: &mut PortCore,
        came: &ReceivedDatagram,
        bytes: &[u8],
    ) -> bool {
        let counters = &mut core.ingress.counters;
        if came.is_odd {
            counters.too_big = counters.too_big.wrapping_add(1);
            return false;
        }
        let announces = *bytes == VFKT;
        if !self.socket.is_udp() && !self.is_of_peer(now_ns, core, came.from.as_ref(), announces) {
            let foreign = &mut core.ingress.counters.foreign;
            *foreign = foreign.wrapping_add(1);
            return false;
        }
        if !self.is_heard {
            self.is_heard = true;
            self.connects_total = self.connects_total.saturating_add(1);
            core.log_state(now_ns, "the peer sends frames");
        }
        !announces && core.ingress.admit(bytes)
    }

    /// Returns whether a datagram is the peer's, which it may have become by it.
    fn is_of_peer(
        &mut self,
        now_ns: u64,
        core: &PortCore,
        from: Option<&SocketAddrUnix>,
        announces: bool,
    ) -> bool {
        let Some(from) = from else { return false };
        if self.peer.as_ref() == Some(from) {
            // The output forgot a peer that was gone for a while.
            if !core.output.has_peer() {
                self.attach(core, from);
            }
            return true;
        }
        if self.fixed.is_some() || !(announces || self.has_lost_peer(now_ns, core)) {
            return false;
        }
        self.attach(core, from);
        self.peer = Some(from.clone());
        self.is_heard = false;
        true
    }

    /// Sends frames to the socket at `to` from now on.
    fn attach(&self, core: &PortCore, to: &SocketAddrUnix) {
        core.output.attach(Peer::Unix {
            socket: self.socket.clone(),
            to: to.clone(),
            is_configured: self.fixed.is_some(),
        });
    }

    /// Returns whether the port has no peer, or one whose socket is gone.
    fn has_lost_peer(&mut self, now_ns: u64, core: &PortCore) -> bool {
        let Some(peer) = &self.peer else { return true };
        if !core.output.has_peer() {
            return true;
        }
        if now_ns.saturating_sub(self.probed_ns) < PROBE_NS {
            return false;
        }
        self.probed_ns = now_ns;
        is_gone(peer)
    }
}
