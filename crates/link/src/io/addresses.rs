//! Address claims, exchanged between groups and peers.
//!
//! A *claim* states that an address is at a port or peer since an epoch (here a time of day in ns,
//! not a map of grants). Groups notify the service of their ports' addresses; [`AddressClaims`]
//! claims them in the group's directory and announces them through the tunnels. Peers' claims
//! arrive as reports; the directory decides the ownership of each address, and the group receives
//! its changes. Claims that the cluster's directory has are verified: while such a claim gives an
//! address to a host, no claim of another peer is followed ([`AddressClaims::apply_stored`]).
//! For `raw` links the addresses of ports become the receive filter. `vnet`, `vxlan`
//! and stream links exchange no claims: `ethernet` learns addresses there.
//!
//! [`super::service`] calls the module in the shard of links, for each notice, after each turn of
//! another source and each tick, and when a link is started or closed. A closed link's claims are
//! removed; while a link is down, the directory decides by the reachability that the tunnel
//! reports. No frame passes here. A notice of a group that finds the mailbox of notices full is
//! logged by `ethernet` and lost. Changes that a group's mailbox has no room for wait here, the
//! latest state of each address only, and are sent again after [`RESEND_CHANGES_NS`] (10 ms).
//! Addresses above a peer's quota (`ADDRESSES_MAX`, 4,096) are announced after a withdrawal, or the
//! end of another link to the peer, made room; claims that found a full directory (`DIRECTORY_MAX`, 65,536) are requested again once it
//! has room, at most every [`REPEAT_CLAIMS_NS`] (1 s).

use std::collections::BTreeMap;

use causeway_directory::{Change, Directory, MacKey, Place, Report, Source as _};
use causeway_fabric::carrier::{LinkId, Message, Notice};
use causeway_model::{Mac, Name};

use super::limits::{REPEAT_CLAIMS_NS, RESEND_CHANGES_NS};
use super::request::ApplyClaims;
use super::service::{LinkEntry, LinkSource, SourceKind, wall_ns, with_clock};
use super::tunnels::TunnelSocket;

/// Pending address changes for groups: the latest state of each address, by link. A peer that
/// changes an address repeatedly causes at most two messages at a time; changes that a group's
/// mailbox has no room for wait here.
#[derive(Debug, Default)]
struct PendingChanges(BTreeMap<LinkId, BTreeMap<[u8; 6], bool>>);

