//! The control-plane part of the service: the NICs of other hosts, over all groups.
//!
//! [`MxController`] answers one command of the operator (`peers::List`): it asks the shard of each
//! group for the NICs that its NICs know, in turn, and sorts them by port and address. A NIC that
//! several NICs know is listed for each; a NIC without a network knows none. If a shard does not
//! answer, the command fails and lists nothing. The controller has no configuration and changes
//! nothing; configured peers are options of a port. Runs in the thread of the control socket, not
//! in a dispatcher.

use causeway_fabric::{Control, Controller};
use causeway_model::commands::peers;
use causeway_model::{CommandError, PeerView, RequestDispatch, ServiceRequest, TypedRequest};

use crate::service::NAME;

/// Asks a shard for the NICs of other hosts that its NICs know.
#[derive(Debug)]
pub(crate) struct ListPeers;

impl TypedRequest for ListPeers {
    type Answer = Vec<PeerView>;
}

/// Lists the NICs of other hosts for the operator.
#[derive(Debug, Default)]
pub(crate) struct MxController;

/// Returns all NICs of other hosts, by port and address.
fn list(control: &Control<'_>) -> Result<Vec<PeerView>, CommandError> {
    let mut all = Vec::new();
    for shard in control.shards(NAME) {
        all.append(&mut control.ask(&shard, ListPeers)?);
    }
    all.sort_by(|a, b| (&a.port, a.mac).cmp(&(&b.port, b.mac)));
    Ok(all)
}

impl Controller for MxController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request).on(|peers::List| list(control))
    }
}
