//! Large messages: offered, pulled by their receiver, and what it then tells the sender.

use super::message::Common;
use super::{BLOCK_LEN_MAX, Ends, Error, FRAGMENT_LEN, WIDE_LEN, behind_type, data};

/// Length of a rendezvous packet, in bytes.
pub(super) const RENDEZVOUS_LEN: usize = 32;
/// What its length field says, in bytes.
pub(super) const RENDEZVOUS_DATA_LEN: u16 = 8;
/// Length of a pull, in bytes.
pub(super) const PULL_LEN: usize = 32;
/// What stands behind a pull that is [`Pull::wide`], where others have padding: so long that it is
/// not there by chance.
pub(super) const WIDE_MARK: [u8; 8] = *b"\xcaWY\0wide";
/// Length of a pull reply's header, in bytes.
pub(super) const PULL_REPLY_LEN: usize = 16;
/// Length of a notify, in bytes.
pub(super) const NOTIFY_LEN: usize = 24;

/// A large message is there to be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rendezvous {
    /// From whom to whom.
    pub ends: Ends,
    /// As of [`super::Eager`].
    pub sequence: u16,
    /// As of [`super::Eager`].
    pub acknowledged: u16,
    /// What is matched.
    pub match_info: u64,
    /// The receiving endpoint's.
    pub session: u32,
    /// Length of the message, in bytes.
    pub message_len: u32,
    /// The sender's window that the message lies in.
    pub window: u8,
    /// How often that window was used.
    pub window_sequence: u8,
    /// Where in the window the message begins, in bytes.
    pub offset: u16,
}

/// Asks for a block of a large message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pull {
    /// From whom to whom.
    pub ends: Ends,
    /// The endpoint's that is asked.
    pub session: u32,
    /// How much of the message is pulled in all, in bytes.
    pub total_len: u32,
    /// As the rendezvous said.
    pub window: u8,
    /// As the rendezvous said.
    pub window_sequence: u8,
    /// As the rendezvous said.
    pub offset: u16,
    /// Chosen by who asks; the answer has it too.
    pub handle: u32,
    /// Chosen by who asks; the answer has it too.
    pub magic: u32,
    /// Where in its first frame the block begins, in bytes: below [`FRAGMENT_LEN`].
    pub first_frame_offset: u16,
    /// How much is asked for, in bytes: at most [`BLOCK_LEN_MAX`].
    pub block_len: u16,
    /// The block's first frame.
    pub frame_index: u32,
    /// Whether two frames that follow each other may come in one, of [`WIDE_LEN`] at most.
    pub wide: bool,
}

/// One frame of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullReply<'a> {
    /// Which frame of the message, modulo 256; of two in one, the first.
    pub frame_sequence: u8,
    /// Where in the message the data belong, in bytes.
    pub offset: u32,
    /// As the pull said.
    pub handle: u32,
    /// As the pull said.
    pub magic: u32,
    /// At most [`FRAGMENT_LEN`], or [`WIDE_LEN`] where the pull says so.
    pub data: &'a [u8],
}

/// The receiver has what it wanted of a large message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify {
    /// From whom to whom.
    pub ends: Ends,
    /// The receiving endpoint's.
    pub session: u32,
    /// How much it took, in bytes.
    pub total_len: u32,
    /// As the rendezvous said.
    pub window: u8,
    /// As the rendezvous said.
    pub window_sequence: u8,
    /// As of [`super::Eager`].
    pub sequence: u16,
    /// As of [`super::Eager`].
    pub acknowledged: u16,
}

impl Rendezvous {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Error> {
        let mut r = behind_type("rendezvous", RENDEZVOUS_LEN, body)?;
        let ends = Ends::take(&mut r);
        let len = r.u16_be();
        let _checksum = r.u16_be();
        if len != RENDEZVOUS_DATA_LEN {
            return Err(Error::Length { what: "rendezvous", is: len.into(), expected: "8" });
        }
        let Common { sequence, acknowledged, match_info, session } = Common::take(&mut r);
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
        let ends = Ends::take(&mut r);
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
            let expected = "1 to what eight frames hold";
            return Err(Error::Length { what: "pull block", is: block_len.into(), expected });
        }
        let frame_index = r.u32_be();
        let wide = body.get(PULL_LEN..).is_some_and(|rest| rest.starts_with(&WIDE_MARK));
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
        if usize::from(len) > WIDE_LEN || len == 0 {
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
        let ends = Ends::take(&mut r);
        let (session, total_len) = (r.u32_be(), r.u32_be());
        let [window, window_sequence, _, _, _, _] = r.take();
        let (sequence, acknowledged) = (r.u16_be(), r.u16_be());
        Ok(Self { ends, session, total_len, window, window_sequence, sequence, acknowledged })
    }
}