impl PendingChanges {
    /// Adds the latest state of an address: at the far end of the link (`here`), or gone.
    fn add(&mut self, link: LinkId, here: bool, mac: [u8; 6]) {
        self.0.entry(link).or_default().insert(mac, here);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the tunnels of a source; `None` for a source of another kind.
fn tunnels(sources: &mut BTreeMap<u32, LinkSource>, source: u32) -> Option<&mut TunnelSocket> {
    match &mut sources.get_mut(&source)?.kind {
        SourceKind::Tunnels(socket) => Some(socket),
        _ => None,
    }
}

/// Returns the directory's name for the far end of a link.
pub(super) const fn place(id: LinkId) -> Place {
    Place::Link(id.0)
}

/// The links of the service, by identifier.
type LinkEntries = BTreeMap<LinkId, LinkEntry>;
/// The sources of the service, by source value.
type LinkSources = BTreeMap<u32, LinkSource>;

/// The owners of addresses by group, and changes of owners that groups have not accepted yet.
#[derive(Debug, Default)]
pub(super) struct AddressClaims {
    /// The directory of each group with links.
    directories: BTreeMap<Name, Directory<MacKey>>,
    /// Claims of each link's peer on addresses that a verified claim gives to another host.
    foreign: BTreeMap<LinkId, u64>,
    /// Changes of owners that groups have not accepted yet.
    changes: PendingChanges,
    /// When claims that found a directory full may be requested again.
    repeat_ns: u64,
    /// When reports were last applied, and pending changes sent again.
    applied_ns: u64,
}

impl AddressClaims {
    /// Applies reports of peers to the directories, and sends changes to groups.
    pub(super) fn apply_reports(
        &mut self,
        links: &LinkEntries,
        sources: &mut LinkSources,
        now_ns: u64,
    ) {
        self.applied_ns = now_ns;
        let mut reports = Vec::new();
        for source in sources.values_mut() {
            if let SourceKind::Tunnels(socket) = &mut source.kind {
                socket.take_reports(&mut reports);
            }
        }
        for report in reports {
            let Place::Link(id) = report.place() else { continue };
            let Some(link) = links.get(&LinkId(id)) else { continue };
            let group = &link.spec.group;
            let directory = self.directories.entry(group.clone()).or_default();
            if let Report::Claimed { place, key, .. } = report
                && directory.is_assigned_elsewhere(key, place)
            {
                let count = self.foreign.entry(LinkId(id)).or_default();
                *count = count.wrapping_add(1);
            }
            let changes = directory.apply(report, wall_ns());
            self.record_changes(links, group, changes);
        }
        self.send_changes(links);
    }

    /// Applies verified claims of a link's peer that the cluster's directory has. They come before
    /// those that tunnels report; a withdrawal has no effect on a claim with a newer epoch.
    pub(super) fn apply_stored(&mut self, links: &LinkEntries, stored: &ApplyClaims) {
        let Some(link) = links.get(&stored.link) else { return };
        let (group, at) = (&link.spec.group, place(stored.link));
        let others: Vec<Place> = stored.others.iter().copied().map(place).collect();
        let mut changes = Vec::new();
        let directory = self.directory(group);
        for (mac, epoch) in &stored.withdrawn {
            changes.extend(directory.unassign((0, *mac), at, *epoch));
        }
        for (mac, epoch) in &stored.claimed {
            changes.extend(directory.assign((0, *mac), (at, &others), *epoch, wall_ns()));
        }
        self.record_changes(links, group, changes);
        self.send_changes(links);
    }

    /// Removes the claims of a closed link, which `links` no longer has.
    pub(super) fn remove_link(&mut self, links: &LinkEntries, id: LinkId, group: &Name) {
        self.foreign.remove(&id);
        if let Some(directory) = self.directories.get_mut(group) {
            let changes = directory.remove_place(place(id));
            self.record_changes(links, group, changes);
            self.send_changes(links);
        }
        if !links.values().any(|link| link.spec.group == *group) {
            self.directories.remove(group);
        }
    }

    /// Returns the number of claims of a link's peer on addresses that a verified claim gives to
    /// another host.
    pub(super) fn foreign_of(&self, id: LinkId) -> u64 {
        self.foreign.get(&id).copied().unwrap_or(0)
    }

    /// Returns when pending changes are sent again.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let has_changes = !self.changes.is_empty();
        has_changes.then(|| self.applied_ns.saturating_add(RESEND_CHANGES_NS))
    }

    /// Returns the directory of a group.
    fn directory(&mut self, group: &Name) -> &mut Directory<MacKey> {
        self.directories.entry(group.clone()).or_default()
    }

    /// Records changes of owners for a group.
    fn record_changes(
        &mut self,
        links: &LinkEntries,
        group: &Name,
        changes: impl IntoIterator<Item = Change<MacKey>>,
    ) {
        let link_at = |at| {
            let mut links = links.iter();
            links.find(|(id, link)| place(**id) == at && link.spec.group == *group)
        };
        for Change { key: (_, mac), from, to } in changes {
            if let Some((id, _)) = to.and_then(link_at) {
                self.changes.add(*id, true, mac);
            } else if let Some((id, _)) = from.and_then(link_at) {
                self.changes.add(*id, false, mac);
            }
        }
    }

    /// Sends pending changes to groups, as far as their mailboxes have room.
    fn send_changes(&mut self, links: &LinkEntries) {
        // Removals first: an address that moved from one link to another then ends at the latter.
        for here in [false, true] {
            for (id, macs) in &mut self.changes.0 {
                let Some(link) = links.get(id) else {
                    macs.clear();
                    continue;
                };
                let changed = macs.iter().filter(|(_, is)| **is == here);
                let changed: Vec<Mac> = changed.map(|(mac, _)| Mac(*mac)).collect();
                if changed.is_empty() {
                    continue;
                }
                let message = if here {
                    Message::AddressAdded(*id, changed)
                } else {
                    Message::AddressRemoved(*id, changed)
                };
                if link.inbox.send_reserved(message) {
                    macs.retain(|_, is| *is != here);
                }
            }
        }
        self.changes.0.retain(|_, macs| !macs.is_empty());
    }

    /// Processes a group's notice about an address of its ports, and announces it to peers.
    pub(super) fn announce(
        &mut self,
        links: &LinkEntries,
        sources: &mut LinkSources,
        now_ns: u64,
        notice: Notice,
    ) {
        let (Notice::AddressAdded(id, mac) | Notice::AddressRemoved(id, mac)) = notice else {
            return;
        };
        let Some(link) = links.get(&id) else { return };
        if let Some(LinkSource { kind: SourceKind::Raw(raw), .. }) = sources.get_mut(&link.source) {
            raw.announce(mac.0, matches!(notice, Notice::AddressAdded(..)));
            return;
        }
        let group = &link.spec.group;
        let epoch = match notice {
            Notice::AddressAdded(..) => {
                Some(self.directory(group).claim_local((0, mac.0), wall_ns()))
            }
            Notice::AddressRemoved(..) | Notice::Wake(_) => {
                let change = self.directory(group).withdraw(Place::Here, (0, mac.0));
                self.record_changes(links, group, change);
                self.send_changes(links);
                None
            }
        };
        let Some(socket) = tunnels(sources, link.source) else { return };
        socket.announce(id, mac.0, epoch, now_ns);
        if epoch.is_none() {
            self.announce_over_quota(links, socket, now_ns);
        }
        with_clock(now_ns, |clock| socket.tick(clock));
    }

    /// Announces addresses that exceeded a peer's quota before a link of `source` was closed.
    pub(super) fn announce_after_close(
        &self,
        links: &LinkEntries,
        sources: &mut LinkSources,
        (source, now_ns): (u32, u64),
    ) {
        if let Some(socket) = tunnels(sources, source) {
            self.announce_over_quota(links, socket, now_ns);
            with_clock(now_ns, |clock| socket.tick(clock));
        }
    }

    /// Announces addresses that exceeded a peer's quota before and now have room.
    fn announce_over_quota(&self, links: &LinkEntries, socket: &mut TunnelSocket, now_ns: u64) {
        for id in socket.over_quota() {
            let group = links.get(&id).map(|link| &link.spec.group);
            let Some(directory) = group.and_then(|group| self.directories.get(group)) else {
                continue;
            };
            for ((_, mac), epoch) in directory.local() {
                socket.announce(id, mac, Some(epoch), now_ns);
            }
        }
    }

    /// Requests peers' claims again, in groups whose directory was full and has room now.
    pub(super) fn repeat_missed(
        &mut self,
        links: &LinkEntries,
        sources: &mut LinkSources,
        now_ns: u64,
    ) {
        if now_ns < self.repeat_ns {
            return;
        }
        self.repeat_ns = now_ns.saturating_add(REPEAT_CLAIMS_NS);
        for (group, directory) in &mut self.directories {
            if !directory.needs_repeat() {
                continue;
            }
            for (id, link) in links.iter().filter(|(_, link)| link.spec.group == *group) {
                if let Some(socket) = tunnels(sources, link.source) {
                    socket.repeat(place(*id));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_changes_are_coalesced_per_address() {
        let mut changes = PendingChanges::default();
        for turn in 0..100_000_u32 {
            changes.add(LinkId(1), turn % 2 == 0, [2, 0, 0, 0, 0, (turn % 5) as u8]);
        }
        assert!(!changes.is_empty());
        assert_eq!(changes.0[&LinkId(1)].len(), 5);
    }
}
