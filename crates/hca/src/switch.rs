//! Ethernet frames between the adapters of a group, and to the service that forwards the group's
//! frames.
//!
//! A call of a port ([`crate::call`], in the dispatcher's thread) calls [`Switch::receive`] before
//! the port's commands and messages, and [`Switch::transmit`] after them. Adapters have addresses
//! that the operator assigned, so the switch learns nothing.
//!
//! | frame of an adapter | way |
//! |---|---|
//! | its source is not the adapter's address | dropped, counted in `drop_spoofed_frames_total` |
//! | to an adapter of the group, while the forwarding service neither filters frames nor observes one of the two ([`crate::policy::GroupPolicy::is_direct`]) | to the adapter, with one copy from guest to guest |
//! | to a flooded group address ([`is_flooded`]), while the service neither filters nor observes any frame, in a group of at most [`DIRECT_MULTICAST_ADAPTERS_MAX`] (8) adapters | to each other adapter in the same way, and to the other members by the uplink |
//! | every other frame | to the uplink; the forwarding service returns it for each adapter that receives it |
//! | without a forwarding service | group addresses: to every other adapter; an unknown address: dropped, not counted |
//!
//! A frame that its receiver has no buffer for or cannot deliver is dropped and counted in the
//! counters that its guest reads: Ethernet does not wait. An adapter filters the addresses that its
//! driver asked for by itself ([`receive_frame`]).
//!
//! A call takes at most [`FRAMES_PER_CALL_MAX`] (64) frames of its guest, and as many of the uplink
//! for it, and stops when the call's time is over or the uplink has no room; other frames stay in
//! their queue.

use std::collections::BTreeMap;

use causeway_fabric::mailbox::Sender;
use causeway_fabric::{Context, PortId, cost};
use causeway_memory::Map;
use causeway_mlx5::Function;
use causeway_mlx5::ethernet::{
    Body, Deliveries, Frame, FrameRef, Next, complete_frame, has_frames, next_frame, receive_frame,
};
use causeway_verbs::{AdapterId, Queues, Subnet};
use causeway_wire::ethernet::{self, is_group, is_link_local};
use causeway_wire::hello;

use crate::adapter_port::AdapterPort;
use crate::inbound::InboundFrame;
use crate::limits::{
    CROWDED_FRAMES, DIRECT_MULTICAST_ADAPTERS_MAX, FRAMES_PER_CALL_MAX, LOOK_NS, PIECE_NS,
};
use crate::traffic::DirectTraffic;
use crate::uplink::Uplink;

/// Returns the destination and source address of a frame.
fn addresses(head: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let (destination, rest) = head.split_first_chunk()?;
    Some((*destination, *rest.first_chunk()?))
}

/// Returns whether every service that forwards frames floods those to an address: a group address
/// that neither a bridge nor the daemons keep for themselves.
fn is_flooded(destination: [u8; 6]) -> bool {
    is_group(destination)
        && destination != hello::ADDRESS
        && !is_link_local(ethernet::number(destination))
}

/// Returns the estimated time of the deliveries of a frame, in nanoseconds.
fn delivery_ns(deliveries: &Deliveries) -> u64 {
    let bytes = usize::try_from(deliveries.bytes()).unwrap_or(usize::MAX);
    let pieces = u64::from(deliveries.pieces()).saturating_mul(PIECE_NS);
    pieces.saturating_add(cost::bytes(bytes))
}

/// Returns the estimated time of looks at inboxes, in nanoseconds.
fn looks_ns(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(LOOK_NS)
}

/// The adapters of a group by Ethernet address, and the frame under way.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// Adapters by Ethernet address.
    adapters: BTreeMap<[u8; 6], AdapterId>,
    /// Ports by adapter.
    ports: BTreeMap<AdapterId, PortId>,
    /// Inboxes of the adapters that have joined the forwarding service.
    inboxes: BTreeMap<AdapterId, Sender<InboundFrame>>,
    /// The frame that is being forwarded; kept for its memory.
    frame: Frame,
}

impl Switch {
    /// Adds an adapter, whose address no other adapter of the subnet has.
    pub(crate) fn add(&mut self, mac: [u8; 6], adapter: AdapterId, port: PortId) {
        self.adapters.insert(mac, adapter);
        self.ports.insert(adapter, port);
    }

    /// Forgets an adapter.
    pub(crate) fn remove(&mut self, mac: [u8; 6], adapter: AdapterId) {
        self.adapters.remove(&mac);
        self.ports.remove(&adapter);
        self.inboxes.remove(&adapter);
    }

    /// Sets the inbox of an adapter for frames of the forwarding service.
    pub(crate) fn set_inbox(&mut self, adapter: AdapterId, inbox: Sender<InboundFrame>) {
        self.inboxes.insert(adapter, inbox);
    }

    /// Returns the port of an adapter.
    pub(crate) fn port_of(&self, adapter: AdapterId) -> Option<PortId> {
        self.ports.get(&adapter).copied()
    }

