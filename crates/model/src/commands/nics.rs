//! Commands about NICs of this host (ports of kind `mx`), answered by the MX service.
//!
//! The control API sends them (`GET /v1/nics`, `GET /v1/nics/PORT`), and waits in the thread of the
//! connection. The commands read samples and change nothing: NICs are added and deleted as ports,
//! and their processes come and go by themselves. The list is empty without ports of kind `mx`,
//! ordered by port, and has no processes. NICs of other hosts are in [`super::peers`].

use crate::{Name, NicView, TypedRequest};

/// Lists all NICs, without their processes.
#[derive(Debug)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<NicView>;
}

/// Shows the NIC of the port, with its processes and endpoints. Refused if no port of kind `mx` has
/// the name.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = NicView;
}
