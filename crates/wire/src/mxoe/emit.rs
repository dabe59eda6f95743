//! Encoding of packets, the last step before a frame is sent: a head, and for long packets the data
//! that follow it without a copy. The encoder does not check values.
//!
//! A packet's header has at most 48 bytes ([`HEAD_LEN_MAX`](super::HEAD_LEN_MAX)); data that fits
//! behind the header into 128 bytes lies in the head too, all other data is returned. Nothing is
//! allocated, and nothing is sent: callers are the engine and the discovery of `mxoe`, which
//! respect the limits of [`super`]. The threads are those of [`super`].

use super::control::{ACK_DATA_LEN, ACK_LEN, ACK_TYPE, CONNECT_DATA_LEN, CONNECT_LEN, SHORT_LEN};
use super::large::{
    JUMBO_MARK, NOTIFY_LEN, PULL_LEN, PULL_REPLY_LEN, RENDEZVOUS_DATA_LEN, RENDEZVOUS_LEN,
};
use super::message::{EAGER_LEN, FRAGMENT_HEADER_LEN};
use super::{
    Connect, ConnectBody, ETHER_TYPE, Eager, EndpointPair, FRAME_LEN_MIN, Fragment, HEADER_LEN,
    Header, Kind, NAME_LEN_MAX, Notify, Packet, Pull, Rendezvous,
};
use crate::field::Writer;

/// Capacity of a head: a header, and the data that fits behind it.
const ROOM: usize = 128;

/// The first bytes of a frame, or the whole frame.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    bytes: [u8; ROOM],
    len: usize,
}

impl Head {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// Encodes a frame in two parts: its head, and the data that follow. The head includes short data.
/// A frame shorter than [`FRAME_LEN_MIN`] is padded with zeroes.
///
/// Length fields are those of the data. Data longer than the packet permits yield a packet that
/// every receiver refuses. A name that is too long is cut.
pub fn emit<'a>(header: &Header, packet: &Packet<'a>) -> (Head, &'a [u8]) {
    let mut bytes = [0; ROOM];
    let mut w = Writer::new(&mut bytes);
    w.put(header.destination);
    w.put(header.source);
    w.put(ETHER_TYPE.to_be_bytes());
    w.put(header.peer_index.to_be_bytes());
    let (len, data) = body(&mut w, packet);
    let len = len.saturating_add(HEADER_LEN);
    // Trailing zero fields were not written, so the data's position follows from `len`.
    let (inlined, data) = match bytes.get_mut(len..len.saturating_add(data.len())) {
        Some(place) => {
            place.copy_from_slice(data);
            (data.len(), &[][..])
        }
        None => (0, data),
    };
    let len = len.saturating_add(inlined);
    let padded = if data.is_empty() { len.max(FRAME_LEN_MIN) } else { len };
    (Head { bytes, len: padded }, data)
}

/// Writes the body without its data. Returns its length, and the data.
fn body<'a>(w: &mut Writer<'_>, packet: &Packet<'a>) -> (usize, &'a [u8]) {
    match packet {
        Packet::Raw(data) => {
            w.put([Kind::Raw.number()]);
            (1, data)
        }
        Packet::Tiny(eager) => (eager_body(w, Kind::Tiny, eager), eager.data),
        Packet::Small(eager) => (eager_body(w, Kind::Small, eager), eager.data),
        Packet::Medium(fragment) => {
            fragment_body(w, fragment);
            (FRAGMENT_HEADER_LEN, fragment.eager.data)
        }
        Packet::PullReply(reply) => {
            w.put([Kind::PullReply.number(), reply.frame_sequence]);
            w.put(short(reply.data.len()).to_be_bytes());
            w.put(reply.offset.to_be_bytes());
            w.put(reply.handle.to_be_bytes());
            w.put(reply.magic.to_be_bytes());
            (PULL_REPLY_LEN, reply.data)
        }
        Packet::HostReply(reply) => {
            let name = reply.name.get(..NAME_LEN_MAX).unwrap_or(reply.name);
            let [len, ..] = short(name.len().saturating_add(1)).to_le_bytes();
            w.put([Kind::HostReply.number(), len]);
            w.put(reply.index_of_destination.to_be_bytes());
            w.put([0; 4]);
            w.put(reply.magic.to_be_bytes());
            w.put([0; 4]);
            // The name ends with a NUL that `reply.name` lacks, so it is copied here.
            w.slice(name);
            w.put([0]);
            (SHORT_LEN.saturating_add(len.into()), &[])
        }
        without_data => (plain_body(w, without_data), &[]),
    }
}

