//! What is not about messages: connecting, acknowledging, refusing, and asking for names.

use super::{Ends, Error, NAME_LEN_MAX, behind_type, data};
use crate::field::Reader;

/// Length of a connect packet, in bytes.
pub(super) const CONNECT_LEN: usize = 32;
/// What its length field says, in bytes, at least.
pub(super) const CONNECT_DATA_LEN: u8 = 16;
/// Length of an acknowledgement, in bytes.
pub(super) const ACK_LEN: usize = 28;
/// What its length field says, in bytes, at least.
pub(super) const ACK_DATA_LEN: u8 = 16;
/// What an acknowledgement calls itself among packets that are delivered at any time.
pub(super) const ACK_TYPE: u8 = 0x55;
/// Length of the shortest packets, in bytes.
pub(super) const SHORT_LEN: usize = 16;

/// Why a packet was refused. Others than these are not known.
pub mod nack {
    /// There cannot be such an endpoint.
    pub const BAD_ENDPOINT: u8 = 1;
    /// That endpoint is not open.
    pub const ENDPOINT_CLOSED: u8 = 2;
    /// The endpoint has another session.
    pub const BAD_SESSION: u8 = 3;
    /// There is no such window; of pulls only.
    pub const BAD_WINDOW: u8 = 4;
}

/// Connects two endpoints, or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    /// From whom to whom.
    pub ends: Ends,
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// The session of who asks; an answer says it again.
    pub session: u32,
    /// The number of the message that is expected next from who gets this.
    pub expected: u16,
    /// Which request of those that are tried; an answer says it again.
    pub number: u8,
    /// Which of both this is.
    pub greeting: Greeting,
}

/// The part of a connect packet in which request and answer differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// A request, with the key of the endpoint that is asked.
    Request {
        /// The key.
        key: u32,
    },
    /// The answer.
    Reply {
        /// The session of who answers.
        session: u32,
        /// Whether it is connected.
        answer: Answer,
    },
}

/// How a request to connect was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer(pub u8);

impl Answer {
    /// Connected.
    pub const SUCCESS: Self = Self(0);
    /// The key is another one.
    pub const BAD_KEY: Self = Self(11);
}

/// Every message before a number came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// From whom to whom.
    pub ends: Ends,
    /// The receiving endpoint's.
    pub session: u32,
    /// Every message before this one came.
    pub acknowledged: u16,
    /// Of acknowledgements the latest has the largest.
    pub number: u32,
}

/// A packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nack {
    /// From whom to whom: the source is who refuses.
    pub ends: Ends,
    /// One of [`nack`], or what nobody knows.
    pub reason: u8,
    /// The peer index of the packet that was refused.
    pub peer_index: u16,
    /// The number of the message that was refused; 0 for a connect.
    pub sequence: u16,
}

/// A pull was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullNack {
    /// The endpoint that refuses.
    pub source: u8,
    /// One of [`nack`], or what nobody knows.
    pub reason: u8,
    /// As the pull said.
    pub handle: u32,
    /// As the pull said.
    pub magic: u32,
}

/// Asks a board for its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostQuery {
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// The answer has it too.
    pub magic: u32,
}

/// A board's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostReply<'a> {
    /// Index of the destination in the sender's table of peers.
    pub index_of_destination: u16,
    /// As the query said.
    pub magic: u32,
    /// At most [`NAME_LEN_MAX`] bytes, none of them NUL.
    pub name: &'a [u8],
}

/// Takes a length that a packet of this kind says again, and the padding behind.
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
        let ends = Ends::take(&mut r);
        take_data_len("connect", CONNECT_DATA_LEN, &mut r)?;
        let _always_zero = r.u16_be();
        let index_of_destination = r.u16_be();
        let _: [u8; 4] = r.take();
        let (session, word) = (r.u32_be(), r.u32_be());
        let expected = r.u16_be();
        let [is_reply, number, status] = r.take();
        let greeting = match is_reply {
            0 => Greeting::Request { key: word },
            1 => Greeting::Reply { session: word, answer: Answer(status) },
            other => return Err(Error::Value { what: "connect", is: other.into() }),
        };
        Ok(Self { ends, index_of_destination, session, expected, number, greeting })
    }
}

impl Ack {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("acknowledgement", ACK_LEN, body)?;
        let ends = Ends::take(&mut r);
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
        Ok(Self { ends: Ends { destination, source }, reason, peer_index, sequence })
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
            expected: "1 to 80, of which the last byte alone is NUL",
        };
        match data("host reply", body, SHORT_LEN, len.into())?.split_last() {
            Some((0, name)) if name.len() <= NAME_LEN_MAX && !name.contains(&0) => {
                Ok(Self { index_of_destination, magic, name })
            }
            _ => Err(wrong),
        }
    }
}
