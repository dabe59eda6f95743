//! Packets in flight: which were acknowledged, which are lost, when to probe.
//!
//! [`super::PeerSession`] records each sent packet, passes acknowledgements in, and sends the spans
//! of lost packets again. Packets are kept in order of their numbers until they and all earlier
//! ones are acknowledged or lost. The congestion window bounds the bytes of packets with pieces;
//! packets without pieces are not counted, and never sent again. A packet is lost if a packet with
//! a number larger by 8 or more ([`REORDERED_PACKETS`]) was acknowledged, if a later one was
//! acknowledged and 9/8 of a round trip passed, or if a probe sends it again. Times are those of
//! the caller's clock, in nanoseconds.

use std::collections::VecDeque;

use super::congestion::Congestion;
use super::outgoing::Span;
use crate::limits::{PEER_SILENT_NS_MAX, REORDERED_PACKETS};

/// A sent packet.
#[derive(Debug)]
struct SentPacket {
    sent_ns: u64,
    /// Length of the datagram; 0 once it is acknowledged or lost, and for a packet without pieces.
    len: usize,
    /// The pieces.
    spans: PacketSpans,
}

/// The pieces of a packet, each with its channel. A single piece needs no allocation.
#[derive(Debug, Default)]
pub struct PacketSpans {
    /// The first piece.
    first: Option<(u32, Span)>,
    /// The pieces after the first, in order.
    others: Vec<(u32, Span)>,
}

impl PacketSpans {
    /// Adds a piece of a channel.
    pub fn push(&mut self, channel: u32, span: Span) {
        match self.first {
            None => self.first = Some((channel, span)),
            Some(_) => self.others.push((channel, span)),
        }
    }

    /// Returns whether the packet has no pieces.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Removes all pieces, and returns them in order.
    fn take(&mut self) -> impl Iterator<Item = (u32, Span)> + use<> {
        self.first.take().into_iter().chain(std::mem::take(&mut self.others))
    }
}

/// The packets in flight.
#[derive(Debug, Default)]
pub struct InFlight {
    /// From number `first` on.
    packets: VecDeque<SentPacket>,
    /// Number of the first kept packet.
    first: u64,
    /// Bytes of packets that are neither acknowledged nor lost.
    bytes: usize,
    /// The largest acknowledged number.
    largest_acked: Option<u64>,
    /// When the next packet counts as lost.
    loss_at_ns: Option<u64>,
    /// When the last packet with pieces was sent.
    last_sent_ns: u64,
    /// When the peer last acknowledged a packet, or the first packet of a run was sent.
    progress_ns: u64,
    /// Unanswered probes.
    probes: u32,
    /// Packets that may be sent beyond the window.
    allowance: u32,
    /// Round-trip time and window.
    congestion: Congestion,
    /// Lost packets so far.
    lost_total: u64,
}

/// An acknowledgement that no honest peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FalseAck;

/// Changes to the spans of channels.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Acknowledged spans.
    pub acked: Vec<(u32, Span)>,
    /// Spans to send again.
    pub lost: Vec<(u32, Span)>,
}

impl Outcome {
    /// Adds an acknowledged span; consecutive spans of a channel are one, because each costs look-ups.
    fn note_acked(&mut self, channel: u32, span: Span) {
        match self.acked.last_mut() {
            Some((last, known)) if *last == channel && known.to == span.from => {
                (known.to, known.last) = (span.to, known.last || span.last);
            }
            _ => self.acked.push((channel, span)),
        }
    }
}

impl InFlight {
    /// Returns the number of the next packet.
    pub fn next_number(&self) -> u64 {
        self.first.saturating_add(self.packets.len() as u64)
    }

    /// Returns whether a packet with pieces may be sent.
    pub const fn has_room(&self) -> bool {
        self.allowance > 0 || self.congestion.has_room(self.bytes)
    }

    /// Returns round-trip time and window.
    pub const fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Returns the number of packets that were lost.
    pub const fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Records a sent packet of `len` bytes, which has the next number.
    pub fn sent(&mut self, now_ns: u64, len: usize, spans: PacketSpans) {
        let len = if spans.is_empty() { 0 } else { len };
        if len > 0 {
            if self.bytes == 0 && self.probes == 0 {
                self.progress_ns = now_ns;
            }
            self.congestion.sent(len);
            self.last_sent_ns = now_ns;
            self.allowance = self.allowance.saturating_sub(1);
            self.bytes = self.bytes.saturating_add(len);
        }
        self.packets.push_back(SentPacket { sent_ns: now_ns, len, spans });
        self.drop_settled();
    }

