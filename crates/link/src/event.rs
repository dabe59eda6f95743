//! What a tunnel tells the one who drives it.

use std::net::SocketAddr;

/// What became known of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Its number in the [`crate::hub::Hub`].
    pub tunnel: u16,
    /// What.
    pub what: What,
}

/// What became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The peer answers: frames get there.
    Up,
    /// The peer no longer answers.
    Down,
    /// The path to the peer became poor, or good again: of several the good ones are preferred.
    Poor(bool),
    /// Another host at this address uses the peer's private key.
    Clone(SocketAddr),
    /// The peer's time of day is so many ns behind what it was.
    Behind(u64),
    /// A session was agreed on.
    Session,
    /// The longest datagram that gets to the peer has changed, in bytes of UDP payload.
    Datagram(usize),
    /// The peer has another address.
    Roamed(SocketAddr),
    /// An Ethernet address of a virtual network is behind the peer.
    Here {
        /// The virtual network.
        vni: u32,
        /// The Ethernet address.
        mac: [u8; 6],
        /// Larger than of any earlier place of this address.
        epoch: u64,
    },
    /// An Ethernet address is no longer behind the peer.
    Gone {
        /// The virtual network.
        vni: u32,
        /// The Ethernet address.
        mac: [u8; 6],
        /// That of [`What::Here`], or larger.
        epoch: u64,
    },
}
