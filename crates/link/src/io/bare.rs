//! Links with one frame per datagram: `vnet` (the bare frame, as VNET/P sends it) and `vxlan` (RFC
//! 7348).
//!
//! A peer is identified by its IP address (any port) and, with `vxlan`, the virtual network; the
//! protocol does not show whether it is alive: such a link is *open* from the start. `ethernet`
//! segments TCP before [`BareCarrier`]; checksums are completed in the carrier's copy. Successive
//! frames of equal length from one socket leave in one system call. VXLAN's source port depends on
//! the inner flow (RFC 7348, section 5), so that hosts and networks can balance flows; a port needs
//! a socket, so there are at most [`VXLAN_SENDERS`] (4) ports. Datagrams longer than the path's MTU
//! are fragmented by IP, as those of the kernel's VXLAN device. There is no authentication and no
//! encryption: any host that can forge the peer's address can send frames.
//!
//! `ethernet` calls [`BareCarrier`] in the thread of the group; it refuses frames longer than
//! [`BARE_FRAME_MAX`] (65,499 bytes) with [`Refusal::TooBig`]. The shard of links calls
//! [`BareSocket::serve`], which passes received frames to the group's mailbox. Datagrams of an
//! unknown address or network, with a truncated header, or with a frame that is too short or that
//! its ECN mark forbids to forward, are dropped and counted. The links learn no addresses from
//! frames (`ethernet` does), retransmit nothing, and carry neither hop counts nor flood numbers.
//!
//! # Budget
//! One copy per frame sent, from the sender's memory into the buffer of the send call. Received
//! frames are not copied before they are written to their receiver, except those of a further link
//! in one receive buffer.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, OFFLOAD_BYTES, Outgoing, ReceivedFrame, ReceivedFrames, Refusal,
};
use causeway_fabric::udp::{Burst, Fragmentation, Origin, Udp, UdpReceiver};
use causeway_fabric::{Context, Progress, SourceProgress, cost};
use causeway_model::TrafficClass;
use causeway_wire::ecn::{Ecn, decapsulate, traffic_class};
use causeway_wire::frame::{FlowKey, Frame};
use causeway_wire::vxlan;
use rustix::io::Errno;

use super::inbox::LinkInbox;
use super::limits::{BARE_FRAME_MAX, FRAME_MIN, SEND_BYTES, VXLAN_SENDERS};
use super::local_address::{LocalAddressReader, LocalAddressRecorder, is_of_address};
use super::stats::{LinkStats, Loss};
use super::udp_batch::{BatchSender, LostDatagrams};
use crate::mss::SegmentSizes;
use crate::partial_offload::missing_offload;

/// Header before each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// None.
    Vnet,
    /// A VXLAN header.
    Vxlan,
}

/// A UDP socket that links share, and their peers.
#[derive(Debug)]
pub struct BareSocket {
    /// The socket.
    pub udp: Arc<Udp>,
    /// The sockets from which its links send.
    senders: Arc<Senders>,
    encapsulation: Encapsulation,
    receiver: UdpReceiver,
    /// Received datagrams of one call; empty between calls.
    bursts: Vec<Burst>,
    /// By the peer's address, and the virtual network.
    peers: HashMap<(IpAddr, u32), BarePeer>,
    /// Segment sizes of local TCP endpoints; for VXLAN only.
    sizes: Option<Arc<SegmentSizes>>,
    /// Datagrams that belong to no link, by reason.
    pub unmatched: UnmatchedDatagrams,
}

/// The peer of one link.
#[derive(Debug)]
struct BarePeer {
    /// Access to the group of the link.
    inbox: LinkInbox,
    /// The longest packet that the link carries, in bytes.
    packet: usize,
    /// The local address to which the peer sends.
    local_address: LocalAddressRecorder,
}

/// Sockets to send from; a flow always uses the same one.
#[derive(Debug)]
struct Senders {
    /// Never empty; for `vnet` the socket that receives.
    sockets: Vec<Arc<Udp>>,
    /// Random per process, because guests choose the flows.
    flows: RandomState,
}

