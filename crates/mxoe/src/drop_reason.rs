//! The reasons why frames are dropped.
//!
//! [`Nic::receive`](crate::Nic::receive) returns them, and the modules that check packets; the daemon
//! counts them and shows their texts. A dropped frame changes nothing; a peer retransmits what it
//! needs. Most reasons can be caused by any host of the network.

use causeway_wire::mxoe;

/// Reason why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DropReason {
    /// The frame is not a valid packet.
    #[error(transparent)]
    Malformed(#[from] mxoe::Error),
    /// The frame is addressed to another NIC.
    #[error("the frame is addressed to another NIC")]
    NotOurs,
    /// The NIC of the sender is not known.
    #[error("the sending NIC is not known")]
    UnknownNic,
    /// An announcement, another raw packet (mappers of native MX send such), or the answer to a
    /// name query: discovery serves these.
    #[error("the packet is not for a NIC")]
    NotServed,
    /// The endpoint is not open.
    #[error("the endpoint is not open")]
    NoEndpoint,
    /// The packet belongs to another session of the endpoint, or is a connect packet that may be
    /// late.
    #[error("the packet belongs to another session")]
    Session,
    /// A connect with another key.
    #[error("the connect has another key")]
    Key,
    /// The sending endpoint is not connected.
    #[error("the sending endpoint is not connected")]
    UnknownPeer,
    /// The sequence number or position is not expected.
    #[error("the sequence number is not expected")]
    Number,
    /// A limit is reached.
    #[error("a limit is reached")]
    NoRoom,
    /// A pull of a window that is not offered to its sender, of a block out of range or beyond the
    /// byte quota, or of a region that cannot be read; or data for a region that cannot be written.
    #[error("the window is not offered to the sender")]
    Window,
    /// A pull reply does not belong to a pull from its sender.
    #[error("the reply does not belong to a pull from the sender")]
    Handle,
    /// A refusal of a packet that was not sent, or without a known reason.
    #[error("the refused packet was not sent, or the reason is not known")]
    Refusal,
}
