//! What the registry has services do beyond ports: links, routes, and looks at traffic.

use std::collections::BTreeMap;

use causeway_model::{Forwarding, GroupKind};

use crate::capture::Recording;
use crate::carrier::{LinkId, Membership, Message};
use crate::mailbox::Sender;
use causeway_model::CaptureSpec;
use causeway_model::{LinkSpec, Name, RouteSpec};
use causeway_model::{LinkView, PeerView, RouteView, TrafficView};

/// The service that carries frames between ports.
pub const FRAMES: &str = "net";
/// The service that carries them to peers.
pub const LINKS: &str = "link";
/// The service of boards of MX endpoints.
pub const MESSAGES: &str = "mx";

/// What becomes of a link that cannot be opened now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The command is refused.
    Refuse,
    /// The link stays down, with the reason, and is opened as soon as that works.
    Retry,
}

/// One order to a service.
#[derive(Debug)]
pub enum Order {
    /// To the frames' service: where do links put what came?
    Inbox,
    /// To the links' service: open a link, and put there what comes.
    LinkOpen(Box<LinkSpec>, Sender<Message>, OnFailure),
    /// To the links' service: the link's group uses it now, so let it come up.
    LinkStart(LinkId),
    /// To the links' service: close a link.
    LinkClose(LinkId),
    /// To the links' service: read keys and certificates again.
    LinkReload,
    /// To the links' service: show one link, or all.
    LinkViews(Option<LinkId>),
    /// To the frames' service: use a link.
    Join(Membership),
    /// To the frames' service: use it no more.
    Leave(LinkId),
    /// To the frames' service: all routes of the group, in place of those before; and what it is.
    Routes(Vec<(u64, RouteSpec)>, Forwarding, GroupKind),
    /// To the frames' service: one route more.
    RouteAdd(u64, RouteSpec),
    /// To the frames' service: one route less.
    RouteDel(u64),
    /// To the frames' service: what became of the routes.
    RouteViews,
    /// To the frames' service: what was dropped of what came by links, or by one.
    LinkDrops(Option<LinkId>),
    /// To the frames' service: who talks to whom.
    Traffic(Name),
    /// To the frames' service: copy what passes.
    Capture(CaptureSpec),
    /// To the boards' service: which boards of other hosts are known.
    PeerViews,
}

/// What a service answers.
#[derive(Debug)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Where links put what came.
    Inbox(Sender<Message>),
    /// The link is open.
    Opened(Membership),
    /// All links.
    Links(Vec<LinkView>),
    /// All routes of the group.
    Routes(Vec<RouteView>),
    /// What was dropped of what came by links, by reason.
    LinkDrops(Vec<(LinkId, BTreeMap<String, u64>)>),
    /// Who talks to whom.
    Traffic(TrafficView),
    /// Where copies wait.
    Recording(Recording),
    /// Boards of other hosts.
    Peers(Vec<PeerView>),
}
