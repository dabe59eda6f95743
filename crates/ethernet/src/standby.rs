//! Election of the forwarding links of network segments, so that flooded frames go in no loop.
//!
//! An *attachment* is one link of one daemon to a network segment. Attachments are ordered by the
//! numbers of their daemons. An attachment closes a loop if its daemon reaches the segment by
//! another path as well, through tunnels and attachments of other daemons. The largest attachment
//! of each loop stands by. The remaining links form the minimum spanning tree of segments and
//! daemons: no loop, and nothing is cut off. This is the role of EVPN's designated forwarder (RFC
//! 7432, 8.5), without configured segment numbers. Loops of tunnels alone need no election
//! ([`crate::flood_sequence`], [`crate::duplicates`]).
//!
//! Each attachment sends hellos: *near* hellos on its own segment, *far* hellos by all other links
//! (if its own link or the other is for transit; if its own is, by stations too). Daemons forward a
//! far hello with the largest attachment that it crossed. A daemon that receives the near hello of
//! another attachment on a segment, and its far hello by another link, therefore knows the loop and
//! its largest attachment. Where a segment passes frames in one direction only, the largest
//! attachment may not learn that it must stand by. It then does not list the other as its rival,
//! and the other stands by instead.
//!
//! `link_rx` passes received hellos and changes of links to the module, and applies the resulting
//! [`StandbyChanges`] to `uplink`; the timer of `service` sends due hellos. The module sends hellos
//! only, and forwards no frame. A link to a segment that came up, in a group with transit links,
//! stands by for [`HELLO_LISTEN_NS`] (700 ms) before it forwards. A segment that lost its
//! forwarding daemon has another within [`HELLO_HOLD_NS`] (1.2 s) and one [`HELLO_NS`]. Loops
//! outside the links of daemons are not detected. Hellos are not authenticated on a network
//! segment. At most [`ATTACHMENTS_MAX`] (256) attachments are tracked by far hellos, and as many on
//! each segment; hellos of further attachments are ignored, so a loop through them stays
//! ([`crate::duplicates`] then filters its frames). All of it runs in the dispatcher's thread of
//! the group.
//!
//! # Budget
//! A hello by each link for each attachment every [`HELLO_NS`] (300 ms), only in groups that have
//! links to network segments and transit links.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use causeway_fabric::LogLimit;
use causeway_fabric::carrier::{Body, LinkId, Outgoing};
use causeway_fabric::limits::HOPS_MAX;
use causeway_wire::hello::{self, Hello, LEN_MAX, SegmentAttachment};
use causeway_wire::virtio_net::Offload;

use crate::limits::{ATTACHMENTS_MAX, HELLO_HOLD_NS, HELLO_LISTEN_NS, HELLO_NS, HELLO_SOON_NS};
use crate::uplink::{LinkInfo, Uplinks};

/// An attachment as heard by links other than those to its segment.
#[derive(Debug, Clone, Copy)]
struct FarHello {
    /// Time at which the newest hello arrived.
    at_ns: u64,
    /// Serial number of the newest hello.
    serial: u32,
    /// The largest attachment on the path; of several paths, the smallest such value.
    crossed: SegmentAttachment,
}

/// An attachment as heard on its segment.
#[derive(Debug, Clone, Copy)]
struct NearHello {
    /// Time at which the newest hello arrived.
    at_ns: u64,
    /// Whether it lists our attachment among its rivals.
    lists_us: bool,
}

/// The state of the network segment behind a link.
#[derive(Debug, Default)]
struct SegmentState {
    /// Time since which the link is up.
    since_ns: u64,
    /// Attachments with near hellos that arrived by this link.
    heard: BTreeMap<SegmentAttachment, NearHello>,
}

/// Links that must stand by from now on, or no longer.
pub(crate) type StandbyChanges = Vec<(LinkId, bool)>;

/// The election state of a group.
#[derive(Debug, Default)]
pub(crate) struct ForwarderElection {
    /// Number of this group in hellos; 0 until it is needed.
    own: u64,
    /// Serial number of the last sent hellos; wraps.
    serial: u32,
    /// By attachment, and whether the hello arrived by a transit link.
    far: BTreeMap<(SegmentAttachment, bool), FarHello>,
    /// Links to network segments that take part in the election.
    segments: BTreeMap<LinkId, SegmentState>,
    /// Time of the next hellos, and of the last.
    next_ns: Option<u64>,
    last_ns: u64,
    /// Limits the log of standby changes, which peers on a segment can provoke.
    pub log: LogLimit,
}

