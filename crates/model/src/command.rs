//! Commands of the control plane, and the reasons why a command is refused.
//!
//! A command changes or reads configuration. In `causewayd` the threads of the control socket and
//! of the VNET language, and the start with the configuration file, make commands and wait:
//! `causeway_fabric::Handle::call` executes them one at a time in their threads, and the
//! dispatchers execute the parts that concern their shards between two turns.
//! [`Answer`](crate::Answer) holds the results; [`crate::commands`] has the commands of single
//! services.
//!
//! A command is not a transaction over several objects: each is executed or refused alone. A
//! refused command is answered with a [`CommandError`] and changes nothing, with three exceptions:
//! a move of several shards may stop half-way; [`CommandError::Host`] from a dispatcher that ends
//! meanwhile leaves the parts that are done; and an error of another service that a deletion of a
//! port or link concerns is returned although the object is deleted. The names and ranges in a
//! command are checked by its executor, and not by the type. Commands do not authenticate their
//! sender; the control socket does.

use serde::{Deserialize, Serialize};

use crate::{GroupSpec, Name, PortSpec, RuleSpec, ServiceRequest, TraceQuery, TypedRequest};

/// A request to the fabric: about ports, groups, rules and dispatchers, or to a service.
#[derive(Debug)]
pub enum Command {
    /// Lists the ports, in order of their names.
    PortList,
    /// Shows one port.
    PortShow(Name),
    /// Adds a port and listens on its socket. Its group must exist.
    PortAdd(PortSpec),
    /// Closes a port, its connections and its socket. Data in flight is lost.
    PortDel(Name),
    /// Lists the groups.
    GroupList,
    /// Adds a group.
    GroupAdd(GroupSpec),
    /// Deletes a group. It must have no port and no object of a service.
    GroupDel(Name),
    /// Lists the rules in their order.
    RuleList,
    /// Inserts a rule before the rule now at `index` (0 is the first), or at the end.
    RuleAdd {
        /// Position, 0 to the number of rules; `None` is the end.
        index: Option<usize>,
        /// The rule.
        rule: RuleSpec,
    },
    /// Deletes the rule at `index`.
    RuleDel {
        /// Position, from 0.
        index: usize,
    },
    /// Explains the destination of a frame or a connect, and sends nothing.
    Trace(TraceQuery),
    /// Lists the dispatchers and the shards that each serves.
    DispatcherList,
    /// Moves the shards of a group to another dispatcher, with their connections. A move of several
    /// shards is not atomic: after an error some may have moved.
    ShardMove {
        /// The group.
        group: Name,
        /// Name of the service whose shard moves; `None` moves the shards of all services.
        service: Option<String>,
        /// Number of the dispatcher, from 0.
        dispatcher: usize,
    },
    /// A command of one service ([`crate::commands`]).
    Service(ServiceRequest),
}

impl Command {
    /// Returns the command for a service's own request type.
    pub fn service<T: TypedRequest>(request: T) -> Self {
        Self::Service(ServiceRequest::new(request))
    }
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

/// The reason why a command was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The named object does not exist.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// Kind of the object, for example `port`.
        what: &'static str,
        /// The name or number that was given.
        name: String,
    },
    /// The object exists already, is in use, or excludes another object.
    #[error("{0}")]
    Conflict(String),
    /// A table of the daemon has reached its limit.
    #[error("{0}")]
    Full(String),
    /// A value is out of range, or the command is not known.
    #[error("{0}")]
    Invalid(String),
    /// An operation of this host failed, for example a socket could not be bound.
    #[error("{0}")]
    Host(String),
}
