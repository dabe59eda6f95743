//! Sessions of guests' processes: their attachment, and the memory that they grant.
//!
//! A NIC with the option `adapter` serves the processes of the guest behind that port, which the
//! service of the port carries ([`causeway_fabric::guest_session`]). A session is attached as a
//! process ([`crate::client`]), and its requests are those of a host process; their memory is
//! registered memory of the guest.
//!
//! # Revocation
//! Every call of the service that may touch memory of a session is a *turn* of the gate: addition
//! and removal of a port, service of a source, events of a socket, and timers. A turn begins by
//! dropping the revoked memory: rings with their endpoint, regions, or all of a session. Between
//! two turns nothing of a session's memory is in use: `mxoe` copies lent bytes of unsent frames
//! before its turn ends. A revoked endpoint is closed without a look at its rings, so that requests
//! in it are lost, and peers learn that it closed.
//!
//! All that was revoked is detached before anything else happens. The closes behind it take time
//! for each peer of an endpoint, so at most [`CLOSES_PER_TURN_MAX`] (16) follow in a turn, except
//! at the removal of the NIC. Until its close a detached endpoint keeps its number, and events for
//! it are lost.
//!
//! # Limits
//! The rings of the endpoints of a port lie in at most
//! [`RUNS_PER_PORT_MAX`](crate::limits::RUNS_PER_PORT_MAX) runs of pages; an open beyond is
//! answered with `MX_NO_RESOURCES`, as is memory in too many places. Offers that break a rule end
//! the session. Quotas are those of the NIC's port ([`User::Guest`]).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use causeway_attach::local::LocalError;
use causeway_fabric::guest_session::{
    GateTurn, GuestMemory, GuestSession, RevokedItem, ServingEnd, SessionNotice, TurnGate,
};
use causeway_fabric::mailbox::{Mailbox, Sender};
use causeway_fabric::{Context, PortId, Progress, SourceProgress};
use causeway_model::{CommandError, Name};
use causeway_mxoe::driver::LentRegion;
use causeway_wire::mx::RegionId;

use crate::attachment::{AttachedSession, ProcessAttachment};
use crate::client::ClientProcess;
use crate::limits::{
    CLIENTS_PER_NIC_MAX, CLIENTS_PER_USER_MAX, CLOSE_NS, CLOSES_PER_TURN_MAX, NOTICES_PER_TURN_MAX,
    SESSION_NOTICES_MAX,
};
use crate::service::{MxService, SourceOwner};
use crate::user::User;

/// The guest behind the adapter of a NIC.
#[derive(Debug)]
pub(crate) struct GuestOfNic {
    /// Port of the adapter.
    adapter: Name,
    /// The port carries the sessions of its processes to the NIC.
    is_joined: bool,
    /// Sessions that began and were not refused.
    began_total: u64,
    /// Sessions that were refused at a limit.
    refused_total: u64,
    /// Sessions that ended because their process broke a rule or read no messages.
    pub failed_total: u64,
    /// Requests and doorbells that named an endpoint of another process.
    forged_total: u64,
    /// Rings and regions that the guest took away while they were in use.
    revoked_total: u64,
}

impl GuestOfNic {
    /// Returns the guest behind a port that may not exist yet.
    pub fn new(adapter: Name) -> Self {
        let (began_total, refused_total, failed_total) = (0, 0, 0);
        let (is_joined, forged_total, revoked_total) = (false, 0, 0);
        Self {
            adapter,
            is_joined,
            began_total,
            refused_total,
            failed_total,
            forged_total,
            revoked_total,
        }
    }

    /// Returns the port of the adapter.
    pub fn adapter(&self) -> &Name {
        &self.adapter
    }

    /// Returns whether the port carries the sessions of its processes to the NIC.
    pub fn is_joined(&self) -> bool {
        self.is_joined
    }

    /// Returns the condition that keeps the guest's processes from the NIC, with its remedy.
    pub fn warning(&self, group: &Name) -> Option<String> {
        let adapter = &self.adapter;
        (!self.is_joined).then(|| {
            format!(
                "the NIC waits for its adapter: group {group} has no port {adapter} of kind hca, \
                 so that no process of a guest reaches the NIC; add the port {adapter} to the group, \
                 or add this port with the adapter of the guest"
            )
        })
    }
}

