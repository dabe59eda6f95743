//! The control plane of stations: joins ports of a service to the service that forwards the group's
//! frames.
//!
//! A service with stations has a [`StationControl`] as its controller (`stream`, `tap`) or in it
//! (`hca`), and answers [`OpenUplink`] and [`JoinGroup`] in its shards. The first port of a group
//! opens the uplink: the forwarding service's inbox goes to the shard of the stations, and the
//! forwarding shard stays while the group has stations. Each port then joins with the name and the
//! address of the port; a refused port (another member has the address) is deleted again by the
//! registry. A deleted port leaves. In a daemon without a forwarding service no port joins, and no
//! frame reaches another service.
//!
//! Runs in the thread of the operator's command, under the registry's lock; a call waits for the
//! two dispatchers. A shard that does not answer fails the command: a port is then not added, a
//! deletion is reported as failed although the port is gone.

use std::collections::BTreeMap;

use causeway_model::{CommandError, Name, PortSpec, TypedRequest};

use crate::carrier::{
    FORWARDS_FRAMES, Join, Leave, LinkId, Membership, Message, OpenInbox, ReadDrops,
};
use crate::mailbox::Sender;
use crate::registry::controller::{Control, Controller};
use crate::shard::ShardKey;
use crate::station;

/// Opens the uplink to the service that forwards the group's frames, of which this is the inbox.
/// Sent to the shard of the stations when a group gets its first station, before its [`JoinGroup`].
#[derive(Debug)]
pub struct OpenUplink(pub Sender<Message>);

impl TypedRequest for OpenUplink {
    type Answer = ();
}

/// Asks the shard of the stations for the membership of a port, which sends and receives frames by
/// it from now on.
#[derive(Debug)]
pub struct JoinGroup {
    /// Name of the port.
    pub port: Name,
    /// Identifier of the port in the forwarding service.
    pub id: LinkId,
}

impl TypedRequest for JoinGroup {
    type Answer = Membership;
}

/// The stations of a group in the forwarding service.
#[derive(Debug)]
struct GroupStations {
    /// Shard of the forwarding service.
    frames: ShardKey,
    /// Identifiers of the stations, by port.
    stations: BTreeMap<Name, LinkId>,
}

/// The stations of one service, in all groups. A port is refused if its group has another member
/// with its address, or if a shard does not answer.
#[derive(Debug)]
pub struct StationControl {
    /// Name of the service.
    service: &'static str,
    /// By group.
    groups: BTreeMap<Name, GroupStations>,
}

impl StationControl {
    /// Returns the control of a service without ports.
    pub const fn new(service: &'static str) -> Self {
        Self { service, groups: BTreeMap::new() }
    }

    /// Returns the counters of frames that the forwarding service dropped at the stations of a
    /// group, by port; none if the group has no stations.
    ///
    /// # Errors
    /// The forwarding shard does not answer.
    pub fn drops(
        &self,
        control: &Control<'_>,
        group: &Name,
    ) -> Result<BTreeMap<Name, BTreeMap<String, u64>>, CommandError> {
        let Some(group) = self.groups.get(group) else { return Ok(BTreeMap::new()) };
        let mut drops: BTreeMap<_, _> =
            control.ask(&group.frames, ReadDrops(None))?.into_iter().collect();
        let of = |(port, id): (&Name, &LinkId)| Some((port.clone(), drops.remove(id)?));
        Ok(group.stations.iter().filter_map(of).collect())
    }

    /// Opens the uplink of a group, if it is not open and the daemon has a forwarding service.
    fn open(&mut self, control: &mut Control<'_>, group: &Name) -> Result<(), CommandError> {
        if self.groups.contains_key(group) {
            return Ok(());
        }
        let Ok(service) = control.provider(FORWARDS_FRAMES) else { return Ok(()) };
        let frames = ShardKey::new(group, service);
        control.hold(&frames)?;
        let opened = control
            .ask(&frames, OpenInbox)
            .and_then(|to| control.ask(&ShardKey::new(group, self.service), OpenUplink(to)));
        if let Err(error) = opened {
            control.release(&frames);
            return Err(error);
        }
        self.groups.insert(group.clone(), GroupStations { frames, stations: BTreeMap::new() });
        Ok(())
    }
}

impl Controller for StationControl {
    /// Joins a new port to the forwarding service of its group.
    fn port_added(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        self.open(control, &port.group)?;
        let Some(group) = self.groups.get_mut(&port.group) else { return Ok(()) };
        let id = station::next_id();
        let request = JoinGroup { port: port.name.clone(), id };
        let joined = control
            .ask(&ShardKey::new(&port.group, self.service), request)
            .and_then(|membership| control.ask(&group.frames, Join(membership)));
        if joined.is_ok() {
            group.stations.insert(port.name.clone(), id);
        }
        joined
    }

    /// Removes a deleted port from the forwarding service. No effect on ports of other services.
    fn port_deleted(
        &mut self,
        control: &mut Control<'_>,
        port: &PortSpec,
    ) -> Result<(), CommandError> {
        let Some(group) = self.groups.get_mut(&port.group) else { return Ok(()) };
        let left = match group.stations.remove(&port.name) {
            Some(id) => control.ask(&group.frames, Leave(id)),
            None => Ok(()),
        };
        if group.stations.is_empty()
            && let Some(group) = self.groups.remove(&port.group)
        {
            control.release(&group.frames);
        }
        left
    }
}
