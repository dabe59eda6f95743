//! Messages between a process and the daemon, by which the process attaches to a NIC of MX
//! endpoints.
//!
//! The messages cross a Unix stream socket. Each has [`MESSAGE_BYTES`] (128) bytes; some carry file
//! descriptors. All numbers are little-endian. This module encodes and decodes single messages; the
//! socket, its buffers and its limits belong to `attach::local`. After an [`Error`] the receiver
//! closes the socket. A *tag* or *token* is chosen by the process and returned in the answer.
//! `endpoint` is always the process's own endpoint; `to` or `of` is the peer, in the NIC `nic`.
//! Frames and MX messages do not pass here: they pass through the shared memory whose descriptors
//! these messages carry. Users are the service `mx`, in the dispatcher's thread, and processes
//! (`clients/endpoint`, `causeway mpi`), in the thread that makes the call.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 2 | kind of the message |
//! | 2 to 4 | zero |
//! | 4 on | the fields in the order of their declaration here, then zeroes |
//!
//! The process sends [`ClientMessage`], the daemon sends [`DaemonMessage`]: answers, and events at
//! any time. Descriptors accompany
//!
//! | message | descriptors, in this order |
//! |---|---|
//! | [`DaemonMessage::Opened`] | with `bypass` 1 (direct mode): a packet socket, and a file that stays locked while the process holds it; none if the process resumed the endpoint and has both. With `bypass` 0 on a NIC with a network: the memory of the endpoint's rings, the daemon's doorbell, and such a file unless the process resumed the endpoint. Otherwise none |
//! | [`DaemonMessage::Channel`] | the memory of the channel, this process's end of the doorbell between both, and the pidfd of the peer process if both processes allow it (`direct`) and belong to one user |
//! | [`ClientMessage::Region`] | the memory of the region |
//!
//! The doorbell of a channel is a socket pair of its own. So neither the peer nor a third process
//! can fill it and thereby block the process that rings it. The daemon never rings a doorbell of a
//! process; it sends [`DaemonMessage::Wake`].

use crate::field::{Reader, Truncated, Writer};

/// Length of each message, in bytes.
pub const MESSAGE_BYTES: usize = 128;
/// Version of the protocol.
pub const VERSION: u16 = 4;
/// Bit of [`ClientMessage::Hello`]: the process exchanges pidfds with other processes.
pub const HELLO_PIDFDS: u8 = 1;
/// Bit of [`ClientMessage::Hello`]: the process gets no channels to other processes.
pub const HELLO_NO_CHANNELS: u8 = 2;
/// Longest name, in bytes. A longer one is no [`Name`].
pub const NAME_BYTES_MAX: usize = 80;

/// A message is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The message is cut off.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The kind of the message is unknown.
    #[error("message kind {0} is unknown")]
    Kind(u16),
    /// A field has an invalid value.
    #[error("field {0} has an invalid value")]
    Field(&'static str),
}

/// A name of a NIC: UTF-8 text of at most [`NAME_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

impl Name {
    /// Returns `text` as a name, or `None` if it is longer than [`NAME_BYTES_MAX`].
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Self { len: u8::try_from(text.len()).ok()?, bytes })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or(&[]);
        std::str::from_utf8(bytes).unwrap_or("")
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let name = Self { len: reader.u8(), bytes: reader.take() };
        let text = name.bytes.get(..usize::from(name.len)).map(std::str::from_utf8);
        if matches!(text, Some(Ok(_))) { Ok(name) } else { Err(Error::Field("name")) }
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put([self.len]);
        writer.put(self.bytes);
    }
}

/// A message from a process to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields are their meaning")]
pub enum ClientMessage {
    /// Starts the connection; answered by [`DaemonMessage::Welcome`]. The daemon accepts any
    /// version: the process compares [`VERSION`] with that of the answer. `direct`: bits.
    /// [`HELLO_PIDFDS`]: the process accepts pidfds of other processes and allows that others
    /// receive its own; the kernel decides their rights. [`HELLO_NO_CHANNELS`]: the process gets no
    /// channels, and its messages go through the daemon.
    Hello { version: u16, direct: u8 },
    /// Opens an endpoint: this number, or any free number if 255. Answered by
    /// [`DaemonMessage::Opened`].
    Open { tag: u32, endpoint: u8, key: u32 },
    /// Opens an endpoint again that the process had from a daemon that is gone, with the number,
    /// key and session by which peers know it. Answered by [`DaemonMessage::Opened`].
    Resume { tag: u32, endpoint: u8, key: u32, session: u32 },
    /// Closes an endpoint of the process. Not answered.
    Close { endpoint: u8 },
    /// Requests a channel from an endpoint of the process to another endpoint. Answered by
    /// [`DaemonMessage::Channel`], [`DaemonMessage::Remote`] or [`DaemonMessage::Refused`].
    Connect { endpoint: u8, to: u8, key: u32, token: u64, nic: u64 },
    /// Closes the channel with the number `way` to that endpoint. Not answered.
    Disconnect { endpoint: u8, to: u8, way: u32, nic: u64 },
    /// Looks up a NIC by its name. Answered by [`DaemonMessage::Host`].
    Find { tag: u32, name: Name },
    /// Looks up the name of a NIC. Answered by [`DaemonMessage::Host`].
    Name { tag: u32, nic: u64 },
    /// Registers memory of `len` bytes for large messages of an endpoint: a memfd that is sealed
    /// against shrinking. Answered by [`DaemonMessage::Region`].
    Region { tag: u32, endpoint: u8, len: u64 },
    /// Releases a region. Not answered.
    Unregion { endpoint: u8, region: u8 },
}

