//! Sockets between hosts: connections of guests with guests of directly linked daemons.
//!
//! Each link that carries sockets joins the shard as a *peer*, with a session of
//! [`crate::multiplex`]. Peers announce the CIDs of their running guests; the shard keeps them in a
//! [`Directory`], in which verified claims of a cluster have precedence. A connect to a CID that no
//! running port of the group has opens a channel of the
//! session with the peer that claims the CID. From then on the peer's side of the connection is a
//! [`Party::Remote`](crate::conn::Party): packets of the guest become messages of the channel, with
//! the guest's credit, and messages become packets for the guest. The state machine
//! ([`crate::conn`]) checks messages as it checks packets of a guest, so a peer can break its own
//! connections only.
//!
//! Rules apply at both ends: the caller's daemon checks them before it sends the request, and the
//! callee's daemon before the guest sees it. A peer may use a CID as source if no port here has the
//! CID, and no other place has the claim that is followed; a CID with a verified claim only its host.
//!
//! A session outlives the dormancy of its link ([`causeway_fabric::carrier::LinkStatus`]): it sends
//! nothing, and bytes of a connection wake the link. A session begins over a dormant link if a guest
//! is attached here, so that the peer learns the CID.
//!
//! All runs in the thread of the shard. Datagrams are sent at the end of a turn and of a tick
//! (`Peers::flush`), at most 256 for each peer; while a link is down, none are sent over it.
//!
//! | module | content |
//! |---|---|
//! | `addresses` | CIDs of own guests and of peers |
//! | `connect` | connects to peers and from peers, ends |
//! | `data` | messages of connections in both directions |
//! | `process` | data of host processes that have the CID of a port |
//! | `serve` | the mailbox of links, time |
//!
//! # Limits
//! See [`crate::limits`]. A guest with more than 4 MiB that a peer has not acknowledged stops
//! sending, and loses its connections with the peer if more than 2 MiB are still queued after 2 s;
//! data from a peer that a guest has no buffers for is staged, within the quota of the guest's
//! port, and beyond it the connection is reset. Connections end if the link is deleted, if the link
//! is down for 10 s, if either daemon is replaced, and if the session ends for another reason
//! ([`DownReason`](crate::multiplex::DownReason)). CIDs are not passed on: a daemon behind a peer
//! is not reached.

mod addresses;
mod connect;
mod data;
mod process;
mod serve;

pub use connect::RemoteEnd;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use causeway_directory::{CidKey, Directory, Place};
use causeway_fabric::carrier::{Body, Carrier, LinkId, Membership, Message, Outgoing};
use causeway_fabric::keyed::{Keyed, keyed};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_fabric::{Context, LogLimit, PortId};
use causeway_model::{CommandError, Name};
use causeway_wire::virtio_net::Offload;

use crate::conn::Role;
use crate::counters::PEER_COUNTERS;
use crate::limits::{
    DATAGRAMS_PER_TURN, LINK_DOWN_NS_MAX, LINK_MESSAGES_MAX, PEER_STOP_NS_MAX, SOCKET_LINKS_MAX,
};
use crate::multiplex::{PeerSession, Received};
use crate::table::ConnId;

/// Source value of the mailbox of links.
const INBOX: u32 = 0;

/// Returns a random number of the kernel.
pub(crate) fn random() -> u32 {
    let mut bytes = [0_u8; 4];
    let flags = rustix::rand::GetRandomFlags::empty();
    // After boot, getrandom(2) of a few bytes is not interrupted.
    let _ = rustix::rand::getrandom(&mut bytes[..], flags);
    u32::from_ne_bytes(bytes)
}

/// Counters of a peer.
#[derive(Debug, Default)]
struct PeerCounters {
    connects: u64,
    accepts: u64,
    refused: u64,
    breaches: u64,
    refused_cids: u64,
    foreign_cids: u64,
    refused_datagrams: u64,
    sessions: u64,
}

/// The daemon behind a link.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Name of the link.
    name: Name,
    session: PeerSession,
    carrier: Box<dyn Carrier>,
    /// The link carries datagrams.
    is_up: bool,
    /// The link is up and dormant: a datagram wakes it.
    is_dormant: bool,
    /// When the link went down.
    down_ns: u64,
    /// The link went dormant while it was down, and no datagram has arrived since: the time without
    /// the link continues.
    is_unanswered: bool,
    /// Connections by channel, with the side of the peer.
    conns: Keyed<u32, (ConnId, Role)>,
    /// CIDs that the peer claims.
    cids: usize,
    counters: PeerCounters,
    /// Limit of log lines about its sessions.
    log: LogLimit,
}