/// Writes the body of a packet that has no data. Returns its length.
fn plain_body(w: &mut Writer<'_>, packet: &Packet<'_>) -> usize {
    match packet {
        Packet::Connect(connect) => connect_body(w, connect),
        Packet::Ack(ack) => {
            ends(w, Kind::Truc, ack.ends);
            w.put([ACK_DATA_LEN, 0, 0, 0]);
            w.put(ack.session.to_be_bytes());
            w.put([ACK_TYPE, 0]);
            w.put(ack.acknowledged.to_be_bytes());
            w.put(ack.session.to_be_bytes());
            w.put(ack.number.to_be_bytes());
            w.put(ack.acknowledged.to_be_bytes());
            ACK_LEN
        }
        Packet::Rendezvous(offer) => rendezvous_body(w, offer),
        Packet::Pull(pull) => pull_body(w, pull),
        Packet::Notify(notify) => notify_body(w, notify),
        Packet::Nack(nack) => {
            w.put([Kind::Nack.number(), nack.ends.source, 0, nack.reason, 0, 0, 0, 0, 0]);
            w.put([nack.ends.destination]);
            w.put(nack.peer_index.to_be_bytes());
            w.put(nack.sequence.to_be_bytes());
            SHORT_LEN
        }
        Packet::PullNack(nack) => {
            w.put([Kind::PullNack.number(), nack.source, 0, nack.reason, 0, 0, 0, 0]);
            w.put(nack.handle.to_be_bytes());
            w.put(nack.magic.to_be_bytes());
            SHORT_LEN
        }
        Packet::HostQuery(query) => {
            w.put([Kind::HostQuery.number(), 0]);
            w.put(query.index_of_destination.to_be_bytes());
            w.put([0; 4]);
            w.put(query.magic.to_be_bytes());
            SHORT_LEN
        }
        Packet::Raw(_)
        | Packet::HostReply(_)
        | Packet::Tiny(_)
        | Packet::Small(_)
        | Packet::Medium(_)
        | Packet::PullReply(_) => 0,
    }
}

/// Returns a length as a 16-bit field.
fn short(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

fn ends(w: &mut Writer<'_>, kind: Kind, ends: EndpointPair) {
    w.put([kind.number(), ends.destination, ends.source, 0]);
}

/// Writes sequence number, acknowledgement, match information and session.
fn common(w: &mut Writer<'_>, sequence: u16, acknowledged: u16, match_info: u64, session: u32) {
    w.put(sequence.to_be_bytes());
    w.put(acknowledged.to_be_bytes());
    w.put(match_info.to_be_bytes());
    w.put(session.to_be_bytes());
}

fn eager_body(w: &mut Writer<'_>, kind: Kind, eager: &Eager<'_>) -> usize {
    ends(w, kind, eager.ends);
    w.put(short(eager.data.len()).to_be_bytes());
    w.put([0; 2]);
    common(w, eager.sequence, eager.acknowledged, eager.match_info, eager.session);
    EAGER_LEN
}

fn fragment_body(w: &mut Writer<'_>, Fragment { eager, place }: &Fragment<'_>) {
    ends(w, Kind::Medium, eager.ends);
    w.put(place.message_len.to_be_bytes());
    w.put([0; 2]);
    common(w, eager.sequence, eager.acknowledged, eager.match_info, eager.session);
    w.put(short(eager.data.len()).to_be_bytes());
    w.put([place.number, place.pipeline]);
}

fn connect_body(w: &mut Writer<'_>, connect: &Connect) -> usize {
    ends(w, Kind::Connect, connect.ends);
    w.put([CONNECT_DATA_LEN, 0, 0, 0]);
    w.put([0; 2]);
    w.put(connect.index_of_destination.to_be_bytes());
    w.put([0; 4]);
    w.put(connect.session.to_be_bytes());
    let (word, is_reply, status) = match connect.greeting {
        ConnectBody::Request { key } => (key, 0, 0),
        ConnectBody::Reply { session, answer } => (session, 1, answer.0),
    };
    w.put(word.to_be_bytes());
    w.put(connect.expected.to_be_bytes());
    w.put([is_reply, connect.number, status]);
    CONNECT_LEN
}

fn rendezvous_body(w: &mut Writer<'_>, offer: &Rendezvous) -> usize {
    ends(w, Kind::Rendezvous, offer.ends);
    w.put(RENDEZVOUS_DATA_LEN.to_be_bytes());
    w.put([0; 2]);
    common(w, offer.sequence, offer.acknowledged, offer.match_info, offer.session);
    w.put(offer.message_len.to_be_bytes());
    w.put([offer.window, offer.window_sequence]);
    w.put(offer.offset.to_be_bytes());
    RENDEZVOUS_LEN
}

fn pull_body(w: &mut Writer<'_>, pull: &Pull) -> usize {
    ends(w, Kind::Pull, pull.ends);
    w.put(pull.session.to_be_bytes());
    w.put(pull.total_len.to_be_bytes());
    w.put([pull.window, pull.window_sequence]);
    w.put(pull.offset.to_be_bytes());
    w.put(pull.handle.to_be_bytes());
    w.put(pull.magic.to_be_bytes());
    w.put(pull.first_frame_offset.to_be_bytes());
    w.put(pull.block_len.to_be_bytes());
    w.put(pull.frame_index.to_be_bytes());
    if pull.wide {
        // In the padding.
        w.put(JUMBO_MARK);
    }
    PULL_LEN
}

fn notify_body(w: &mut Writer<'_>, notify: &Notify) -> usize {
    ends(w, Kind::Notify, notify.ends);
    w.put(notify.session.to_be_bytes());
    w.put(notify.total_len.to_be_bytes());
    w.put([notify.window, notify.window_sequence, 0, 0, 0, 0]);
    w.put(notify.sequence.to_be_bytes());
    w.put(notify.acknowledged.to_be_bytes());
    NOTIFY_LEN
}