/// A message from the daemon to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of the fields are their meaning")]
pub enum DaemonMessage {
    /// Answers [`ClientMessage::Hello`]: address and name of the NIC, and the identity of the
    /// daemon.
    Welcome { version: u16, nic: u64, host: [u8; 16], name: Name },
    /// Answers an open: success (code 0), or an `mx_return_t`. `bypass`: 1 if the process has the
    /// network itself. A second one with descriptors gives an open endpoint its rings, because a
    /// connect needs them.
    Opened { tag: u32, code: u32, session: u32, endpoint: u8, bypass: u8 },
    /// A channel to another endpoint of this host. `way`: number of the channel, not reused before
    /// 2^32 others. `token`: that of the request, or 0 if the peer requested. `side`: 0 or 1, the
    /// side of the channel that is this process's.
    Channel { endpoint: u8, of: u8, side: u8, session: u32, way: u32, token: u64, nic: u64 },
    /// A connect ended with this `mx_status_code_t`: it failed, or (0) the endpoints have a channel
    /// already.
    Refused { endpoint: u8, status: u8, token: u64 },
    /// The peer closed the channel with the number `way` or its endpoint, or its process ended.
    Gone { endpoint: u8, of: u8, way: u32, nic: u64 },
    /// Answers a lookup; `known` is 1 if the daemon knows the NIC.
    Host { tag: u32, known: u8, nic: u64, name: Name },
    /// The requested endpoint is on another host, reached through the endpoint's rings or its
    /// packet socket. `known` is 1 if its NIC has been discovered.
    Remote { endpoint: u8, known: u8, token: u64 },
    /// The rings of an endpoint that the process waits for have entries.
    Wake { endpoint: u8 },
    /// Answers a registration: success (code 0), or an `mx_return_t`.
    Region { tag: u32, code: u32, endpoint: u8, region: u8 },
}

/// Encodes a message of this kind.
fn message(kind: u16, fields: impl FnOnce(&mut Writer<'_>)) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut writer = Writer::new(&mut bytes);
    writer.put(kind.to_le_bytes());
    writer.put([0; 2]);
    fields(&mut writer);
    bytes
}

/// Returns the kind of a message and a reader of its fields.
fn open<'a>(what: &'static str, bytes: &'a [u8]) -> Result<(u16, Reader<'a>), Error> {
    let mut reader = Reader::new(what, MESSAGE_BYTES, bytes)?;
    let kind = reader.u16_le();
    if reader.u16_le() == 0 { Ok((kind, reader)) } else { Err(Error::Field("reserved")) }
}

impl ClientMessage {
    /// Encodes the message.
    pub fn emit(&self) -> [u8; MESSAGE_BYTES] {
        match *self {
            Self::Hello { version, direct } => message(1, |w| {
                w.put(version.to_le_bytes());
                w.put([direct]);
            }),
            Self::Open { tag, endpoint, key } => message(2, |w| {
                w.put(tag.to_le_bytes());
                w.put([endpoint]);
                w.put(key.to_le_bytes());
            }),
            Self::Close { endpoint } => message(3, |w| w.put([endpoint])),
            Self::Connect { endpoint, to, key, token, nic } => message(4, |w| {
                w.put([endpoint, to]);
                w.put(key.to_le_bytes());
                w.put(token.to_le_bytes());
                w.put(nic.to_le_bytes());
            }),
            Self::Disconnect { endpoint, to, way, nic } => message(5, |w| {
                w.put([endpoint, to]);
                w.put(way.to_le_bytes());
                w.put(nic.to_le_bytes());
            }),
            Self::Find { tag, name } => message(6, |w| {
                w.put(tag.to_le_bytes());
                name.write(w);
            }),
            Self::Name { tag, nic } => message(7, |w| {
                w.put(tag.to_le_bytes());
                w.put(nic.to_le_bytes());
            }),
            Self::Region { tag, endpoint, len } => message(8, |w| {
                w.put(tag.to_le_bytes());
                w.put([endpoint]);
                w.put(len.to_le_bytes());
            }),
            Self::Unregion { endpoint, region } => message(9, |w| w.put([endpoint, region])),
            Self::Resume { tag, endpoint, key, session } => message(10, |w| {
                w.put(tag.to_le_bytes());
                w.put([endpoint]);
                w.put(key.to_le_bytes());
                w.put(session.to_le_bytes());
            }),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`Error`] if the bytes are too few, the kind is unknown or a field is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (kind, mut r) = open("a question", bytes)?;
        Ok(match kind {
            1 => {
                let (version, direct) = (r.u16_le(), r.u8());
                if direct & !(HELLO_PIDFDS | HELLO_NO_CHANNELS) != 0 {
                    return Err(Error::Field("direct"));
                }
                Self::Hello { version, direct }
            }
            2 => Self::Open { tag: r.u32_le(), endpoint: r.u8(), key: r.u32_le() },
            3 => Self::Close { endpoint: r.u8() },
            4 => Self::Connect {
                endpoint: r.u8(),
                to: r.u8(),
                key: r.u32_le(),
                token: r.u64_le(),
                nic: r.u64_le(),
            },
            5 => {
                Self::Disconnect { endpoint: r.u8(), to: r.u8(), way: r.u32_le(), nic: r.u64_le() }
            }
            6 => Self::Find { tag: r.u32_le(), name: Name::read(&mut r)? },
            7 => Self::Name { tag: r.u32_le(), nic: r.u64_le() },
            8 => Self::Region { tag: r.u32_le(), endpoint: r.u8(), len: r.u64_le() },
            9 => Self::Unregion { endpoint: r.u8(), region: r.u8() },
            10 => Self::Resume {
                tag: r.u32_le(),
                endpoint: r.u8(),
                key: r.u32_le(),
                session: r.u32_le(),
            },
            other => return Err(Error::Kind(other)),
        })
    }
}

