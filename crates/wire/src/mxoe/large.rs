//! Large messages: the offer, the pulls of their receiver, the replies, and the notification of the
//! sender.
//!
//! A message has at most 2^32 - 1 bytes. A pull requests at most eight frames of 4,096 bytes; a
//! reply carries one frame's data, or two in a jumbo frame. [`parse`](super::parse) calls the
//! parsers for received frames of their kinds, in the thread of the NIC side (`mxoe`). The parsers
//! check lengths and the offset in the first frame only, and a packet with a wrong one is an
//! [`Error`]; windows, handles and sessions belong to the engine. Nothing here counts, orders or
//! repeats: `mxoe`'s `pull` and `pull_reply` do.

use super::message::MessageFields;
use super::{BLOCK_LEN_MAX, EndpointPair, Error, FRAGMENT_LEN, JUMBO_LEN, behind_type, data};

/// Length of a rendezvous packet, in bytes.
pub(super) const RENDEZVOUS_LEN: usize = 32;
/// Value of a rendezvous packet's length field, in bytes.
pub(super) const RENDEZVOUS_DATA_LEN: u16 = 8;
/// Length of a pull, in bytes.
pub(super) const PULL_LEN: usize = 32;
/// Mark in the padding behind a pull that is [`Pull::wide`]: long enough not to occur by chance.
pub(super) const JUMBO_MARK: [u8; 8] = *b"\xcaWY\0wide";
/// Length of a pull reply's header, in bytes.
pub(super) const PULL_REPLY_LEN: usize = 16;
/// Length of a notification, in bytes.
pub(super) const NOTIFY_LEN: usize = 24;

/// Offers a large message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendezvous {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// As in [`super::Eager`].
    pub sequence: u16,
    /// As in [`super::Eager`].
    pub acknowledged: u16,
    /// Match information.
    pub match_info: u64,
    /// Session of the receiving endpoint.
    pub session: u32,
    /// Length of the message, in bytes.
    pub message_len: u32,
    /// Window of the sender that contains the message.
    pub window: u8,
    /// Sequence of the window: changes with each use, modulo 256.
    pub window_sequence: u8,
    /// Offset of the message in the window, in bytes.
    pub offset: u16,
}

/// Requests a block of a large message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// Session of the endpoint that sends the data.
    pub session: u32,
    /// Length of the pulled part of the message, in bytes.
    pub total_len: u32,
    /// As in the rendezvous.
    pub window: u8,
    /// As in the rendezvous.
    pub window_sequence: u8,
    /// As in the rendezvous.
    pub offset: u16,
    /// Chosen by the puller and returned in the reply.
    pub handle: u32,
    /// Chosen by the puller and returned in the reply.
    pub magic: u32,
    /// Offset of the block in its first frame, in bytes: below [`FRAGMENT_LEN`].
    pub first_frame_offset: u16,
    /// Length of the requested block, in bytes: at most [`BLOCK_LEN_MAX`].
    pub block_len: u16,
    /// Index of the block's first frame.
    pub frame_index: u32,
    /// Whether the puller accepts two consecutive frames merged into a frame of at most
    /// [`JUMBO_LEN`] bytes.
    pub wide: bool,
}

/// One frame of a pulled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullReply<'a> {
    /// Index of the frame in the message, modulo 256; of two merged frames, the first.
    pub frame_sequence: u8,
    /// Offset of the data in the message, in bytes.
    pub offset: u32,
    /// As in the pull.
    pub handle: u32,
    /// As in the pull.
    pub magic: u32,
    /// At most [`FRAGMENT_LEN`] bytes, or [`JUMBO_LEN`] if the pull permits it.
    pub data: &'a [u8],
}

/// Notifies the sender that the receiver finished pulling a large message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify {
    /// Destination and source endpoint.
    pub ends: EndpointPair,
    /// Session of the receiving endpoint.
    pub session: u32,
    /// Number of bytes that were pulled.
    pub total_len: u32,
    /// As in the rendezvous.
    pub window: u8,
    /// As in the rendezvous.
    pub window_sequence: u8,
    /// As in [`super::Eager`].
    pub sequence: u16,
    /// As in [`super::Eager`].
    pub acknowledged: u16,
}

impl Rendezvous {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("rendezvous", RENDEZVOUS_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        let len = r.u16_be();
        let _checksum = r.u16_be();
        if len != RENDEZVOUS_DATA_LEN {
            return Err(Error::Length { what: "rendezvous", is: len.into(), expected: "8" });
        }
        let MessageFields { sequence, acknowledged, match_info, session } =
            MessageFields::take(&mut r);
        let message_len = r.u32_be();
        let [window, window_sequence] = r.take();
        let offset = r.u16_be();
        Ok(Self {
            ends,
            sequence,
            acknowledged,
            match_info,
            session,
            message_len,
            window,
            window_sequence,
            offset,
        })
    }
}

impl Pull {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("pull", PULL_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        let (session, total_len) = (r.u32_be(), r.u32_be());
        let [window, window_sequence] = r.take();
        let offset = r.u16_be();
        let (handle, magic) = (r.u32_be(), r.u32_be());
        let (first_frame_offset, block_len) = (r.u16_be(), r.u16_be());
        if usize::from(first_frame_offset) >= FRAGMENT_LEN {
            let is = first_frame_offset.into();
            return Err(Error::Length { what: "first frame offset", is, expected: "0 to 4095" });
        }
        let end = usize::from(first_frame_offset).saturating_add(block_len.into());
        if end > BLOCK_LEN_MAX || block_len == 0 {
            let expected = "1 to the capacity of eight frames";
            return Err(Error::Length { what: "pull block", is: block_len.into(), expected });
        }
        let frame_index = r.u32_be();
        let wide = body.get(PULL_LEN..).is_some_and(|rest| rest.starts_with(&JUMBO_MARK));
        Ok(Self {
            ends,
            session,
            total_len,
            window,
            window_sequence,
            offset,
            handle,
            magic,
            first_frame_offset,
            block_len,
            frame_index,
            wide,
        })
    }
}

impl<'a> PullReply<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Error> {
        let mut r = behind_type("pull reply", PULL_REPLY_LEN, body)?;
        let frame_sequence = r.u8();
        let len = r.u16_be();
        if usize::from(len) > JUMBO_LEN || len == 0 {
            let expected = "1 to 8192";
            return Err(Error::Length { what: "pull reply", is: len.into(), expected });
        }
        let (offset, handle, magic) = (r.u32_be(), r.u32_be(), r.u32_be());
        let data = data("pull reply", body, PULL_REPLY_LEN, len.into())?;
        Ok(Self { frame_sequence, offset, handle, magic, data })
    }
}

impl Notify {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("notify", NOTIFY_LEN, body)?;
        let ends = EndpointPair::take(&mut r);
        let (session, total_len) = (r.u32_be(), r.u32_be());
        let [window, window_sequence, _, _, _, _] = r.take();
        let (sequence, acknowledged) = (r.u16_be(), r.u16_be());
        Ok(Self { ends, session, total_len, window, window_sequence, sequence, acknowledged })
    }
}