impl Senders {
    fn new(udp: &Arc<Udp>, encapsulation: Encapsulation) -> Self {
        let mut sockets = Vec::new();
        if let (Encapsulation::Vxlan, Ok(local)) = (encapsulation, udp.local()) {
            // Fewer if the host refuses more.
            let more = || Udp::bind_to_send(local.ip(), Fragmentation::Allowed).map(Arc::new);
            sockets.extend(std::iter::repeat_with(more).take(VXLAN_SENDERS).map_while(Result::ok));
        }
        if sockets.is_empty() {
            sockets.push(udp.clone());
        }
        Self { sockets, flows: RandomState::new() }
    }

    /// Returns the index of the socket for a flow.
    fn of(&self, flow: &FlowKey) -> usize {
        let flow = self.flows.hash_one(flow);
        let at = flow.checked_rem(self.sockets.len() as u64).unwrap_or(0);
        usize::try_from(at).unwrap_or(0)
    }
}

/// Datagrams that belong to no link.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnmatchedDatagrams {
    /// Source address without a link.
    pub unknown_peer: u64,
    /// Virtual network without a link to that peer.
    pub wrong_vni: u64,
    /// Truncated header.
    pub truncated: u64,
    /// Source address of the last such datagram.
    pub last: Option<IpAddr>,
}

impl BareSocket {
    /// Returns a `BareSocket` on a bound UDP socket.
    pub fn new(udp: Udp, encapsulation: Encapsulation, pool: BufferPool) -> Self {
        // Required by RFC 7348, section 5; by default hosts drop such datagrams, and not all
        // implement RFC 6935.
        if let (Encapsulation::Vxlan, Err(error)) = (encapsulation, udp.accept_zero_checksum()) {
            log::warn!(error:% = error; "cannot accept datagrams without a UDP checksum: the host drops those over IPv6");
        }
        udp.report_destinations();
        udp.report_classes();
        let udp = Arc::new(udp);
        Self {
            senders: Arc::new(Senders::new(&udp, encapsulation)),
            udp,
            encapsulation,
            receiver: UdpReceiver::new(pool),
            bursts: Vec::new(),
            peers: HashMap::new(),
            sizes: (encapsulation == Encapsulation::Vxlan).then(Arc::default),
            unmatched: UnmatchedDatagrams::default(),
        }
    }

    /// Returns the network in the key of a peer: 0 for `vnet`, which has none.
    fn network(&self, vni: u32) -> u32 {
        match self.encapsulation {
            Encapsulation::Vnet => 0,
            Encapsulation::Vxlan => vni,
        }
    }

    /// Adds a link to a peer, which carries packets of `packet` bytes.
    ///
    /// # Errors
    /// The link that has this peer and network already.
    pub fn add(
        &mut self,
        remote: SocketAddr,
        vni: u32,
        inbox: LinkInbox,
        packet: usize,
    ) -> Result<(), LinkId> {
        let key = (remote.ip().to_canonical(), self.network(vni));
        if let Some(other) = self.peers.get(&key) {
            return Err(other.inbox.id);
        }
        self.peers.insert(
            key,
            BarePeer { inbox, packet, local_address: LocalAddressRecorder::default() },
        );
        Ok(())
    }

    /// Removes a link.
    pub fn remove(&mut self, id: LinkId) {
        self.peers.retain(|_, peer| peer.inbox.id != id);
    }

    /// Returns the carrier of a link, whose datagrams have that traffic class.
    pub fn carrier(
        &self,
        remote: SocketAddr,
        vni: u32,
        class: TrafficClass,
        stats: Arc<LinkStats>,
    ) -> BareCarrier {
        let key = (remote.ip().to_canonical(), self.network(vni));
        let local_address = self.peers.get(&key).map(|peer| peer.local_address.reader());
        let header = match self.encapsulation {
            Encapsulation::Vnet => None,
            Encapsulation::Vxlan => Some(vxlan::emit(vni)),
        };
        BareCarrier {
            senders: self.senders.clone(),
            sizes: self.sizes.clone(),
            at: 0,
            flow: (FlowKey::default(), 0),
            class: (class, 0),
            remote,
            local_address: local_address
                .unwrap_or_else(|| LocalAddressRecorder::default().reader()),
            header,
            bytes: vec![0; SEND_BYTES.saturating_add(BARE_FRAME_MAX)],
            used: 0,
            segment: 0,
            count: 0,
            closed: false,
            batches: BatchSender::default(),
            stats,
        }
    }

