//! Stations: ports of other services as members of the switch (`fabric::station`).
//!
//! A station joins like a link, with a carrier, and is a member like a port: its address stands in
//! the address table as configured, so that no other member sends from it; broadcasts go to it, and
//! frames to unknown addresses only if it learns, as a port with `learn`; routes and captures find it
//! by the name of its port. Peers
//! of links learn its address when it joins, and again when their link opens. `crate::service` calls
//! the module for requests of the service of the stations; `crate::link_rx` and `crate::link_tx`
//! move the frames.
//!
//! [`Switch::publish_policy`] publishes to the stations which of their frames may skip the switch:
//! only without routes, in a group that forwards by addresses, and those of stations without a
//! capture. It publishes before the operator's command returns. A capture that ends by itself ends
//! with the next frame that passes it; the change is published to the stations at the end of that
//! turn. A station with the address of a port or station is refused; the number of stations is
//! bounded by that of ports alone. All of it runs in the dispatcher's thread of the group; the
//! service of the stations reads the published policy in its own.
//!
//! # Budget
//! The path of frames between ports has one comparison of a flag a turn.

use std::sync::Arc;

use causeway_fabric::carrier::{LinkId, Membership};
use causeway_fabric::station::{PolicyCell, StationPolicy};
use causeway_model::{CommandError, Mac, Name};
use causeway_wire::ethernet;

use crate::port::Switch;
use crate::route::SwitchIndex;
use crate::table::Learnt;
use crate::uplink::is_link;

impl Switch {
    /// Adds a station.
    ///
    /// # Errors
    /// [`CommandError::Conflict`] if a port or station of the group has its address.
    pub(crate) fn join_station(&mut self, member: Membership) -> Result<(), CommandError> {
        let Some((mac, learns)) = member.station.as_ref().map(|s| (s.address, s.learns)) else {
            return Ok(());
        };
        let name = member.name.clone();
        if self.table.configured(ethernet::number(mac.0)).is_some() {
            let owner = self.owner_name(mac).map_or("?", Name::as_str);
            let text = format!("port {name}: mac {mac} is that of port {owner} of the group");
            return Err(CommandError::Conflict(text));
        }
        let place = self.uplinks.join(member)?;
        // The address is free, as the table was just asked.
        let _ = self.table.add(mac.0, place);
        self.members.push(place);
        if learns {
            self.learners.push(place);
        }
        self.uplinks.announce(mac, true);
        Ok(())
    }

    /// Removes a station and its address.
    pub(crate) fn leave_station(&mut self, place: SwitchIndex, id: LinkId) {
        let mac = self.uplinks.station(place).map(|station| station.address);
        self.uplinks.leave(id);
        self.table.remove(place);
        self.members.retain(|&member| member != place);
        self.learners.retain(|&member| member != place);
        if let Some(mac) = mac {
            self.uplinks.announce(mac, false);
        }
    }

    /// Returns whether a station may send from an address. Learns the address if the station learns.
    pub(crate) fn admit_from_station(
        &mut self,
        place: SwitchIndex,
        source: u64,
        now_ns: u64,
    ) -> bool {
        let Some(station) = self.uplinks.station(place) else { return false };
        let (own, learns) = (ethernet::number(station.address.0) == source, station.learns);
        let address = ethernet::address(source);
        let is_unicast = !ethernet::is_group(address) && address != [0; 6];
        own || (learns && is_unicast && self.table.learn(address, place, now_ns) != Learnt::Forged)
    }

    /// Returns the switch index of the station of a port.
    pub(crate) fn station_named(&self, name: &Name) -> Option<SwitchIndex> {
        let found = self.uplinks.stations().find(|(_, of, _)| *of == name);
        found.map(|(place, ..)| place)
    }

    /// Returns the switch index of the station with an address.
    pub(crate) fn station_of(&self, number: u64) -> Option<SwitchIndex> {
        self.table.configured(number).filter(|place| is_link(*place))
    }

    /// Returns the name of the port, of this or another service, with a configured address.
    pub(crate) fn owner_name(&self, mac: Mac) -> Option<&Name> {
        let station = || self.uplinks.name(self.station_of(ethernet::number(mac.0))?);
        self.owner(mac).map(|port| &port.name).or_else(station)
    }

    /// Publishes to the stations the routes, and which of them are observed.
    pub(crate) fn publish_policy(&mut self) {
        let mut cells: Vec<&PolicyCell> = Vec::new();
        for (_, _, station) in self.uplinks.stations() {
            if !cells.iter().any(|cell| cell.is(&station.policy)) {
                cells.push(&station.policy);
            }
        }
        let observed = self.observed();
        let stations = self.uplinks.stations();
        let addresses = stations.map(|(place, _, station)| (station.address, place));
        let policy = if cells.is_empty() { None } else { self.routes.policy(addresses) };
        let policy = policy.map(|policy| Arc::new(policy) as Arc<dyn StationPolicy>);
        for cell in cells {
            cell.publish(policy.clone(), observed.clone());
        }
        self.observed_stations = observed;
    }

    /// Returns the addresses of the stations with a capture.
    fn observed(&self) -> Arc<[Mac]> {
        let stations = self.uplinks.stations().filter(|_| !self.mirrors.is_empty());
        let observed = stations.filter(|(place, ..)| self.mirrors.is_at(*place));
        observed.map(|(_, _, station)| station.address).collect()
    }

    /// Publishes the policy again if a capture at a station has ended.
    #[cold]
    pub(crate) fn end_observation(&mut self) {
        if self.observed() != self.observed_stations {
            self.publish_policy();
        }
    }
}

#[cfg(test)]
mod tests;
