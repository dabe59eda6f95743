//! Links and stations as the switch sees them: egresses beside the ports.
//!
//! The links to one peer form a *bundle*, which has a switch index like a port. Of the links of a
//! bundle that are up and not standby, one carries all frames, the *active* link: links without
//! heavy loss come first, then the lowest metric, then the lowest number. A group has at most
//! [`LINKS_PER_GROUP_MAX`] (1,024) links. `crate::service` adds and removes links, `crate::link_rx`
//! applies their state, `crate::forward` and `crate::trace` ask which bundles are up and where a
//! frame may pass, `crate::link_tx` pushes frames to the carrier of the active link, and
//! `crate::standby` sends hellos by each link.
//!
//! Frames that arrived by one link leave by another only if one of the two is for transit
//! ([`Uplinks::may_pass`]). Flooded frames carry a number, so that a loop of such links carries
//! each frame once (`crate::flood_sequence`). Links other than tunnels cannot carry the number;
//! copies that arrive by them are detected by content (`crate::duplicates`).
//!
//! A *station* (`fabric::station`) is a bundle of its own that is always up: frames of links may
//! leave by it, and its frames by links, as at a port. It is not among [`Uplinks::up`], and does not
//! count as a link. `crate::station` adds and removes its address.
//!
//! A *dormant* link is up, and its next frame begins a session with the peer. A flooded frame wakes it
//! only if the frame resolves an address and the peer has an address of the group (`crate::wakeup`).
//!
//! The module does not balance load over the links of a bundle, retransmits nothing, and neither
//! encapsulates nor sends: carriers do. A carrier may keep frames that were pushed until
//! [`Uplinks::flush`]; a change of the links or carriers of a bundle flushes before. A bundle
//! without an active link has no carrier; the caller drops the frame. A link is down until its
//! first status arrives; an unknown link changes nothing. A notice of an address that the full
//! queue to the link service refuses is logged and lost: the peer then floods frames to that
//! address. All of it runs in the dispatcher's thread of the group.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_fabric::carrier::{
    Carrier, LinkId, LinkStatus, Membership, Notice, Outgoing, Refusal,
};
use causeway_fabric::station::Station;
use causeway_model::CommandError;
use causeway_model::Mac;
use causeway_model::Name;

use crate::counters::{CONTESTED, DropReason, PortCounters, WITHHELD};
use crate::limits::LINKS_PER_GROUP_MAX;
use crate::route::SwitchIndex;

/// First switch index of bundles; lower indices are ports.
const FIRST: SwitchIndex = 1 << 16;

/// Returns whether a switch index belongs to a bundle.
#[inline]
pub(crate) const fn is_link(place: SwitchIndex) -> bool {
    place >= FIRST
}

/// One link of a bundle.
#[derive(Debug)]
struct BundleLink {
    /// Name, peer, metric and carrier of the link.
    member: Membership,
    /// Whether the link service reports the link as up.
    up: bool,
    /// Whether the link loses many frames.
    poor: bool,
    /// Whether the link has no session with its peer until the next frame.
    is_dormant: bool,
    /// Whether another daemon forwards between the link's network segment and the overlay.
    standby: bool,
}

/// The links to one peer.
#[derive(Debug)]
struct Bundle {
    /// The peer's name.
    peer: String,
    /// All links to the peer, active or not.
    links: Vec<BundleLink>,
    /// Index of the link that carries frames.
    active: Option<usize>,
    /// Whether the carriers have frames that were not flushed.
    needs_flush: bool,
    /// Counters of frames that arrived by the links.
    counters: PortCounters,
    /// Flooded frames that did not wake the active link.
    withheld: u64,
    /// The bundle is a station.
    is_station: bool,
}

impl Bundle {
    /// Chooses the active link.
    fn choose(&mut self) {
        let links = self.links.iter().enumerate().filter(|(_, link)| link.up && !link.standby);
        let best = links.min_by_key(|(_, link)| (link.poor, link.member.metric, link.member.id));
        self.active = best.map(|(at, _)| at);
    }

    /// Returns the active link.
    fn active(&self) -> Option<&BundleLink> {
        self.links.get(self.active?)
    }

