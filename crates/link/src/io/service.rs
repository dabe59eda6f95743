//! The service of links: opens, closes, shows and serves them.
//!
//! [`Links`] is the single shard of all links of the daemon, and runs on one dispatcher at a time.
//! Requests arrive from `crate::io::control`, readiness and timers from the dispatcher, addresses
//! of the groups' ports and resolver answers through mailboxes. A *source* is a socket, listener or
//! connection that receives for one or more links, or one of the two mailboxes; the dispatcher
//! names it by a number, its source value.
//!
//! On the way of a received frame the dispatcher calls [`Service::serve_source`], the source splits
//! its bytes into frames, and the link's `LinkInbox` passes them to the group's shard. Frames to
//! send do not pass here, because groups call the link's [`Carrier`]; only queued frames of `tcp`
//! and `tls` links are written here too, when a full socket has room again or TLS has read.
//!
//! The service never waits for a peer or a resolver: names are resolved in threads of
//! [`super::names`], and sockets are non-blocking. Key and certificate files are read in its turn,
//! so a file system that blocks delays all links. It has no ports, retransmits nothing, and
//! forwards no frame from link to link. A turn takes at most [`NOTICES_PER_TURN_MAX`] (64) address
//! notices; the rest waits for the next turn. A request for a link that is closed has no effect.
//! The number of links is bounded by `crate::io::control` alone.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use causeway_attach::Model;
use causeway_fabric::carrier::{BufferPool, Carrier, LinkId, LinkStatus, Membership, Notice};
use causeway_fabric::limits::NOTICES_WAITING_MAX;
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_fabric::{Context, PortId, Progress, Service, ServiceWatch, SourceProgress};
use causeway_model::{CommandError, LinkKind, LinkSpec, PortSpec, RequestDispatch, ServiceRequest};

use super::addresses::AddressClaims;
use super::bare::BareSocket;
use super::inbox::LinkInbox;
use super::limits::NOTICES_PER_TURN_MAX;
use super::names::{NameResolver, ResolverAnswer};
use super::open::SourceKey;
use super::pending::{ClosedCarrier, Lookup, OpenRetry, log_unopened};
use super::raw::RawLink;
use super::request::{
    ApplyClaims, CloseLink, OnFailure, OpenLink, OpenedLink, ReadViews, ReloadKeys, StartLink,
};
use super::stats::LinkStats;
use super::stream::{StreamLink, StreamListener};
use super::tunnel_carrier::SegmentCarrier;
use super::tunnels::TunnelSocket;
use crate::clock::Clock;

/// Name of the service in configuration and counters.
pub(crate) const NAME: &str = "link";
/// Source value of the mailbox for notices of groups.
const NOTICES: u32 = u32::MAX;
/// Source value of the mailbox for answers of the resolver.
pub(super) const NAMES: u32 = u32::MAX - 1;
/// Source value of a link that is not open.
pub(super) const NO_SOURCE: u32 = u32::MAX - 2;

/// A configured link.
#[derive(Debug)]
pub(crate) struct LinkEntry {
    /// The configured link.
    pub spec: LinkSpec,
    /// Access to the group of the link.
    pub inbox: LinkInbox,
    /// The source that receives for the link.
    pub source: u32,
    /// The link's tunnel at its source, and its virtual network there.
    pub tunnel: Option<(u16, u32)>,
    /// Set while the link is not open.
    pub retry: Option<OpenRetry>,
    /// Set if the peer was given by name.
    pub lookup: Option<Lookup>,
}

/// A socket or connection that receives, for one or more links.
#[derive(Debug)]
pub(crate) struct LinkSource {
    /// Key by which further links find and share the source.
    pub local: SourceKey,
    pub kind: SourceKind,
    #[expect(dead_code, reason = "held for its drop")]
    /// Registration of its descriptor, if it has one descriptor for its whole life.
    pub watch: Option<ServiceWatch>,
}

/// The kinds of sources.
#[derive(Debug)]
pub(crate) enum SourceKind {
    /// UDP socket of `vnet` or `vxlan` links; shared.
    Bare(Box<BareSocket>),
    /// UDP socket of `causeway` or `causeway-plain` links; shared.
    Tunnels(Box<TunnelSocket>),
    /// Listening socket of `tcp` and `tls` links; shared. Carries no frames.
    Listener(Box<StreamListener>),
    /// The connections of one `tcp` or `tls` link.
    Stream(Box<StreamLink>),
    /// The packet socket of one `raw` link.
    Raw(Box<RawLink>),
}

/// Mailbox for notices of groups about their addresses.
#[derive(Debug)]
struct Notices {
    sender: Sender<Notice>,
    mailbox: Mailbox<Notice>,
}

