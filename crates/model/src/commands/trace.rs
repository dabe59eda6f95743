//! Questions of the operator about the destination of traffic ([`crate::TraceQuery`]): frames by
//! the Ethernet service, socket connects by the vsock service, queue pairs by the HCA service.
//!
//! `causeway trace` and `/v1/trace` make the questions; a thread of the control socket passes each
//! to the shard that answers. The answer is a [`crate::TraceView`]. A port or group that does not
//! exist is refused. The types are plain data.

use serde::{Deserialize, Serialize};

use crate::{Mac, Name, SocketKind, TraceRequest, TraceScope};

/// A frame that port `from` would send.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Frame {
    /// The sending port.
    pub from: Name,
    /// Source address; by default that of the port.
    #[serde(default)]
    pub source: Option<Mac>,
    /// Destination address.
    pub destination: Mac,
}

impl TraceRequest for Frame {
    const WHAT: &'static str = "frame";

    fn scope(&self) -> TraceScope {
        TraceScope { from: Some(self.from.clone()), ..TraceScope::default() }
    }
}

/// A socket connect by port `from`, or by the host if `from` is not given.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connect {
    /// The connecting port; `None` is the host, and `group` must be given.
    #[serde(default)]
    pub from: Option<Name>,
    /// The destination's group, for a connect by the host.
    #[serde(default)]
    pub group: Option<Name>,
    /// Destination CID.
    pub cid: u32,
    /// Destination port number.
    pub port: u32,
    /// Socket type; by default a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_type: Option<SocketKind>,
}

impl TraceRequest for Connect {
    const WHAT: &'static str = "connect";

    fn scope(&self) -> TraceScope {
        let (from, group) = (self.from.clone(), self.group.clone());
        TraceScope { from, group, ..TraceScope::default() }
    }
}

/// The connections of queue pairs of port `from` with queue pairs of port `to`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Verbs {
    /// Port of the requester's adapter.
    pub from: Name,
    /// Port of the responder's adapter; in another group, the service explains the refusal.
    pub to: Name,
}

impl TraceRequest for Verbs {
    const WHAT: &'static str = "verbs";

    fn scope(&self) -> TraceScope {
        let (from, to) = (Some(self.from.clone()), Some(self.to.clone()));
        TraceScope { from, to, ..TraceScope::default() }
    }
}
