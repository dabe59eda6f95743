//! Messages between a process in a guest and the daemon, by which the process attaches to the NIC
//! of MX endpoints that serves the guest's adapter.
//!
//! A *session* is a reliable connection from a queue pair of the process to the reserved queue pair
//! number [`SERVICE_QPN`] at the adapter's own GID. No other adapter, IP address or connection
//! manager takes part: the daemon, which executes the queue pair, is the peer. Each SEND carries
//! one [`SessionMessage`] of [`MESSAGE_BYTES`] (160) bytes: a message of [`crate::local`], as on
//! the socket of a host process, and an [`Offer`] of registered memory in place of file
//! descriptors. A SEND with immediate data and without bytes is a doorbell: the immediate data is
//! the number of the endpoint whose rings have requests.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 128 | [`ClientMessage`] or [`DaemonMessage`] |
//! | 128 to 132 | key of the offered memory |
//! | 132 to 136 | zero |
//! | 136 to 144 | address of its first byte, as the process registered it |
//! | 144 to 152 | its length in bytes; 0 if the message offers no memory |
//! | 152 to 160 | zero |
//!
//! All numbers are little-endian. Offers accompany
//!
//! | message | offered memory |
//! |---|---|
//! | [`ClientMessage::Open`], [`ClientMessage::Resume`] | the rings of the endpoint (`causeway_channel::Layout`), which the daemon formats before it answers; the process is the first side |
//! | [`ClientMessage::Region`] | the memory of the region |
//!
//! The daemon never sends an offer. It answers an open with `bypass` 0, never sends
//! [`DaemonMessage::Channel`], and sends [`DaemonMessage::Wake`] only for an endpoint that declared
//! in its rings that it sleeps. Offered memory must permit local and remote writes and remote
//! reads, and belong to the protection domain of the queue pair; rings are whole pages of 4 KiB. A
//! deregistration of rings closes their endpoint, one of a region releases the region, as if the
//! process had asked for it before: requests to close and to release have no answer that it could
//! wait for. A change of the guest's memory map ends the session. This module encodes and decodes
//! single messages; the receiver ends the session after an [`Error`]. Users are `hca`, which opens
//! the offer, and `mx`, in their dispatchers' turns, and the process (`clients/endpoint`), in the
//! thread that holds the endpoint.

use crate::field::{Reader, Writer};
use crate::local::{self, ClientMessage, DaemonMessage, Error};

/// The queue pair number of the daemon's end. Tables of objects never give out a number whose index
/// (at most 20 low bits) is 0.
pub const SERVICE_QPN: u32 = 0xf0_0000;
/// Length of each message, in bytes.
pub const MESSAGE_BYTES: usize = 160;
/// Receive work requests that a process keeps posted; the daemon holds back further messages.
pub const RECEIVES: usize = 32;

/// Registered memory that a message offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The remote key of the memory region.
    pub key: u32,
    /// Address of the first byte, as the process registered it.
    pub address: u64,
    /// Length in bytes; not 0.
    pub len: u64,
}

/// A message with the memory that it offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionMessage<M> {
    /// The message, as on the socket of a host process.
    pub message: M,
    /// Memory in place of the descriptors that the message has on a socket.
    pub offer: Option<Offer>,
}

/// Encodes a message and its offer.
fn emit(message: [u8; local::MESSAGE_BYTES], offer: Option<Offer>) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut writer = Writer::new(&mut bytes);
    writer.put(message);
    if let Some(Offer { key, address, len }) = offer {
        writer.put(key.to_le_bytes());
        writer.put([0; 4]);
        writer.put(address.to_le_bytes());
        writer.put(len.to_le_bytes());
    }
    bytes
}

/// Returns the bytes of the inner message, and the offer.
///
/// # Errors
/// [`Error`] if the bytes are too few or a field of the offer is invalid.
pub fn open(bytes: &[u8]) -> Result<([u8; local::MESSAGE_BYTES], Option<Offer>), Error> {
    let mut reader = Reader::new("a message of a session", MESSAGE_BYTES, bytes)?;
    let message = reader.take();
    let (key, zero, address, len) =
        (reader.u32_le(), reader.u32_le(), reader.u64_le(), reader.u64_le());
    if zero != 0 || reader.u64_le() != 0 {
        return Err(Error::Field("reserved"));
    }
    match (key, address, len) {
        (0, 0, 0) => Ok((message, None)),
        (_, _, 0) => Err(Error::Field("len")),
        _ => Ok((message, Some(Offer { key, address, len }))),
    }
}

impl SessionMessage<ClientMessage> {
    /// Encodes the message.
    pub fn emit(&self) -> [u8; MESSAGE_BYTES] {
        emit(self.message.emit(), self.offer)
    }

    /// Decodes a message of a process.
    ///
    /// # Errors
    /// [`Error`] if the bytes are too few, the kind is unknown, or a field is invalid: an offer of
    /// no bytes too.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (message, offer) = open(bytes)?;
        Ok(Self { message: ClientMessage::parse(&message)?, offer })
    }
}

impl SessionMessage<DaemonMessage> {
    /// Encodes the message.
    pub fn emit(&self) -> [u8; MESSAGE_BYTES] {
        emit(self.message.emit(), self.offer)
    }

    /// Decodes a message of the daemon.
    ///
    /// # Errors
    /// [`Error`] if the bytes are too few, the kind is unknown, or a field is invalid: an offer of
    /// no bytes too.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (message, offer) = open(bytes)?;
        Ok(Self { message: DaemonMessage::parse(&message)?, offer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_and_without_offers_are_decoded_as_encoded() {
        let message = ClientMessage::Open { tag: 7, endpoint: 255, key: 0x1234_5678 };
        for offer in [None, Some(Offer { key: 0x0102_0304, address: 0x7f00_0000_1000, len: 4096 })]
        {
            let sent = SessionMessage { message, offer };
            assert_eq!(SessionMessage::<ClientMessage>::parse(&sent.emit()), Ok(sent));
        }
        let sent = SessionMessage { message: DaemonMessage::Wake { endpoint: 3 }, offer: None };
        assert_eq!(SessionMessage::<DaemonMessage>::parse(&sent.emit()), Ok(sent));
    }

    #[test]
    fn invalid_offers_and_reserved_bytes_are_refused() {
        let message = ClientMessage::Region { tag: 1, endpoint: 2, len: 4096 };
        let offer = Some(Offer { key: 1, address: 2, len: 4096 });
        let bytes = SessionMessage { message, offer }.emit();
        let parse = |bytes: &[u8]| SessionMessage::<ClientMessage>::parse(bytes);
        for at in (132..136).chain(152..160) {
            let mut bytes = bytes;
            bytes[at] = 1;
            assert_eq!(parse(&bytes), Err(Error::Field("reserved")), "byte {at}");
        }
        let mut empty = bytes;
        empty[144..152].fill(0);
        assert_eq!(parse(&empty), Err(Error::Field("len")));
        assert!(matches!(parse(&bytes[..159]), Err(Error::Truncated(_))));
    }
}
