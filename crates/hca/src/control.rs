//! The control plane of adapters: joins each adapter to the service that forwards the group's
//! frames.
//!
//! When the first adapter of a group is added, the controller opens an uplink between the adapters'
//! shard and the shard of the forwarding service (`ethernet`), which it keeps open. Each adapter
//! then joins that service as a station, with the name and the address of its port; if it is
//! refused, for example because another port of the group has the address, the port is deleted
//! again. A deleted port leaves, and the last takes the uplink with it. In a daemon without a
//! forwarding service, adapters exchange frames with each other only.
//!
//! The fabric's registry calls it under its lock, in the thread of the operator's command: after it
//! added or deleted a port, and for the operator's requests (`causeway hca`, answered by [`view`]).
//! The controller touches no frame. A shard that does not answer fails the operator's command: a
//! port is then not added, a deletion is reported as failed although the port is gone.

use std::collections::BTreeMap;

use causeway_fabric::carrier::{FORWARDS_FRAMES, Join, Leave, LinkId, OpenInbox, ReadDrops};
use causeway_fabric::guest_session::CarrierAdded;
use causeway_fabric::station;
use causeway_fabric::traffic::ReadDirectTraffic;
use causeway_fabric::{Control, Controller, ShardKey};
use causeway_model::commands::hca;
use causeway_model::{
    CommandError, HcaView, Name, PortSpec, RequestDispatch, ServiceRequest, TrafficView,
};

use crate::request::{JoinGroup, OpenUplink};
use crate::service::NAME;
use crate::traffic::ReadTraffic;
use crate::view;

/// The adapters of a group in the forwarding service.
#[derive(Debug)]
struct GroupUplink {
    /// Shard of the forwarding service.
    frames: ShardKey,
    /// Identifiers of the stations, by port.
    stations: BTreeMap<Name, LinkId>,
}

/// Controller of the adapters of all groups.
#[derive(Debug, Default)]
pub(crate) struct HcaController {
    /// By group.
    uplinks: BTreeMap<Name, GroupUplink>,
}

impl HcaController {
    /// Opens the uplink of a group, if it is not open and the daemon has a forwarding service.
    fn open(&mut self, control: &mut Control<'_>, group: &Name) -> Result<(), CommandError> {
        if self.uplinks.contains_key(group) {
            return Ok(());
        }
        let Ok(service) = control.provider(FORWARDS_FRAMES) else { return Ok(()) };
        let frames = ShardKey::new(group, service);
        control.hold(&frames)?;
        let to = control.ask(&frames, OpenInbox);
        let opened = to.and_then(|to| control.ask(&ShardKey::new(group, NAME), OpenUplink(to)));
        if let Err(error) = opened {
            control.release(&frames);
            return Err(error);
        }
        self.uplinks.insert(group.clone(), GroupUplink { frames, stations: BTreeMap::new() });
        Ok(())
    }

    /// Joins a port to the forwarding service.
    fn join(&mut self, control: &Control<'_>, port: &PortSpec) -> Result<(), CommandError> {
        let Some(uplink) = self.uplinks.get_mut(&port.group) else { return Ok(()) };
        let id = station::next_id();
        let request = JoinGroup { port: port.name.clone(), id };
        let membership = control.ask(&ShardKey::new(&port.group, NAME), request)?;
        control.ask(&uplink.frames, Join(membership))?;
        uplink.stations.insert(port.name.clone(), id);
        Ok(())
    }

    /// Removes a port from the forwarding service, and closes an uplink without ports.
    fn leave(&mut self, control: &mut Control<'_>, port: &PortSpec) -> Result<(), CommandError> {
        let Some(uplink) = self.uplinks.get_mut(&port.group) else { return Ok(()) };
        let left = match uplink.stations.remove(&port.name) {
            Some(id) => control.ask(&uplink.frames, Leave(id)),
            None => Ok(()),
        };
        if uplink.stations.is_empty()
            && let Some(uplink) = self.uplinks.remove(&port.group)
        {
            control.release(&uplink.frames);
        }
        left
    }

    /// Adds the frames that the forwarding service dropped to the counters of adapters.
    fn add_drops(
        &self,
        control: &Control<'_>,
        mut views: Vec<HcaView>,
    ) -> Result<Vec<HcaView>, CommandError> {
        for (group, uplink) in &self.uplinks {
            if !views.iter().any(|view| view.group == *group) {
                continue;
            }
            let drops: BTreeMap<_, _> =
                control.ask(&uplink.frames, ReadDrops(None))?.into_iter().collect();
            for view in views.iter_mut().filter(|view| view.group == *group) {
                let of = uplink.stations.get(&view.port).and_then(|id| drops.get(id));
                let dropped = of.into_iter().flatten().filter(|(_, count)| **count > 0);
                view.counters.extend(dropped.map(|(name, count)| (name.clone(), *count)));
            }
        }
        Ok(views)
    }

    /// Returns the view of the adapter of a port.
    fn show(&self, control: &Control<'_>, name: &Name) -> Result<HcaView, CommandError> {
        let views = self.add_drops(control, vec![view::show(control, name)?])?;
        let gone = || CommandError::NotFound { what: "hca port", name: name.to_string() };
        views.into_iter().next().ok_or_else(gone)
    }
}

/// Returns the traffic between the adapters of a group that the forwarding service does not see.
fn direct_traffic(control: &Control<'_>, group: Name) -> Result<TrafficView, CommandError> {
    let shard = ShardKey::new(&group, NAME);
    if control.has_shard(&shard) {
        return control.ask(&shard, ReadTraffic(group));
    }
    let pairs = Vec::new();
    Ok(TrafficView { group, window_seconds: 0.0, pairs, uncounted_frames_total: 0 })
}

impl Controller for HcaController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|hca::List| self.add_drops(control, view::list(control)?))
            .on(|hca::Show(name)| self.show(control, &name))
            .on(|ReadDirectTraffic(group)| direct_traffic(control, group))
    }

    fn port_added(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.open(control, &port.group)?;
        self.join(control, port)?;
        let shard = ShardKey::new(&port.group, NAME);
        control.consult(&CarrierAdded { port: port.name.clone(), shard }).map(drop)
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.leave(control, port)
    }
}
