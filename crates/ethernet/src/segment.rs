//! Links to network segments: which of them stand by, so that frames for many go in no circle.
//!
//! An *attachment* is one link of one daemon to a segment; attachments are ordered by their daemons'
//! numbers. An attachment closes a loop if its daemon reaches the segment in another way as well: by
//! tunnels and by attachments of others. Of each loop the largest attachment stands by. What is left
//! is the minimum spanning tree of segments and daemons: no loop, and nothing is cut off. That is what
//! a designated forwarder is to EVPN (RFC 7432, 8.5), with segments that nobody has to number. Loops of
//! tunnels alone need none of it ([`crate::flood`], [`crate::echo`]).
//!
//! Each attachment says hello: *near* on its own segment, and *far* by all other links. A far hello is
//! passed on by daemons and carries the largest attachment that it crossed. So a daemon that hears the
//! near hello of another attachment on a segment, and its far hello by another link, knows the loop and
//! its largest attachment. Where a segment passes frames one way only, the largest may not hear that it
//! is to stand by: it does not list the other as its rival then, and that one stands by in its place.
//!
//! # Budget
//! A hello by each link for each attachment every [`HELLO_NS`], in groups that have links to segments
//! and links for transit; none in others.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use causeway_fabric::LogLimit;
use causeway_fabric::carrier::{Body, LinkId, Outgoing};
use causeway_fabric::limits::HOPS_MAX;
use causeway_wire::hello::{self, Attachment, Hello, LEN_MAX};
use causeway_wire::virtio_net::Offload;

use crate::limits::{ATTACHMENTS_MAX, HELLO_HOLD_NS, HELLO_LISTEN_NS, HELLO_NS, HELLO_SOON_NS};
use crate::uplink::{Known, Uplinks};

/// What was heard of an attachment by other links than those to its segment.
#[derive(Debug, Clone, Copy)]
struct Far {
    at_ns: u64,
    /// Of the newest hello.
    serial: u32,
    /// The largest attachment on the way; of the way on which it is smallest.
    crossed: Attachment,
}

/// What was heard of an attachment on a segment.
#[derive(Debug, Clone, Copy)]
struct Near {
    at_ns: u64,
    /// Whether it lists ours among its rivals.
    lists_us: bool,
}

/// What is known of the segment behind a link.
#[derive(Debug, Default)]
struct Segment {
    /// Since when the link is up.
    since_ns: u64,
    heard: BTreeMap<Attachment, Near>,
}

/// Links that are to stand by from now on, or no longer.
pub(crate) type Turns = Vec<(LinkId, bool)>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// The number of this group in hellos; 0 until one is needed.
    own: u64,
    serial: u32,
    /// By attachment, and whether it was heard by a link for transit.
    far: BTreeMap<(Attachment, bool), Far>,
    segments: BTreeMap<LinkId, Segment>,
    /// When hellos are said next.
    next_ns: Option<u64>,
    last_ns: u64,
    /// Of what is said of links that stand by: others on a segment may have that change often.
    pub log: LogLimit,
}

const fn is_recent(at_ns: u64, now_ns: u64) -> bool {
    now_ns < at_ns.saturating_add(HELLO_HOLD_NS)
}

impl Segments {
    /// When [`Self::tick`] has something to do.
    pub const fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    const fn ours(&self, link: LinkId) -> Attachment {
        Attachment { daemon: self.own, link: link.0 }
    }

    /// Links came, went, or changed their state.
    pub fn changed(&mut self, uplinks: &Uplinks, now_ns: u64) -> Turns {
        let any = uplinks.members().any(|(_, known)| known.transit);
        let mut old = std::mem::take(&mut self.segments);
        for (_, known) in uplinks.members().filter(|(_, known)| any && known.segment && known.up) {
            let new = || Segment { since_ns: now_ns, ..Segment::default() };
            self.segments.insert(known.id, old.remove(&known.id).unwrap_or_else(new));
        }
        if self.segments.is_empty() {
            self.next_ns = None;
        } else {
            if self.own == 0 {
                self.own = RandomState::new().hash_one(0).max(1);
            }
            self.say_soon(now_ns);
        }
        self.turns(uplinks, now_ns)
    }

    /// Has hellos said at once, or as soon as they may be.
    fn say_soon(&mut self, now_ns: u64) {
        let soon = self.last_ns.saturating_add(HELLO_SOON_NS).max(now_ns);
        self.next_ns = Some(self.next_ns.map_or(soon, |next| next.min(soon)));
    }

