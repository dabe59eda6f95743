//! Commands about the traffic matrix of a group ([`crate::TrafficView`]), answered by the Ethernet
//! service.
//!
//! The matrix counts frames by pairs of Ethernet addresses, since the pair entered the matrix;
//! rates are of the last measurement period. Pairs beyond the capacity are counted as a sum only.
//! The command resets nothing. Socket packets and MX messages are not counted.

use crate::{Name, TrafficView, TypedRequest};

/// Shows the traffic between the addresses of a group.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = TrafficView;
}