    /// Receives about `budget` frames, until the turn's time is over. `polled`: whether the call is
    /// a poll, or follows a readiness event.
    pub fn serve(&mut self, cx: &mut Context<'_>, budget: usize, polled: bool) -> SourceProgress {
        let mut count = 0_u32;
        while (count as usize) < budget && !(count > 0 && cx.is_over()) {
            let mut bursts = std::mem::take(&mut self.bursts);
            let received =
                self.receiver.receive(&self.udp, &mut bursts, polled, cx.steps(cost::BURST_NS));
            for burst in bursts.drain(..) {
                cx.charge(cost::CALL_NS.saturating_add(cost::bytes(burst.len)));
                // An empty datagram costs a call as well.
                count = count.saturating_add(self.take(burst).max(1));
            }
            self.bursts = bursts;
            match received {
                Ok(true) => {}
                Ok(false) => return SourceProgress { progress: Progress::Idle, count },
                // The error of an earlier send (ICMP), reported once.
                Err(_) => count = count.saturating_add(1),
            }
        }
        SourceProgress { progress: Progress::Worked, count }
    }

    /// Passes the frames of a burst to their groups. Returns the number of datagrams.
    fn take(&mut self, mut burst: Burst) -> u32 {
        let mut frames: Vec<ReceivedFrame> = Vec::new();
        let (mut total, mut of) = (0_u32, None);
        let ecn = Ecn::of(burst.class);
        let ip = burst.from.ip();
        for datagram in burst.datagrams() {
            total = total.saturating_add(1);
            let bytes = burst.buffer.get(datagram.clone()).unwrap_or(&[]);
            let Some((vni, start)) = self.header(bytes) else {
                self.unmatched.truncated = self.unmatched.truncated.wrapping_add(1);
                continue;
            };
            let Some(peer) = self.peers.get_mut(&(ip, vni)) else {
                let known = self.peers.keys().any(|(peer, _)| *peer == ip);
                let unmatched = &mut self.unmatched;
                let count =
                    if known { &mut unmatched.wrong_vni } else { &mut unmatched.unknown_peer };
                *count = count.wrapping_add(1);
                unmatched.last = Some(ip);
                continue;
            };
            peer.local_address.record(burst.to);
            let BarePeer { inbox, packet, .. } = &*peer;
            let at = datagram.start.saturating_add(start)..datagram.end;
            if at.len() < FRAME_MIN {
                inbox.stats.add_drops(Loss::Runt, 1);
                continue;
            }
            let frame = burst.buffer.get_mut(at.clone()).unwrap_or_default();
            if decapsulate(frame, ecn).is_err() {
                inbox.stats.add_drops(Loss::Congestion, 1);
                continue;
            }
            let offload = match self.encapsulation {
                Encapsulation::Vnet => [0; OFFLOAD_BYTES],
                Encapsulation::Vxlan => missing_offload(frame, *packet, self.sizes.as_deref()),
            };
            let arrival = ReceivedFrame { at, offload, hops: 1, flood: None };
            match of {
                None => of = Some((ip, vni)),
                Some(first) if first == (ip, vni) => {}
                // Another link's frame in the same burst is rare, so it is copied.
                Some(_) => {
                    let frame = burst.buffer.get(arrival.at.clone()).unwrap_or(&[]);
                    inbox.deliver_copy(frame, arrival);
                    continue;
                }
            }
            frames.push(arrival);
        }
        if let Some(BarePeer { inbox, .. }) = of.and_then(|key| self.peers.get(&key)) {
            inbox.deliver(ReceivedFrames { link: inbox.id, bytes: burst.buffer, frames });
        }
        total
    }

