//! Commands about the traffic matrix.

use crate::{Name, TrafficView, TypedRequest};

/// Shows the traffic between the addresses of a group.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = TrafficView;
}
