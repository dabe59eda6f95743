//! The control plane of adapters: joins the adapters of each group to the service that forwards the
//! group's frames.
//!
//! When the first adapter of a group is added, the controller opens an uplink in the adapters'
//! shard and joins it, as a link, to the shard of the forwarding service (`ethernet`), which it
//! keeps open. If that fails, the port is not added, and the adapters' shard closes again; if the
//! port fails afterwards, its link stays until the group's next port. When the last adapter is
//! deleted, the link leaves. In a daemon without a forwarding service, adapters exchange frames
//! with each other only.
//!
//! The fabric's registry calls it under its lock, in the thread of the operator's command: after it
//! opened a shard or deleted a port, and for the operator's requests (`causeway hca`, answered by
//! [`view`]). It touches no frame. A shard that does not answer fails the operator's command: a
//! port is then not added, a deletion is reported as failed although the port is gone.

use std::collections::BTreeMap;

use causeway_fabric::carrier::{FORWARDS_FRAMES, Join, Leave, LinkId, OpenInbox};
use causeway_fabric::{Control, Controller, ShardKey};
use causeway_model::commands::hca;
use causeway_model::{CommandError, Name, PortSpec, RequestDispatch, ServiceRequest};

use crate::request::{CountPorts, OpenUplink, StartUplink};
use crate::service::NAME;
use crate::view;

/// First identifier of uplinks; the link service counts from 1.
const FIRST_UPLINK: u32 = 1 << 31;
/// Name of an uplink in traces and counters.
const UPLINK_NAME: &str = "adapters";

/// Controller of the adapters of all groups.
#[derive(Debug, Default)]
pub(crate) struct HcaController {
    /// Identifier of the uplink and key of the shard that it joined, by group.
    uplinks: BTreeMap<Name, (LinkId, ShardKey)>,
    /// Uplinks opened so far.
    opened: u32,
}

impl HcaController {
    /// Joins the adapters in `shard` to the forwarding service's shard `frames`.
    fn join(
        &mut self,
        control: &mut Control<'_>,
        shard: &ShardKey,
        frames: &ShardKey,
    ) -> Result<(), CommandError> {
        self.opened = self.opened.saturating_add(1);
        let id = LinkId(FIRST_UPLINK | self.opened);
        let name = UPLINK_NAME.parse().map_err(|_| CommandError::Host(UPLINK_NAME.into()))?;
        let to = control.ask(frames, OpenInbox)?;
        let membership = control.ask(shard, OpenUplink { id, name, to })?;
        control.ask(frames, Join(membership))?;
        if let Err(error) = control.ask(shard, StartUplink) {
            let _ = control.ask(frames, Leave(id));
            return Err(error);
        }
        self.uplinks.insert(shard.group.clone(), (id, frames.clone()));
        Ok(())
    }

    /// Ends the uplink of a group.
    fn leave(&mut self, control: &mut Control<'_>, group: &Name) -> Result<(), CommandError> {
        let Some((id, frames)) = self.uplinks.remove(group) else { return Ok(()) };
        let left = control.ask(&frames, Leave(id));
        control.release(&frames);
        left
    }
}

impl Controller for HcaController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|hca::List| view::list(control))
            .on(|hca::Show(name)| view::show(control, &name))
    }

    fn shard_opened(
        &mut self,
        control: &mut Control<'_>,
        shard: &ShardKey,
    ) -> Result<(), CommandError> {
        let Ok(service) = control.provider(FORWARDS_FRAMES) else { return Ok(()) };
        // A port that could not be added left the uplink of a closed shard.
        self.leave(control, &shard.group)?;
        let frames = ShardKey::new(&shard.group, service);
        control.hold(&frames)?;
        self.join(control, shard, &frames).inspect_err(|_| control.release(&frames))
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        let shard = ShardKey::new(&port.group, NAME);
        let is_used = control.has_shard(&shard) && control.ask(&shard, CountPorts)? > 0;
        if is_used { Ok(()) } else { self.leave(control, &port.group) }
    }
}