/// A guest whose transmit ring is stopped for a peer.
#[derive(Debug, Clone, Copy)]
struct StoppedSender {
    port: PortId,
    link: LinkId,
    since_ns: u64,
}

impl Peer {
    /// Returns whether datagrams may be sent now. A dormant link is left alone, unless the session
    /// has to send, or has to begin because a guest is attached here (`has_cids`).
    fn may_send(&self, has_cids: bool) -> bool {
        let needs_link = || self.session.needs_link() || (has_cids && !self.session.is_up());
        self.is_up && (!self.is_dormant || needs_link())
    }
}

/// The peers of a shard.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// Created with the first link.
    mailbox: Option<(Sender<Message>, Mailbox<Message>)>,
    peers: BTreeMap<LinkId, Peer>,
    /// The places of CIDs, own ones included.
    directory: Directory<CidKey>,
    /// Counts changes of the own CIDs, for a reader of another thread.
    cid_changes: Option<Arc<AtomicU64>>,
    /// Output of sessions; empty between calls.
    received: Received,
    /// Guests whose transmit ring stopped because too much is not acknowledged.
    stopped: Vec<StoppedSender>,
    /// Connections of processes that may have written more than was read in a turn.
    unread: VecDeque<ConnId>,
    /// Connections of processes with data of the datagrams that are being processed.
    unsent: Vec<ConnId>,
    /// The peer of which messages that had waited were passed on last.
    last_passed: Option<LinkId>,
    /// Time of the last call.
    now_ns: u64,
    /// A session may have datagrams to send.
    has_work: bool,
    /// A datagram to a peer.
    buffer: Vec<u8>,
    /// Bytes that were read from a process; at most 64 KiB.
    process_bytes: Vec<u8>,
}

impl Peers {
    /// Returns the sender of the mailbox of links, which is created on first use.
    pub(crate) fn sender(&mut self, cx: &mut Context<'_>) -> Result<Sender<Message>, CommandError> {
        if let Some((sender, _)) = &self.mailbox {
            return Ok(sender.clone());
        }
        let host = |e: std::io::Error| CommandError::Host(format!("mailbox: {e}"));
        let (sender, mailbox) = cx.mailbox(LINK_MESSAGES_MAX, INBOX).map_err(host)?;
        self.mailbox = Some((sender.clone(), mailbox));
        Ok(sender)
    }

    /// Adds the peer of a link; the link is down until it reports otherwise. The caller joins each
    /// link once.
    ///
    /// # Errors
    /// [`SOCKET_LINKS_MAX`] (1,024) links of the group carry sockets already.
    pub(crate) fn join(&mut self, now_ns: u64, member: Membership) -> Result<(), CommandError> {
        if self.peers.len() >= SOCKET_LINKS_MAX {
            let text = format!("{SOCKET_LINKS_MAX} links of the group carry sockets already");
            return Err(CommandError::Full(text));
        }
        let peer = Peer {
            name: member.name,
            session: PeerSession::new(now_ns, &mut random),
            carrier: member.carrier,
            is_up: false,
            is_dormant: false,
            down_ns: now_ns,
            is_unanswered: false,
            conns: keyed(),
            cids: 0,
            counters: PeerCounters::default(),
            log: LogLimit::default(),
        };
        self.peers.insert(member.id, peer);
        self.set_reachable(member.id, false);
        Ok(())
    }

    /// Returns the link of the peer that has a CID, with its name; `None` if no peer has it, or
    /// none with a session.
    pub(crate) fn find(&self, cid: u32) -> Option<(LinkId, &Name)> {
        let Place::Link(id) = self.directory.find((0, cid))? else { return None };
        let peer = self.peers.get(&LinkId(id)).filter(|peer| peer.session.is_up())?;
        Some((LinkId(id), &peer.name))
    }

