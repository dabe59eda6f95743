//! The routes of a group as a policy for traffic between stations.
//!
//! A [`RoutePolicy`] is an immutable copy of the routes' conditions, which `crate::station`
//! publishes with each change of the routes and of the members. The service of the stations
//! (`causeway-hca`) consults it, in another thread, for traffic that is no frame: queue pairs reach
//! the stations that frames would reach. The result is that of [`super::RouteTable`]; it is not
//! counted as a hit. A station that has not joined or has left reaches none, and is reached by none
//! ([`Denial::NoRoute`]). Without routes, in a group that forwards by addresses, there is no
//! policy.
//!
//! # Budget
//! A copy has 64 bytes a route. A check scans all routes; the caller keeps its result until the
//! next publication.

use std::collections::HashMap;

use causeway_fabric::station::{Denial, StationPolicy};
use causeway_model::{Forwarding, Mac};
use causeway_wire::ethernet;

use super::{AddressPair, NEVER, RouteMatch, SwitchIndex};

/// Routes and stations of a group at one time.
#[derive(Debug)]
pub struct RoutePolicy {
    routes: Vec<RouteMatch>,
    forwarding: Forwarding,
    /// Switch indices of stations, by address.
    stations: HashMap<u64, SwitchIndex>,
}

impl RoutePolicy {
    /// Returns the policy of routes for stations, each with its address.
    pub(super) fn new(
        routes: Vec<RouteMatch>,
        forwarding: Forwarding,
        stations: impl Iterator<Item = (Mac, SwitchIndex)>,
    ) -> Self {
        let stations = stations.map(|(mac, place)| (ethernet::number(mac.0), place)).collect();
        Self { routes, forwarding, stations }
    }

    /// Returns the switch index of the station with an address.
    fn place(&self, address: Mac) -> Option<SwitchIndex> {
        self.stations.get(&ethernet::number(address.0)).copied()
    }
}

impl StationPolicy for RoutePolicy {
    fn check(&self, source: Mac, destination: Mac, receiver: Mac) -> Result<(), Denial> {
        // A station that has not joined yet, or has left, is reached by no route.
        let (Some(from), Some(to)) = (self.place(source), self.place(receiver)) else {
            return Err(Denial::NoRoute);
        };
        let number = |mac: Mac| ethernet::number(mac.0);
        let pair = AddressPair { from, source: number(source), destination: number(destination) };
        let (mut best, mut first, mut leads) = (NEVER, None, false);
        for route in self.routes.iter().filter(|route| route.fits(&pair)) {
            if route.priority > best {
                (best, first, leads) = (route.priority, Some(route.index), false);
            }
            leads |= route.priority == best && route.to == Some(to) && to != from;
        }
        match first {
            _ if leads => Ok(()),
            Some(index) => Err(Denial::Route(index)),
            None if self.forwarding == Forwarding::Routes => Err(Denial::NoRoute),
            None => Ok(()),
        }
    }
}