/// Memory of a guest's process in use.
#[derive(Debug)]
pub(crate) struct GrantUse {
    pub port: PortId,
    pub endpoint: u8,
    /// The region; `None` for rings.
    pub region: Option<RegionId>,
    /// Runs of pages of mirrored rings.
    pub runs: usize,
    /// Held also for its drop: the carrying shard then forgets the memory.
    pub memory: GuestMemory,
}

impl GrantUse {
    /// Returns the number by which a revocation names the memory.
    pub fn memory_number(&self) -> u64 {
        self.memory.number()
    }
}

/// The sessions of the NICs of a group.
#[derive(Debug, Default)]
pub(crate) struct GuestSessions {
    /// `None` until the first NIC is joined to its adapter.
    open: Option<OpenSessions>,
    /// NICs by tag.
    nics: BTreeMap<u32, PortId>,
    next_tag: u32,
    /// Processes by the number of their session.
    clients: BTreeMap<u64, u32>,
    /// Memory in use, by its number.
    pub grants: BTreeMap<u64, GrantUse>,
    /// Endpoints and regions without their memory, which are still to be closed.
    detached: VecDeque<Detached>,
}

/// The mailbox and the gate of a shard with sessions.
#[derive(Debug)]
struct OpenSessions {
    gate: TurnGate,
    to: Sender<SessionNotice>,
    notices: Mailbox<SessionNotice>,
    /// Number by which the notices are served.
    source: u32,
}

impl GuestSessions {
    /// Returns the gate, if a NIC was ever joined to its adapter.
    pub fn gate(&self) -> Option<TurnGate> {
        self.open.as_ref().map(|open| open.gate.clone())
    }

    /// Returns the runs of pages of the rings of a port.
    pub fn runs_of(&self, port: PortId) -> usize {
        let its = self.grants.values().filter(|grant| grant.port == port);
        its.fold(0, |sum, grant| sum.saturating_add(grant.runs))
    }

    /// Forgets the memory of an endpoint.
    pub fn forget_endpoint(&mut self, port: PortId, endpoint: u8) {
        if !self.grants.is_empty() {
            self.grants.retain(|_, grant| (grant.port, grant.endpoint) != (port, endpoint));
        }
    }

    /// Forgets the memory of a region.
    pub fn forget_region(&mut self, port: PortId, endpoint: u8, region: RegionId) {
        let place = (port, endpoint, Some(region));
        self.grants.retain(|_, grant| (grant.port, grant.endpoint, grant.region) != place);
    }

    /// Returns the bytes of the memory of a port's guest in use: of all, and of mirrored rings.
    fn bytes_of(&self, port: PortId) -> (u64, u64) {
        let its = self.grants.values().filter(|grant| grant.port == port);
        its.fold((0, 0), |(all, mirrored), grant| {
            let len = grant.memory.len;
            let copied = if grant.runs > 0 { len } else { 0 };
            (u64::saturating_add(all, len), u64::saturating_add(mirrored, copied))
        })
    }

    /// Forgets a NIC.
    pub fn forget_nic(&mut self, port: PortId) {
        self.nics.retain(|_, nic| *nic != port);
    }

    /// Forgets a process.
    pub fn forget_client(&mut self, session: u64) {
        self.clients.remove(&session);
    }

    /// Returns whether an endpoint or region of a process is still to be closed.
    pub fn is_closing(&self, client: u32) -> bool {
        self.detached.iter().any(|detached| detached.client == client)
    }

    /// Takes an endpoint that is to be closed.
    pub fn take_detached_rings(&mut self, port: PortId, endpoint: u8) -> Option<DetachedMemory> {
        let at = self.detached.iter().position(|detached| {
            (detached.port, detached.endpoint) == (port, endpoint)
                && matches!(detached.memory, DetachedMemory::Rings(_))
        });
        Some(self.detached.remove(at?)?.memory)
    }
}

/// Begins a turn, if there is a gate. Returns it with the revoked memory and sessions.
pub(crate) fn enter(gate: Option<&TurnGate>) -> (Option<GateTurn<'_>>, Vec<RevokedItem>) {
    let mut turn = gate.map(TurnGate::enter);
    let revoked = turn.as_mut().map(GateTurn::take_revoked).unwrap_or_default();
    (turn, revoked)
}

