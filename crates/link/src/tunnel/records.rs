//! Records of received datagrams: opened, checked, and dispatched by kind.
//!
//! A record is a typed part of a datagram's plaintext: a frame, a fragment, a heartbeat or its
//! answer, a delivery report, address announcements, a request for them, or a datagram of the stream
//! protocol. `crate::tunnel_set`
//! passes the datagram (in the daemon, in the shard of links); `Tunnel::data` opens it on the
//! session that its receiver index names, checks the replay window (`Tunnel::plain`: the source
//! address instead), and appends frames and events to the [`Sink`].
//!
//! Frames stay in the buffer into which their datagram was opened. Records of unknown kinds are
//! skipped, so that newer peers can add kinds. The first refused record (malformed, of a network
//! that is not carried, a fragment that [`crate::reassembly`] refuses, or above the peer's quota of
//! addresses) ends the datagram: later records are dropped, earlier records have taken effect. A
//! frame that its ECN mark forbids to forward ([`Refusal::Unmarkable`]) is dropped and counted
//! alone. Of the heartbeats of a datagram the first is answered, and of the requests for addresses
//! one per 1 s; the others have no effect. A datagram with the newest counter of the current
//! session, and the first datagram of an answered session, move the tunnel to their source address;
//! a tunnel without encryption never moves, and refuses datagrams of another address. The module
//! checks lengths, virtual network and ECN of a frame, not its Ethernet header: `ethernet` does.

use std::net::SocketAddr;
use std::ops::Range;

use causeway_wire::ecn::decapsulate;
use causeway_wire::multiplex::{self, PACKET_LEN};
use causeway_wire::tunnel::record::{self, Delivered, EchoReply, Entry, Fragment};
use causeway_wire::tunnel::{INNER_LEN, Inner, Outer};

use super::{SessionSlot, Tunnel};
use crate::clock::Clock;
use crate::event::EventKind;
use crate::limits::{FRAME_BYTES_MAX, SYNC_NS};
use crate::reassembly::ReceivedFragment;
use crate::refusal::Refusal;
use crate::unpack::{Sink, UnpackedFrame};

/// Names a session slot of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotName {
    /// The session that seals.
    Current,
    /// The predecessor of the current session.
    Previous,
    /// The answered session that the peer has not used yet.
    Next,
}

/// Header of a record, and the range of its body in the sink's buffer.
struct RecordSpan {
    header: record::Header,
    body: Range<usize>,
}

impl Tunnel {
    /// Processes a sealed datagram. An unknown session, a replay or a failed check refuses it.
    pub(super) fn data(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        let which = [SlotName::Current, SlotName::Next, SlotName::Previous]
            .into_iter()
            .find(|which| self.slot_of(*which).as_ref().is_some_and(|s| s.is(outer.receiver)))
            .ok_or(Refusal::Session)?;
        let Some(slot) = self.slot_of(which) else { return Err(Refusal::Session) };
        let (start, room) = sink.tail(body.len());
        let len = slot.session.open(outer.counter, body, room)?;
        let newest = slot.replay.is_newest(outer.counter);
        if !slot.replay.take(outer.counter) {
            return Err(Refusal::Replayed);
        }
        slot.received = slot.received.saturating_add(1);
        if which == SlotName::Current {
            self.received_at = clock.now;
        }
        match which {
            SlotName::Next => self.confirm(clock, from, sink),
            // A reordered old datagram does not prove the peer's current address.
            SlotName::Current if newest && self.remote != Some(from) => {
                self.remote = Some(from);
                self.publish();
                self.event(EventKind::Roamed(from), sink);
            }
            _ => {}
        }
        let is_current = which != SlotName::Previous;
        self.text(clock, start..start.saturating_add(len), is_current, sink)
    }

    /// Returns a session slot.
    const fn slot_of(&mut self, which: SlotName) -> &mut Option<SessionSlot> {
        match which {
            SlotName::Current => &mut self.current,
            SlotName::Previous => &mut self.previous,
            SlotName::Next => &mut self.next,
        }
    }

    /// Processes a datagram without encryption. Its source address is its only authentication.
    pub(super) fn plain(
        &mut self,
        clock: &mut Clock<'_>,
        from: SocketAddr,
        outer: &Outer,
        body: &[u8],
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        if self.keys.is_some() {
            return Err(Refusal::Forged);
        }
        if self.remote != Some(from) {
            return Err(Refusal::Peer);
        }
        if outer.receiver != 0 {
            return Err(Refusal::Session);
        }
        let text = {
            let (start, room) = sink.tail(body.len());
            room.copy_from_slice(body);
            start..start.saturating_add(body.len())
        };
        self.text(clock, text, true, sink)
    }

