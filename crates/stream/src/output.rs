//! Frames to the peer of a port: a bounded queue and the socket behind it.
//!
//! The thread of the forwarding service and the dispatcher of the port's shard share an [`Output`]
//! under a lock. The forwarding service queues each frame through [`PortCarrier`] and sends the
//! queue at the end of its turn, or once [`SEND_BYTES`] (65,000) wait; the shard sends the rest
//! when the socket has room again, and attaches and removes the peer. No call waits.
//!
//! Offloads: none. The forwarding service cuts segments before, and the copy into the queue
//! completes a checksum. Frames for a port without a peer, frames beyond [`OUTPUT_BYTES_MAX`] (1
//! MiB) and frames longer than the MTU permits are dropped and counted at this port, as at a `net`
//! port. An error of a stream ends the connection, and so does a peer whose wake-ups cost more than
//! its share (`fabric::wakes`): the socket is shut down, and its reader reports the error. A
//! datagram that the kernel refuses is dropped. A Unix peer without a socket is forgotten until it
//! sends a frame. A configured peer is kept: each batch of frames is offered to its path, and
//! dropped while no socket is there.
//!
//! # Budget
//! One copy per frame into the queue, besides the kernel's, and one uncontended lock per frame. One
//! `send` per turn, or per 65,000 bytes, for a stream, up to all that waits; one `sendmmsg` per 64
//! datagrams.
//!
//! [`OUTPUT_BYTES_MAX`]: crate::limits::OUTPUT_BYTES_MAX

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_fabric::carrier::{Carrier, MemoryLost, Outgoing, Refusal};
use causeway_fabric::limits::{WAKE_BYTE_NS, WAKE_USUAL_NS};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::wakes::{EXCESS, Verdict, WakeAccount};
use causeway_host::net::send::{OutgoingFrame, send_each, send_each_to};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use crate::counters::ReceiveCounters;
use crate::framing::{FrameQueue, PushError};
use crate::limits::SEND_BYTES;
use crate::socket::{DatagramSocket, StreamSocket};

/// Destination of frames.
#[derive(Debug, Clone)]
pub(crate) enum Peer {
    /// A connected stream.
    Stream(Arc<StreamSocket>),
    /// A Unix datagram socket of a process.
    Unix {
        /// The socket that sends.
        socket: Arc<DatagramSocket>,
        /// Address of the process's socket.
        to: SocketAddrUnix,
        /// The operator configured the address: it is kept while no socket is there.
        is_configured: bool,
    },
    /// The remote address of a UDP socket.
    Udp(Arc<DatagramSocket>),
}

/// The output of a port.
#[derive(Debug)]
pub(crate) struct Output(Mutex<OutputState>);

/// The state under the lock.
#[derive(Debug)]
pub(crate) struct OutputState {
    peer: Option<Peer>,
    /// The configured peer's socket was missing at the last attempt to send.
    is_away: bool,
    queue: FrameQueue,
    /// The socket has no room: the shard goes on when it has.
    is_blocked: bool,
    /// The error that ended the connection.
    failure: Option<String>,
    /// Cost of waking the peer.
    wakes: WakeAccount,
    /// Longest frame, in bytes.
    frame_max: usize,
    /// The kernel denies sending to the peer's socket.
    denied: Option<Errno>,
    /// Wakes the shard when a datagram socket has no room, of which the kernel does not report the
    /// end.
    stalled: Option<Sender<()>>,
    counters: ReceiveCounters,
}

/// Increments a counter by `by`.
fn add(counter: &mut u64, by: usize) {
    *counter = counter.wrapping_add(by as u64);
}