impl MxService {
    /// Returns the end by which the sessions of a guest reach the NIC of a port.
    ///
    /// # Errors
    /// The host has no descriptor for the mailbox.
    fn serving_end(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
    ) -> Result<ServingEnd, CommandError> {
        if self.sessions.open.is_none() {
            let source = self.free_number();
            let host = |e: io::Error| CommandError::Host(format!("mailbox of a NIC: {e}"));
            let (to, notices) = cx.mailbox(SESSION_NOTICES_MAX, source).map_err(host)?;
            self.sources.insert(source, SourceOwner::Sessions);
            let gate = TurnGate::default();
            self.sessions.open = Some(OpenSessions { gate, to, notices, source });
        }
        let sessions = &mut self.sessions;
        let gone = || CommandError::Host("the NIC has no mailbox".into());
        sessions.forget_nic(port);
        let open = sessions.open.as_ref().ok_or_else(gone)?;
        let tag = sessions.next_tag;
        sessions.next_tag = tag.wrapping_add(1);
        sessions.nics.insert(tag, port);
        Ok(ServingEnd { to: open.to.clone(), gate: open.gate.clone(), tag })
    }

    /// Returns the end of the NIC of the port with this name.
    ///
    /// # Errors
    /// The port does not exist, or as for [`Self::serving_end`].
    pub(crate) fn serve_guest(
        &mut self,
        cx: &mut Context<'_>,
        name: &Name,
    ) -> Result<ServingEnd, CommandError> {
        let port = self.nics.iter().find(|(_, local_nic)| local_nic.port_name == *name);
        let missing = || CommandError::NotFound { what: "mx port", name: name.to_string() };
        let port = *port.ok_or_else(missing)?.0;
        self.serving_end(cx, port)
    }

    /// Notes whether a port carries the sessions of its guest to the NIC of the port with this
    /// name.
    pub(crate) fn guest_joined(&mut self, name: &Name, is_joined: bool) {
        let nic = self.nics.values_mut().find(|local_nic| local_nic.port_name == *name);
        if let Some(guest) = nic.and_then(|local_nic| local_nic.guest.as_mut()) {
            guest.is_joined = is_joined;
        }
    }

    /// Returns the counters of the sessions of a NIC; none if it has no adapter.
    pub(crate) fn session_counters(&self, port: PortId) -> Vec<(&'static str, u64)> {
        let guest = self.nics.get(&port).and_then(|local_nic| local_nic.guest.as_ref());
        let Some(guest) = guest else { return Vec::new() };
        let its = |client: &&ClientProcess| client.port == port && client.session().is_some();
        let (bytes, mirrored) = self.sessions.bytes_of(port);
        vec![
            ("guest_sessions", self.clients.values().filter(its).count() as u64),
            ("guest_sessions_begun_total", guest.began_total),
            ("guest_sessions_refused_total", guest.refused_total),
            ("guest_sessions_failed_total", guest.failed_total),
            ("guest_forged_requests_total", guest.forged_total),
            ("guest_memory_bytes", bytes),
            ("guest_mirrored_bytes", mirrored),
            ("guest_revocations_total", guest.revoked_total),
        ]
    }

    /// Notes that a process of a guest named an endpoint of another process, which has no effect.
    pub(crate) fn note_forged(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        endpoint: u8,
    ) {
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        let owner = local_nic.endpoints.get(&endpoint).map(|entry| entry.client);
        let Some(guest) = local_nic.guest.as_mut().filter(|_| owner.is_some_and(|o| o != value))
        else {
            return;
        };
        guest.forged_total = guest.forged_total.saturating_add(1);
        cx.note(
            port,
            format_args!(
                "a process of the guest named endpoint {endpoint} of another process: the request \
                 has no effect"
            ),
        );
    }

    /// Handles notices of carrying shards.
    pub(crate) fn serve_notices(&mut self, cx: &mut Context<'_>, value: u32) -> SourceProgress {
        let mut count = 0_u32;
        for _ in 0..NOTICES_PER_TURN_MAX {
            let next = self.sessions.open.as_ref().and_then(|open| open.notices.next());
            let Some(notice) = next else { break };
            count = count.saturating_add(1);
            match notice {
                SessionNotice::Began(tag, session) => self.attach_session(cx, tag, session),
                SessionNotice::Ready(number) => self.session_ready(cx, number),
                // The turn began with that.
                SessionNotice::Revoked => {}
            }
        }
        let has_closes = !self.sessions.detached.is_empty();
        let is_idle = count == 0 && !has_closes && !cx.awaits_source(value);
        let progress = match &self.sessions.open {
            Some(open) if is_idle && !open.notices.arm() => Progress::Worked,
            _ if is_idle => Progress::Parked,
            _ if count == 0 && !has_closes => Progress::Idle,
            _ => Progress::Worked,
        };
        SourceProgress { progress, count }
    }

