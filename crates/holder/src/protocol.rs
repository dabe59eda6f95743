//! What causewayd and the holder say to each other: version 1.
//!
//! A Unix socket of sequenced packets; each packet is one JSON value of at most
//! [`CONTROL_BYTES_MAX`] bytes. causewayd says `hello` first, each request gets
//! one [`Answer`], and the connection stays open for as long as causewayd lives:
//! its end tells the holder that causewayd is gone.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::CONTROL_BYTES_MAX;

/// The version spoken here.
pub const VERSION: u32 = 1;

/// What causewayd asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first one.
    Hello {
        /// The version that causewayd speaks.
        version: u32,
        /// Its process.
        pid: u32,
    },
    /// Hold a port, or go on holding it: from now on causewayd serves its inner socket.
    Add(HeldPort),
    /// Let go of a port: its frontend sees the connection close.
    Delete {
        /// The port.
        name: String,
    },
    /// All configured ports have been added: let go of those that were not.
    Synced,
    /// Let go of everything and leave.
    LetGo,
}

/// A port to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldPort {
    /// Its name.
    pub name: String,
    /// Where frontends connect.
    pub public: PathBuf,
    /// Where causewayd listens.
    pub inner: PathBuf,
    /// Queues of the device.
    pub queues: u16,
    /// Largest ring that it takes, in descriptors.
    pub ring_size: u16,
    /// What the device is. A frontend that was set up for another is let go.
    pub device: String,
}

/// The holder's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// To `hello`.
    Hello {
        /// The version that the holder speaks.
        version: u32,
        /// Its process.
        pid: u32,
    },
    /// Done.
    Done,
    /// Not done, for the operator to read.
    Refused(String),
}

/// Why a packet could not be sent or read.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The other side closed.
    #[error("the other side closed the connection")]
    Closed,
    /// Nothing there yet.
    #[error("no answer in time")]
    Nothing,
    /// The packet is longer than any may be.
    #[error("a packet of more than {CONTROL_BYTES_MAX} bytes")]
    Long,
    /// The packet is not one of this protocol.
    #[error("a packet that is none of version {VERSION}: {0}")]
    Garbled(#[from] serde_json::Error),
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] Errno),
}

/// Sends one value.
pub fn send<T: Serialize>(socket: impl AsFd, value: &T) -> Result<(), PacketError> {
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() > CONTROL_BYTES_MAX {
        return Err(PacketError::Long);
    }
    let mut none = rustix::net::SendAncillaryBuffer::default();
    match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut none, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(PacketError::Closed),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives one value.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd, flags: RecvFlags) -> Result<T, PacketError> {
    let mut bytes = vec![0; CONTROL_BYTES_MAX];
    let got = match rustix::net::recv(socket, &mut bytes[..], flags | RecvFlags::TRUNC) {
        Ok((_, got)) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Err(PacketError::Nothing),
        Err(Errno::CONNRESET) => return Err(PacketError::Closed),
        Err(errno) => return Err(errno.into()),
    };
    if got == 0 {
        return Err(PacketError::Closed);
    }
    Ok(serde_json::from_slice(bytes.get(..got).ok_or(PacketError::Long)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::OwnedFd;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn what_is_sent_is_received() {
        let (a, b) = pair();
        let port = HeldPort {
            name: "v".into(),
            public: "/p".into(),
            inner: "/i".into(),
            queues: 3,
            ring_size: 1024,
            device: "vsock 3".into(),
        };
        for request in [
            Request::Hello { version: VERSION, pid: 7 },
            Request::Add(port),
            Request::Delete { name: "v".into() },
            Request::Synced,
            Request::LetGo,
        ] {
            send(&a, &request).unwrap();
            assert_eq!(receive::<Request>(&b, RecvFlags::DONTWAIT).unwrap(), request);
        }
        for answer in
            [Answer::Hello { version: 1, pid: 8 }, Answer::Done, Answer::Refused("because".into())]
        {
            send(&b, &answer).unwrap();
            assert_eq!(receive::<Answer>(&a, RecvFlags::DONTWAIT).unwrap(), answer);
        }
    }

    #[test]
    fn hostile_packets_are_told_apart() {
        let (a, b) = pair();
        let next = || receive::<Request>(&b, RecvFlags::DONTWAIT);
        assert!(matches!(next(), Err(PacketError::Nothing)));
        for text in ["", "{", "{\"add\":{}}", "\"synced\" ", "{\"hello\":{\"version\":-1}}", "[]"] {
            let sent = rustix::net::send(&a, text.as_bytes(), SendFlags::NOSIGNAL);
            assert_eq!(sent, Ok(text.len()));
            match (text, next()) {
                ("\"synced\" ", Ok(Request::Synced)) | ("", Err(PacketError::Closed)) => {}
                (_, Err(PacketError::Garbled(_))) => {}
                (_, other) => panic!("{text}: {other:?}"),
            }
        }
        let long = vec![b' '; CONTROL_BYTES_MAX + 1];
        rustix::net::send(&a, &long, SendFlags::NOSIGNAL).unwrap();
        assert!(matches!(next(), Err(PacketError::Long)));
        let name = "x".repeat(CONTROL_BYTES_MAX);
        assert!(matches!(send(&a, &Request::Delete { name }), Err(PacketError::Long)));
        drop(a);
        assert!(matches!(next(), Err(PacketError::Closed)));
        assert!(matches!(send(&b, &Answer::Done), Err(PacketError::Closed)));
    }
}