    /// Processes the records of a plaintext in the sink's tail. `is_current`: whether it arrived on
    /// the current session.
    fn text(
        &mut self,
        clock: &mut Clock<'_>,
        text: Range<usize>,
        is_current: bool,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        self.datagrams = self.datagrams.wrapping_add(1);
        let inner = Inner::parse(sink.part(text.clone())).map_err(|_| Refusal::Truncated)?;
        let mut at = text.start.saturating_add(INNER_LEN);
        let mut echoed = false;
        let (mut carries, mut is_traffic, mut is_peer_dormant) = (false, false, None);
        while let Some(record) = next(&mut at, text.end, sink)? {
            match record.header.kind {
                record::FRAME => {
                    carries = true;
                    is_traffic |= record.header.hops & record::FLOODED == 0;
                    self.frame(inner.vni, &record, text.end, sink)?;
                }
                record::FRAGMENT => {
                    carries = true;
                    is_traffic |= record.header.hops & record::FLOODED == 0;
                    self.fragment(clock.now, inner.vni, &record, text.end, sink)?;
                }
                // At most one answer per datagram, so that a peer cannot use us as an amplifier.
                record::ECHO if !echoed => {
                    echoed = true;
                    self.echo(clock.now, &record, sink)?;
                }
                record::ECHO_REPLY => {
                    let reply =
                        EchoReply::parse(sink.part(record.body)).map_err(|_| Refusal::Truncated)?;
                    let length = usize::try_from(reply.size).unwrap_or(usize::MAX);
                    let changes = self.health.record_answer(clock.now, reply.time, length);
                    self.report_changes(changes, sink);
                }
                record::DELIVERED => self.delivered(clock.now, &record, sink)?,
                record::SEGMENT => {
                    is_traffic |= carries_connections(sink.part(record.body.clone()));
                    self.segment(inner.vni, &record, text.end, sink)?;
                }
                record::ON_DEMAND if is_current => {
                    let body = sink.part(record.body.clone());
                    is_peer_dormant = Some(body.first() == Some(&record::DORMANT));
                }
                record::HERE | record::GONE => self.directory(inner.vni, &record, sink)?,
                record::SYNC => {
                    let due =
                        self.replied_at.is_none_or(|at| at.saturating_add(SYNC_NS) <= clock.now);
                    if due {
                        self.replied_at = Some(clock.now);
                        self.announce_all(sink);
                    }
                }
                // A kind of a newer version.
                _ => {}
            }
        }
        if carries {
            self.health.record_frame(clock.now);
        }
        if is_traffic {
            self.note_received_traffic(clock.now);
        } else if let Some(is_dormant) = is_peer_dormant {
            self.note_peer_on_demand(clock.now, is_dormant, sink);
        }
        Ok(())
    }

    /// Processes a delivery report.
    fn delivered(&mut self, now: u64, record: &RecordSpan, sink: &Sink) -> Result<(), Refusal> {
        let body = sink.part(record.body.clone());
        let report = Delivered::parse(body).map_err(|_| Refusal::Truncated)?;
        let (sent, came) = (report.sent.into(), report.came.into());
        if let Some(lossy) = self.health.record_delivery(now, sent, came) {
            self.tx_path.set_lossy(lossy);
        }
        Ok(())
    }

    /// Checks that the tunnel carries the virtual network.
    fn check_vni(&self, vni: u32) -> Result<(), Refusal> {
        if self.vnis.contains(&vni) { Ok(()) } else { Err(Refusal::Vni) }
    }

    /// Appends a whole frame to the sink; its bytes stay where they were opened.
    fn frame(
        &mut self,
        vni: u32,
        record: &RecordSpan,
        end: usize,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        self.check_vni(vni)?;
        let body = sink.part(record.body.clone());
        let split = record::split_metadata(record.header.bare, body);
        let (metadata, frame) = split.map_err(|_| Refusal::Truncated)?;
        let at = record.body.end.saturating_sub(frame.len())..record.body.end;
        let (hops, ecn) = (record.header.hops, sink.ecn);
        if decapsulate(sink.part_mut(at.clone()), ecn).is_err() {
            self.refusals.count(Refusal::Unmarkable);
            return Ok(());
        }
        sink.frames.push(UnpackedFrame { tunnel: self.number, vni, hops, metadata, at });
        sink.keep(end);
        self.frames = self.frames.wrapping_add(1);
        Ok(())
    }

    /// Appends a datagram of the stream protocol to the sink; its bytes stay where they were opened.
    /// A record that is shorter than any such datagram is refused, because each costs a list entry.
    fn segment(
        &self,
        vni: u32,
        record: &RecordSpan,
        end: usize,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        self.check_vni(vni)?;
        if record.body.len() < PACKET_LEN {
            return Err(Refusal::Truncated);
        }
        let (hops, metadata, at) = (0, Default::default(), record.body.clone());
        sink.segments.push(UnpackedFrame { tunnel: self.number, vni, hops, metadata, at });
        sink.keep(end);
        Ok(())
    }

