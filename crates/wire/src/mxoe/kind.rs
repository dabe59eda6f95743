//! The packet type: the first byte behind the header, which selects the parser of the rest. Types
//! of native MX that never cross Ethernet are unknown here.
//!
//! A known kind does not make a packet valid: the parser of the kind checks its length. Packet
//! filters of endpoints (`mx::network::endpoint_filter`) also depend on the order of these numbers.

/// Packet types that cross Ethernet, with their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are those of the packets")]
pub enum Kind {
    Raw = 1,
    HostQuery = 3,
    HostReply = 4,
    Truc = 35,
    Connect = 36,
    Tiny = 37,
    Small = 38,
    Medium = 39,
    Rendezvous = 40,
    Pull = 41,
    PullReply = 42,
    Notify = 43,
    Nack = 44,
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