    /// Returns the active link.
    fn active_mut(&mut self) -> Option<&mut BundleLink> {
        self.links.get_mut(self.active?)
    }

    /// Sends the frames that the carriers of the bundle took.
    fn flush(&mut self) {
        if std::mem::take(&mut self.needs_flush) {
            // Frames that the kernel does not take are counted at the link.
            for link in &mut self.links {
                link.member.carrier.flush();
            }
        }
    }
}

/// The links of a group.
#[derive(Debug, Default)]
pub(crate) struct Uplinks {
    /// By index; the switch index is the index plus [`FIRST`]. `None` is free.
    bundles: Vec<Option<Bundle>>,
    /// Index in `bundles` of each link.
    links: HashMap<LinkId, usize>,
    /// Switch indices of the bundles that are up, and whether one of them is for transit.
    up: Vec<SwitchIndex>,
    transit: bool,
    /// Number of standby links.
    standbys: usize,
    /// Number of dormant links.
    dormant: usize,
    /// Number of stations among `links`.
    stations: usize,
    /// Bundles with carriers that were not flushed.
    unflushed: Vec<SwitchIndex>,
    /// Counts changes of the addresses that are here, for a reader of another thread.
    address_changes: Option<Arc<AtomicU64>>,
}

/// State and configuration of a link or station.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkInfo<'a> {
    pub id: LinkId,
    pub name: &'a Name,
    /// Whether the link service reports the link as up.
    pub up: bool,
    /// Whether frames of other links may leave by the link, and its frames by other links.
    pub transit: bool,
    /// Whether the link leads to a network segment that others share.
    pub segment: bool,
    /// Whether the link drops all frames except hellos.
    pub standby: bool,
}

/// Returns the switch index of the bundle at index `at`.
fn place(at: usize) -> SwitchIndex {
    FIRST.saturating_add(u32::try_from(at).unwrap_or(u32::MAX))
}

/// Returns the index in `bundles` of a switch index.
fn slot(place: SwitchIndex) -> Option<usize> {
    usize::try_from(place.checked_sub(FIRST)?).ok()
}

impl Uplinks {
    /// Returns the bundle at a switch index.
    fn get(&self, place: SwitchIndex) -> Option<&Bundle> {
        self.bundles.get(slot(place)?)?.as_ref()
    }

    /// Returns the bundle at a switch index.
    fn get_mut(&mut self, place: SwitchIndex) -> Option<&mut Bundle> {
        self.bundles.get_mut(slot(place)?)?.as_mut()
    }

    /// Adds a link, which is down, or a station. Returns the switch index of its bundle.
    ///
    /// # Errors
    /// Returns [`CommandError::Full`] if the group has [`LINKS_PER_GROUP_MAX`] links.
    pub fn join(&mut self, member: Membership) -> Result<SwitchIndex, CommandError> {
        let is_station = member.station.is_some();
        let links = self.links.len().saturating_sub(self.stations);
        if !is_station && links >= LINKS_PER_GROUP_MAX {
            let text =
                format!("there are {LINKS_PER_GROUP_MAX} links in this group already: delete one");
            return Err(CommandError::Full(text));
        }
        let same = |bundle: &Option<Bundle>| {
            let links = bundle.as_ref().filter(|bundle| !bundle.is_station && !is_station);
            links.is_some_and(|bundle| bundle.peer == member.peer)
        };
        let at = match self.bundles.iter().position(same) {
            Some(at) => at,
            None => {
                let free = self.bundles.iter().position(Option::is_none);
                let at = free.unwrap_or(self.bundles.len());
                if at == self.bundles.len() {
                    self.bundles.push(None);
                }
                at
            }
        };
        self.links.insert(member.id, at);
        self.stations = self.stations.saturating_add(usize::from(is_station));
        if let Some(entry) = self.bundles.get_mut(at) {
            let bundle = entry.get_or_insert_with(|| Bundle {
                peer: member.peer.clone(),
                links: Vec::new(),
                active: None,
                needs_flush: false,
                counters: PortCounters::default(),
                withheld: 0,
                is_station,
            });
            bundle.flush();
            let (up, poor, is_dormant, standby) = (is_station, false, false, false);
            bundle.links.push(BundleLink { member, up, poor, is_dormant, standby });
            bundle.choose();
        }
        self.update_up();
        Ok(place(at))
    }

