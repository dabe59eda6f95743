//! The control protocol between causewayd and the holder, version 1.
//!
//! A SOCK_SEQPACKET Unix socket; each packet is a JSON value of at most [`CONTROL_BYTES_MAX`]
//! (8,192) bytes. causewayd sends `hello` first, each request gets one [`Answer`], and the
//! connection stays open for as long as causewayd lives: its end shows the holder that causewayd is
//! gone. The names of variants and fields are part of the protocol.
//!
//! [`crate::client`] sends requests from causewayd, [`crate::holder`] answers in the holder's main
//! thread, in order and one at a time. The holder sends no unsolicited packets. A packet that is
//! too long, is no JSON value of the expected type, or has unknown fields, ends the connection. A
//! hello of another version, and a request before the hello, are answered with [`Answer::Refused`]
//! and have no effect. Requests that are repeated have the same effect once more: `hello` begins a
//! new generation, `add` of the same device keeps its frontend, `delete` of an unknown name
//! succeeds. No descriptors are passed. The module does not authenticate: the holder checks the
//! peer's user when it accepts the connection. The reasons of a refusal are listed in
//! [`crate::client`]. A send or receive of causewayd fails after [`CONTROL_TIMEOUT`] (5 s), or
//! [`CONTROL_START_TIMEOUT`] (30 s) while it starts; those of the holder do not wait.
//!
//! [`CONTROL_TIMEOUT`]: crate::limits::CONTROL_TIMEOUT
//! [`CONTROL_START_TIMEOUT`]: crate::limits::CONTROL_START_TIMEOUT

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::PathBuf;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::CONTROL_BYTES_MAX;

/// The protocol version of this crate.
pub const VERSION: u32 = 1;

/// A request of causewayd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The first request.
    Hello {
        /// causewayd's protocol version.
        version: u32,
        /// causewayd's process identifier.
        pid: u32,
    },
    /// Hold a port, or continue to hold it: causewayd serves its inner socket from now on.
    Add(HeldPort),
    /// Report the frontends of a port that were refused for their user.
    RefusedUsers {
        /// The port's name.
        name: String,
    },
    /// Release a port: its frontend is disconnected.
    Delete {
        /// The port's name.
        name: String,
    },
    /// All configured ports have been added: release all others.
    Synced,
    /// Release all ports and exit.
    LetGo,
}

/// The protocol of a port's frontends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldProtocol {
    /// vhost-user.
    #[default]
    VhostUser,
    /// vfio-user.
    VfioUser,
}

impl HeldProtocol {
    /// Returns whether the protocol is that of holders that know no other.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A port to hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldPort {
    /// The port's name.
    pub name: String,
    /// The socket at which frontends connect.
    pub public: PathBuf,
    /// The socket at which causewayd listens.
    pub inner: PathBuf,
    /// The protocol of the frontends. vhost-user is left out of the packet, so that holders of
    /// earlier releases continue to hold such ports.
    #[serde(default, skip_serializing_if = "HeldProtocol::is_default")]
    pub protocol: HeldProtocol,
    /// Users that may connect; `None` admits all, and is left out of the packet, so that holders of
    /// earlier releases continue to hold such ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<u32>>,
    /// Number of the device's queues.
    pub queues: u16,
    /// Largest ring of the device, in descriptors.
    pub ring_size: u16,
    /// Kind and identity of the device. A frontend that was set up for another device is
    /// disconnected.
    pub device: String,
}

/// The holder's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Answer to `hello`.
    Hello {
        /// The holder's protocol version.
        version: u32,
        /// The holder's process identifier.
        pid: u32,
    },
    /// The request was executed.
    Done,
    /// Answer to `refused_users`.
    RefusedUsers {
        /// Frontends that were refused for their user.
        total: u64,
        /// The last user.
        user: Option<u32>,
    },
    /// The request was refused, with a reason for the operator.
    Refused(String),
}

