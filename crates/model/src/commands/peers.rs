//! Commands about NICs of other hosts, answered by the MX service.
//!
//! The list shows the NICs that this host's NICs know by configuration or announcement; it changes
//! nothing and starts no discovery. It is empty without ports of kind `mx`, and ordered by port and
//! address. Ports of kind `mx` configure peers ([`crate::MxPeer`]). The control API sends the
//! command (`GET /v1/peers`), and waits in the thread of the connection.

use crate::{PeerView, TypedRequest};

/// Lists the NICs of other hosts that NICs of this host know.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<PeerView>;
}