    /// Processes an acknowledgement: ranges of numbers, the highest first.
    ///
    /// # Errors
    /// [`FalseAck`]: a number was never sent, or the ranges are not in order.
    pub fn acknowledge(
        &mut self,
        now_ns: u64,
        ranges: impl Iterator<Item = Option<(u64, u64)>>,
        outcome: &mut Outcome,
    ) -> Result<(), FalseAck> {
        let (mut below, mut measured) = (self.next_number(), None);
        let is_full = self.bytes.saturating_mul(2) >= self.congestion.window();
        for range in ranges {
            let (from, to) = range.ok_or(FalseAck)?;
            if from > to || to >= below {
                return Err(FalseAck);
            }
            below = from;
            if self.largest_acked.is_none_or(|largest| largest < to) {
                self.largest_acked = Some(to);
                measured = Some(to);
            }
            for number in from.max(self.first)..=to {
                let Some(packet) = self.packet_mut(number) else { break };
                if packet.len == 0 {
                    continue;
                }
                let (len, sent_ns) = (std::mem::take(&mut packet.len), packet.sent_ns);
                for (channel, span) in packet.spans.take() {
                    outcome.note_acked(channel, span);
                }
                self.bytes = self.bytes.saturating_sub(len);
                self.congestion.acked(len, sent_ns, is_full);
                (self.progress_ns, self.probes) = (now_ns, 0);
                if measured == Some(number) {
                    self.congestion.measure(now_ns.saturating_sub(sent_ns));
                }
            }
        }
        self.detect(now_ns, outcome);
        Ok(())
    }

    /// Returns a kept packet.
    fn packet_mut(&mut self, number: u64) -> Option<&mut SentPacket> {
        self.packets.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Declares packets as lost that later packets overtook by far in number or time.
    fn detect(&mut self, now_ns: u64, outcome: &mut Outcome) {
        self.loss_at_ns = None;
        let Some(largest) = self.largest_acked else { return };
        let wait = self.congestion.loss_ns();
        for (number, packet) in (self.first..largest).zip(&mut self.packets) {
            if packet.len == 0 {
                continue;
            }
            let due = packet.sent_ns.saturating_add(wait);
            if number.saturating_add(REORDERED_PACKETS) > largest && due > now_ns {
                self.loss_at_ns = Some(self.loss_at_ns.map_or(due, |at| at.min(due)));
                continue;
            }
            self.bytes = self.bytes.saturating_sub(std::mem::take(&mut packet.len));
            outcome.lost.extend(packet.spans.take());
            self.congestion.lost(now_ns, packet.sent_ns);
            self.lost_total = self.lost_total.saturating_add(1);
        }
        self.drop_settled();
    }

    /// Drops the packets at the front that are acknowledged or lost.
    fn drop_settled(&mut self) {
        while self.packets.front().is_some_and(|packet| packet.len == 0) {
            self.packets.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }

    /// Returns when [`Self::tick`] must be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        let probe = (self.bytes > 0)
            .then(|| self.last_sent_ns.saturating_add(self.congestion.probe_ns(self.probes)));
        [probe, self.loss_at_ns].into_iter().flatten().min()
    }

    /// Handles a deadline that has passed: loss by time, or a probe, which declares the two oldest
    /// packets lost and permits two packets beyond the window. Returns false if the peer
    /// acknowledged nothing for [`PEER_SILENT_NS_MAX`] (10 s) while bytes were in flight; without a
    /// deadline that has passed nothing changes.
    pub fn tick(&mut self, now_ns: u64, outcome: &mut Outcome) -> bool {
        if self.bytes > 0 && now_ns.saturating_sub(self.progress_ns) >= PEER_SILENT_NS_MAX {
            return false;
        }
        if self.loss_at_ns.is_some_and(|at| at <= now_ns) {
            self.detect(now_ns, outcome);
        }
        let probe_ns = self.congestion.probe_ns(self.probes);
        if self.bytes == 0 || self.last_sent_ns.saturating_add(probe_ns) > now_ns {
            return true;
        }
        self.probes = self.probes.saturating_add(1);
        if self.probes == COLLAPSE_PROBES {
            self.congestion.collapse();
        }
        let waiting = self.packets.iter_mut().filter(|packet| packet.len > 0);
        for packet in waiting.take(PROBE_PACKETS) {
            self.bytes = self.bytes.saturating_sub(std::mem::take(&mut packet.len));
            outcome.lost.extend(packet.spans.take());
            self.lost_total = self.lost_total.saturating_add(1);
            self.allowance = PROBE_PACKETS as u32;
        }
        self.drop_settled();
        // The probe follows at once.
        self.last_sent_ns = now_ns;
        true
    }
}

/// Packets that a probe sends again.
const PROBE_PACKETS: usize = 2;
/// Unanswered probes after which the window collapses.
const COLLAPSE_PROBES: u32 = 3;
