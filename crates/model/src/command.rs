//! Commands of the control plane, and why one is refused.

use serde::{Deserialize, Serialize};

use crate::{Ask, GroupSpec, Mac, Name, PortSpec, Request, RuleSpec};

/// One request to the fabric: about ports, groups, rules and dispatchers, or to a service.
#[derive(Debug)]
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
    /// Delete a group that no port and no object of a service is in.
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
    /// Explain where a frame or a connect would go, and why, without sending it.
    Trace(TraceQuery),
    /// The dispatchers, and the shards that each serves.
    DispatcherList,
    /// Have another dispatcher serve a group.
    ShardMove {
        /// The group.
        group: Name,
        /// The name of the service whose part of the group moves; every part if `None`.
        service: Option<String>,
        /// Number of the dispatcher, from 0.
        dispatcher: usize,
    },
    /// A command of one service ([`crate::commands`]).
    Service(Request),
}

impl Command {
    /// Makes a command of a service's own type.
    pub fn service<T: Ask>(request: T) -> Self {
        Self::Service(Request::new(request))
    }
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
        /// The kind of object, for example `port`.
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