    /// Replaces the carrier of a link.
    pub fn replace(&mut self, id: LinkId, carrier: Box<dyn Carrier>) {
        let bundle = self.links.get(&id).and_then(|at| self.bundles.get_mut(*at)?.as_mut());
        let Some(bundle) = bundle else { return };
        bundle.flush();
        if let Some(link) = bundle.links.iter_mut().find(|link| link.member.id == id) {
            link.member.carrier = carrier;
        }
    }

    /// Removes a link. Returns the switch index that is free now, if it was the last link to its
    /// peer.
    pub fn leave(&mut self, id: LinkId) -> Option<SwitchIndex> {
        let at = self.links.remove(&id)?;
        let entry = self.bundles.get_mut(at)?;
        let bundle = entry.as_mut()?;
        bundle.flush();
        bundle.links.retain(|link| link.member.id != id);
        bundle.choose();
        let empty = bundle.links.is_empty();
        self.stations = self.stations.saturating_sub(usize::from(bundle.is_station));
        if empty {
            *entry = None;
        }
        self.update_up();
        empty.then(|| place(at))
    }

    /// Sets the standing of a link. Returns the switch index if its bundle came up or went down.
    pub fn set_standing(&mut self, id: LinkId, standing: LinkStatus) -> Option<SwitchIndex> {
        let at = *self.links.get(&id)?;
        let bundle = self.bundles.get_mut(at)?.as_mut()?;
        bundle.flush();
        let link = bundle.links.iter_mut().find(|link| link.member.id == id)?;
        (link.up, link.poor, link.is_dormant) = (standing.up, standing.poor, standing.is_dormant);
        if standing.is_dormant {
            link.member.carrier.release();
        }
        let before = bundle.active.is_some();
        bundle.choose();
        let changed = bundle.active.is_some() != before;
        self.update_up();
        changed.then(|| place(at))
    }

    /// Sets whether a link stands by. Returns the switch index if its bundle came up or went down.
    pub fn set_standby(&mut self, id: LinkId, standby: bool) -> Option<SwitchIndex> {
        let at = *self.links.get(&id)?;
        let bundle = self.bundles.get_mut(at)?.as_mut()?;
        bundle.flush();
        let link = bundle.links.iter_mut().find(|link| link.member.id == id)?;
        link.standby = standby;
        let before = bundle.active.is_some();
        bundle.choose();
        let changed = bundle.active.is_some() != before;
        self.update_up();
        changed.then(|| place(at))
    }

    /// Returns every link and station, with its switch index.
    pub fn members(&self) -> impl Iterator<Item = (SwitchIndex, LinkInfo<'_>)> {
        self.bundles.iter().enumerate().flat_map(|(at, bundle)| {
            let links = bundle.iter().flat_map(|bundle| &bundle.links);
            links.map(move |BundleLink { member, up, standby, .. }| {
                let Membership { id, transit, segment, .. } = member;
                let known = LinkInfo {
                    id: *id,
                    name: &member.name,
                    up: *up,
                    transit: *transit,
                    segment: *segment,
                    standby: *standby,
                };
                (place(at), known)
            })
        })
    }

    /// Returns whether a link stands by.
    #[inline]
    pub fn is_standby(&self, id: LinkId) -> bool {
        self.standbys > 0 && self.members().any(|(_, known)| known.id == id && known.standby)
    }

    /// Sends a frame of the daemon itself by a link, whether the link is active or not, and flushes
    /// its carrier. No effect while the link is down.
    pub fn send_by(&mut self, id: LinkId, frame: &Outgoing<'_>) {
        let bundle = self.links.get(&id).and_then(|at| self.bundles.get_mut(*at)?.as_mut());
        let Some(bundle) = bundle else { return };
        let link = bundle.links.iter_mut().find(|link| link.member.id == id && link.up);
        if let Some(link) = link {
            // A lost frame is counted at the link; the next hello follows soon.
            let _ = link.member.carrier.push(frame);
            link.member.carrier.flush();
        }
    }

