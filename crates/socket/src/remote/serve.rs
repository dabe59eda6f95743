//! The mailbox of links, and the passing of time.
//!
//! The dispatcher's thread of the shard calls [`Socket::serve_peers`] when the mailbox has
//! messages: datagrams go to the session of their link, and the session's events to the
//! connections, the directory and the guests. [`Socket::tick_peers`] runs the timers, passes on
//! messages that had waited behind gaps, ends sessions of links that were down for 10 s, and sends.
//! A datagram that a session refuses is counted; a breach of the protocol also ends the session. A
//! session that ends resets its connections and removes the claims of the peer. A link that is down
//! for a shorter time does not end the session.

use causeway_fabric::carrier::{LinkId, LinkStatus, Message};
use causeway_fabric::{Context, PortId, Progress, SourceProgress, cost};
use causeway_wire::multiplex::ADDRESSES;

use super::{INBOX, owner_of, random};
use crate::conn::Role;
use crate::counters::bump;
use crate::limits::{
    DISOWNED_BYTES_MAX, DORMANT_HELLO_NS, LINK_DOWN_NS_MAX, PEER_QUEUED_BYTES_MAX, PEER_STOP_NS_MAX,
};
use crate::multiplex::{DISOWNED, DownReason, PeerEvent, PeerSession, Received};
use crate::service::{Socket, TX};
use crate::table::ConnId;

impl Socket {
    /// Serves the mailbox of links: about `budget` datagrams, because the last message may have
    /// many, or fewer if the turn is over.
    pub(crate) fn serve_peers(&mut self, cx: &mut Context<'_>, budget: usize) -> SourceProgress {
        self.peers.now_ns = cx.now_ns;
        let (mut count, mut any) = (0_usize, false);
        while count < budget && !(any && cx.is_over()) {
            let Some(message) = self.peers.mailbox.as_ref().and_then(|(_, all)| all.next()) else {
                break;
            };
            any = true;
            match message {
                Message::ReceivedFrames(all) => {
                    count = count.saturating_add(all.frames.len());
                    for frame in &all.frames {
                        let datagram = all.bytes.get(frame.at.clone()).unwrap_or(&[]);
                        self.take_datagram(cx, all.link, datagram);
                    }
                    self.flush_processes(cx);
                }
                Message::LinkStatus(link, status) => self.set_link_status(cx, link, status),
                Message::Carrier(link, carrier) => {
                    if let Some(peer) = self.peers.peers.get_mut(&link) {
                        peer.carrier = carrier;
                        // Its datagrams may be longer.
                        self.peers.has_work = true;
                    }
                }
                Message::StationFrames(_)
                | Message::AddressAdded(..)
                | Message::AddressRemoved(..) => {}
            }
        }
        self.close_filling(cx);
        self.resume_senders(cx);
        self.deliver_scheduled(cx);
        let armed = || self.peers.mailbox.as_ref().is_none_or(|(_, mailbox)| mailbox.arm());
        let progress = match any {
            true => Progress::Worked,
            false if cx.polls_source(INBOX) => Progress::Idle,
            false if armed() => Progress::Parked,
            false => Progress::Worked,
        };
        SourceProgress { progress, count: u32::try_from(count).unwrap_or(u32::MAX) }
    }

    /// Passes a datagram to the session of its link.
    fn take_datagram(&mut self, cx: &mut Context<'_>, link: LinkId, datagram: &[u8]) {
        cx.charge(cost::CHAIN_NS.saturating_add(cost::bytes(datagram.len())));
        let mut received = std::mem::take(&mut self.peers.received);
        self.peers.has_work = true;
        if let Some(peer) = self.peers.peers.get_mut(&link) {
            peer.is_unanswered = false;
            let taken = peer.session.receive(cx.now_ns, datagram, &mut random, &mut received);
            if taken.is_err() {
                bump(&mut peer.counters.refused_datagrams);
            }
        }
        self.apply_events(cx, link, &received, datagram);
        received.clear();
        self.peers.received = received;
    }