    /// Attaches a process to the NIC of its adapter, or refuses it.
    fn attach_session(&mut self, cx: &mut Context<'_>, tag: u32, session: GuestSession) {
        // The revocation came before the notice, and found no process.
        if session.is_revoked() {
            return;
        }
        let attachment = AttachedSession(session);
        let Some(port) = self.sessions.nics.get(&tag).copied() else { return };
        let user = User::Guest(port);
        let its = self.clients.values().filter(|client| client.user == user).count();
        let group = cx.ports.get(port).map(|of| of.spec.group.clone());
        let (Some(local_nic), Some(group)) = (self.nics.get_mut(&port), group) else { return };
        let most = match its >= CLIENTS_PER_USER_MAX {
            true => Some(CLIENTS_PER_USER_MAX),
            false => (local_nic.clients >= CLIENTS_PER_NIC_MAX).then_some(CLIENTS_PER_NIC_MAX),
        };
        if let Some(most) = most {
            local_nic.refused_total = local_nic.refused_total.saturating_add(1);
            if let Some(guest) = &mut local_nic.guest {
                guest.refused_total = guest.refused_total.saturating_add(1);
            }
            cx.note(
                port,
                format_args!("a process of the guest was refused: {most} is the maximum"),
            );
            return;
        }
        local_nic.clients = local_nic.clients.saturating_add(1);
        if let Some(guest) = &mut local_nic.guest {
            guest.began_total = guest.began_total.saturating_add(1);
        }
        let value = self.free_number();
        let number = attachment.0.number();
        let wakes = Arc::default();
        let attachment = ProcessAttachment::Session(attachment);
        let attention = self.attention.clone();
        let user = (user, None);
        let mut client = ClientProcess::new(port, attachment, group, user, wakes, attention);
        client.has_channels = false;
        self.clients.insert(value, client);
        self.sources.insert(value, SourceOwner::ClientProcess);
        self.sessions.clients.insert(number, value);
        cx.wake_source(value);
    }

    /// Serves a session with requests, doorbells or room.
    fn session_ready(&mut self, cx: &mut Context<'_>, number: u64) {
        let Some(value) = self.sessions.clients.get(&number).copied() else { return };
        let Some(client) = self.clients.get(&value) else { return };
        let (port, Some(session)) = (client.port, client.session()) else { return };
        // A later doorbell makes a notice again.
        session.begin_requests();
        let rung = session.take_doorbells();
        let mut foreign = None;
        if let Some(local_nic) = self.nics.get(&port) {
            for endpoint in rung {
                if !local_nic.is_of(endpoint, value) {
                    foreign = Some(endpoint);
                    continue;
                }
                let network = local_nic.network.as_ref();
                let source = network.and_then(|network| network.endpoint_source(endpoint));
                source.into_iter().for_each(|source| cx.wake_source(source));
            }
        }
        if let Some(endpoint) = foreign {
            self.note_forged(cx, (value, port), endpoint);
        }
        self.flush(cx, value, true);
    }

    /// Drops memory and sessions that guests took away. Touches none of it: all of it is detached
    /// before the first endpoint closes, which makes events for others. Closes that exceed the
    /// limit of a turn follow in the next.
    pub(crate) fn drop_revoked(&mut self, cx: &mut Context<'_>, items: Vec<RevokedItem>) {
        if items.is_empty() && self.sessions.detached.is_empty() {
            return;
        }
        self.now_ns = cx.now_ns;
        for item in items {
            match item {
                RevokedItem::Memory(number) => {
                    let detached = self.detach_memory(number);
                    self.sessions.detached.extend(detached);
                }
                RevokedItem::Session(number) => self.detach_session(number),
            }
        }
        for _ in 0..CLOSES_PER_TURN_MAX {
            if !self.close_next(cx) || cx.steps(CLOSE_NS) == 0 {
                break;
            }
        }
        self.continue_closes(cx);
        self.attention.request();
        self.disconnect_marked(cx);
    }

    /// Closes all that was detached, because the NIC is removed.
    pub(crate) fn close_all_detached(&mut self, cx: &mut Context<'_>) {
        while self.close_next(cx) {}
    }

