//! Requests of the controller to the shard of links.
//!
//! Plain values with the type of their answer ([`TypedRequest`]). `super::control` sends them from
//! a thread of the control socket; [`super::service`] answers them in the shard of links, one at a
//! time and in order. A request that names an unknown link has no effect, and its views are empty.
//! A request does not wait for a peer: opening binds a socket, and a handshake goes on later.

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_model::{LinkSpec, LinkView, TypedRequest};

/// Handling of a link that cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Refuse the command.
    Refuse,
    /// Keep the link down, with the reason, and retry.
    Retry,
}

/// Opens a link.
#[derive(Debug)]
pub(crate) struct OpenLink {
    /// The configured link; already checked.
    pub spec: Box<LinkSpec>,
    /// The mailbox of the group's shard, for received frames.
    pub to: Sender<Message>,
    /// Handling of a link that cannot be opened now.
    pub on_failure: OnFailure,
}

impl TypedRequest for OpenLink {
    type Answer = Membership;
}

/// Starts a link: its group has joined it.
#[derive(Debug)]
pub(crate) struct StartLink(pub LinkId);

impl TypedRequest for StartLink {
    type Answer = ();
}

/// Closes a link.
#[derive(Debug)]
pub(crate) struct CloseLink(pub LinkId);

impl TypedRequest for CloseLink {
    type Answer = ();
}

/// Reads keys and certificates again.
#[derive(Debug)]
pub(crate) struct ReloadKeys;

impl TypedRequest for ReloadKeys {
    type Answer = ();
}

/// Returns views of one link, or of all.
#[derive(Debug)]
pub(crate) struct ReadViews(pub Option<LinkId>);

impl TypedRequest for ReadViews {
    type Answer = Vec<LinkView>;
}
