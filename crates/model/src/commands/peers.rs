//! Commands about NICs of other hosts, answered by the MX service.
//!
//! The list shows the NICs that this host's NICs know by configuration or announcement; it changes
//! nothing and starts no discovery. It is empty without ports of kind `mx`, and ordered by port and
//! address; a NIC that several NICs know is listed for each. Ports of kind `mx` configure peers
//! ([`crate::MxPeer`]). The list is not bounded here; a NIC knows at most 1,024 others
//! (`causeway_mxoe`).
//!
//! The control API sends the command (`GET /v1/peers`), and waits in the thread of the connection.
//! The controller of the service answers in that thread, under the lock of the registry, and asks
//! each shard of the service in its dispatcher's thread, in turn. If one shard does not answer, the
//! command fails and lists nothing.

use crate::{PeerView, TypedRequest};

/// Lists the NICs of other hosts that NICs of this host know.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<PeerView>;
}