impl Output {
    /// Returns the output of a port without a peer; `stalled` is there for datagram sockets.
    pub fn new(frame_max: usize, stalled: Option<Sender<()>>) -> Self {
        Self(Mutex::new(OutputState {
            peer: None,
            is_away: false,
            queue: FrameQueue::new(stalled.is_none()),
            is_blocked: false,
            failure: None,
            wakes: WakeAccount::default(),
            frame_max,
            denied: None,
            stalled,
            counters: ReceiveCounters::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends to `peer` from now on. Frames for an earlier peer are dropped.
    pub fn attach(&self, peer: Peer) {
        let mut state = self.lock();
        state.drop_peer();
        state.peer = Some(peer);
        (state.failure, state.is_blocked, state.is_away) = (None, false, false);
    }

    /// Removes the peer. Frames that wait are dropped.
    pub fn detach(&self) {
        self.lock().drop_peer();
    }

    /// Returns whether the output has a peer, and did not find it missing at the last attempt.
    pub fn has_peer(&self) -> bool {
        let state = self.lock();
        state.peer.is_some() && !state.is_away
    }

    /// Returns and forgets the error that ended the connection.
    pub fn take_failure(&self) -> Option<String> {
        self.lock().failure.take()
    }

    /// Sends frames that wait, as the socket may have room again. Returns whether some still wait.
    pub fn resume(&self) -> bool {
        let mut state = self.lock();
        state.is_blocked = false;
        state.send();
        !state.queue.is_empty()
    }

    /// Returns why the kernel denies sending to the peer's socket.
    pub fn denied(&self) -> Option<Errno> {
        self.lock().denied
    }

    /// Returns the counters.
    pub fn counters(&self) -> ReceiveCounters {
        self.lock().counters
    }
}

impl OutputState {
    fn drop_peer(&mut self) {
        self.peer = None;
        self.drop_frames();
    }

    fn drop_frames(&mut self) {
        let lost = self.queue.clear();
        add(&mut self.counters.down, lost);
    }

    /// Queues a frame, or counts the reason why not.
    fn push(&mut self, frame: &Outgoing<'_>) {
        if self.peer.is_none() || self.failure.is_some() {
            return add(&mut self.counters.down, 1);
        }
        if frame.len > self.frame_max {
            return add(&mut self.counters.too_big, 1);
        }
        if self.queue.waiting().len() >= SEND_BYTES && !self.is_blocked {
            self.send();
        }
        match self.queue.push(frame.len, |into| frame.write(into)) {
            Ok(()) => {
                add(&mut self.counters.packets, 1);
                add(&mut self.counters.bytes, frame.len);
            }
            Err(PushError::Full) => add(&mut self.counters.no_buffer, 1),
            Err(PushError::Length | PushError::Source(MemoryLost)) => {
                add(&mut self.counters.sender_fault, 1);
            }
        }
    }

    /// Sends what waits, until the socket has no room.
    fn send(&mut self) {
        while let Some(peer) = self.peer.clone().filter(|_| !self.queue.is_empty()) {
            if self.is_blocked || self.failure.is_some() {
                return;
            }
            self.counters.calls = self.counters.calls.wrapping_add(1);
            match &peer {
                Peer::Stream(socket) => self.send_stream(socket),
                Peer::Unix { socket, to, .. } => {
                    let datagrams = self.queue.datagrams().map(whole);
                    let sent = send_each_to(socket.as_ref().as_fd(), to, datagrams);
                    self.sent_datagrams(sent);
                }
                Peer::Udp(socket) => {
                    let sent =
                        send_each(socket.as_ref().as_fd(), self.queue.datagrams().map(whole));
                    self.sent_datagrams(sent);
                }
            }
        }
    }

    /// Sends the bytes of a stream once.
    fn send_stream(&mut self, socket: &StreamSocket) {
        let Self { queue, wakes, .. } = self;
        let waiting = queue.waiting();
        let usual = (waiting.len() as u64).saturating_mul(WAKE_BYTE_NS);
        let usual = usual.saturating_add(WAKE_USUAL_NS);
        let (sent, verdict) = wakes.charge_beyond(usual, || socket.send(waiting));
        match sent {
            _ if verdict == Verdict::Excess => self.fail(socket, EXCESS.to_owned()),
            Ok(len) => self.queue.sent_bytes(len),
            Err(Errno::AGAIN) => self.is_blocked = true,
            Err(Errno::INTR) => {}
            Err(error) => self.fail(socket, io::Error::from(error).to_string()),
        }
    }

    /// Ends a stream; its reader, which the shutdown wakes, closes it.
    fn fail(&mut self, socket: &StreamSocket, reason: String) {
        self.failure = Some(reason);
        socket.shut_down();
    }

    /// Applies the result of sending datagrams.
    fn sent_datagrams(&mut self, sent: io::Result<usize>) {
        let error = match sent.map_err(|error| Errno::from_io_error(&error)) {
            Ok(count) => {
                (self.denied, self.is_away) = (None, false);
                return self.queue.sent_frames(count);
            }
            Err(error) => error.unwrap_or(Errno::IO),
        };
        let configured = match self.peer {
            Some(Peer::Unix { is_configured, .. }) => Some(is_configured),
            _ => None,
        };
        match error {
            Errno::AGAIN | Errno::NOBUFS => {
                self.is_blocked = true;
                if let Some(stalled) = &self.stalled {
                    // A waiting message does as well.
                    let _ = stalled.push(());
                }
            }
            Errno::INTR => {}
            Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET if configured == Some(true) => {
                self.is_away = true;
                self.drop_frames();
            }
            Errno::CONNREFUSED | Errno::NOENT | Errno::CONNRESET if configured.is_some() => {
                self.drop_peer();
            }
            _ => {
                self.denied = Some(error).filter(|e| [Errno::ACCESS, Errno::PERM].contains(e));
                // Also an ICMP error, which the kernel reports instead of sending.
                self.queue.sent_frames(1);
                add(&mut self.counters.down, 1);
            }
        }
    }
}

/// Returns a datagram for the kernel.
fn whole(head: &[u8]) -> OutgoingFrame<'_> {
    OutgoingFrame { head, body: None }
}

/// Takes frames of the forwarding service to a port, in the thread of that service.
#[derive(Debug)]
pub(crate) struct PortCarrier {
    output: Arc<Output>,
    frame_max: usize,
}

impl PortCarrier {
    /// Returns the carrier of a port whose frames have at most `frame_max` bytes.
    pub fn new(output: Arc<Output>, frame_max: usize) -> Self {
        Self { output, frame_max }
    }
}

impl Carrier for PortCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        // A drop is counted at this port, and not at the sender of the frame.
        self.output.lock().push(frame);
        Ok(())
    }

    fn flush(&mut self) -> u64 {
        let mut state = self.output.lock();
        // A datagram socket is tried again with new frames: the kernel does not report its room.
        state.is_blocked &= state.stalled.is_none();
        state.send();
        0
    }

    fn takes_offloads(&self) -> bool {
        false
    }

    fn longest(&self) -> usize {
        self.frame_max
    }
}