    /// Returns a datagram's network, and the offset of its frame.
    fn header(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        match self.encapsulation {
            Encapsulation::Vnet => Some((0, 0)),
            Encapsulation::Vxlan => {
                vxlan::parse(bytes).ok().map(|(vni, _)| (vni, vxlan::HEADER_LEN))
            }
        }
    }
}

/// Carrier of one link, for one shard.
#[derive(Debug)]
pub struct BareCarrier {
    senders: Arc<Senders>,
    /// Segment sizes of local TCP endpoints; for VXLAN only.
    sizes: Option<Arc<SegmentSizes>>,
    /// Index of the socket from which the batch leaves.
    at: usize,
    /// The flow of the last frame, and the index of its socket.
    flow: (FlowKey, usize),
    /// The configured traffic class, and the class of the batch's datagrams.
    class: (TrafficClass, u8),
    /// The peer's address.
    remote: SocketAddr,
    local_address: LocalAddressReader,
    /// The VXLAN header before each frame; `None` for `vnet`.
    header: Option<[u8; vxlan::HEADER_LEN]>,
    /// Datagrams of [`Self::segment`] bytes, `used` bytes in all.
    bytes: Vec<u8>,
    used: usize,
    /// Length of every datagram of the batch but the last, in bytes.
    segment: usize,
    /// Datagrams in the batch.
    count: usize,
    /// Whether the last datagram is shorter, so that none may follow it.
    closed: bool,
    batches: BatchSender,
    stats: Arc<LinkStats>,
}

impl BareCarrier {
    /// Returns the index of the socket for a frame.
    fn sender(&mut self, frame: &Outgoing<'_>) -> usize {
        if self.senders.sockets.len() < 2 && self.sizes.is_none() {
            return 0;
        }
        let Ok(known) = Frame::parse(frame.head) else { return 0 };
        if let (Some(sizes), Some(network)) = (&self.sizes, &known.network) {
            sizes.record(frame.head, network);
        }
        let flow = known.flow_key(frame.head);
        // Most frames have the flow of the frame before.
        if flow != self.flow.0 {
            self.flow = (flow, self.senders.of(&flow));
        }
        self.flow.1
    }

    /// Appends a frame to the batch.
    fn append(&mut self, frame: &Outgoing<'_>, size: usize) -> Result<(), Refusal> {
        let end = self.used.saturating_add(size);
        let room = self.bytes.get_mut(self.used..end).ok_or(Refusal::TooBig)?;
        let header = self.header.as_ref().map_or(&[][..], |header| &header[..]);
        let (before, behind) = room.split_at_mut_checked(header.len()).ok_or(Refusal::TooBig)?;
        before.copy_from_slice(header);
        frame.write(behind).map_err(|_| Refusal::Lost)?;
        self.used = end;
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Sends the batch. Returns the datagrams that the host refused.
    fn send(&mut self) -> LostDatagrams {
        let Some(udp) = self.senders.sockets.get(self.at).cloned() else {
            return LostDatagrams::default();
        };
        let bytes = self.bytes.get(..self.used).unwrap_or(&[]);
        let stats = &self.stats;
        let mut of_address = false;
        let refused = |error: &io::Error, count| {
            of_address |= is_of_address(error);
            stats.add_drops(loss(error), count);
        };
        let from = self.local_address.address();
        let origin = Origin { from, class: self.class.1 };
        let lost = self.batches.send(&udp, self.remote, origin, (bytes, self.segment), refused);
        if of_address && from.is_some() {
            self.local_address.forget();
        }
        lost
    }
}

/// Returns the counter for a send error.
fn loss(error: &io::Error) -> Loss {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN | Errno::NOBUFS) => Loss::NoRoom,
        Some(Errno::MSGSIZE) => Loss::TooBig,
        _ => Loss::Unreachable,
    }
}

