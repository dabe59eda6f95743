//! Datagrams that a tunnel sends by itself: heartbeats, their answers, and address announcements.
//!
//! Announcements are sent three times (again 100 ms later, and 300 ms after that,
//! [`REPEAT_ANNOUNCEMENT_NS`]), because datagrams may be lost; a digest in each heartbeat finds the
//! remaining differences, and the receiver then requests all addresses, at most once per
//! [`SYNC_NS`] (1 s); if the digests still differ after that time, it removes the addresses that
//! were not announced again. A tunnel announces at most [`ADDRESSES_MAX`] (4,096) addresses;
//! [`Tunnel::announce`] refuses more, and the caller announces them again once
//! [`Tunnel::has_room`]. As many of the peer are kept; its record with more is refused
//! ([`Refusal::Directory`](crate::Refusal::Directory)).
//!
//! The module sends no frames and retransmits none. [`crate::health`] decides when a heartbeat is
//! due and of which length; the datagrams go into the [`Sink`], without back-pressure, in the
//! thread of the tunnel (the shard of links). Without a session or an address of the peer nothing
//! is sent; scheduled announcements wait until both are there.

use std::net::SocketAddr;

use causeway_directory::{Full, MacKey, Unconfirmed};
use causeway_wire::tunnel::record::{self, Delivered, Echo, EchoReply, Entry};
use causeway_wire::tunnel::{INNER_LEN, Inner};

use super::{Announcement, SessionSlot, Tunnel};
use crate::clock::Clock;
use crate::event::EventKind;
use crate::limits::{
    ADDRESSES_MAX, DATAGRAM_BYTES_SAFE, DELIVERED_MIN, REPEAT_ANNOUNCEMENT_NS, SYNC_NS,
};
use crate::unpack::Sink;

/// Returns the bytes of one record.
pub(super) fn record_of(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let mut bytes = record::Header { kind, bare: false, hops: 0, len }.emit().to_vec();
    bytes.extend(body);
    bytes
}

impl Tunnel {
    /// Announces that an address of a network is at one of our ports, until [`Tunnel::withdraw`].
    ///
    /// # Errors
    /// [`Full`]: the quota of announced addresses is used up.
    pub fn announce(&mut self, now: u64, vni: u32, mac: [u8; 6], epoch: u64) -> Result<(), Full> {
        if self.own_claims.insert((vni, mac), epoch)? && self.wakes_for_announcement(now) {
            self.schedule(now, (vni, mac), Announcement { epoch, withdrawn: false, sent: 0 });
        }
        Ok(())
    }

    /// Withdraws the announcement of an address.
    pub fn withdraw(&mut self, now: u64, vni: u32, mac: [u8; 6]) {
        if let Some(epoch) = self.own_claims.remove((vni, mac), u64::MAX)
            && self.wakes_for_announcement(now)
        {
            self.schedule(now, (vni, mac), Announcement { epoch, withdrawn: true, sent: 0 });
        }
    }

    /// Returns whether an announcement is sent: a dormant tunnel wakes for it, unless its peer learns
    /// addresses from a directory. The digests of the next session show the peer what it missed.
    fn wakes_for_announcement(&mut self, now: u64) -> bool {
        if self.is_dormant() && !self.announces_dormant() {
            return false;
        }
        self.wake(now);
        true
    }

    /// Schedules an announcement for the time `due`. If twice [`ADDRESSES_MAX`] (4,096)
    /// announcements wait, the earliest is dropped: the digest shows the peer that it lacks the
    /// change.
    fn schedule(&mut self, due: u64, key: MacKey, announcement: Announcement) {
        // The digest repairs the loss of a repetition.
        if self.announcements.len() >= ADDRESSES_MAX.saturating_mul(2) {
            self.announcements.pop_first();
        }
        self.announcements.insert((due, key), announcement);
    }

    /// Seals records into a datagram of at least `length` bytes, to be sent.
    pub(super) fn send_records(&self, vni: u32, records: &[u8], length: usize, sink: &mut Sink) {
        if let (Some(slot), Some(to)) = (&self.current, self.remote) {
            Self::seal_records(slot, to, (vni, records, length), sink);
        }
    }

    /// As [`Self::send_records`], on a session.
    pub(super) fn seal_records(
        slot: &SessionSlot,
        to: SocketAddr,
        (vni, records, length): (u32, &[u8], usize),
        sink: &mut Sink,
    ) {
        let overhead = slot.session.overhead();
        let len = INNER_LEN.saturating_add(records.len()).max(length.saturating_sub(overhead));
        let mut text = Vec::with_capacity(len);
        text.extend(Inner { vni, flags: 0 }.emit());
        text.extend(records);
        text.resize(len, record::PAD);
        let mut datagram = Vec::with_capacity(len.saturating_add(overhead));
        // A session that is used up cannot seal; its successor is being negotiated.
        if slot.session.seal(&text, &mut datagram).is_ok() {
            sink.datagrams.push((to, datagram));
        }
    }