    /// Passes a fragment to the reassembler, and appends the frame to the sink with its last
    /// fragment.
    fn fragment(
        &mut self,
        now: u64,
        vni: u32,
        record: &RecordSpan,
        end: usize,
        sink: &mut Sink,
    ) -> Result<(), Refusal> {
        self.check_vni(vni)?;
        let body = sink.part(record.body.clone());
        let (fragment, bytes) = Fragment::parse(body).map_err(|_| Refusal::Truncated)?;
        let record::Header { bare, hops, .. } = record.header;
        let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
        let (offset, total) = (size(fragment.offset), size(fragment.total));
        let ecn = sink.ecn;
        let piece =
            ReceivedFragment { vni, id: fragment.id, offset, total, bare, hops, ecn, bytes };
        let Some((whole, ecn)) = self.fragments.add(now, &piece, &mut self.refusals)? else {
            return Ok(());
        };
        let split = record::split_metadata(bare, whole);
        let (metadata, frame) = split.map_err(|_| Refusal::Truncated)?;
        if frame.len() > FRAME_BYTES_MAX {
            return Err(Refusal::Oversized);
        }
        // Behind the plaintext, whose remaining records are still to be read.
        sink.keep(end);
        let at = sink.append(frame);
        if decapsulate(sink.part_mut(at.clone()), ecn).is_err() {
            self.refusals.count(Refusal::Unmarkable);
            return Ok(());
        }
        sink.frames.push(UnpackedFrame { tunnel: self.number, vni, hops, metadata, at });
        self.frames = self.frames.wrapping_add(1);
        Ok(())
    }

    /// Processes a heartbeat: answers it and compares its digest.
    fn echo(&mut self, now: u64, record: &RecordSpan, sink: &mut Sink) -> Result<(), Refusal> {
        let body = sink.part(record.body.clone());
        let echo = record::Echo::parse(body).map_err(|_| Refusal::Truncated)?;
        if self.is_dormant() {
            self.repeat_dormant(sink);
            return Ok(());
        }
        self.reply(&echo, sink);
        self.compare(now, echo.digest, sink);
        Ok(())
    }

    /// Processes announced (`HERE`) or withdrawn (`GONE`) addresses of the peer. Claims of networks
    /// that the tunnel does not carry are kept for [`Tunnel::carry`].
    fn directory(&mut self, vni: u32, record: &RecordSpan, sink: &mut Sink) -> Result<(), Refusal> {
        let carried = self.vnis.contains(&vni);
        let Sink { bytes, events, .. } = sink;
        let body = bytes.get(record.body.clone()).unwrap_or(&[]);
        let entries = Entry::all(body).map_err(|_| Refusal::Truncated)?;
        for Entry { mac, epoch } in entries {
            let key = (vni, mac);
            let what = if record.header.kind == record::GONE {
                self.peer_claims.remove(key, epoch).map(|_| EventKind::Gone { vni, mac, epoch })
            } else {
                let is_new = self.peer_claims.insert(key, epoch).map_err(|_| Refusal::Directory)?;
                is_new.then_some(EventKind::Here { vni, mac, epoch })
            };
            if let Some(what) = what.filter(|_| carried) {
                events.push(crate::event::Event { tunnel: self.number, kind: what });
            }
        }
        Ok(())
    }
}

/// Returns whether a datagram of the stream protocol carries bytes of connections: not a hello, a
/// mere acknowledgement, or addresses only. Only such datagrams keep an on-demand tunnel awake. The
/// bytes of the last piece are not needed.
pub(crate) fn carries_connections(datagram: &[u8]) -> bool {
    let Ok(multiplex::Datagram::Packet(packet)) = multiplex::Datagram::parse(datagram) else {
        return false;
    };
    let mut frames = packet.frames;
    let is_connection = |channel: u32| channel != multiplex::ADDRESSES;
    loop {
        match multiplex::Frame::next(&mut frames) {
            Ok(Some(multiplex::Frame::Piece(piece))) if is_connection(piece.channel) => {
                return true;
            }
            Ok(Some(_)) => {}
            // The bytes of the last piece may be in the body of a frame to send.
            Ok(None) | Err(_) => {
                return multiplex::Piece::channel_at(frames).is_some_and(is_connection);
            }
        }
    }
}

/// Returns the record at `at` and advances `at` to the next.
fn next(at: &mut usize, end: usize, sink: &Sink) -> Result<Option<RecordSpan>, Refusal> {
    let mut rest = sink.part(*at..end);
    let taken = record::Header::next(&mut rest).map_err(|_| Refusal::Truncated)?;
    let Some((header, body)) = taken else { return Ok(None) };
    *at = end.saturating_sub(rest.len());
    Ok(Some(RecordSpan { header, body: at.saturating_sub(body.len())..*at }))
}