    /// Recomputes the values that depend on all bundles: `up`, `transit` and `standbys`.
    fn update_up(&mut self) {
        let links = || self.bundles.iter().flatten().flat_map(|bundle| &bundle.links);
        let standbys = links().filter(|link| link.standby).count();
        let dormant = links().filter(|link| link.is_dormant).count();
        (self.standbys, self.dormant) = (standbys, dormant);
        let up = self.bundles.iter().enumerate();
        let is_up = |bundle: &Bundle| bundle.active.is_some() && !bundle.is_station;
        let up = up.filter(|(_, bundle)| bundle.as_ref().is_some_and(is_up));
        self.up = up.map(|(at, _)| place(at)).collect();
        self.transit = self.up.iter().any(|at| self.is_transit(*at));
    }

    /// Returns whether a bundle is up.
    pub fn is_up(&self, place: SwitchIndex) -> bool {
        self.get(place).is_some_and(|bundle| bundle.active.is_some())
    }

    /// Returns the switch indices of the bundles of links that are up.
    #[inline]
    pub fn up(&self) -> &[SwitchIndex] {
        &self.up
    }

    /// Returns the switch index of a link.
    pub fn place_of(&self, id: LinkId) -> Option<SwitchIndex> {
        self.links.get(&id).map(|at| place(*at))
    }

    /// Returns the switch index of a link, by name.
    pub fn place_named(&self, name: &Name) -> Option<SwitchIndex> {
        let has = |bundle: &Bundle| {
            !bundle.is_station && bundle.links.iter().any(|link| link.member.name == *name)
        };
        let at = self.bundles.iter().position(|bundle| bundle.as_ref().is_some_and(has));
        at.map(place)
    }

    /// Returns all stations, with their switch index and the name of their port.
    pub fn stations(&self) -> impl Iterator<Item = (SwitchIndex, &Name, &Station)> {
        let members = self.bundles.iter().enumerate().filter(|_| self.stations > 0);
        members.filter_map(|(at, bundle)| {
            let member = &bundle.as_ref()?.links.first()?.member;
            Some((place(at), &member.name, member.station.as_ref()?))
        })
    }

    /// Returns the station at a switch index, if it is a station.
    pub fn station(&self, place: SwitchIndex) -> Option<&Station> {
        if self.stations == 0 {
            return None;
        }
        let bundle = self.get(place).filter(|bundle| bundle.is_station)?;
        bundle.links.first()?.member.station.as_ref()
    }

    /// Returns whether a switch index belongs to a station.
    pub fn is_station(&self, place: SwitchIndex) -> bool {
        self.stations > 0 && self.get(place).is_some_and(|bundle| bundle.is_station)
    }

    /// Returns the name of the link that carries a bundle's frames, or would.
    pub fn name(&self, place: SwitchIndex) -> Option<&Name> {
        let bundle = self.get(place)?;
        bundle.active().or(bundle.links.first()).map(|link| &link.member.name)
    }

    /// Returns whether both switch indices belong to stations of one service.
    pub fn are_stations_of_one_service(&self, a: SwitchIndex, b: SwitchIndex) -> bool {
        let stations = self.station(a).zip(self.station(b));
        stations.is_some_and(|(a, b)| a.policy.is(&b.policy))
    }

    /// Returns whether frames that arrived by one link or station may leave by another.
    pub fn may_pass(&self, from: SwitchIndex, to: SwitchIndex) -> bool {
        let may = |place| self.is_transit(place) || self.is_station(place);
        from != to && (may(from) || may(to))
    }

    /// Returns whether a bundle's active link is for transit.
    pub fn is_transit(&self, place: SwitchIndex) -> bool {
        self.get(place).and_then(Bundle::active).is_some_and(|link| link.member.transit)
    }

    /// Returns whether any active link is for transit.
    pub const fn any_transit(&self) -> bool {
        self.transit
    }

    /// Returns whether the active link of a bundle is dormant.
    #[inline]
    pub fn is_dormant(&self, place: SwitchIndex) -> bool {
        let active = || self.get(place).and_then(Bundle::active);
        self.dormant > 0 && active().is_some_and(|link| link.is_dormant)
    }

    /// Counts a flooded frame that did not wake a dormant link.
    pub fn count_withheld(&mut self, place: SwitchIndex) {
        if let Some(bundle) = self.get_mut(place) {
            bundle.withheld = bundle.withheld.wrapping_add(1);
        }
    }