/// Why a packet could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The peer closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// No packet is there (non-blocking), or none arrived before the socket's timeout.
    #[error("no answer in time")]
    Nothing,
    /// The packet is longer than [`CONTROL_BYTES_MAX`] (8,192 bytes).
    #[error("a packet of more than {CONTROL_BYTES_MAX} bytes")]
    Long,
    /// The packet is no value of this protocol.
    #[error("not a packet of protocol version {VERSION}: {0}")]
    Garbled(#[from] serde_json::Error),
    /// A system call failed.
    #[error("{0}")]
    Socket(#[from] Errno),
}

/// Sends a value. Blocks as the socket does.
///
/// # Errors
/// The value is too long, the peer closed the connection, or the socket failed.
pub fn send<T: Serialize>(socket: impl AsFd, value: &T) -> Result<(), ProtocolError> {
    let bytes = serde_json::to_vec(value)?;
    if bytes.len() > CONTROL_BYTES_MAX {
        return Err(ProtocolError::Long);
    }
    let mut none = rustix::net::SendAncillaryBuffer::default();
    match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut none, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(ProtocolError::Closed),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives a value. Blocks as the socket does, unless `flags` has `DONTWAIT`.
///
/// # Errors
/// No packet is there, it is invalid, the peer closed the connection, or the socket failed.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    flags: RecvFlags,
) -> Result<T, ProtocolError> {
    let mut bytes = vec![0; CONTROL_BYTES_MAX];
    let flags = flags | RecvFlags::TRUNC;
    // A receive with a time limit is not restarted by the kernel after a signal.
    let received = retry_on_intr(|| rustix::net::recv(&socket, &mut bytes[..], flags));
    let got = match received {
        Ok((_, got)) => got,
        Err(Errno::AGAIN) => return Err(ProtocolError::Nothing),
        Err(Errno::CONNRESET) => return Err(ProtocolError::Closed),
        Err(errno) => return Err(errno.into()),
    };
    if got == 0 {
        return Err(ProtocolError::Closed);
    }
    Ok(serde_json::from_slice(bytes.get(..got).ok_or(ProtocolError::Long)?)?)
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
    fn protocol_values_survive_a_round_trip() {
        let (a, b) = pair();
        let port = HeldPort {
            name: "v".into(),
            public: "/p".into(),
            inner: "/i".into(),
            protocol: HeldProtocol::VfioUser,
            users: Some(vec![107]),
            queues: 3,
            ring_size: 1024,
            device: "vsock 3".into(),
        };
        for request in [
            Request::Hello { version: VERSION, pid: 7 },
            Request::Add(port),
            Request::RefusedUsers { name: "v".into() },
            Request::Delete { name: "v".into() },
            Request::Synced,
            Request::LetGo,
        ] {
            send(&a, &request).unwrap();
            assert_eq!(receive::<Request>(&b, RecvFlags::DONTWAIT).unwrap(), request);
        }
        for answer in [
            Answer::Hello { version: 1, pid: 8 },
            Answer::Done,
            Answer::RefusedUsers { total: 2, user: Some(7) },
            Answer::Refused("because".into()),
        ] {
            send(&b, &answer).unwrap();
            assert_eq!(receive::<Answer>(&a, RecvFlags::DONTWAIT).unwrap(), answer);
        }
    }

    #[test]
    fn hostile_packets_are_distinguished() {
        let (a, b) = pair();
        let next = || receive::<Request>(&b, RecvFlags::DONTWAIT);
        assert!(matches!(next(), Err(ProtocolError::Nothing)));
        for text in ["", "{", "{\"add\":{}}", "\"synced\" ", "{\"hello\":{\"version\":-1}}", "[]"] {
            let sent = rustix::net::send(&a, text.as_bytes(), SendFlags::NOSIGNAL);
            assert_eq!(sent, Ok(text.len()));
            match (text, next()) {
                ("\"synced\" ", Ok(Request::Synced)) | ("", Err(ProtocolError::Closed)) => {}
                (_, Err(ProtocolError::Garbled(_))) => {}
                (_, other) => panic!("{text}: {other:?}"),
            }
        }
        let long = vec![b' '; CONTROL_BYTES_MAX + 1];
        rustix::net::send(&a, &long, SendFlags::NOSIGNAL).unwrap();
        assert!(matches!(next(), Err(ProtocolError::Long)));
        let name = "x".repeat(CONTROL_BYTES_MAX);
        assert!(matches!(send(&a, &Request::Delete { name }), Err(ProtocolError::Long)));
        drop(a);
        assert!(matches!(next(), Err(ProtocolError::Closed)));
        assert!(matches!(send(&b, &Answer::Done), Err(ProtocolError::Closed)));
    }
}
