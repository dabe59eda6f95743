//! The control-plane part of the service: NICs of this host and of other hosts, over all groups.
//!
//! [`MxController`] answers commands of the operator: views of NICs ([`crate::view`]), and the list
//! of NICs of other hosts (`peers::List`), for which it asks the shard of each
//! group for the NICs that its NICs know, in turn, and sorts them by port and address. A NIC that
//! several NICs know is listed for each; a NIC without a network knows none. If a shard does not
//! answer, the command fails and lists nothing. Configured peers are options of a port.
//!
//! A NIC with the option `adapter` is joined to that port, when both exist, and the port's service
//! carries the sessions of the guest's processes; either may be added first. A second NIC with the
//! same adapter, and an adapter of another kind or group, are refused. Runs in the thread of the
//! command (a connection of the control socket, or the start), not in a dispatcher.

use std::collections::BTreeMap;

use causeway_fabric::guest_session::{
    CARRIES_GUEST_SESSIONS, CarrierAdded, CloseGuestSessions, OpenGuestSessions, ServingEnd,
};
use causeway_fabric::{Control, Controller, ShardKey};
use causeway_model::commands::{nics, peers};
use causeway_model::{
    CommandError, MxSpec, Name, PeerView, PortSpec, RequestDispatch, ServiceRequest, TypedRequest,
};

use crate::service::NAME;
use crate::view;

/// Asks a shard for the NICs of other hosts that its NICs know.
#[derive(Debug)]
pub(crate) struct ListPeers;

impl TypedRequest for ListPeers {
    type Answer = Vec<PeerView>;
}

/// Asks the shard of a NIC, by the name of its port, for the end by which sessions of its guest
/// reach it. A later request replaces the end: sessions of the former go on, but none begins by it.
///
/// # Errors
/// No NIC has the name, or the host has no descriptors.
#[derive(Debug)]
pub struct ServeGuest(pub Name);

impl TypedRequest for ServeGuest {
    type Answer = ServingEnd;
}

/// Informs the shard of a NIC whether the port of its guest carries sessions to it.
#[derive(Debug)]
pub(crate) struct GuestJoined {
    /// Port of the NIC.
    pub nic: Name,
    /// The port carries sessions.
    pub is_joined: bool,
}

impl TypedRequest for GuestJoined {
    type Answer = ();
}

/// A NIC of a guest.
#[derive(Debug)]
struct GuestNic {
    group: Name,
    /// Port whose guest's processes use the NIC.
    adapter: Name,
    /// The port carries sessions to the NIC.
    is_joined: bool,
}

/// Lists the NICs of other hosts for the operator, and joins NICs to the ports of their guests.
#[derive(Debug, Default)]
pub(crate) struct MxController {
    /// NICs with an adapter, by their port.
    guests: BTreeMap<Name, GuestNic>,
}

impl MxController {
    /// Joins the NIC of a port to the port of its guest, in a shard that carries sessions.
    fn join(
        &mut self,
        control: &Control<'_>,
        nic: &Name,
        shard: &ShardKey,
    ) -> Result<(), CommandError> {
        let Some(guest) = self.guests.get_mut(nic) else { return Ok(()) };
        let own = ShardKey::new(&guest.group, NAME);
        let end = control.ask(&own, ServeGuest(nic.clone()))?;
        control.ask(shard, OpenGuestSessions { port: guest.adapter.clone(), end })?;
        guest.is_joined = true;
        control.ask(&own, GuestJoined { nic: nic.clone(), is_joined: true })
    }

    /// Joins the NIC that waits for a new port. The port is added in any case.
    fn carrier_added(&mut self, control: &Control<'_>, added: &CarrierAdded) {
        let waits = |guest: &GuestNic| {
            !guest.is_joined && guest.adapter == added.port && guest.group == added.shard.group
        };
        let nic = self.guests.iter().find(|(_, guest)| waits(guest)).map(|(nic, _)| nic.clone());
        let Some(nic) = nic else { return };
        if let Err(error) = self.join(control, &nic, &added.shard) {
            log::warn!(
                port = nic.as_str(), adapter = added.port.as_str(), error:%;
                "the NIC does not reach the processes of its guest: delete the port of the NIC and add it again"
            );
        }
    }
}

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
        RequestDispatch::new(request)
            .on(|peers::List| list(control))
            .on(|nics::List| view::list(control))
            .on(|nics::Show(name)| view::show(control, &name))
            .on(|added: CarrierAdded| {
                self.carrier_added(control, &added);
                Ok(())
            })
    }

    fn port_added(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        let adapter = port.kind.get::<MxSpec>().and_then(|mx| mx.adapter);
        let Some(adapter) = adapter else { return Ok(()) };
        let is_other = |guest: &GuestNic| guest.adapter == adapter && guest.group == port.group;
        if let Some((nic, _)) = self.guests.iter().find(|(_, guest)| is_other(guest)) {
            let text = format!("adapter {adapter} belongs to the NIC of port {nic}");
            return Err(CommandError::Conflict(format!("port {}: {text}", port.name)));
        }
        let carries = control.provider(CARRIES_GUEST_SESSIONS)?;
        let found = control.port(&adapter).map(|(spec, shard)| (spec.group.clone(), shard.clone()));
        let group = port.group.clone();
        let guest = GuestNic { group, adapter: adapter.clone(), is_joined: false };
        self.guests.insert(port.name.clone(), guest);
        // Without the adapter the NIC waits for it.
        let Ok((group, shard)) = found else { return Ok(()) };
        if group != port.group || shard.service != carries {
            let text = format!("adapter {adapter}: expected a port of kind hca of the same group");
            return Err(CommandError::Invalid(format!("port {}: {text}", port.name)));
        }
        self.join(control, &port.name, &shard)
    }

    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        if let Some(guest) = self.guests.remove(&port.name)
            && guest.is_joined
            && let Ok(service) = control.provider(CARRIES_GUEST_SESSIONS)
        {
            let shard = ShardKey::new(&guest.group, service);
            if control.has_shard(&shard) {
                control.ask(&shard, CloseGuestSessions(guest.adapter))?;
            }
        }
        let its = |guest: &GuestNic| guest.adapter == port.name && guest.group == port.group;
        let its = self.guests.iter_mut().filter(|(_, guest)| its(guest));
        for (nic, guest) in its {
            guest.is_joined = false;
            let left = GuestJoined { nic: nic.clone(), is_joined: false };
            control.ask(&ShardKey::new(&guest.group, NAME), left)?;
        }
        Ok(())
    }
}
