//! Commands about NICs of other hosts.

use crate::{PeerView, TypedRequest};

/// Lists the NICs of other hosts that NICs of this host know.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<PeerView>;
}