    /// Applies the events of a session. `datagram` is the datagram with which they came, if any.
    fn apply_events(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        received: &Received,
        datagram: &[u8],
    ) {
        for event in &received.events {
            cx.charge(cost::CHAIN_NS);
            match event {
                PeerEvent::Up => {
                    if let Some(peer) = self.peers.peers.get_mut(&link) {
                        bump(&mut peer.counters.sessions);
                        if let Some(suppressed) = peer.log.admit(cx.now_ns) {
                            let name = peer.name.as_str();
                            log::info!(link = name, suppressed; "the peer carries sockets");
                        }
                    }
                    self.peers.set_reachable(link, true);
                    self.peers.announce_all(link);
                }
                PeerEvent::Down(why) => self.lose_session(cx, link, *why),
                PeerEvent::Message(ADDRESSES, message) => {
                    self.peers.take_address(link, received.read(message, datagram));
                }
                PeerEvent::Message(channel, message) => {
                    self.process_message(cx, link, *channel, received.read(message, datagram));
                }
                PeerEvent::Ended(channel) => self.end_channel(cx, link, *channel),
            }
        }
    }

    /// Ends all connections and claims of a peer whose session ended.
    fn lose_session(&mut self, cx: &mut Context<'_>, link: LinkId, why: DownReason) {
        self.flush_processes(cx);
        let Some(peer) = self.peers.peers.get_mut(&link) else { return };
        let conns = std::mem::take(&mut peer.conns);
        peer.cids = 0;
        let (name, connections) = (peer.name.as_str(), conns.len());
        if let Some(suppressed) = peer.log.admit(cx.now_ns) {
            log::info!(link = name, reason:% = why, connections, suppressed; "the session with the peer ended: its connections are reset");
        }
        self.peers.set_reachable(link, false);
        for (id, _) in conns.into_values() {
            self.end(cx, id, true);
        }
    }

    /// Notes that a link came up, went down or went dormant. Sessions outlive short outages.
    fn set_link_status(&mut self, cx: &Context<'_>, link: LinkId, status: LinkStatus) {
        let Some(peer) = self.peers.peers.get_mut(&link) else { return };
        let up = status.up;
        let was_dormant = std::mem::replace(&mut peer.is_dormant, status.is_dormant);
        if status.is_dormant {
            peer.carrier.release();
            peer.session.release();
            peer.is_unanswered |= !peer.is_up && peer.session.is_up();
            if !was_dormant {
                // The peer did not answer a hello, perhaps because it carries no sockets.
                peer.session.postpone(cx.now_ns.saturating_add(DORMANT_HELLO_NS));
            }
            // Bytes that were queued while the link was down wake it.
            self.peers.has_work = true;
        } else if up {
            // A link that was dormant is waking: the peer has not answered yet.
            peer.is_unanswered &= was_dormant;
            peer.session.hasten(cx.now_ns);
            self.peers.has_work = true;
        } else if peer.is_up && !peer.is_unanswered {
            peer.down_ns = cx.now_ns;
        }
        peer.is_up = up;
    }

    /// Removes the peer of a link: its connections are reset. An unknown link is ignored.
    pub(crate) fn leave_link(&mut self, cx: &mut Context<'_>, link: LinkId) {
        self.lose_session(cx, link, DownReason::Link);
        self.peers.peers.remove(&link);
        self.peers.remove_place(link);
        self.resume_senders(cx);
        self.deliver_scheduled(cx);
    }