impl DaemonMessage {
    /// Encodes the message.
    pub fn emit(&self) -> [u8; MESSAGE_BYTES] {
        match *self {
            Self::Welcome { version, nic, host, name } => message(1, |w| {
                w.put(version.to_le_bytes());
                w.put(nic.to_le_bytes());
                w.put(host);
                name.write(w);
            }),
            Self::Opened { tag, code, session, endpoint, bypass } => message(2, |w| {
                w.put(tag.to_le_bytes());
                w.put(code.to_le_bytes());
                w.put(session.to_le_bytes());
                w.put([endpoint, bypass]);
            }),
            Self::Channel { endpoint, of, side, session, way, token, nic } => message(3, |w| {
                w.put([endpoint, of, side]);
                w.put(session.to_le_bytes());
                w.put(way.to_le_bytes());
                w.put(token.to_le_bytes());
                w.put(nic.to_le_bytes());
            }),
            Self::Refused { endpoint, status, token } => message(4, |w| {
                w.put([endpoint, status]);
                w.put(token.to_le_bytes());
            }),
            Self::Gone { endpoint, of, way, nic } => message(5, |w| {
                w.put([endpoint, of]);
                w.put(way.to_le_bytes());
                w.put(nic.to_le_bytes());
            }),
            Self::Host { tag, known, nic, name } => message(6, |w| {
                w.put(tag.to_le_bytes());
                w.put([known]);
                w.put(nic.to_le_bytes());
                name.write(w);
            }),
            Self::Remote { endpoint, known, token } => message(7, |w| {
                w.put([endpoint, known]);
                w.put(token.to_le_bytes());
            }),
            Self::Wake { endpoint } => message(8, |w| w.put([endpoint])),
            Self::Region { tag, code, endpoint, region } => message(9, |w| {
                w.put(tag.to_le_bytes());
                w.put(code.to_le_bytes());
                w.put([endpoint, region]);
            }),
        }
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`Error`] if the bytes are too few, the kind is unknown or a field is invalid.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (kind, mut r) = open("a message of the daemon", bytes)?;
        Ok(match kind {
            1 => Self::Welcome {
                version: r.u16_le(),
                nic: r.u64_le(),
                host: r.take(),
                name: Name::read(&mut r)?,
            },
            2 => Self::Opened {
                tag: r.u32_le(),
                code: r.u32_le(),
                session: r.u32_le(),
                endpoint: r.u8(),
                bypass: flag("bypass", r.u8())?,
            },
            3 => Self::Channel {
                endpoint: r.u8(),
                of: r.u8(),
                side: flag("side", r.u8())?,
                session: r.u32_le(),
                way: r.u32_le(),
                token: r.u64_le(),
                nic: r.u64_le(),
            },
            4 => Self::Refused { endpoint: r.u8(), status: r.u8(), token: r.u64_le() },
            5 => Self::Gone { endpoint: r.u8(), of: r.u8(), way: r.u32_le(), nic: r.u64_le() },
            6 => Self::Host {
                tag: r.u32_le(),
                known: flag("known", r.u8())?,
                nic: r.u64_le(),
                name: Name::read(&mut r)?,
            },
            7 => {
                let (endpoint, known) = (r.u8(), flag("known", r.u8())?);
                Self::Remote { endpoint, known, token: r.u64_le() }
            }
            8 => Self::Wake { endpoint: r.u8() },
            9 => {
                Self::Region { tag: r.u32_le(), code: r.u32_le(), endpoint: r.u8(), region: r.u8() }
            }
            other => return Err(Error::Kind(other)),
        })
    }
}

fn flag(name: &'static str, value: u8) -> Result<u8, Error> {
    if value < 2 { Ok(value) } else { Err(Error::Field(name)) }
}

#[cfg(test)]
mod tests;
