//! The packet type: the first byte behind the header, which selects the parser of the rest. Types
//! of native MX that never cross Ethernet are unknown here.
//!
//! A known kind does not make a packet valid: the parser of the kind checks its length. Packet
//! filters of endpoints (`mx::network::endpoint_filter`) also depend on the order of these numbers.
//! [`parse`](super::parse) reads the kind of each received frame; an unknown kind is an
//! [`Error`](super::Error), and `mxoe` drops the frame. The threads are those of [`super`].

/// Packet types that cross Ethernet, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Data of mappers, and announcements.
    Raw = 1,
    /// Queries the name of a NIC.
    HostQuery = 3,
    /// Answers [`Self::HostQuery`].
    HostReply = 4,
    /// Bypasses the order of messages: acknowledgements.
    Truc = 35,
    /// Requests or answers a connect.
    Connect = 36,
    /// A message of at most 32 bytes.
    Tiny = 37,
    /// A message of at most 128 bytes.
    Small = 38,
    /// A fragment of a message of at most 32,768 bytes.
    Medium = 39,
    /// Offers a longer message.
    Rendezvous = 40,
    /// Requests a block of an offered message.
    Pull = 41,
    /// One frame of a requested block.
    PullReply = 42,
    /// Reports the end of the pulls to the sender.
    Notify = 43,
    /// Refuses a packet.
    Nack = 44,
    /// Refuses a pull.
    PullNack = 45,
}

impl Kind {
    /// All packet types.
    pub const ALL: [Self; 14] = [
        Self::Raw,
        Self::HostQuery,
        Self::HostReply,
        Self::Truc,
        Self::Connect,
        Self::Tiny,
        Self::Small,
        Self::Medium,
        Self::Rendezvous,
        Self::Pull,
        Self::PullReply,
        Self::Notify,
        Self::Nack,
        Self::PullNack,
    ];

    /// Returns the packet type with this number, or `None` if it is unknown.
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Raw,
            3 => Self::HostQuery,
            4 => Self::HostReply,
            35 => Self::Truc,
            36 => Self::Connect,
            37 => Self::Tiny,
            38 => Self::Small,
            39 => Self::Medium,
            40 => Self::Rendezvous,
            41 => Self::Pull,
            42 => Self::PullReply,
            43 => Self::Notify,
            44 => Self::Nack,
            45 => Self::PullNack,
            _ => return None,
        })
    }

    /// Returns the number.
    pub const fn number(self) -> u8 {
        self as u8
    }
}