    /// Runs the timers of sessions, and passes on messages that had waited behind gaps: those of one
    /// peer at least, and of others while the turn is not over. The peers take turns.
    pub(crate) fn tick_peers(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        self.continue_reading(cx);
        let mut links: Vec<LinkId> = self.peers.peers.keys().copied().collect();
        if let Some(last) = self.peers.last_passed {
            let first = links.partition_point(|link| *link <= last);
            links.rotate_left(first);
        }
        let (has_cids, mut has_passed) = (self.peers.has_cids(), false);
        for link in links {
            let Some(peer) = self.peers.peers.get_mut(&link) else { continue };
            let mut received = std::mem::take(&mut self.peers.received);
            let is_away = !peer.is_up || peer.is_unanswered;
            let is_lost = is_away && now_ns.saturating_sub(peer.down_ns) >= LINK_DOWN_NS_MAX;
            let is_due =
                |session: &PeerSession| session.deadline_ns().is_some_and(|at| at <= now_ns);
            let was_due = is_due(&peer.session);
            if is_lost && peer.session.is_up() {
                peer.is_unanswered = false;
                peer.session.restart(now_ns, DownReason::Link, &mut random, &mut received);
            } else if peer.session.is_exhausted() {
                peer.session.restart(now_ns, DownReason::Exhausted, &mut random, &mut received);
            } else {
                peer.session.tick(now_ns, &mut random, &mut received);
            }
            if peer.session.has_deferred() && !(has_passed && cx.is_over()) {
                peer.session.pass_deferred(now_ns, &mut random, &mut received);
                has_passed = true;
                self.peers.last_passed = Some(link);
            }
            // A probe leaves lost bytes to send and no deadline.
            let is_due = was_due || peer.is_dormant || is_due(&peer.session);
            self.peers.has_work |= is_due && peer.may_send(has_cids);
            self.apply_events(cx, link, &received, &[]);
            received.clear();
            self.peers.received = received;
        }
        self.close_filling(cx);
        self.flush_processes(cx);
        self.resume_senders(cx);
        self.peers.flush();
    }

    /// Resumes the transmit rings of guests with at most half of [`PEER_QUEUED_BYTES_MAX`] (4 MiB)
    /// left to acknowledge. A guest with more after [`PEER_STOP_NS_MAX`] (2 s) loses its
    /// connections with the peer, and its ring resumes.
    pub(crate) fn resume_senders(&mut self, cx: &mut Context<'_>) {
        if self.peers.stopped.is_empty() {
            return;
        }
        let mut resumed = Vec::new();
        for stop in std::mem::take(&mut self.peers.stopped) {
            let is_late = cx.now_ns.saturating_sub(stop.since_ns) >= PEER_STOP_NS_MAX;
            let is_full = self.peers.queued_by(stop.port, stop.link) > PEER_QUEUED_BYTES_MAX / 2;
            if is_full && !is_late {
                self.peers.stopped.push(stop);
                continue;
            }
            if is_full {
                self.end_slow(cx, stop.port, stop.link);
            }
            resumed.push(stop.port);
        }
        for port in resumed {
            // A ring may be stopped for several peers.
            if self.peers.stopped.iter().all(|stop| stop.port != port)
                && let Some(socket_port) = self.socket_ports.get_mut(port)
            {
                socket_port.is_stopped_by_peer = false;
                match socket_port.is_for_processes {
                    true => self.read_from_processes(port),
                    false => cx.wake(port, TX),
                }
            }
        }
    }

    /// Ends the connections of a guest with a peer that acknowledges too little. Their bytes are no
    /// longer charged to the guest; with too many such bytes the session ends.
    fn end_slow(&mut self, cx: &mut Context<'_>, port: PortId, link: LinkId) {
        let Some(peer) = self.peers.peers.get(&link) else { return };
        let is_of_port = |(id, role): &(ConnId, Role)| {
            let conn = self.table.get(*id);
            conn.is_some_and(|conn| conn.side(role.other()).owner() == Some(port))
        };
        let ids: Vec<_> = peer.conns.values().filter(|conn| is_of_port(conn)).copied().collect();
        if !ids.is_empty() {
            cx.remark(
                port,
                "connections reset: the peer acknowledges too little data while the guest waits for it",
            );
        }
        for (id, _) in ids {
            self.end(cx, id, true);
        }
        let mut received = std::mem::take(&mut self.peers.received);
        if let Some(peer) = self.peers.peers.get_mut(&link) {
            peer.session.disown(owner_of(port));
            if peer.session.queued_by(DISOWNED) > DISOWNED_BYTES_MAX {
                peer.session.restart(cx.now_ns, DownReason::Slow, &mut random, &mut received);
                self.peers.has_work = true;
            }
        }
        self.apply_events(cx, link, &received, &[]);
        received.clear();
        self.peers.received = received;
    }
}
