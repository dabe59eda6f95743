//! Requests of the controller to the shard.

use causeway_fabric::carrier::{LinkId, Membership, Message};
use causeway_fabric::mailbox::Sender;
use causeway_model::{Ask, LinkSpec, LinkView};

/// What becomes of a link that cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The command is refused.
    Refuse,
    /// The link stays down, with the reason, and is opened as soon as that works.
    Retry,
}

/// Opens a link.
#[derive(Debug)]
pub(crate) struct Open {
    pub spec: Box<LinkSpec>,
    /// The mailbox of the group's shard, for frames that the link receives.
    pub to: Sender<Message>,
    pub on_failure: OnFailure,
}

impl Ask for Open {
    type Answer = Membership;
}

/// Lets a link come up: its group uses it now.
#[derive(Debug)]
pub(crate) struct Start(pub LinkId);

impl Ask for Start {
    type Answer = ();
}

/// Closes a link.
#[derive(Debug)]
pub(crate) struct Close(pub LinkId);

impl Ask for Close {
    type Answer = ();
}

/// Reads keys and certificates again.
#[derive(Debug)]
pub(crate) struct Reload;

impl Ask for Reload {
    type Answer = ();
}

/// Shows one link, or all.
#[derive(Debug)]
pub(crate) struct Views(pub Option<LinkId>);

impl Ask for Views {
    type Answer = Vec<LinkView>;
}
