//! The header of a vhost-user message: 12 bytes, in host byte order.
//!
//! [`super::super::stream`] parses a header before it reads the payload: in the daemon in the
//! thread of the dispatcher that owns the port, in the native frontend in the caller's thread, in
//! `causeway-holder` in the relay's thread of the frontend. Version 1 only; reserved flags, unknown
//! requests and payloads above [`PAYLOAD_BYTES_MAX`] (4,096) are errors, each of which ends the
//! connection. Whether the length fits the request is checked by [`super::Message::decode`].

use super::payload::FieldReader;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::vhost_user::codes::{FrontendReq, header_flags};
use crate::vhost_user::fault::Reason;

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 12;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The request code.
    pub code: u32,
    /// Version, reply and need_reply bits.
    pub flags: u32,
    /// Length of the payload, in bytes.
    pub size: u32,
}

impl Header {
    /// Returns the header of a request with `size` bytes of payload.
    pub fn request(request: FrontendReq, size: u32) -> Self {
        Self { code: request.into(), flags: 1, size }
    }

    /// Returns the header of a reply to `request`.
    pub fn reply(request: FrontendReq, size: u32) -> Self {
        Self { flags: 1 | header_flags::REPLY, ..Self::request(request, size) }
    }

    /// Returns the header with `need_reply` set.
    #[must_use]
    pub fn need_reply(self) -> Self {
        Self { flags: self.flags | header_flags::NEED_REPLY, ..self }
    }

    /// Returns whether the sender asks for an acknowledgement.
    pub fn needs_reply(&self) -> bool {
        self.flags & header_flags::NEED_REPLY != 0
    }

    /// Returns whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & header_flags::REPLY != 0
    }

    /// Parses a header, and checks everything that does not depend on the payload.
    ///
    /// # Errors
    /// Returns an error if the version, the flags, the request or the payload length is invalid.
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Result<(Self, FrontendReq), Reason> {
        let mut reader = FieldReader(&bytes);
        let header = Self { code: reader.u32(), flags: reader.u32(), size: reader.u32() };
        let version = header.flags & header_flags::VERSION;
        if version != 1 {
            return Err(Reason::Version(version));
        }
        if header.flags & header_flags::RESERVED != 0 {
            return Err(Reason::Flags(header.flags));
        }
        let request =
            FrontendReq::try_from(header.code).map_err(|()| Reason::Unknown(header.code))?;
        if header.size as usize > PAYLOAD_BYTES_MAX {
            return Err(Reason::Long { request, size: header.size });
        }
        Ok((header, request))
    }

    /// Returns the header's bytes.
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let words = [self.code, self.flags, self.size];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}