/// Returns whether a hello received at `at_ns` is still valid.
const fn is_recent(at_ns: u64, now_ns: u64) -> bool {
    now_ns < at_ns.saturating_add(HELLO_HOLD_NS)
}

impl ForwarderElection {
    /// Returns the time of the next [`Self::tick`].
    pub const fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Returns the attachment of our link `link`.
    const fn ours(&self, link: LinkId) -> SegmentAttachment {
        SegmentAttachment { daemon: self.own, link: link.0 }
    }

    /// Handles links that came, went, or changed their state.
    pub fn links_changed(&mut self, uplinks: &Uplinks, now_ns: u64) -> StandbyChanges {
        let any = uplinks.members().any(|(_, known)| known.transit);
        let mut old = std::mem::take(&mut self.segments);
        for (_, known) in uplinks.members().filter(|(_, known)| any && known.segment && known.up) {
            let new = || SegmentState { since_ns: now_ns, ..SegmentState::default() };
            self.segments.insert(known.id, old.remove(&known.id).unwrap_or_else(new));
        }
        if self.segments.is_empty() {
            self.next_ns = None;
        } else {
            if self.own == 0 {
                self.own = RandomState::new().hash_one(0).max(1);
            }
            self.schedule_hello(now_ns);
        }
        self.changes(uplinks, now_ns)
    }

    /// Schedules hellos as soon as [`HELLO_SOON_NS`] (20 ms) allows.
    fn schedule_hello(&mut self, now_ns: u64) {
        let soon = self.last_ns.saturating_add(HELLO_SOON_NS).max(now_ns);
        self.next_ns = Some(self.next_ns.map_or(soon, |next| next.min(soon)));
    }

    /// Returns the largest attachment on the best path from `from` to our link `to` that does not
    /// cross the link's segment, or `None` without such a path.
    fn crossed_on_path(
        &self,
        from: SegmentAttachment,
        to: LinkInfo<'_>,
        now_ns: u64,
    ) -> Option<SegmentAttachment> {
        if from.daemon == self.own {
            return Some(SegmentAttachment::default());
        }
        let by =
            |transit| self.far.get(&(from, transit)).filter(|far| is_recent(far.at_ns, now_ns));
        let any = by(false).filter(|_| to.transit);
        by(true).into_iter().chain(any).map(|far| far.crossed).min()
    }

