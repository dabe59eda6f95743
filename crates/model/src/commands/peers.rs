//! Commands about NICs of other hosts.

use crate::{Ask, PeerView};

/// Lists the NICs of other hosts that NICs of this host know.
#[derive(Debug)]
pub struct List;

impl Ask for List {
    type Answer = Vec<PeerView>;
}
