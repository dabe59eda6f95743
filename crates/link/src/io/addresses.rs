//! Address claims, exchanged between groups and peers.
//!
//! Groups notify the service of their ports' addresses; it claims them in the group's directory and
//! announces them through the tunnels. Peers' claims come as reports; the directory decides who
//! owns an address, and the group learns of changes of the owner.

use std::collections::BTreeMap;

use causeway_directory::{Change, MacKey, Place, Source as _};
use causeway_fabric::carrier::{LinkId, Message, Notice};
use causeway_fabric::{Context, Progress, Served};
use causeway_model::Mac;
use causeway_model::Name;

use super::limits::{NOTICES_PER_TURN_MAX, REPEAT_CLAIMS_NS};
use super::service::{LinkSource, Links, SourceKind, wall_ns, with_clock};
use super::tunnels::TunnelSocket;

/// Pending address changes for groups: the latest state of each address, by link. A peer that
/// changes an address repeatedly causes at most two messages at a time; changes that a group's
/// mailbox has no room for wait here.
#[derive(Debug, Default)]
pub(super) struct PendingChanges(BTreeMap<LinkId, BTreeMap<[u8; 6], bool>>);

impl PendingChanges {
    fn add(&mut self, link: LinkId, here: bool, mac: [u8; 6]) {
        self.0.entry(link).or_default().insert(mac, here);
    }

    /// Returns whether changes wait for a group.
    pub(super) fn is_pending(&self) -> bool {
        !self.0.is_empty()
    }
}

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

impl Links {
    /// Applies reports of peers to the directories, and passes changes on to groups.
    pub(super) fn apply_reports(&mut self) {
        let mut reports = Vec::new();
        for source in self.sources.values_mut() {
            if let SourceKind::Tunnels(socket) = &mut source.kind {
                socket.take_reports(&mut reports);
            }
        }
        let mut pending_changes = std::mem::take(&mut self.pending_changes);
        for report in reports {
            let Place::Link(id) = report.place() else { continue };
            let Some(link) = self.links.get(&LinkId(id)) else { continue };
            let group = link.spec.group.clone();
            let directory = self.directories.entry(group.clone()).or_default();
            let changes = directory.apply(report, wall_ns());
            self.record_changes(&group, changes, &mut pending_changes);
        }
        self.pending_changes = pending_changes;
        self.send_changes();
    }

    /// Records changes of owners for a group.
    fn record_changes(
        &self,
        group: &Name,
        changes: impl IntoIterator<Item = Change<MacKey>>,
        pending_changes: &mut PendingChanges,
    ) {
        let whose = |at| {
            let mut links = self.links.iter();
            links.find(|(id, link)| place(**id) == at && link.spec.group == *group)
        };
        for Change { key: (_, mac), from, to } in changes {
            if let Some((id, _)) = to.and_then(whose) {
                pending_changes.add(*id, true, mac);
            } else if let Some((id, _)) = from.and_then(whose) {
                pending_changes.add(*id, false, mac);
            }
        }
    }

    pub(super) fn pass_on_changes(
        &mut self,
        group: &Name,
        changes: impl IntoIterator<Item = Change<MacKey>>,
    ) {
        let mut pending_changes = std::mem::take(&mut self.pending_changes);
        self.record_changes(group, changes, &mut pending_changes);
        self.pending_changes = pending_changes;
        self.send_changes();
    }

    /// Sends pending changes to groups, as far as their mailboxes have room.
    fn send_changes(&mut self) {
        let Self { pending_changes, links, .. } = self;
        // Removals first: an address that moved from one link to another then ends at the latter.
        for here in [false, true] {
            for (id, macs) in &mut pending_changes.0 {
                let Some(link) = links.get(id) else {
                    macs.clear();
                    continue;
                };
                let of = macs.iter().filter(|(_, is)| **is == here);
                let macs_sent: Vec<Mac> = of.map(|(mac, _)| Mac(*mac)).collect();
                if macs_sent.is_empty() {
                    continue;
                }
                let message = if here {
                    Message::Here(*id, macs_sent)
                } else {
                    Message::Gone(*id, macs_sent)
                };
                if link.inbox.send_reserved(message) {
                    macs.retain(|_, is| *is != here);
                }
            }
        }
        pending_changes.0.retain(|_, macs| !macs.is_empty());
    }

    /// Processes groups' notices about their addresses, and announces them to peers.
    pub(super) fn take_notices(&mut self, cx: &Context<'_>) -> Served {
        let Some(notices) = &self.notices else {
            return Served { progress: Progress::Parked, count: 0 };
        };
        let mut all = Vec::new();
        let count = notices.mailbox.take(NOTICES_PER_TURN_MAX, &mut all);
        let more = count > 0 || !notices.mailbox.arm();
        for notice in all {
            self.announce(cx.now_ns, notice);
        }
        let progress = if more { Progress::Worked } else { Progress::Parked };
        Served { progress, count: 0 }
    }

    fn announce(&mut self, now_ns: u64, notice: Notice) {
        let (Notice::Here(id, mac) | Notice::Gone(id, mac)) = notice;
        let Some(link) = self.links.get(&id) else { return };
        if let Some(LinkSource { kind: SourceKind::Raw(raw), .. }) =
            self.sources.get_mut(&link.source)
        {
            raw.announce(mac.0, matches!(notice, Notice::Here(..)));
            return;
        }
        let (group, source) = (link.spec.group.clone(), link.source);
        let directory = self.directories.entry(group.clone()).or_default();
        let epoch = match notice {
            Notice::Here(..) => Some(directory.claim_local((0, mac.0), wall_ns())),
            Notice::Gone(..) => {
                let change = directory.withdraw(Place::Here, (0, mac.0));
                self.pass_on_changes(&group, change);
                None
            }
        };
        let Some(socket) = tunnels(&mut self.sources, source) else { return };
        socket.announce(id, mac.0, epoch, now_ns);
        if epoch.is_none() {
            self.announce_over_quota(now_ns, source);
        }
        if let Some(socket) = tunnels(&mut self.sources, source) {
            with_clock(now_ns, |moment| socket.tick(moment));
        }
    }

    /// Announces addresses that exceeded a peer's quota before and now have room.
    fn announce_over_quota(&mut self, now_ns: u64, source: u32) {
        let Some(socket) = tunnels(&mut self.sources, source) else { return };
        for id in socket.over_quota() {
            let group = self.links.get(&id).map(|link| &link.spec.group);
            let Some(directory) = group.and_then(|group| self.directories.get(group)) else {
                continue;
            };
            for ((_, mac), epoch) in directory.local() {
                socket.announce(id, mac, Some(epoch), now_ns);
            }
        }
    }

    /// Requests peers' claims again, in groups whose directory was full and has room now.
    pub(super) fn repeat_missed_claims(&mut self, now_ns: u64) {
        if now_ns < self.repeat_ns {
            return;
        }
        self.repeat_ns = now_ns.saturating_add(REPEAT_CLAIMS_NS);
        for (group, directory) in &mut self.directories {
            if !directory.needs_repeat() {
                continue;
            }
            for (id, link) in self.links.iter().filter(|(_, link)| link.spec.group == *group) {
                if let Some(socket) = tunnels(&mut self.sources, link.source) {
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
        let mut pending_changes = PendingChanges::default();
        for turn in 0..100_000_u32 {
            pending_changes.add(LinkId(1), turn % 2 == 0, [2, 0, 0, 0, 0, (turn % 5) as u8]);
        }
        assert!(pending_changes.is_pending());
        assert_eq!(pending_changes.0[&LinkId(1)].len(), 5);
    }
}