    /// Returns the attachments that are heard on the segment behind a link, each with the largest
    /// attachment on the other path to it.
    fn rivals<'a>(
        &'a self,
        link: LinkInfo<'a>,
        now_ns: u64,
    ) -> impl Iterator<Item = (SegmentAttachment, NearHello, SegmentAttachment)> + 'a {
        let heard = self.segments.get(&link.id).into_iter().flat_map(|segment| &segment.heard);
        let heard = heard.filter(move |(_, near)| is_recent(near.at_ns, now_ns));
        heard.filter_map(move |(from, near)| {
            Some((*from, *near, self.crossed_on_path(*from, link, now_ns)?))
        })
    }

    /// Returns whether a link to a segment must stand by.
    fn stands_by(&self, link: LinkInfo<'_>, now_ns: u64) -> bool {
        let Some(segment) = self.segments.get(&link.id) else { return false };
        if now_ns < segment.since_ns.saturating_add(HELLO_LISTEN_NS) {
            return true;
        }
        let ours = self.ours(link.id);
        self.rivals(link, now_ns).any(|(other, near, crossed)| {
            let largest = other.max(crossed);
            largest < ours || (largest == other && !near.lists_us)
        })
    }

    /// Sends hellos if they are due.
    pub fn tick(&mut self, uplinks: &mut Uplinks, now_ns: u64) -> StandbyChanges {
        if self.next_ns.is_none_or(|next| now_ns < next) {
            return StandbyChanges::new();
        }
        (self.last_ns, self.next_ns) = (now_ns, Some(now_ns.saturating_add(HELLO_NS)));
        self.far.retain(|_, far| is_recent(far.at_ns, now_ns));
        for segment in self.segments.values_mut() {
            segment.heard.retain(|_, near| is_recent(near.at_ns, now_ns));
        }
        self.serial = self.serial.wrapping_add(1);
        let mut all = Vec::new();
        let members = || uplinks.members().map(|(_, known)| known).filter(|known| known.up);
        for at in members().filter(|known| known.segment) {
            let from = self.ours(at.id);
            for by in members() {
                let near = by.id == at.id;
                // The same rule as for frames from the segment.
                if !near && !at.transit && !by.transit {
                    continue;
                }
                let crossed = if by.segment && !near {
                    self.ours(by.id)
                } else {
                    SegmentAttachment::default()
                };
                let hello = Hello { near, hops: 0, from, serial: self.serial, crossed };
                let rivals = self.rivals(at, now_ns).filter(|_| near);
                all.push((by.id, hello, rivals.map(|(other, ..)| other).collect::<Vec<_>>()));
            }
        }
        for (by, hello, rivals) in all {
            send_hello(uplinks, by, &hello, &rivals);
        }
        self.changes(uplinks, now_ns)
    }

    /// Returns the links that begin or cease to stand by.
    fn changes(&self, uplinks: &Uplinks, now_ns: u64) -> StandbyChanges {
        let segments = uplinks.members().filter(|(_, known)| known.segment);
        let changes = segments.filter_map(|(_, known)| {
            let standby = self.stands_by(known, now_ns);
            (standby != known.standby).then_some((known.id, standby))
        });
        changes.collect()
    }

    /// Handles a hello that arrived by a link.
    pub fn receive_hello(
        &mut self,
        uplinks: &mut Uplinks,
        by: LinkId,
        frame: &[u8],
        now_ns: u64,
    ) -> StandbyChanges {
        let Ok((hello, mut rivals)) = hello::parse(frame) else { return StandbyChanges::new() };
        let by = uplinks.members().find(|(_, known)| known.id == by);
        let Some((id, segment, transit)) = by.map(|(_, k)| (k.id, k.segment, k.transit)) else {
            return StandbyChanges::new();
        };
        let ours = self.ours(id);
        if hello.near {
            let near = NearHello { at_ns: now_ns, lists_us: rivals.any(|rival| rival == ours) };
            let Some(segment) = self.segments.get_mut(&id).filter(|_| hello.from != ours) else {
                return StandbyChanges::new();
            };
            let known = segment.heard.get(&hello.from).copied();
            if known.is_none() && segment.heard.len() >= ATTACHMENTS_MAX {
                return StandbyChanges::new();
            }
            segment.heard.insert(hello.from, near);
            if known.is_none_or(|known| known.lists_us != near.lists_us) {
                self.schedule_hello(now_ns);
            }
        } else if hello.from.daemon != self.own {
            let crossed = if segment { hello.crossed.max(ours) } else { hello.crossed };
            self.receive_far_hello(uplinks, (id, transit), &Hello { crossed, ..hello }, now_ns);
        }
        if self.segments.is_empty() { StandbyChanges::new() } else { self.changes(uplinks, now_ns) }
    }

    /// Records a far hello, and forwards it if it came by a better path than before.
    fn receive_far_hello(
        &mut self,
        uplinks: &mut Uplinks,
        (by, transit): (LinkId, bool),
        hello: &Hello,
        now_ns: u64,
    ) {
        let key = (hello.from, transit);
        let known = self.far.get(&key).copied().filter(|far| is_recent(far.at_ns, now_ns));
        let Hello { serial, crossed, .. } = *hello;
        if known.is_some_and(|known| known.serial == serial && known.crossed <= crossed)
            || (known.is_none() && self.far.len() >= ATTACHMENTS_MAX)
        {
            return;
        }
        self.far.insert(key, FarHello { at_ns: now_ns, serial, crossed });
        if known.is_none() && !self.segments.is_empty() {
            self.schedule_hello(now_ns);
        }
        if hello.hops >= HOPS_MAX {
            return;
        }
        let members = uplinks.members().map(|(_, known)| known);
        let on = members.filter(|to| to.id != by && to.up && (to.transit || transit));
        let on: Vec<_> = on.map(|to| (to.id, to.segment)).collect();
        for (id, segment) in on {
            let crossed = if segment { crossed.max(self.ours(id)) } else { crossed };
            let hello = Hello { hops: hello.hops.saturating_add(1), crossed, ..*hello };
            send_hello(uplinks, id, &hello, &[]);
        }
    }
}

/// Sends a hello by a link.
fn send_hello(uplinks: &mut Uplinks, id: LinkId, hello: &Hello, rivals: &[SegmentAttachment]) {
    let mut frame = [0; LEN_MAX];
    let len = hello::emit(hello, rivals, &mut frame);
    let (head, rest) = frame.get(..len).and_then(|f| f.split_at_checked(14)).unwrap_or_default();
    let (offload, body) = (Offload::None, Body::Private(rest));
    uplinks.send_by(id, &Outgoing { offload: &offload, head, body, len, hops: 0, flood: None });
}
