//! Events that a tunnel reports to its driver ([`crate::io`], the simulator).
//!
//! Events are values in [`crate::Sink::events`], appended and read in the thread of the tunnel (in
//! the daemon, the shard of links). They report changes of state once;
//! [`crate::tunnel::Tunnel::state`] returns the state itself.
//!
//! Events keep the order in which they arose, and are not repeated: the driver processes all of
//! them before it clears the sink, else it misses the change. A clone of the peer is reported at
//! most once in [`HANDSHAKE_FAULT_NS`](crate::limits::HANDSHAKE_FAULT_NS) (1 min), and so is a
//! clock of the peer that went back, unless the other of these two faults came between; if the
//! clock went back by less than 1 min, no event reports it.
//! [`crate::tunnel::Tunnel::repeat_claims`] repeats address claims on request. Events name tunnels,
//! not links: [`crate::io::tunnels`] finds the links of a tunnel. The list has no limit: the driver
//! bounds it by the number of datagrams between two of its passes.

use std::net::SocketAddr;

/// A change of a tunnel's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The tunnel's number in the [`crate::tunnel_set::TunnelSet`].
    pub tunnel: u16,
    /// The kind of change.
    pub kind: EventKind,
}

/// The kind of change, with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The peer answers heartbeats: frames reach it.
    Up,
    /// The peer no longer answers, or has not answered an on-demand tunnel for 5 s
    /// ([`WAKE_NS_MAX`](crate::limits::WAKE_NS_MAX)).
    Down,
    /// The tunnel went dormant: it has no session until the next traffic, and its peer counts as
    /// reachable.
    Dormant,
    /// The path to the peer became poor (true) or good again (false). Of several paths the good
    /// ones are preferred.
    Poor(bool),
    /// Another host at this address uses the peer's private key. Its initiation was refused.
    Clone(SocketAddr),
    /// The peer's time of day went back by this many ns. Its initiation was refused.
    Behind(u64),
    /// A handshake completed.
    Session,
    /// The longest datagram that reaches the peer changed, in bytes of UDP payload.
    Datagram(usize),
    /// The peer sends from another address.
    Roamed(SocketAddr),
    /// The peer announced an Ethernet address.
    Here {
        /// The virtual network.
        vni: u32,
        /// The Ethernet address.
        mac: [u8; 6],
        /// Epoch of the claim, chosen by the peer and not checked here: the claim with the largest
        /// epoch owns the address.
        epoch: u64,
    },
    /// The peer withdrew an Ethernet address.
    Gone {
        /// The virtual network.
        vni: u32,
        /// The Ethernet address.
        mac: [u8; 6],
        /// Epoch of the withdrawn claim, or larger.
        epoch: u64,
    },
}
