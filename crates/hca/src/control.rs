//! The control plane of adapters: joins each adapter to the service that forwards the group's
//! frames, and answers the operator's commands.
//!
//! [`StationControl`] of `fabric` joins the adapters, each as a station with the name and the
//! address of its port. In a daemon without a forwarding service, adapters exchange frames with
//! each other only. Other controllers are notified of a new adapter by [`CarrierAdded`], because it
//! can carry sessions.
//!
//! The fabric's registry calls the controller under its lock, in the thread of the operator's
//! command: after it added or deleted a port, for the operator's requests (`causeway hca`, answered
//! by [`view`]), and for the traffic that the controller of the forwarding service asks for. The
//! controller touches no frame. A shard that does not answer fails the operator's command: a port
//! is then not added, a deletion is reported as failed although the port is gone.

use std::collections::BTreeSet;

use causeway_fabric::guest_session::CarrierAdded;
use causeway_fabric::station_control::StationControl;
use causeway_fabric::traffic::ReadDirectTraffic;
use causeway_fabric::{Control, Controller, ShardKey};
use causeway_model::commands::hca;
use causeway_model::{
    CommandError, HcaView, Name, PortSpec, RequestDispatch, ServiceRequest, TrafficView,
};

use crate::NAME;
use crate::traffic::ReadTraffic;
use crate::view;

/// Controller of the adapters of all groups.
#[derive(Debug)]
pub(crate) struct HcaController {
    stations: StationControl,
}

impl HcaController {
    /// Returns the controller of a service without ports.
    pub(crate) const fn new() -> Self {
        Self { stations: StationControl::new(NAME) }
    }

    /// Adds the frames that the forwarding service dropped to the counters of adapters.
    fn add_drops(
        &self,
        control: &Control<'_>,
        mut views: Vec<HcaView>,
    ) -> Result<Vec<HcaView>, CommandError> {
        let groups: BTreeSet<_> = views.iter().map(|view| view.group.clone()).collect();
        for group in &groups {
            let drops = self.stations.drops(control, group)?;
            for view in views.iter_mut().filter(|view| view.group == *group) {
                let dropped = drops.get(&view.port).into_iter().flatten();
                let dropped = dropped.filter(|(_, count)| **count > 0);
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
        self.stations.port_added(control, port)?;
        let shard = ShardKey::new(&port.group, NAME);
        control.consult(&CarrierAdded { port: port.name.clone(), shard }).map(drop)
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.stations.port_deleted(control, port)
    }
}