impl Carrier for BareCarrier {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        if frame.len > BARE_FRAME_MAX {
            self.stats.add_drops(Loss::TooBig, 1);
            return Err(Refusal::TooBig);
        }
        let header = self.header.map_or(0, |header| header.len());
        let size = frame.len.saturating_add(header);
        let at = self.sender(frame);
        let class = self.class.0.outer(traffic_class(frame.head));
        let most = self.senders.sockets.get(at).map_or(1, |udp| udp.batch());
        let full = self.count >= most
            || (self.at, self.class.1) != (at, class)
            || self.closed
            || size > self.segment
            || self.used.saturating_add(size) > SEND_BYTES;
        if self.count > 0 && full {
            self.flush();
        }
        if self.count == 0 {
            (self.segment, self.at, self.class.1) = (size, at, class);
        }
        let appended = self.append(frame, size);
        match appended {
            Ok(()) => self.closed = size < self.segment,
            Err(_) => self.stats.add_drops(Loss::SenderFault, 1),
        }
        appended
    }

    fn flush(&mut self) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let lost = self.send();
        let sent = (self.count as u64).saturating_sub(lost.count);
        let headers = sent.saturating_mul(self.header.map_or(0, |header| header.len()) as u64);
        let bytes = self.used.saturating_sub(lost.bytes) as u64;
        self.stats.add_transmitted(sent, bytes.saturating_sub(headers), sent);
        (self.used, self.count, self.closed) = (0, 0, false);
        lost.count
    }

    fn takes_offloads(&self) -> bool {
        false
    }

    fn longest(&self) -> usize {
        BARE_FRAME_MAX
    }
}

#[cfg(test)]
mod tests {
    use causeway_fabric::carrier::Body;
    use causeway_wire::virtio_net::Offload;

    use super::super::limits::GSO_RETRY_BATCHES;
    use super::*;

    fn carrier(to: &str) -> BareCarrier {
        let udp = Udp::bind("127.0.0.1:0".parse().unwrap(), Fragmentation::Allowed).unwrap();
        let socket = BareSocket::new(udp, Encapsulation::Vnet, BufferPool::default());
        socket.carrier(to.parse().unwrap(), 0, TrafficClass::default(), Arc::default())
    }

    /// Sends `count` frames of `len` bytes in one batch. Returns how many were lost.
    fn batch(carrier: &mut BareCarrier, count: usize, len: usize) -> u64 {
        let (offload, bytes) = (Offload::None, vec![2; len]);
        for _ in 0..count {
            let (head, body) = (&[][..], Body::Private(&bytes));
            let frame = Outgoing { offload: &offload, head, body, len, hops: 0, flood: None };
            carrier.push(&frame).unwrap();
        }
        carrier.flush()
    }

    #[test]
    fn gso_survives_an_unreachable_destination() {
        // Without SO_BROADCAST, sending to this address fails.
        let mut carrier = carrier("255.255.255.255:9");
        assert_eq!(batch(&mut carrier, 5, 100), 5);
        assert_eq!(carrier.stats.by_name()["drop_unreachable_total"], 5);
        assert_eq!(
            carrier.batches.single_from,
            usize::MAX,
            "many at a time, when it is open again"
        );
    }

    #[test]
    fn gso_is_retried_after_single_sends() {
        let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut carrier = carrier(&far.local_addr().unwrap().to_string());
        (carrier.batches.single_from, carrier.batches.batches_left) = (50, GSO_RETRY_BATCHES);
        for _ in 1..GSO_RETRY_BATCHES {
            assert_eq!((batch(&mut carrier, 2, 100), carrier.batches.single_from), (0, 50));
        }
        assert_eq!((batch(&mut carrier, 2, 100), carrier.batches.single_from), (0, usize::MAX));
        // Shorter datagrams were sent in batches all the time.
        (carrier.batches.single_from, carrier.batches.batches_left) = (50, GSO_RETRY_BATCHES);
        batch(&mut carrier, 2, 40);
        assert_eq!(carrier.batches.batches_left, GSO_RETRY_BATCHES);
    }
}