    /// Sends the heartbeats that are due.
    pub(super) fn send_heartbeats(&mut self, clock: &Clock<'_>, sink: &mut Sink) {
        let mut lengths = Vec::new();
        let changes = self.health.tick(clock.now, |length| lengths.push(length));
        for length in lengths {
            let size = u32::try_from(length).unwrap_or(u32::MAX);
            let echo = Echo { time: clock.now, size, digest: self.own_claims.digest() };
            let mut records = record_of(record::ECHO, &echo.emit());
            if length == 0 && self.advertises_on_demand() {
                records.extend(record_of(record::ON_DEMAND, &[record::AWAKE]));
            }
            self.send_records(0, &records, length, sink);
        }
        if changes.up == Some(false) {
            self.request_session(clock.now);
        }
        self.report_changes(changes, sink);
    }

    /// Answers a heartbeat.
    pub(super) fn reply(&mut self, echo: &Echo, sink: &mut Sink) {
        let reply = EchoReply { time: echo.time, size: echo.size };
        let mut records = record_of(record::ECHO_REPLY, &reply.emit());
        if let Some(report) = self.report() {
            records.extend(record_of(record::DELIVERED, &report.emit()));
        }
        self.send_records(0, &records, 0, sink);
    }

    /// Returns a delivery report: how many datagrams arrived on the current session since the last
    /// report. `None` below [`DELIVERED_MIN`] (256) datagrams.
    fn report(&mut self) -> Option<Delivered> {
        let slot = self.current.as_mut().filter(|slot| !slot.session.is_plain())?;
        let (next, came) = (slot.replay.next(), slot.received);
        let sent = next.saturating_sub(slot.reported.0);
        if sent < DELIVERED_MIN {
            return None;
        }
        let arrived = came.saturating_sub(slot.reported.1).min(sent);
        slot.reported = (next, came);
        let short = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Some(Delivered { sent: short(sent), came: short(arrived) })
    }

    /// Compares the peer's digest with that of its claims here. Requests all its addresses if they
    /// differ.
    pub(super) fn compare(&mut self, now: u64, digest: u64, sink: &mut Sink) {
        if digest == self.peer_claims.digest() {
            self.requested_at = None;
            return;
        }
        if let Some(at) = self.requested_at {
            if at.saturating_add(SYNC_NS) > now {
                return;
            }
            // The peer had time to repeat all its claims: remove those that it did not confirm.
            for Unconfirmed { key: (vni, mac), epoch, confirmed } in
                self.peer_claims.end_confirmation()
            {
                if self.vnis.contains(&vni) {
                    self.event(EventKind::Gone { vni, mac, epoch }, sink);
                    if let Some(epoch) = confirmed {
                        self.event(EventKind::Here { vni, mac, epoch }, sink);
                    }
                }
            }
            if digest == self.peer_claims.digest() {
                self.requested_at = None;
                return;
            }
        }
        self.peer_claims.begin_confirmation();
        self.requested_at = Some(now);
        self.send_records(0, &record_of(record::SYNC, &[]), 0, sink);
    }

    /// Sends announcements and repetitions that are due.
    pub(super) fn send_due_announcements(&mut self, clock: &Clock<'_>, sink: &mut Sink) {
        let mut due = Vec::new();
        while let Some(first) =
            self.announcements.first_entry().filter(|first| first.key().0 <= clock.now)
        {
            let ((_, key), announcement) = first.remove_entry();
            // Skips announcements that are no longer true.
            if announcement.withdrawn == self.own_claims.get(key).is_none() {
                due.push((key, announcement));
            }
        }
        for (key, announcement) in &due {
            if let Some(wait) = REPEAT_ANNOUNCEMENT_NS.get(announcement.sent) {
                let sent = announcement.sent.saturating_add(1);
                self.schedule(
                    clock.now.saturating_add(*wait),
                    *key,
                    Announcement { sent, ..*announcement },
                );
            }
        }
        due.sort_by_key(|((vni, _), announcement)| (announcement.withdrawn, *vni));
        let entries = |withdrawn: bool| {
            due.iter()
                .filter(move |(_, announcement)| announcement.withdrawn == withdrawn)
                .map(|(key, announcement)| (*key, announcement.epoch))
        };
        self.send_entries(record::HERE, entries(false), sink);
        self.send_entries(record::GONE, entries(true), sink);
    }

    /// Announces every address at our ports.
    pub(super) fn announce_all(&self, sink: &mut Sink) {
        self.send_entries(record::HERE, self.own_claims.iter(), sink);
    }

    /// Sends entries, which are ordered by virtual network, in as many datagrams as necessary.
    fn send_entries(
        &self,
        kind: u8,
        entries: impl Iterator<Item = (MacKey, u64)>,
        sink: &mut Sink,
    ) {
        let (mut of, mut body) = (0, Vec::new());
        // A length that reaches the peer on any path, and on the current path.
        let text = self.health.datagram().min(DATAGRAM_BYTES_SAFE).saturating_sub(64);
        let most = text.saturating_sub(text % record::ENTRY_LEN);
        for ((vni, mac), epoch) in entries {
            let full = body.len() >= most;
            if !body.is_empty() && (vni != of || full) {
                self.send_records(of, &record_of(kind, &body), 0, sink);
                body.clear();
            }
            of = vni;
            body.extend(Entry { mac, epoch }.emit());
        }
        if !body.is_empty() {
            self.send_records(of, &record_of(kind, &body), 0, sink);
        }
    }
}
