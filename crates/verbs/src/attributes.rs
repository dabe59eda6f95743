//! The kinds, states and attributes of queue pairs, as values.
//!
//! The states and transitions are those of the InfiniBand specification, 10.3.1. The attributes are
//! values of the owner; the engine trusts none of them: a number of a completion queue or domain is
//! used within the adapter only, and the peer of a connection (the queue pair at its other end,
//! here never a host) must name this queue pair in return.
//!
//! Without effect, because no packets exist on the way, are the sequence numbers and the numbers of
//! outstanding reads: they are stored for queries. The MTU bounds datagrams only. The module changes
//! no queue pair: [`crate::queue_pair`] checks the values of a transition.

use crate::region::Rights;

/// The transport service of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Datagrams of the general service interface, which others address as queue pair number 1.
    Gsi,
    /// Registration of memory only; no peer.
    Registration,
    /// The end of an extended reliable connection (XRC) that sends.
    XrcInitiator,
    /// The end of an extended reliable connection that receives: each request names a shared
    /// receive queue of the queue pair's XRC domain.
    XrcTarget,
}

impl Kind {
    /// Returns whether a queue pair of the kind has a single peer.
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// Returns whether a request is answered: its errors end the connection on both sides.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// Returns the kind of the queue pairs that receive the requests of a connected queue pair.
    pub const fn responder(self) -> Self {
        match self {
            Self::XrcInitiator => Self::XrcTarget,
            own => own,
        }
    }

    /// Returns whether each work request names its destination.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Gsi)
    }
}

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum State {
    /// No work requests.
    #[default]
    Reset,
    /// Receive work requests may be posted; nothing is received.
    Init,
    /// Messages are received; nothing is sent.
    ReadyToReceive,
    /// Messages are received and sent.
    ReadyToSend,
    /// The send queue stops after the work request in progress; messages are received.
    Drained,
    /// The send queue failed and is flushed; messages are received.
    SendQueueError,
    /// All work requests are flushed.
    Error,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::ReadyToReceive,
        Self::ReadyToSend,
        Self::Drained,
        Self::SendQueueError,
        Self::Error,
    ];

    /// Returns whether an owner may move a queue pair of a kind from this state to the next
    /// (InfiniBand specification, figure 124).
    pub const fn may_become(self, next: Self, kind: Kind) -> bool {
        match (self, next) {
            (_, Self::Reset | Self::Error)
            | (Self::Reset | Self::Init, Self::Init)
            | (Self::Init, Self::ReadyToReceive)
            | (Self::ReadyToReceive | Self::ReadyToSend | Self::Drained, Self::ReadyToSend)
            | (Self::ReadyToSend | Self::Drained, Self::Drained) => true,
            (Self::SendQueueError, Self::ReadyToSend) => !kind.is_reliable(),
            _ => false,
        }
    }

    /// Returns whether messages are received.
    pub const fn is_receiving(self) -> bool {
        matches!(
            self,
            Self::ReadyToReceive | Self::ReadyToSend | Self::Drained | Self::SendQueueError
        )
    }
}

/// The peer of a connected queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peer {
    /// Ethernet address of the peer's adapter.
    pub mac: [u8; 6],
    /// Peer's queue pair number.
    pub queue_pair: u32,
    /// GID of the peer. Not used for routing.
    pub gid: [u8; 16],
}

/// The source of receive work requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receive {
    /// Nothing can be received.
    None,
    /// The queue pair's own queue.
    #[default]
    Own,
    /// A shared receive queue.
    Shared {
        /// Number of the queue.
        number: u32,
        /// Protection domain of its work requests.
        domain: u32,
    },
    /// The shared receive queue that the request names, if it is in this XRC domain. The queue's
    /// protection domain and completion queue are used in place of the queue pair's.
    XrcDomain(u32),
}

/// Values of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Protection domain.
    pub domain: u32,
    /// Completion queue of send work requests.
    pub send_queue: u32,
    /// Completion queue of receive work requests.
    pub receive_queue: u32,
    /// Source of receive work requests.
    pub receive: Receive,
    /// Work requests may change and invalidate memory regions.
    pub can_register: bool,
    /// Multicast datagrams do not return to their sender.
    pub blocks_own_multicast: bool,
    /// Every send work request makes a completion.
    pub signals_all: bool,
    /// Most payload bytes of a packet: the longest datagram; 256 to 9,216.
    pub mtu: u32,
    /// Accesses of the peer; [`Rights::REMOTE_READ`], [`Rights::REMOTE_WRITE`] and
    /// [`Rights::REMOTE_ATOMIC`] count.
    pub rights: Rights,
    /// Peer of a connection.
    pub peer: Option<Peer>,
    /// Queue key of datagrams.
    pub queue_key: u32,
    /// Retries of a request without an answer; 3 bits.
    pub retry_count: u8,
    /// Retries of a request without a receive work request; 3 bits, 7 is endless.
    pub rnr_retry: u8,
    /// Code of the time that a requester waits for receive work requests of this queue pair.
    pub min_rnr_timer: u8,
    /// Code of the time that a requester waits for an answer; 5 bits, 0 is endless.
    pub timeout: u8,
    /// First sequence number that is sent. Stored without effect, as are the following values.
    pub send_psn: u32,
    /// First sequence number that is received.
    pub receive_psn: u32,
    /// Most reads and atomic operations that are outstanding.
    pub max_reads: u8,
    /// Most reads and atomic operations of the peer that are outstanding.
    pub max_peer_reads: u8,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            domain: 0,
            send_queue: 0,
            receive_queue: 0,
            receive: Receive::Own,
            can_register: false,
            blocks_own_multicast: false,
            signals_all: false,
            mtu: 1024,
            rights: Rights::empty(),
            peer: None,
            queue_key: 0,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 0,
            timeout: 14,
            send_psn: 0,
            receive_psn: 0,
            max_reads: 1,
            max_peer_reads: 1,
        }
    }
}

/// A set of attributes that a transition changes. `None` leaves a value as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields are those of Attributes")]
pub struct Change {
    pub mtu: Option<u32>,
    pub rights: Option<Rights>,
    pub peer: Option<Peer>,
    pub queue_key: Option<u32>,
    pub retry_count: Option<u8>,
    pub rnr_retry: Option<u8>,
    pub min_rnr_timer: Option<u8>,
    pub timeout: Option<u8>,
    pub send_psn: Option<u32>,
    pub receive_psn: Option<u32>,
    pub max_reads: Option<u8>,
    pub max_peer_reads: Option<u8>,
}

/// Why a queue pair is not made or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueuePairError {
    /// The adapter does not exist.
    #[error("no adapter has this identity")]
    NoAdapter,
    /// The queue pair does not exist.
    #[error("no queue pair has this number")]
    NoQueuePair,
    /// The adapter's table is full.
    #[error("the adapter has too many queue pairs")]
    Limit,
    /// The states of the verbs have no such transition.
    #[error("a queue pair in state {from:?} cannot move to {to:?}")]
    Transition {
        /// Present state.
        from: State,
        /// Requested state.
        to: State,
    },
    /// A value is out of range, or a required value is missing.
    #[error("the attribute {0} is missing or out of range")]
    Attribute(&'static str),
}