    /// Notes the time of a call of the service. Every call that may queue messages notes it first,
    /// because [`Self::flush`] sends them after the call: with an earlier time a packet would count
    /// as unacknowledged since then.
    #[inline]
    pub(crate) const fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Returns whether a guest is attached here.
    fn has_cids(&self) -> bool {
        self.directory.local().next().is_some()
    }

    /// Returns the name of a link.
    pub(crate) fn name_of(&self, link: LinkId) -> Option<&Name> {
        self.peers.get(&link).map(|peer| &peer.name)
    }

    /// Returns the bytes of a guest that a peer has not acknowledged.
    fn queued_by(&self, port: PortId, link: LinkId) -> usize {
        self.peers.get(&link).map_or(0, |peer| peer.session.queued_by(owner_of(port)))
    }

    /// Returns the counters of one link, or of all.
    pub(crate) fn counters(&self, link: Option<LinkId>) -> Vec<(LinkId, BTreeMap<String, u64>)> {
        let wanted = self.peers.iter().filter(|(id, _)| link.is_none_or(|link| link == **id));
        let of = |peer: &Peer| {
            let (counters, view) = (&peer.counters, peer.session.view());
            let values = [
                counters.connects,
                counters.accepts,
                counters.refused,
                counters.breaches,
                counters.refused_cids,
                counters.foreign_cids,
                counters.refused_datagrams,
                counters.sessions,
                view.lost_total,
                peer.conns.len() as u64,
                peer.cids as u64,
                view.queued_bytes as u64,
                view.held_bytes as u64,
                view.rtt_ns.unwrap_or(0) / 1000,
            ];
            let named = PEER_COUNTERS.iter().zip(values);
            named.map(|((name, _), value)| ((*name).to_owned(), value)).collect()
        };
        wanted.map(|(id, peer)| (*id, of(peer))).collect()
    }

    /// Returns when [`Self::flush`] or a tick is due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let has_cids = self.has_cids();
        let lost = |peer: &&Peer| peer.is_unanswered && peer.session.is_up();
        let lost = self.peers.values().filter(lost);
        let lost = lost.map(|peer| peer.down_ns.saturating_add(LINK_DOWN_NS_MAX));
        let due = self.peers.values().filter_map(|peer| match peer.is_up {
            // Pieces that arrived pass on although the link went down.
            _ if peer.session.has_deferred() => Some(0),
            true if !peer.may_send(has_cids) => None,
            true => peer.session.deadline_ns(),
            false if peer.session.is_up() => Some(peer.down_ns.saturating_add(LINK_DOWN_NS_MAX)),
            false => None,
        });
        let stops = self.stopped.iter().map(|stop| stop.since_ns.saturating_add(PEER_STOP_NS_MAX));
        let has_work = self.has_work || !self.unread.is_empty();
        due.chain(lost).chain(stops).chain(has_work.then_some(0)).min()
    }

    /// Sends the datagrams that are due, over links that are up. The rest of more than
    /// [`DATAGRAMS_PER_TURN`] (256) for a peer waits for the next turn.
    pub(crate) fn flush(&mut self) {
        if !std::mem::take(&mut self.has_work) {
            return;
        }
        let has_cids = self.has_cids();
        let buffer = &mut self.buffer;
        for peer in self.peers.values_mut().filter(|peer| peer.may_send(has_cids)) {
            let longest = peer.carrier.longest();
            let mut count = 0_usize;
            let Peer { carrier, session, .. } = peer;
            let mut push = |head: &[u8], body: &[u8]| {
                let len = head.len().saturating_add(body.len());
                let body = Body::Private(body);
                let offload = &Offload::None;
                let datagram = Outgoing { offload, head, body, len, hops: 0, flood: None };
                // The session sends again what the link refuses.
                let _ = carrier.push(&datagram);
            };
            while count < DATAGRAMS_PER_TURN
                && session.transmit_parts(self.now_ns, longest, buffer, &mut push)
            {
                count = count.saturating_add(1);
            }
            self.has_work |= count == DATAGRAMS_PER_TURN;
            if count > 0 {
                peer.carrier.flush();
            }
        }
    }
}

/// Returns the owner to whom a session charges the bytes of a guest.
fn owner_of(port: PortId) -> u32 {
    u32::try_from(port.slot()).unwrap_or(u32::MAX)
}

/// Returns the place of a link in the directory.
const fn place(link: LinkId) -> Place {
    Place::Link(link.0)
}