    /// Counts a frame from a bundle that was dropped.
    pub fn count_drop(&mut self, place: SwitchIndex, why: DropReason) {
        let Some(bundle) = self.get_mut(place) else { return };
        bundle.counters.count_drop(why);
        if let Some(link) = bundle.active_mut() {
            link.member.carrier.count_drop(why.counter());
        }
    }

    /// Counts a claim of the bundle's peer to the address of a running local guest.
    pub fn count_contested(&mut self, place: SwitchIndex) {
        if let Some(bundle) = self.get_mut(place) {
            bundle.counters.contested = bundle.counters.contested.wrapping_add(1);
        }
    }

    /// Returns the peer of a bundle.
    pub fn peer(&self, place: SwitchIndex) -> Option<&str> {
        self.get(place).map(|bundle| bundle.peer.as_str())
    }

    /// Returns the drop counters of each bundle, its contested addresses, the flooded frames that did
    /// not wake it, and whether the link stands by (`standby`, 0 or 1), by the link that represents the bundle: its active link, else
    /// its first. With an `id`, only those of the bundle that this link represents.
    pub fn drops(&self, id: Option<LinkId>) -> Vec<(LinkId, BTreeMap<String, u64>)> {
        let of = |bundle: &Bundle| {
            let link = bundle.active().or(bundle.links.first())?;
            if id.is_some_and(|id| id != link.member.id) {
                return None;
            }
            let drops = bundle.counters.by_name().into_iter();
            let drops = drops.filter(|(name, _)| name.starts_with("drop_") || name == CONTESTED);
            let standby = ("standby".to_owned(), u64::from(link.standby));
            let withheld = (WITHHELD.to_owned(), bundle.withheld);
            Some((link.member.id, drops.chain([standby, withheld]).collect()))
        };
        match id {
            None => self.bundles.iter().flatten().filter_map(of).collect(),
            Some(id) => {
                let at = self.links.get(&id).and_then(|at| self.bundles.get(*at));
                at.into_iter().flatten().filter_map(of).collect()
            }
        }
    }

    /// Returns the active carrier of a bundle.
    pub fn carrier(&mut self, place: SwitchIndex) -> Option<&mut (dyn Carrier + 'static)> {
        let bundle = self.bundles.get_mut(slot(place)?)?.as_mut()?;
        if !std::mem::replace(&mut bundle.needs_flush, true) {
            self.unflushed.push(place);
        }
        bundle.active_mut().map(|link| &mut *link.member.carrier)
    }

    /// Returns whether a bundle's active carrier takes frames with pending offloads.
    pub fn takes_offloads(&self, place: SwitchIndex) -> bool {
        let active = self.get(place).and_then(Bundle::active);
        active.is_some_and(|link| link.member.carrier.takes_offloads())
    }

    /// Flushes the frames that carriers took.
    pub fn flush(&mut self) {
        let mut unflushed = std::mem::take(&mut self.unflushed);
        for place in unflushed.drain(..) {
            if let Some(bundle) = self.get_mut(place) {
                bundle.flush();
            }
        }
        self.unflushed = unflushed;
    }

    /// Announces to every subscribed peer that an address is here, or no longer is.
    pub fn announce(&self, mac: Mac, here: bool) {
        if let Some(changes) = &self.address_changes {
            changes.fetch_add(1, Ordering::Release);
        }
        for link in self.bundles.iter().flatten().flat_map(|bundle| &bundle.links) {
            notify(&link.member, mac, here);
        }
    }

    /// Counts each later change of the addresses that are here.
    pub fn count_address_changes(&mut self, changes: Arc<AtomicU64>) {
        self.address_changes = Some(changes);
    }

    /// Announces addresses to the peer behind one link.
    pub fn announce_by(&self, id: LinkId, macs: impl Iterator<Item = Mac>) {
        let bundle = self.links.get(&id).and_then(|at| self.bundles.get(*at)?.as_ref());
        let link = bundle.and_then(|b| b.links.iter().find(|link| link.member.id == id));
        if let Some(link) = link {
            macs.for_each(|mac| notify(&link.member, mac, true));
        }
    }
}