/// Mailbox for answers of the resolver.
#[derive(Debug)]
pub(super) struct Names {
    pub sender: Sender<(LinkId, ResolverAnswer)>,
    pub mailbox: Mailbox<(LinkId, ResolverAnswer)>,
}

/// The service that owns all links of the daemon.
#[derive(Debug)]
pub struct Links {
    /// Pool of receive buffers, shared with all sources.
    pub(super) pool: BufferPool,
    pub(super) links: BTreeMap<LinkId, LinkEntry>,
    /// The identifier given to the last opened link.
    last: u32,
    /// By source value.
    pub(super) sources: BTreeMap<u32, LinkSource>,
    /// Created with the first link.
    notices: Option<Notices>,
    pub(super) claims: AddressClaims,
    /// Created with the first lookup.
    pub(super) names: Option<Names>,
    /// Resolves host names; the tests replace it.
    pub(super) resolver: NameResolver,
    /// The timer opens no link and resolves no name before this time.
    pub(super) pending_ns: u64,
}

impl Default for Links {
    fn default() -> Self {
        Self::with_resolver(causeway_model::draft::host::resolve)
    }
}

/// Returns the time of day, in ns since 1970.
pub(super) fn wall_ns() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)
}

/// Calls `act` with clock readings and the kernel's random generator.
pub(crate) fn with_clock<R>(now_ns: u64, act: impl FnOnce(&mut Clock<'_>) -> R) -> R {
    let mut random = |bytes: &mut [u8]| {
        let mut left = bytes;
        while !left.is_empty() {
            // After boot, getrandom(2) fails only if interrupted.
            let flags = rustix::rand::GetRandomFlags::empty();
            let done = rustix::rand::getrandom(&mut *left, flags).unwrap_or(0);
            left = left.get_mut(done..).unwrap_or(&mut []);
        }
    };
    act(&mut Clock { now: now_ns, wall: wall_ns(), random: &mut random })
}

impl Links {
    /// Returns a service without links.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a service without links, with its own resolver for peers' names.
    pub fn with_resolver(resolver: NameResolver) -> Self {
        Self {
            pool: BufferPool::default(),
            links: BTreeMap::new(),
            last: 0,
            sources: BTreeMap::new(),
            notices: None,
            claims: AddressClaims::default(),
            names: None,
            resolver,
            pending_ns: u64::MAX,
        }
    }

    /// Opens a link and returns its membership for the group. With [`OnFailure::Retry`], a link
    /// that cannot be opened is added in the state down.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        OpenLink { spec, to, segments, on_failure }: OpenLink,
    ) -> Result<OpenedLink, CommandError> {
        let spec = *spec;
        let notices = self.notices(cx)?;
        self.last = self.last.saturating_add(1);
        let id = LinkId(self.last);
        let (name, stats, pool) =
            (spec.name.clone(), Arc::<LinkStats>::default(), self.pool.clone());
        let inbox = LinkInbox { id, name, to, segments, stats, pool };
        let mut retry = None;
        let opened = if spec.is_unresolved() {
            let host = spec.remote_host.as_deref().unwrap_or_default();
            Err(CommandError::Host(format!("link {}: {host} is being resolved", spec.name)))
        } else {
            self.open_kind(cx, &spec, &inbox)
        };
        let (source, tunnel, carrier) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.drop_unused_sources();
                if on_failure == OnFailure::Refuse {
                    return Err(error);
                }
                if !spec.is_unresolved() {
                    log_unopened(&spec, &error);
                }
                retry = Some(OpenRetry::new(error.to_string(), cx.now_ns));
                (NO_SOURCE, None, Box::new(ClosedCarrier) as Box<dyn Carrier>)
            }
        };
        let named = spec.remote_host.is_some();
        let lookup = named.then(|| Lookup::new(spec.is_unresolved(), cx.now_ns));
        let exchanges_claims = matches!(
            spec.kind,
            LinkKind::Causeway(_) | LinkKind::CausewayPlain(_) | LinkKind::Raw(_)
        );
        let membership = |notices, carrier| Membership {
            id,
            name: spec.name.clone(),
            peer: spec.peer_label(),
            metric: spec.metric,
            transit: spec.transit,
            segment: matches!(spec.kind, LinkKind::Raw(_)),
            notices,
            station: None,
            carrier,
        };
        let segments = inbox.segments.is_some().then(|| {
            let carrier = self.segment_carrier(&spec, &inbox, source, tunnel);
            membership(None, carrier.unwrap_or_else(|| Box::new(ClosedCarrier)))
        });
        let frames = membership(exchanges_claims.then_some(notices), carrier);
        self.links.insert(id, LinkEntry { spec, inbox, source, tunnel, retry, lookup });
        self.pending_ns = self.pending_ns.min(self.pending_deadline());
        Ok(OpenedLink { frames, segments })
    }

    /// Returns the carrier for datagrams of the stream protocol of a link on a tunnel.
    pub(super) fn segment_carrier(
        &self,
        spec: &LinkSpec,
        inbox: &LinkInbox,
        source: u32,
        tunnel: Option<(u16, u32)>,
    ) -> Option<Box<dyn Carrier>> {
        let class = match &spec.kind {
            LinkKind::Causeway(tunnel) => tunnel.class,
            LinkKind::CausewayPlain(udp) => udp.class,
            _ => return None,
        };
        let (number, vni) = tunnel?;
        let SourceKind::Tunnels(socket) = &self.sources.get(&source)?.kind else { return None };
        let out = (inbox.stats.clone(), self.notice_sender());
        let carrier = socket.carrier(number, vni, class, out)?;
        Some(Box::new(SegmentCarrier::new(carrier)))
    }

    /// Returns the mailbox for notices of groups, and creates it with the first link.
    fn notices(&mut self, cx: &mut Context<'_>) -> Result<Sender<Notice>, CommandError> {
        if let Some(notices) = &self.notices {
            return Ok(notices.sender.clone());
        }
        let host = |e: std::io::Error| CommandError::Host(format!("mailbox: {e}"));
        let (sender, mailbox) = cx.mailbox(NOTICES_WAITING_MAX, NOTICES).map_err(host)?;
        self.notices = Some(Notices { sender: sender.clone(), mailbox });
        Ok(sender)
    }

    /// Drops sources that no link uses.
    pub(super) fn drop_unused_sources(&mut self) {
        let sources: HashSet<u32> = self.links.values().map(|link| link.source).collect();
        let used = |value: u32| sources.contains(&value);
        self.sources.retain(|value, source| match &mut source.kind {
            SourceKind::Listener(listener) => listener.keep(used),
            _ => used(*value),
        });
    }

    /// Starts a link after its group has joined it, and reports its state to the group.
    pub(super) fn start(&mut self, cx: &mut Context<'_>, id: LinkId) {
        let now_ns = cx.now_ns;
        let Some(link) = self.links.get(&id).filter(|link| link.retry.is_none()) else { return };
        let kind = self.sources.get_mut(&link.source).map(|source| &mut source.kind);
        match (kind, link.tunnel) {
            (Some(SourceKind::Tunnels(socket)), Some((number, vni))) => {
                with_clock(now_ns, |clock| socket.start(number, vni, clock));
            }
            (Some(SourceKind::Stream(stream)), _) => stream.start(cx),
            (Some(SourceKind::Raw(raw)), _) => raw.start(),
            _ => link.inbox.report_standing(LinkStatus {
                up: true,
                poor: false,
                rtt_ns: None,
                is_dormant: false,
            }),
        }
        self.claims.apply_reports(&self.links, &mut self.sources, now_ns);
    }

    /// Processes groups' notices about addresses of their ports.
    fn take_notices(&mut self, cx: &Context<'_>) -> SourceProgress {
        let Some(notices) = &self.notices else {
            return SourceProgress { progress: Progress::Parked, count: 0 };
        };
        let mut all = Vec::new();
        let count = notices.mailbox.take(NOTICES_PER_TURN_MAX, &mut all);
        let more = count > 0 || !notices.mailbox.arm();
        for notice in all {
            match notice {
                Notice::Wake(id) => self.wake(cx.now_ns, id),
                _ => self.claims.announce(&self.links, &mut self.sources, cx.now_ns, notice),
            }
        }
        let progress = if more { Progress::Worked } else { Progress::Parked };
        SourceProgress { progress, count: 0 }
    }

    /// Wakes the tunnel of a dormant link.
    fn wake(&mut self, now_ns: u64, id: LinkId) {
        let Some(LinkEntry { source, tunnel: Some((number, _)), .. }) = self.links.get(&id) else {
            return;
        };
        if let Some(LinkSource { kind: SourceKind::Tunnels(socket), .. }) =
            self.sources.get_mut(source)
        {
            with_clock(now_ns, |clock| socket.wake(*number, clock));
        }
    }

    /// Returns the sender of the mailbox for notices, if it was created.
    pub(super) fn notice_sender(&self) -> Option<Sender<Notice>> {
        self.notices.as_ref().map(|notices| notices.sender.clone())
    }

    /// Detaches a link from the source that it shares.
    pub(super) fn detach(&mut self, now_ns: u64, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        match self.sources.get_mut(&link.source).map(|source| &mut source.kind) {
            Some(SourceKind::Bare(socket)) => socket.remove(id),
            Some(SourceKind::Tunnels(socket)) => {
                with_clock(now_ns, |clock| socket.remove(id, clock));
            }
            // Dropped together with their links.
            Some(SourceKind::Listener(_) | SourceKind::Stream(_) | SourceKind::Raw(_)) | None => {}
        }
    }

    /// Removes a link, its claims, and its source if no other link uses it.
    fn close(&mut self, now_ns: u64, id: LinkId) {
        self.detach(now_ns, id);
        let Some(link) = self.links.remove(&id) else { return };
        self.claims.remove_link(&self.links, id, &link.spec.group);
        self.claims.announce_after_close(&self.links, &mut self.sources, (link.source, now_ns));
        self.drop_unused_sources();
    }
}

