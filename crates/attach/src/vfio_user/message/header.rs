//! The header of a message: 16 bytes.
//!
//! [`super::super::stream`] parses a header before it reads the payload: in the daemon in the
//! control thread of a frontend, in the native client in the caller's thread, and in the holder in
//! the relay thread of the frontend. A size below 16 bytes, or a payload of more than
//! [`VFIO_PAYLOAD_BYTES_MAX`] bytes (64 KiB + 16), ends the conversation ([`Reason::Size`]). The
//! server, in the control thread, emits replies and refusals from the command's header; the native
//! client emits commands. The message type and the errno are returned, not checked, here. Whether
//! the command is known, and whether the length fits the command, is checked by the server.

use crate::limits::VFIO_PAYLOAD_BYTES_MAX;
use crate::vfio_user::fault::Reason;

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 16;

/// The message is a reply; a command has type 0.
const TYPE_REPLY: u32 = 1;
/// Bits of the message type.
const TYPE_MASK: u32 = 0xf;
/// The sender expects no reply.
const NO_REPLY: u32 = 0x10;
/// The reply carries an errno.
const ERROR: u32 = 0x20;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the message; a reply repeats that of its command.
    pub id: u16,
    /// The command code.
    pub command: u16,
    /// Length of the message, in bytes, header included.
    pub size: u32,
    /// Type, no-reply and error bits.
    pub flags: u32,
    /// The errno of an error reply.
    pub error: u32,
}

impl Header {
    /// Returns the header of a command with `payload` bytes.
    pub fn command(id: u16, command: u16, payload: usize) -> Self {
        Self { id, command, size: Self::size_of(payload), flags: 0, error: 0 }
    }

    /// Returns the header, marked as needing no reply.
    #[must_use]
    pub fn without_reply(self) -> Self {
        Self { flags: self.flags | NO_REPLY, ..self }
    }

    /// Returns the header, marked as needing a reply.
    #[must_use]
    pub fn with_reply(self) -> Self {
        Self { flags: self.flags & !NO_REPLY, ..self }
    }

    /// Returns the header of a reply to this command with `payload` bytes.
    #[must_use]
    pub fn reply(&self, payload: usize) -> Self {
        Self { size: Self::size_of(payload), flags: TYPE_REPLY, error: 0, ..*self }
    }

    /// Returns the header of a refusal of this command. A reply with the error bit and errno 0
    /// would be a success to QEMU, so 0 becomes EINVAL.
    #[must_use]
    pub fn refusal(&self, errno: i32) -> Self {
        const EINVAL: u32 = 22;
        let errno = u32::try_from(errno).ok().filter(|errno| *errno != 0).unwrap_or(EINVAL);
        Self { flags: TYPE_REPLY | ERROR, error: errno, ..self.reply(0) }
    }

    /// Returns the length of a message with `payload` bytes.
    fn size_of(payload: usize) -> u32 {
        u32::try_from(payload.saturating_add(HEADER_BYTES)).unwrap_or(u32::MAX)
    }

    /// Returns whether the message is a command.
    pub fn is_command(&self) -> bool {
        self.flags & TYPE_MASK == 0
    }

    /// Returns whether the message is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & TYPE_MASK == TYPE_REPLY
    }

    /// Returns whether the sender expects a reply.
    pub fn needs_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Returns the errno of an error reply.
    pub fn errno(&self) -> Option<i32> {
        (self.flags & ERROR != 0).then(|| i32::try_from(self.error).unwrap_or(i32::MAX))
    }

    /// Returns the length of the payload, in bytes.
    pub fn payload_bytes(&self) -> usize {
        usize::try_from(self.size).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES)
    }

    /// Parses a header and checks the length of the payload.
    ///
    /// # Errors
    /// Returns [`Reason::Size`] if the size is below that of a header, or the payload has more than
    /// 64 KiB and 16 bytes.
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, Reason> {
        let [i0, i1, c0, c1, s0, s1, s2, s3, f0, f1, f2, f3, e0, e1, e2, e3] = bytes;
        let header = Self {
            id: u16::from_le_bytes([i0, i1]),
            command: u16::from_le_bytes([c0, c1]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
            error: u32::from_le_bytes([e0, e1, e2, e3]),
        };
        let is_short = usize::try_from(header.size).is_ok_and(|size| size < HEADER_BYTES);
        if is_short || header.payload_bytes() > VFIO_PAYLOAD_BYTES_MAX {
            return Err(Reason::Size { command: header.command, size: header.size });
        }
        Ok(header)
    }

    /// Returns the bytes of the header.
    pub fn emit(&self) -> Vec<u8> {
        let Self { id, command, size, flags, error } = self;
        let mut bytes = [id.to_le_bytes(), command.to_le_bytes()].concat();
        for word in [size, flags, error] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}