/// Informs the link service that an address is here, or no longer is. A full queue is logged.
fn notify(member: &Membership, mac: Mac, here: bool) {
    let Some(notices) = &member.notices else { return };
    let notice = if here {
        Notice::AddressAdded(member.id, mac)
    } else {
        Notice::AddressRemoved(member.id, mac)
    };
    if notices.push(notice).is_err() {
        log::error!(link = member.name.as_str(); "cannot announce an address: the queue of notices to the links is full or closed; the peer keeps flooding frames to the address");
    }
}

/// Pushes a frame to a carrier. A refusal is the reason for which the caller drops the frame and
/// counts it at its sender; most carriers count it for the link as well.
#[inline]
pub(crate) fn push(carrier: &mut dyn Carrier, frame: &Outgoing<'_>) -> Result<(), DropReason> {
    carrier.push(frame).map_err(|refusal| match refusal {
        Refusal::Down => DropReason::LinkDown,
        Refusal::NoRoom => DropReason::NoBuffer,
        Refusal::TooBig => DropReason::TooBig,
        Refusal::Lost => DropReason::SenderFault,
        Refusal::MacControl => DropReason::LinkLocal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl Carrier for Nowhere {
        fn push(&mut self, _: &Outgoing<'_>) -> Result<(), Refusal> {
            Ok(())
        }
        fn flush(&mut self) -> u64 {
            0
        }
        fn takes_offloads(&self) -> bool {
            true
        }
        fn longest(&self) -> usize {
            1514
        }
    }

    fn member(id: u32, peer: &str, metric: u16) -> Membership {
        Membership {
            id: LinkId(id),
            name: format!("l{id}").parse().unwrap(),
            peer: peer.into(),
            metric,
            transit: id == 9,
            segment: false,
            notices: None,
            station: None,
            carrier: Box::new(Nowhere),
        }
    }

    fn name(uplinks: &Uplinks, place: SwitchIndex) -> &str {
        uplinks.name(place).unwrap().as_str()
    }

    #[test]
    fn links_to_one_peer_replace_each_other() {
        let mut uplinks = Uplinks::default();
        let up = LinkStatus { up: true, poor: false, rtt_ns: None, is_dormant: false };
        let down = LinkStatus { up: false, poor: false, rtt_ns: None, is_dormant: false };
        let a = uplinks.join(member(1, "a", 100)).unwrap();
        assert_eq!(uplinks.join(member(2, "a", 50)).unwrap(), a);
        let b = uplinks.join(member(3, "b", 100)).unwrap();
        assert!(is_link(a) && a != b && uplinks.up().is_empty());
        assert_eq!(uplinks.set_standing(LinkId(1), up), Some(a));
        assert_eq!((name(&uplinks, a), uplinks.up()), ("l1", &[a][..]));
        assert_eq!(uplinks.set_standing(LinkId(2), up), None, "the bundle was up already");
        assert_eq!(name(&uplinks, a), "l2", "the link with the lower metric");
        assert_eq!(uplinks.set_standing(LinkId(2), down), None);
        assert_eq!(name(&uplinks, a), "l1");
        assert_eq!(uplinks.set_standing(LinkId(1), down), Some(a));
        assert!(uplinks.up().is_empty());
        assert_eq!(uplinks.leave(LinkId(1)), None);
        assert_eq!(uplinks.leave(LinkId(2)), Some(a));
        assert_eq!(uplinks.join(member(4, "c", 1)).unwrap(), a, "the switch index is free again");
    }

    #[test]
    fn frames_pass_between_links_only_where_that_is_allowed() {
        let mut uplinks = Uplinks::default();
        let up = LinkStatus { up: true, poor: false, rtt_ns: None, is_dormant: false };
        let places: Vec<SwitchIndex> = [(1, "a"), (2, "b"), (9, "c")]
            .map(|(id, peer)| {
                let place = uplinks.join(member(id, peer, 1)).unwrap();
                uplinks.set_standing(LinkId(id), up);
                place
            })
            .to_vec();
        assert!(!uplinks.may_pass(places[0], places[1]));
        assert!(uplinks.may_pass(places[0], places[2]) && uplinks.may_pass(places[2], places[1]));
        assert!(!uplinks.may_pass(places[2], places[2]), "not back to the ingress");
    }
}
