//! Opcodes of the base transport header (InfiniBand specification, table 38), and the headers that
//! follow for each.
//!
//! Reliable, unreliable and extended reliable connections (XRC, annex A14), unreliable datagrams
//! and congestion notifications are known; reliable datagrams are not. An opcode that its transport
//! does not have, such as a read on an unreliable connection, is unknown too. An unknown opcode is
//! `None`, for which the parser of the base header returns [`Error::Opcode`](super::Error). The
//! module has codes only: the headers are parsed and written in [`super`], and captures of adapters
//! (`hca::packets`) choose the opcodes. They run in the dispatcher's turn.

/// The transport service of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Reliable,
    /// Unreliable connection.
    Unreliable,
    /// Unreliable datagram.
    Datagram,
    /// Extended reliable connection (XRC).
    Extended,
}

/// The operation of a packet, without its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 23] = [
        Self::SendFirst,
        Self::SendMiddle,
        Self::SendLast,
        Self::SendLastImmediate,
        Self::SendOnly,
        Self::SendOnlyImmediate,
        Self::WriteFirst,
        Self::WriteMiddle,
        Self::WriteLast,
        Self::WriteLastImmediate,
        Self::WriteOnly,
        Self::WriteOnlyImmediate,
        Self::ReadRequest,
        Self::ReadResponseFirst,
        Self::ReadResponseMiddle,
        Self::ReadResponseLast,
        Self::ReadResponseOnly,
        Self::Acknowledge,
        Self::AtomicAcknowledge,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::SendLastInvalidate,
        Self::SendOnlyInvalidate,
    ];

    /// Returns whether an RDMA header (RETH) follows.
    pub const fn has_remote(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImmediate | Self::ReadRequest
        )
    }

    /// Returns whether an atomic header (AtomicETH) follows.
    pub const fn has_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns whether an acknowledgement header (AETH) follows.
    pub const fn has_acknowledgement(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
                | Self::Acknowledge
                | Self::AtomicAcknowledge
        )
    }

    /// Returns whether the packet is an answer of a responder.
    pub const fn is_response(self) -> bool {
        self.has_acknowledgement() || matches!(self, Self::ReadResponseMiddle)
    }

    /// Returns whether immediate data (ImmDt) follow.
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            Self::SendLastImmediate
                | Self::SendOnlyImmediate
                | Self::WriteLastImmediate
                | Self::WriteOnlyImmediate
        )
    }

    /// Returns whether an invalidated key (IETH) follows.
    pub const fn has_invalidated(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }
}

/// The opcode of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A part of a message, or its answer.
    Message(Transport, Operation),
    /// A congestion notification.
    CongestionNotification,
}

/// Code of [`Opcode::CongestionNotification`].
const CONGESTION_NOTIFICATION: u8 = 0x81;

impl Opcode {
    /// Returns the opcode of a code, or `None` if the code is unknown.
    pub fn from_raw(raw: u8) -> Option<Self> {
        if raw == CONGESTION_NOTIFICATION {
            return Some(Self::CongestionNotification);
        }
        let transport = match raw & 0xe0 {
            0x00 => Transport::Reliable,
            0x20 => Transport::Unreliable,
            0x60 => Transport::Datagram,
            0xa0 => Transport::Extended,
            _ => return None,
        };
        let operation = Operation::ALL.into_iter().find(|known| *known as u8 == raw & 0x1f)?;
        Self::message(transport, operation)
    }

    /// Returns the opcode of an operation, or `None` if the transport does not have it.
    pub fn message(transport: Transport, operation: Operation) -> Option<Self> {
        let exists = match transport {
            Transport::Reliable | Transport::Extended => true,
            Transport::Unreliable => (operation as u8) <= Operation::WriteOnlyImmediate as u8,
            Transport::Datagram => {
                matches!(operation, Operation::SendOnly | Operation::SendOnlyImmediate)
            }
        };
        exists.then_some(Self::Message(transport, operation))
    }

    /// Returns the code.
    pub const fn raw(self) -> u8 {
        match self {
            Self::Message(Transport::Reliable, operation) => operation as u8,
            Self::Message(Transport::Unreliable, operation) => 0x20 | operation as u8,
            Self::Message(Transport::Datagram, operation) => 0x60 | operation as u8,
            Self::Message(Transport::Extended, operation) => 0xa0 | operation as u8,
            Self::CongestionNotification => CONGESTION_NOTIFICATION,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roce_opcodes_are_those_of_their_codes() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|raw| Opcode::from_raw(*raw).is_some()).collect();
        assert_eq!(known.len(), 2 * 23 + 12 + 2 + 1);
        assert!(known.iter().all(|raw| Opcode::from_raw(*raw).unwrap().raw() == *raw));
        for (raw, known) in [
            (0x64, true),
            (0x0c, true),
            (0x2c, false),
            (0x15, false),
            (0x81, true),
            (0xb7, true),
            (0xb5, false),
        ] {
            assert_eq!(Opcode::from_raw(raw).is_some(), known, "{raw:#x}");
        }
    }
}