impl Service for Links {
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn added(&mut self, _cx: &mut Context<'_>, _port: PortId) -> Result<(), CommandError> {
        Err(CommandError::Invalid("links have no ports".into()))
    }

    fn removed(&mut self, _cx: &mut Context<'_>, _port: PortId) {}

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> SourceProgress {
        if value == NOTICES {
            return self.take_notices(cx);
        }
        if value == NAMES {
            return self.take_names(cx);
        }
        let Some(source) = self.sources.get_mut(&value) else {
            return SourceProgress { progress: Progress::Parked, count: 0 };
        };
        let polled = cx.polls_source(value);
        let served = match &mut source.kind {
            SourceKind::Bare(socket) => socket.serve(cx, budget, polled),
            SourceKind::Tunnels(socket) => socket.serve(cx, budget, polled),
            SourceKind::Stream(stream) => stream.serve(cx, budget),
            SourceKind::Raw(raw) => raw.serve(cx, budget, polled),
            SourceKind::Listener(_) => SourceProgress { progress: Progress::Parked, count: 0 },
        };
        self.claims.apply_reports(&self.links, &mut self.sources, cx.now_ns);
        // A source that is drained is watched; the descriptor's readiness wakes it.
        match served.progress {
            Progress::Idle if !polled => SourceProgress { progress: Progress::Parked, ..served },
            _ => served,
        }
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        let accepted = match self.sources.get_mut(&value).map(|source| &mut source.kind) {
            Some(SourceKind::Stream(stream)) => return stream.ready(cx, readable, writable),
            Some(SourceKind::Listener(listener)) => listener.accept(cx.now_ns),
            _ => return,
        };
        for (value, socket, from) in accepted {
            if let Some(LinkSource { kind: SourceKind::Stream(stream), .. }) =
                self.sources.get_mut(&value)
            {
                stream.accepted(cx, socket, from);
            }
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|open: OpenLink| self.open(cx, open))
            .on(|StartLink(id)| {
                self.start(cx, id);
                Ok(())
            })
            .on(|CloseLink(id)| {
                self.close(cx.now_ns, id);
                Ok(())
            })
            .on(|ReloadKeys| {
                self.reload(cx);
                Ok(())
            })
            .on(|stored: ApplyClaims| {
                self.claims.apply_stored(&self.links, &stored);
                Ok(())
            })
            .on(|ReadViews(id)| {
                let shown = self.links.iter().filter(|(of, _)| id.is_none_or(|id| id == **of));
                Ok(shown.map(|(_, link)| self.view(link, cx.now_ns)).collect())
            })
    }

    fn deadline_ns(&self) -> Option<u64> {
        let all = self.sources.values().filter_map(|source| match &source.kind {
            SourceKind::Tunnels(socket) => Some(socket.deadline()),
            SourceKind::Stream(stream) => Some(stream.deadline()),
            SourceKind::Raw(raw) => Some(raw.deadline()),
            SourceKind::Bare(_) | SourceKind::Listener(_) => None,
        });
        all.chain(self.claims.deadline_ns())
            .chain([self.pending_ns])
            .min()
            .filter(|at| *at != u64::MAX)
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        for source in self.sources.values_mut() {
            match &mut source.kind {
                SourceKind::Tunnels(socket) => with_clock(cx.now_ns, |clock| socket.tick(clock)),
                SourceKind::Stream(stream) if stream.deadline() <= cx.now_ns => stream.tick(cx),
                SourceKind::Raw(raw) => raw.tick(cx),
                _ => {}
            }
        }
        self.tick_pending(cx);
        self.claims.repeat_missed(&self.links, &mut self.sources, cx.now_ns);
        self.claims.apply_reports(&self.links, &mut self.sources, cx.now_ns);
    }

    fn counters(&self, _port: PortId) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}
