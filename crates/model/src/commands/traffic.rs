//! Commands about the traffic matrix of a group ([`crate::TrafficView`]), answered by the Ethernet
//! service.
//!
//! The matrix counts frames and RDMA messages by pairs of Ethernet addresses, since the pair
//! entered the matrix; rates are of the last measurement period, about 1 s. The matrix holds 4,096
//! pairs of each service; frames and messages of further pairs are counted as a sum only. The
//! command resets nothing. A group that does not exist, or has neither ports with frames nor links,
//! is refused. Socket packets and MX messages are not counted. The control API sends the command
//! (`GET /v1/traffic/GROUP`), and waits in the thread of the connection.

use crate::{Name, TrafficView, TypedRequest};

/// Shows the traffic between the addresses of a group.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = TrafficView;
}