    /// The largest attachment on the best way from another attachment to a link of ours that does
    /// not cross its segment; `None` where there is no such way.
    fn way(&self, from: Attachment, to: Known<'_>, now_ns: u64) -> Option<Attachment> {
        if from.daemon == self.own {
            return Some(Attachment::default());
        }
        let by =
            |transit| self.far.get(&(from, transit)).filter(|far| is_recent(far.at_ns, now_ns));
        let any = by(false).filter(|_| to.transit);
        by(true).into_iter().chain(any).map(|far| far.crossed).min()
    }

    /// The attachments that are heard on the segment behind a link, each with the largest attachment
    /// on the other way to it.
    fn rivals<'a>(
        &'a self,
        link: Known<'a>,
        now_ns: u64,
    ) -> impl Iterator<Item = (Attachment, Near, Attachment)> + 'a {
        let heard = self.segments.get(&link.id).into_iter().flat_map(|segment| &segment.heard);
        let heard = heard.filter(move |(_, near)| is_recent(near.at_ns, now_ns));
        heard.filter_map(move |(from, near)| Some((*from, *near, self.way(*from, link, now_ns)?)))
    }

    /// Whether a link to a segment is to stand by.
    fn stands_by(&self, link: Known<'_>, now_ns: u64) -> bool {
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

    /// Says hello if it is time.
    pub fn tick(&mut self, uplinks: &mut Uplinks, now_ns: u64) -> Turns {
        if self.next_ns.is_none_or(|next| now_ns < next) {
            return Turns::new();
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
                // As frames from the segment leave.
                if !near && !at.transit && !by.transit {
                    continue;
                }
                let crossed =
                    if by.segment && !near { self.ours(by.id) } else { Attachment::default() };
                let hello = Hello { near, hops: 0, from, serial: self.serial, crossed };
                let rivals = self.rivals(at, now_ns).filter(|_| near);
                all.push((by.id, hello, rivals.map(|(other, ..)| other).collect::<Vec<_>>()));
            }
        }
        for (by, hello, rivals) in all {
            say(uplinks, by, &hello, &rivals);
        }
        self.turns(uplinks, now_ns)
    }

    /// The links whose part changes.
    fn turns(&self, uplinks: &Uplinks, now_ns: u64) -> Turns {
        let segments = uplinks.members().filter(|(_, known)| known.segment);
        let turns = segments.filter_map(|(_, known)| {
            let standby = self.stands_by(known, now_ns);
            (standby != known.standby).then_some((known.id, standby))
        });
        turns.collect()
    }

    /// A hello came by a link.
    pub fn heard(&mut self, uplinks: &mut Uplinks, by: LinkId, frame: &[u8], now_ns: u64) -> Turns {
        let Ok((hello, mut rivals)) = hello::parse(frame) else { return Turns::new() };
        let by = uplinks.members().find(|(_, known)| known.id == by);
        let Some((id, segment, transit)) = by.map(|(_, k)| (k.id, k.segment, k.transit)) else {
            return Turns::new();
        };
        let ours = self.ours(id);
        if hello.near {
            let near = Near { at_ns: now_ns, lists_us: rivals.any(|rival| rival == ours) };
            let Some(segment) = self.segments.get_mut(&id).filter(|_| hello.from != ours) else {
                return Turns::new();
            };
            let known = segment.heard.get(&hello.from).copied();
            if known.is_none() && segment.heard.len() >= ATTACHMENTS_MAX {
                return Turns::new();
            }
            segment.heard.insert(hello.from, near);
            if known.is_none_or(|known| known.lists_us != near.lists_us) {
                self.say_soon(now_ns);
            }
        } else if hello.from.daemon != self.own {
            let crossed = if segment { hello.crossed.max(ours) } else { hello.crossed };
            self.heard_far(uplinks, (id, transit), &Hello { crossed, ..hello }, now_ns);
        }
        if self.segments.is_empty() { Turns::new() } else { self.turns(uplinks, now_ns) }
    }

    /// A far hello is noted, and passed on if it came by a better way than before.
    fn heard_far(
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
        self.far.insert(key, Far { at_ns: now_ns, serial, crossed });
        if known.is_none() && !self.segments.is_empty() {
            self.say_soon(now_ns);
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
            say(uplinks, id, &hello, &[]);
        }
    }
}

/// Sends a hello by a link.
fn say(uplinks: &mut Uplinks, id: LinkId, hello: &Hello, rivals: &[Attachment]) {
    let mut frame = [0; LEN_MAX];
    let len = hello::emit(hello, rivals, &mut frame);
    let (head, rest) = frame.get(..len).and_then(|f| f.split_at_checked(14)).unwrap_or_default();
    let (offload, body) = (Offload::None, Body::Private(rest));
    uplinks.send_by(id, &Outgoing { offload: &offload, head, body, len, hops: 0, flood: None });
}
