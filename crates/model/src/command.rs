//! Commands of the control plane, and why one is refused.

use serde::{Deserialize, Serialize};

use crate::{CaptureSpec, GroupSpec, LinkSpec, Mac, Name, PortSpec, RouteSpec, RuleSpec};

/// One request to the fabric.
#[derive(Debug, Clone)]
pub enum Command {
    /// Every port, in order of their names.
    PortList,
    /// One port.
    PortShow(Name),
    /// Add a port and listen on its socket. Its group must exist.
    PortAdd(PortSpec),
    /// Close a port, its connections and its socket.
    PortDel(Name),
    /// Every group.
    GroupList,
    /// Add a group.
    GroupAdd(GroupSpec),
    /// Delete a group that has no ports and no links.
    GroupDel(Name),
    /// The rules in their order.
    RuleList,
    /// Insert a rule before the rule now at `index` (0 = first), or at the end.
    RuleAdd {
        /// Position, 0 to the number of rules; `None`: at the end.
        index: Option<usize>,
        /// The rule.
        rule: RuleSpec,
    },
    /// Delete the rule at `index`.
    RuleDel {
        /// Position, from 0.
        index: usize,
    },
    /// Every link, in order of their names.
    LinkList,
    /// One link.
    LinkShow(Name),
    /// Add a link. Its group must exist.
    LinkAdd(Box<LinkSpec>),
    /// As [`Self::LinkAdd`], but a link that cannot be opened now is kept: it is down, with the
    /// reason, until opening it works.
    LinkKeep(Box<LinkSpec>),
    /// Read keys and certificates of links again, and open at once links that could not be opened.
    LinkReload,
    /// Close a link, and delete the routes that name it.
    LinkDel(Name),
    /// The routes, newest first.
    RouteList,
    /// Add a route. What it names must exist.
    RouteAdd(RouteSpec),
    /// Delete the route with this number.
    RouteDel(u64),
    /// Who talks to whom in a group.
    Traffic(Name),
    /// Begin to copy frames that pass a port or a link.
    CaptureBegin(CaptureSpec),
    /// Fetch what a capture has; its number was given when it began. One that is not fetched from
    /// for [`crate::limits::CAPTURE_IDLE`] ends.
    CaptureFetch(u64),
    /// Copy no more frames for a capture; what waits can be fetched.
    CaptureStop(u64),
    /// End a capture.
    CaptureEnd(u64),
    /// Explain where a frame or a connect would go, and why, without sending it.
    Trace(TraceQuery),
    /// The boards of other hosts that our boards know.
    PeerList,
    /// The dispatchers, and the shards that each serves.
    DispatcherList,
    /// Have another dispatcher serve a group.
    ShardMove {
        /// The group.
        group: Name,
        /// `net` or `vsock` for that part of it; all of it if none.
        service: Option<String>,
        /// Number of the dispatcher, from 0.
        dispatcher: usize,
    },
}

/// What to explain.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum TraceQuery {
    /// A frame that port `from` would send.
    Frame {
        /// The sending port.
        from: Name,
        /// Source address; the port's own when left out.
        source: Option<Mac>,
        /// Destination address.
        destination: Mac,
    },
    /// A socket connect that port `from` (or the host, when left out) would make.
    Connect {
        /// The connecting port; the host when left out, then `group` names whose guests.
        from: Option<Name>,
        /// The group, for a connect from the host.
        group: Option<Name>,
        /// Destination CID.
        cid: u32,
        /// Destination port number.
        port: u32,
        /// Socket type; a stream when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket_type: Option<SocketKind>,
    },
}

/// Type of a vsock socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_SEQPACKET.
    Seqpacket,
}

/// Why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such thing.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// `port`, `group`, `rule`, `link` or `route`.
        what: &'static str,
        /// What was asked for.
        name: String,
    },
    /// The thing is already there, or in use.
    #[error("{0}")]
    Conflict(String),
    /// There are as many as there may be.
    #[error("{0}")]
    Full(String),
    /// A value is out of range.
    #[error("{0}")]
    Invalid(String),
    /// The host refused: a socket could not be bound, say.
    #[error("{0}")]
    Host(String),
}