    /// Takes frames of a guest's send queues and delivers them, at most 64 and within the call's
    /// time. Returns their number.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        subnet: &mut Subnet<Function>,
        port: &mut AdapterPort,
        (mut uplink, traffic): (Option<&mut Uplink>, &mut DirectTraffic),
    ) -> u32 {
        let mut count = 0_u32;
        for _ in 0..FRAMES_PER_CALL_MAX {
            let Some(adapter) = subnet.adapter_mut(port.adapter) else { break };
            // A frame without room stays in its send queue.
            if let Some(station) = port.station.as_mut()
                && !station.sender.has_room()
            {
                let (has_frames, looks) = has_frames(adapter);
                cx.charge(u64::from(looks).saturating_mul(LOOK_NS));
                station.sender.wait(has_frames);
                break;
            }
            let next = next_frame(adapter, &mut self.frame);
            cx.charge(u64::from(self.frame.looks).saturating_mul(LOOK_NS));
            match next {
                Next::Empty => break,
                Next::Dropped => {}
                Next::Frame => {
                    let paths = (uplink.as_deref_mut(), &mut *traffic);
                    cx.charge(self.forward(cx.now_ns, subnet, port, paths));
                    if let Some(adapter) = subnet.adapter_mut(port.adapter) {
                        complete_frame(adapter);
                    }
                }
            }
            count = count.saturating_add(1);
            cx.charge(cost::CHAIN_NS);
            if cx.is_over() {
                break;
            }
        }
        if let Some(station) = port.station.as_mut().filter(|_| count > 0) {
            station.sender.flush();
        }
        count
    }

    /// Delivers the frame that was taken from an adapter's send queue. Returns the estimated time,
    /// in nanoseconds.
    fn forward(
        &self,
        now_ns: u64,
        subnet: &mut Subnet<Function>,
        port: &mut AdapterPort,
        (mut uplink, traffic): (Option<&mut Uplink>, &mut DirectTraffic),
    ) -> u64 {
        let mut deliveries = Deliveries::default();
        let Some((destination, source)) = addresses(&self.frame.head) else { return 0 };
        if source != port.mac {
            port.counters.spoofed = port.counters.spoofed.wrapping_add(1);
            return 0;
        }
        let to = self.adapters.get(&destination);
        let is_direct = to.is_some()
            && uplink.as_mut().is_none_or(|uplink| uplink.policy.is_direct(source, destination));
        let direct = to.filter(|_| is_direct);
        if let Some(to) = direct
            && let Some((sender, receiver)) = subnet.adapter_pair(port.adapter, *to)
        {
            traffic.count_frame((source, destination), self.frame.len, now_ns);
            receive_frame(receiver, &self.frame_in(sender.queues().map()), &mut deliveries);
            return delivery_ns(&deliveries);
        }
        let Some(sender) = subnet.adapter(port.adapter) else { return 0 };
        // The receiver is borrowed while the sender's memory is read.
        let map = sender.queues().shared_map();
        let frame = self.frame_in(&map);
        match (direct, uplink) {
            (Some(to), _) => {
                traffic.count_frame((source, destination), frame.len, now_ns);
                if let Some(receiver) = subnet.adapter_mut(*to) {
                    receive_frame(receiver, &frame, &mut deliveries);
                }
            }
            (None, Some(uplink)) => {
                // A port that has not joined the group yet reaches no member.
                let Some(station) = &mut port.station else { return 0 };
                let reaches_all = uplink.policy.is_open()
                    && self.adapters.len() <= DIRECT_MULTICAST_ADAPTERS_MAX
                    && is_flooded(destination);
                if reaches_all {
                    self.deliver_to_all(subnet, port.adapter, &frame, &mut deliveries);
                }
                let receiver = match to {
                    Some(to) => self.inboxes.get(to),
                    None if is_group(destination) && !reaches_all => {
                        self.inboxes.values().find(|inbox| inbox.waiting() >= CROWDED_FRAMES)
                    }
                    None => None,
                };
                station.sender.push(&frame, receiver, reaches_all);
                port.counters.uplink = port.counters.uplink.wrapping_add(1);
                let looks = if is_group(destination) { self.inboxes.len() } else { 1 };
                let looks_ns = looks_ns(looks).saturating_add(delivery_ns(&deliveries));
                return cost::bytes(frame.len).saturating_add(looks_ns);
            }
            (None, None) if is_group(destination) => {
                self.deliver_to_all(subnet, port.adapter, &frame, &mut deliveries);
            }
            (None, None) => {}
        }
        delivery_ns(&deliveries)
    }

    /// Returns the frame that was taken, of a sender with this memory.
    fn frame_in<'a>(&'a self, map: &'a Map) -> FrameRef<'a> {
        let Frame { offload, head, body, len, .. } = &self.frame;
        FrameRef { offload, head, body: Body::Guest(map, body), len: *len }
    }

    /// Delivers a frame to every adapter but `except`.
    fn deliver_to_all(
        &self,
        subnet: &mut Subnet<Function>,
        except: AdapterId,
        frame: &FrameRef<'_>,
        deliveries: &mut Deliveries,
    ) {
        for to in self.adapters.values().filter(|to| **to != except) {
            if let Some(receiver) = subnet.adapter_mut(*to) {
                receive_frame(receiver, frame, deliveries);
            }
        }
    }

    /// Delivers frames of the uplink to the adapter of a port, at most 64 and within the call's
    /// time. Returns their number.
    pub(crate) fn receive(
        &self,
        cx: &mut Context<'_>,
        subnet: &mut Subnet<Function>,
        port: &AdapterPort,
    ) -> u32 {
        let mut count = 0_u32;
        let Some(station) = &port.station else { return 0 };
        for _ in 0..FRAMES_PER_CALL_MAX {
            let Some(inbound) = station.next_inbound() else { break };
            let (bytes, offload) = (inbound.bytes(), &inbound.offload);
            let (head, body) = bytes.split_at(bytes.len().min(HEAD_BYTES));
            let frame = FrameRef { offload, head, body: Body::Private(body), len: bytes.len() };
            let mut deliveries = Deliveries::default();
            if let Some(receiver) = subnet.adapter_mut(port.adapter) {
                receive_frame(receiver, &frame, &mut deliveries);
            }
            cx.charge(delivery_ns(&deliveries));
            count = count.saturating_add(1);
            cx.charge(cost::CHAIN_NS);
            if cx.is_over() {
                break;
            }
        }
        count
    }
}

/// First bytes of a frame of the uplink that hold all its headers.
const HEAD_BYTES: usize = 256;
