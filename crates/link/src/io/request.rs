//! Requests of the controller to the shard of links.
//!
//! Plain values with the type of their answer ([`TypedRequest`]). `super::control` sends them from
//! the thread of a command, and waits; [`super::service`] answers them in the shard of links, one
//! at a time and in order. The controller receives `Result<Answer, CommandError>`: of these
//! requests, only [`OpenLink`] is refused by the shard. A request that names an unknown link has no
//! effect, and its views are empty. A request does not wait for a peer: opening binds a socket, and
//! a handshake goes on later.
//!
//! The order of an addition: [`OpenLink`], the join of the group's shard with the returned
//! [`Membership`], [`StartLink`]. A deletion: the group's shard leaves, then [`CloseLink`].

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_model::{LinkSpec, LinkView, TypedRequest};

/// Handling of a link that cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Add no link and answer `Err`: an operator's command.
    Refuse,
    /// Add the link in the state down, with the reason, answer `Ok`, and retry: a link of the
    /// configuration file or the state file when the daemon starts.
    Retry,
}

/// An opened link.
#[derive(Debug)]
pub(crate) struct OpenedLink {
    /// For the group's shard that forwards frames: the identifier and the carrier.
    pub frames: Membership,
    /// For the group's shard of sockets, if the link carries sockets.
    pub segments: Option<Membership>,
}

/// Opens a link. Answers with the memberships for the group's shards. Refused if the
/// link cannot be opened and [`OnFailure::Refuse`] is given, or without a mailbox for notices.
#[derive(Debug)]
pub(crate) struct OpenLink {
    /// The configured link; already checked.
    pub spec: Box<LinkSpec>,
    /// The mailbox of the group's shard, for received frames.
    pub to: Sender<Message>,
    /// The mailbox of the group's shard of sockets; `None` if the daemon has none, or the kind of
    /// link carries no sockets.
    pub segments: Option<Sender<Message>>,
    /// Handling of a link that cannot be opened now.
    pub on_failure: OnFailure,
}

impl TypedRequest for OpenLink {
    type Answer = OpenedLink;
}

/// Starts a link that its group has joined: begins the handshake or connect, or reports the link
/// up. No effect on a link that is not open; such a link starts when it is opened later.
#[derive(Debug)]
pub(crate) struct StartLink(pub LinkId);

impl TypedRequest for StartLink {
    type Answer = ();
}

/// Closes a link, and its socket if no other link uses it.
#[derive(Debug)]
pub(crate) struct CloseLink(pub LinkId);

impl TypedRequest for CloseLink {
    type Answer = ();
}

/// Reads keys and certificates of all links again, and retries unopened links at once: at SIGHUP of
/// the daemon, in the thread that waits for signals. With a missing or faulty file a link keeps its
/// old key or certificates, and a warning is logged; the answer reports no failure. A changed
/// private key reopens its link; changed certificates apply to new connections.
#[derive(Debug)]
pub(crate) struct ReloadKeys;

impl TypedRequest for ReloadKeys {
    type Answer = ();
}

/// Applies verified claims of a link's peer that the cluster's directory has: claims of other peers
/// on these addresses are not followed. No effect for an unknown link.
#[derive(Debug)]
pub(crate) struct ApplyClaims {
    /// The link to the peer.
    pub link: LinkId,
    /// Further links to the peer in the group.
    pub others: Vec<LinkId>,
    /// Addresses at the peer, with their epochs.
    pub claimed: Vec<([u8; 6], u64)>,
    /// Addresses that left the peer, with the epochs until which claims end.
    pub withdrawn: Vec<([u8; 6], u64)>,
}

impl TypedRequest for ApplyClaims {
    type Answer = ();
}

/// Returns views of one link, or of all if `None`, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct ReadViews(pub Option<LinkId>);

impl TypedRequest for ReadViews {
    type Answer = Vec<LinkView>;
}