    /// Closes the next endpoint or region that was detached. Returns false if there is none.
    fn close_next(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(next) = self.sessions.detached.pop_front() else { return false };
        cx.charge(CLOSE_NS);
        self.close_detached(cx.now_ns, (next.port, next.endpoint), next.memory);
        self.perform_actions(cx, next.port);
        true
    }

    /// Detaches revoked memory: a region, or the rings of an endpoint.
    fn detach_memory(&mut self, number: u64) -> Option<Detached> {
        let grant = self.sessions.grants.remove(&number)?;
        let GrantUse { port, endpoint, region, .. } = grant;
        let local_nic = self.nics.get_mut(&port)?;
        let client = local_nic.endpoints.get(&endpoint)?.client;
        if let Some(guest) = &mut local_nic.guest {
            guest.revoked_total = guest.revoked_total.saturating_add(1);
        }
        let network = local_nic.network.as_mut()?;
        let memory = match region {
            Some(region) => {
                let spans = network.detach_region(endpoint, region);
                DetachedMemory::Region(region, spans)
            }
            None => DetachedMemory::Rings(network.detach_rings(endpoint)?),
        };
        Some(Detached { client, port, endpoint, memory })
    }

    /// Detaches all memory of a session that ended, and marks its process for disconnection.
    fn detach_session(&mut self, number: u64) {
        let Some(&client) = self.sessions.clients.get(&number) else { return };
        if let Some(process) = self.clients.get_mut(&client) {
            process.end(LocalError::Closed);
        }
        self.detach_client(client);
    }

    /// Detaches the rings and regions of all endpoints of a guest's process, without a look at
    /// them: a guest would decide how long the processing of its requests takes. Returns whether
    /// there were some; they close in this or a later turn.
    pub(crate) fn detach_client(&mut self, client: u32) -> bool {
        let Some(port) = self.clients.get(&client).map(|process| process.port) else {
            return false;
        };
        let Some(local_nic) = self.nics.get_mut(&port) else { return false };
        let Some(network) = local_nic.network.as_mut() else { return false };
        let before = self.sessions.detached.len();
        let its = local_nic.endpoints.iter().filter(|(_, entry)| entry.client == client);
        self.sessions.detached.extend(its.filter_map(|(endpoint, _)| {
            let memory = DetachedMemory::Rings(network.detach_rings(*endpoint)?);
            Some(Detached { client, port, endpoint: *endpoint, memory })
        }));
        self.sessions.detached.len() > before
    }

    /// Has the closes of detached endpoints go on in the next turn.
    pub(crate) fn continue_closes(&mut self, cx: &mut Context<'_>) {
        let source = self.sessions.open.as_ref().map(|open| open.source);
        if !self.sessions.detached.is_empty()
            && let Some(source) = source
        {
            self.wake(cx, source);
        }
    }

    /// Closes an endpoint without its rings, or ends the messages of a region.
    pub(crate) fn close_detached(
        &mut self,
        now: u64,
        (port, endpoint): (PortId, u8),
        memory: DetachedMemory,
    ) {
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        let value = local_nic.endpoints.get(&endpoint).map(|entry| entry.client);
        let (Some(network), Some(value)) = (local_nic.network.as_mut(), value) else { return };
        match memory {
            DetachedMemory::Region(region, _) => network.end_region(now, endpoint, region),
            DetachedMemory::Rings(_) => network.close_detached(now, endpoint),
        }
        if let Some(client) = self.clients.get_mut(&value) {
            if let DetachedMemory::Rings(_) = memory {
                client.quota.release_endpoint();
            }
            client.quota.set_regions(network.regions_of(|client| client == value));
        }
        if let DetachedMemory::Rings(source) = memory {
            self.sources.remove(&source);
            self.close(now, value, port, endpoint);
        }
    }
}

/// Memory that was detached from its endpoint.
#[derive(Debug)]
pub(crate) enum DetachedMemory {
    /// A region, and its ranges, which take time to free.
    Region(RegionId, #[expect(dead_code, reason = "held for its drop")] Option<LentRegion>),
    /// Rings and all regions, and the number by which the rings were served.
    Rings(u32),
}

/// An endpoint that lost memory.
#[derive(Debug)]
struct Detached {
    client: u32,
    port: PortId,
    endpoint: u8,
    memory: DetachedMemory,
}
