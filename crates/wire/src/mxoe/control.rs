//! Packets without message data: connect, acknowledgement, refusal and name query. The engine
//! compares their sessions and keys and decides the answers.
//!
//! The parsers check lengths, the mark of a reply, the repeated session of an acknowledgement and
//! the form of a name: at most [`NAME_LEN_MAX`] (79) bytes and a NUL, none of the others NUL; UTF-8
//! is not required. A packet that fails is an [`Error`], and the engine drops and counts it.
//! Answers, repetitions and forged packets are the engine's task. [`parse`](super::parse) calls the
//! parsers after it found the kind, and a *truc* packet of another type than [`ACK_TYPE`] is
//! unknown to it; [`emit`](super::emit()) writes the same packets for the sender. The threads are
//! those of [`super`].

use super::{EndpointPair, Error, NAME_LEN_MAX, behind_type, data};
use crate::field::Reader;

/// Length of a connect packet, in bytes.
pub(super) const CONNECT_LEN: usize = 32;
/// Minimum of a connect packet's length field, in bytes.
pub(super) const CONNECT_DATA_LEN: u8 = 16;
/// Length of an acknowledgement, in bytes.
pub(super) const ACK_LEN: usize = 28;
/// Minimum of an acknowledgement's length field, in bytes.
pub(super) const ACK_DATA_LEN: u8 = 16;
/// Type of an acknowledgement among the packets that bypass ordering ("truc").
pub(super) const ACK_TYPE: u8 = 0x55;
/// Length of the shortest packets, in bytes.
pub(super) const SHORT_LEN: usize = 16;

/// Reasons of refusals. Other values are unknown.
pub mod nack {
    /// The endpoint number is invalid.
    pub const BAD_ENDPOINT: u8 = 1;
    /// The endpoint is not open.
    pub const ENDPOINT_CLOSED: u8 = 2;
    /// The endpoint has another session.
    pub const BAD_SESSION: u8 = 3;
    /// The window does not exist; of pulls only.
    pub const BAD_WINDOW: u8 = 4;
}

/// Requests a connection of two endpoints, or answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// Session of the requesting endpoint; repeated in the reply.
    pub session: u32,
    /// Sequence number that the sender of this packet expects next from its receiver.
    pub expected: u16,
    /// Number of this attempt; repeated in the reply.
    pub number: u8,
    /// Request or reply.
    pub greeting: ConnectBody,
}

/// The fields in which request and reply of a connect differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectBody {
    /// A request, with the key of the destination endpoint.
    Request {
        /// The key.
        key: u32,
    },
    /// The answer.
    Reply {
        /// Session of the replying endpoint.
        session: u32,
        /// Result of the request.
        answer: ConnectStatus,
    },
}

/// Result of a connect request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectStatus(pub u8);

impl ConnectStatus {
    /// Connected.
    pub const SUCCESS: Self = Self(0);
    /// The key is wrong.
    pub const BAD_KEY: Self = Self(11);
}

/// Acknowledges all messages before a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// Session of the receiving endpoint.
    pub session: u32,
    /// All messages before this number arrived.
    pub acknowledged: u16,
    /// Number of the acknowledgement: the latest has the largest.
    pub number: u32,
}

/// Refuses a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nack {
    /// Destination and source endpoint; the source refuses.
    pub ends: EndpointPair,
    /// A value of [`nack`], or an unknown value.
    pub reason: u8,
    /// Peer index of the refused packet.
    pub peer_index: u16,
    /// Sequence number of the refused message; 0 for a connect.
    pub sequence: u16,
}

/// Refuses a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullNack {
    /// The endpoint that refuses.
    pub source: u8,
    /// A value of [`nack`], or an unknown value.
    pub reason: u8,
    /// As in the pull.
    pub handle: u32,
    /// As in the pull.
    pub magic: u32,
}

/// Queries the name of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostQuery {
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// Returned in the reply.
    pub magic: u32,
}

/// Replies with the name of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostReply<'a> {
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// As in the query.
    pub magic: u32,
    /// At most [`NAME_LEN_MAX`] bytes, none of them NUL.
    pub name: &'a [u8],
}

/// Reads a redundant length of this packet, and skips the padding behind it.
fn take_data_len(what: &'static str, least: u8, r: &mut Reader<'_>) -> Result<(), Error> {
    let [len, _, _, _] = r.take();
    if len < least {
        return Err(Error::Length { what, is: len.into(), expected: "at least 16" });
    }
    Ok(())
}

impl Connect {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("connect", CONNECT_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        take_data_len("connect", CONNECT_DATA_LEN, &mut r)?;
        let _always_zero = r.u16_be();
        let index_of_destination = r.u16_be();
        let _: [u8; 4] = r.take();
        let (session, word) = (r.u32_be(), r.u32_be());
        let expected = r.u16_be();
        let [is_reply, number, status] = r.take();
        let greeting = match is_reply {
            0 => ConnectBody::Request { key: word },
            1 => ConnectBody::Reply { session: word, answer: ConnectStatus(status) },
            other => return Err(Error::Value { what: "connect", is: other.into() }),
        };
        Ok(Self { ends, index_of_destination, session, expected, number, greeting })
    }
}

impl Ack {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("acknowledgement", ACK_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        take_data_len("acknowledgement", ACK_DATA_LEN, &mut r)?;
        let session = r.u32_be();
        let [kind, _] = r.take();
        if kind != ACK_TYPE {
            return Err(Error::Value { what: "truc type", is: kind.into() });
        }
        let acknowledged = r.u16_be();
        let again = r.u32_be();
        if again != session {
            return Err(Error::Value { what: "second session", is: again });
        }
        Ok(Self { ends, session, acknowledged, number: r.u32_be() })
    }
}

impl Nack {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("nack", SHORT_LEN, body)?;
        let [source, _, reason] = r.take();
        let [_, _, _, _, _, destination] = r.take();
        let (peer_index, sequence) = (r.u16_be(), r.u16_be());
        Ok(Self { ends: EndpointPair { destination, source }, reason, peer_index, sequence })
    }
}

impl PullNack {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("pull nack", SHORT_LEN, body)?;
        let [source, _, reason, _, _, _, _] = r.take();
        Ok(Self { source, reason, handle: r.u32_be(), magic: r.u32_be() })
    }
}

impl HostQuery {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("host query", SHORT_LEN, body)?;
        let _ = r.u8();
        let index_of_destination = r.u16_be();
        let _: [u8; 4] = r.take();
        Ok(Self { index_of_destination, magic: r.u32_be() })
    }
}

impl<'a> HostReply<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let mut r = behind_type("host reply", SHORT_LEN, body)?;
        let len = r.u8();
        let index_of_destination = r.u16_be();
        let _: [u8; 4] = r.take();
        let magic = r.u32_be();
        let wrong = Error::Length {
            what: "name",
            is: len.into(),
            expected: "1 to 80, with a NUL as last byte only",
        };
        match data("host reply", body, SHORT_LEN, len.into())?.split_last() {
            Some((0, name)) if name.len() <= NAME_LEN_MAX && !name.contains(&0) => {
                Ok(Self { index_of_destination, magic, name })
            }
            _ => Err(wrong),
        }
    }
}
