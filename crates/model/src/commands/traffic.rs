//! Commands about the traffic matrix.

use crate::{Ask, Name, TrafficView};

/// Shows the traffic between the addresses of a group.
#[derive(Debug)]
pub struct Show(pub Name);

impl Ask for Show {
    type Answer = TrafficView;
}
