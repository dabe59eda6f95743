//! Retries: links that could not be opened, and host names of peers.
//!
//! A kept link that cannot be opened stays down with the reason and is opened again after
//! [`OPEN_AGAIN_NS_MIN`] (1 s), doubled up to [`OPEN_AGAIN_NS_MAX`] (30 s); there is no last try.
//! [`ClosedCarrier`] refuses frames to it with [`Refusal::Down`]. A peer's name is resolved again
//! after [`LOOKUP_NS_MIN`] (5 s), doubled up to [`LOOKUP_NS_MAX`] (5 min), until the link proves
//! that the peer answers at the known address. A changed address of a `vnet`, `vxlan`,
//! `causeway-plain` or listening stream link, and a private key of a `causeway` link that a reload
//! finds changed, close the link and reopen it 10 ms later, with pauses doubled from there if that
//! fails; frames in between are refused. `causeway` and connecting stream links take the found
//! addresses as candidates and stay open. A lookup that fails, or finds the resolver's queue full,
//! changes nothing but the reason of an unopened link.
//!
//! [`super::service`] calls [`Links::tick_pending`] by its timer, in the shard of links. The tick
//! opens at most [`OPENS_PER_TICK_MAX`] (8) links, so that it does not delay the dispatcher; the
//! rest is due in the next tick. Answers of the resolver and a reload open their links at once,
//! without that bound. The module does not retry connections of streams ([`super::stream::link`]
//! does), nor handshakes of tunnels.

use std::net::SocketAddr;

use causeway_fabric::carrier::{Carrier, LinkId, LinkStatus, Outgoing, Refusal};
use causeway_fabric::{Context, Progress, SourceProgress};
use causeway_model::CommandError;
use causeway_model::{LinkKind, LinkSpec};

use super::limits::{
    LOOKUP_NS_MAX, LOOKUP_NS_MIN, LOOKUPS_WAITING_MAX, OPEN_AGAIN_NS_MAX, OPEN_AGAIN_NS_MIN,
    OPENS_PER_TICK_MAX, REOPEN_NS,
};
use super::names::{self, ResolverAnswer};
use super::open::read_key;
use super::service::{Links, NAMES, NO_SOURCE, Names, SourceKind};
use crate::limits::FRAME_BYTES_MAX;

/// A link that is not open.
#[derive(Debug)]
pub(crate) struct OpenRetry {
    /// Why the link is not open, for `link show`.
    pub reason: String,
    /// When the link is opened again.
    again_ns: u64,
    /// Pause before that try; doubled after each.
    pause_ns: u64,
}

impl OpenRetry {
    /// Returns the state of a link whose first opening failed for that reason.
    pub fn new(reason: String, now_ns: u64) -> Self {
        let again_ns = now_ns.saturating_add(OPEN_AGAIN_NS_MIN);
        Self { reason, again_ns, pause_ns: OPEN_AGAIN_NS_MIN }
    }

    /// The state of a link that was open and is reopened.
    fn for_reopen(now_ns: u64) -> Self {
        let again_ns = now_ns.saturating_add(REOPEN_NS);
        Self { reason: "the link is being reopened".into(), again_ns, pause_ns: REOPEN_NS }
    }

    /// Schedules the next try after another failure.
    fn back_off(&mut self, reason: String, now_ns: u64) {
        self.reason = reason;
        self.pause_ns = self.pause_ns.saturating_mul(2).min(OPEN_AGAIN_NS_MAX);
        self.again_ns = now_ns.saturating_add(self.pause_ns);
    }
}

/// Lookup state of one peer's name.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// When the name is resolved again: after an answer, or without one after [`LOOKUP_NS_MAX`].
    again_ns: u64,
    /// Pause after the next answer.
    pause_ns: u64,
}

impl Lookup {
    /// Returns the state of a name to resolve at once, or after the shortest pause.
    pub fn new(at_once: bool, now_ns: u64) -> Self {
        let again_ns = if at_once { now_ns } else { now_ns.saturating_add(LOOKUP_NS_MIN) };
        Self { again_ns, pause_ns: LOOKUP_NS_MIN }
    }

    /// Schedules the next lookup for the case that this one gets no answer: its mailbox may be full.
    fn asked(&mut self, now_ns: u64) {
        self.again_ns = now_ns.saturating_add(LOOKUP_NS_MAX);
    }

    /// Schedules the next lookup after an answer.
    fn answered(&mut self, now_ns: u64) {
        self.again_ns = now_ns.saturating_add(self.pause_ns);
        self.pause_ns = self.pause_ns.saturating_mul(2).min(LOOKUP_NS_MAX);
    }
}

/// Carrier of a link that is not open: refuses all frames.
#[derive(Debug)]
pub(crate) struct ClosedCarrier;

impl Carrier for ClosedCarrier {
    fn push(&mut self, _: &Outgoing<'_>) -> Result<(), Refusal> {
        Err(Refusal::Down)
    }

    fn flush(&mut self) -> u64 {
        0
    }

    fn takes_offloads(&self) -> bool {
        true
    }

    fn longest(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

/// Orders found addresses for connection attempts: addresses of our end's family first, if our end
/// is a specific address or IPv4.
pub(crate) fn in_order(spec: &LinkSpec, found: &[SocketAddr]) -> Vec<SocketAddr> {
    let (fit, others): (Vec<SocketAddr>, Vec<SocketAddr>) = match spec.local() {
        Some(local) if local.is_ipv4() || !local.ip().is_unspecified() => {
            let (fit, others): (Vec<_>, Vec<_>) =
                found.iter().partition(|at| at.is_ipv4() == local.is_ipv4());
            // A specific local address reaches its own family only.
            if local.ip().is_unspecified() { (fit, others) } else { (fit, Vec::new()) }
        }
        _ => (found.to_vec(), Vec::new()),
    };
    fit.into_iter().chain(others).collect()
}

impl Links {
    /// Returns when a link is to be opened, or a name to be resolved.
    pub(super) fn pending_deadline(&self) -> u64 {
        let links = self.links.values();
        let due = links.flat_map(|link| {
            let opens = link.retry.as_ref().filter(|_| !link.spec.is_unresolved());
            let lookup = link.lookup.as_ref();
            [opens.map(|retry| retry.again_ns), lookup.map(|lookup| lookup.again_ns)]
        });
        due.flatten().min().unwrap_or(u64::MAX)
    }

    /// Opens links and resolves names that are due.
    pub(super) fn tick_pending(&mut self, cx: &mut Context<'_>) {
        if cx.now_ns < self.pending_ns {
            return;
        }
        let now_ns = cx.now_ns;
        let due = |link: &super::service::LinkEntry| {
            let retry = link.retry.as_ref().filter(|_| !link.spec.is_unresolved());
            retry.is_some_and(|retry| retry.again_ns <= now_ns)
        };
        let all = self.links.iter().filter(|(_, link)| due(link)).map(|(id, _)| *id);
        for id in all.take(OPENS_PER_TICK_MAX).collect::<Vec<_>>() {
            self.open_late(cx, id);
        }
        self.look_up_due(cx);
        self.pending_ns = self.pending_deadline();
    }

    /// Opens a link that its group has joined already.
    fn open_late(&mut self, cx: &mut Context<'_>, id: LinkId) {
        let Some(link) = self.links.get(&id) else { return };
        let (spec, inbox) = (link.spec.clone(), link.inbox.clone());
        let opened = self.open_kind(cx, &spec, &inbox);
        if opened.is_err() {
            self.drop_unused_sources();
        }
        let Some(link) = self.links.get_mut(&id) else { return };
        match opened {
            Ok((source, tunnel, carrier)) => {
                (link.source, link.tunnel, link.retry) = (source, tunnel, None);
                let segments = self.segment_carrier(&spec, &inbox, source, tunnel);
                inbox.replace_carriers(carrier, segments);
                log::info!(link = spec.name.as_str(); "link opened");
                self.start(cx, id);
            }
            Err(error) => {
                let reason = error.to_string();
                if let Some(retry) = &mut link.retry {
                    if retry.reason != reason {
                        log_unopened(&spec, &error);
                    }
                    retry.back_off(reason, cx.now_ns);
                }
            }
        }
    }

    /// Resolves the names that are due, except those of peers that answer.
    fn look_up_due(&mut self, cx: &mut Context<'_>) {
        let now_ns = cx.now_ns;
        let due = |link: &super::service::LinkEntry| {
            link.lookup.as_ref().is_some_and(|lookup| lookup.again_ns <= now_ns)
        };
        let all: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| due(link)).map(|(id, _)| *id).collect();
        for id in all {
            let answers = self.is_answered(id, now_ns);
            let Some(sender) = self.names(cx) else { return };
            let resolver = self.resolver;
            let Some(link) = self.links.get_mut(&id) else { continue };
            let Some(lookup) = &mut link.lookup else { continue };
            if answers {
                // Once the link is down, its name is resolved at the fastest rate again.
                *lookup = Lookup::new(false, now_ns);
                continue;
            }
            lookup.asked(now_ns);
            let place = link.spec.remote_host.clone().unwrap_or_default();
            names::look_up(&place, resolver, move |answer| drop(sender.push((id, answer))));
        }
    }

    /// Returns whether the link's peer answers at the known address.
    fn is_answered(&self, id: LinkId, now_ns: u64) -> bool {
        let Some(link) = self.links.get(&id) else { return false };
        match self.sources.get(&link.source).map(|source| &source.kind) {
            Some(SourceKind::Tunnels(socket)) => link
                .tunnel
                .and_then(|(number, _)| socket.state(number, now_ns))
                .is_some_and(|(state, _)| state.up || state.is_dormant),
            Some(SourceKind::Stream(stream)) => stream.down_reason().is_none(),
            _ => false,
        }
    }

    /// Returns the mailbox for answers of the resolver.
    fn names(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Option<causeway_fabric::mailbox::Sender<(LinkId, ResolverAnswer)>> {
        if self.names.is_none() {
            match cx.mailbox(LOOKUPS_WAITING_MAX, NAMES) {
                Ok((sender, mailbox)) => self.names = Some(Names { sender, mailbox }),
                Err(error) => {
                    log::error!(error:% = error; "cannot create a mailbox: names of peers are not resolved");
                }
            }
        }
        self.names.as_ref().map(|names| names.sender.clone())
    }

    /// Processes the answers of the resolver.
    pub(super) fn take_names(&mut self, cx: &mut Context<'_>) -> SourceProgress {
        let mut all = Vec::new();
        let more = self.names.as_ref().is_some_and(|names| {
            names.mailbox.take(LOOKUPS_WAITING_MAX, &mut all) > 0 || !names.mailbox.arm()
        });
        for (id, answer) in all {
            self.apply_answer(cx, id, answer);
        }
        self.pending_ns = self.pending_deadline();
        SourceProgress {
            progress: if more { Progress::Worked } else { Progress::Parked },
            count: 0,
        }
    }

    /// Applies an answer of the resolver to its link; an answer for a closed link is ignored.
    fn apply_answer(&mut self, cx: &mut Context<'_>, id: LinkId, answer: ResolverAnswer) {
        let now_ns = cx.now_ns;
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(lookup) = &mut link.lookup {
            lookup.answered(now_ns);
        }
        let found = match answer {
            Ok(found) => in_order(&link.spec, &found),
            Err(reason) => {
                let unresolved = link.spec.is_unresolved();
                if let Some(retry) = link.retry.as_mut().filter(|_| unresolved)
                    && retry.reason != reason
                {
                    let (link, error) = (link.spec.name.as_str(), reason.as_str());
                    log::warn!(link, error; "cannot open a link: it stays down and is retried");
                    retry.reason = reason;
                }
                return;
            }
        };
        let Some(first) = found.first().copied() else { return };
        if link.retry.is_some() {
            link.spec = link.spec.with_remote(first);
            return self.open_late(cx, id);
        }
        let known = link.spec.remote().is_some_and(|remote| found.contains(&remote));
        let (source, tunnel) = (link.source, link.tunnel);
        match self.sources.get_mut(&source).map(|source| &mut source.kind) {
            Some(SourceKind::Tunnels(socket))
                if matches!(link.spec.kind, LinkKind::Causeway(_)) =>
            {
                if let Some((number, _)) = tunnel {
                    socket.candidates(number, &found);
                }
            }
            Some(SourceKind::Stream(stream)) if stream.connects() => stream.candidates(found),
            _ if !known => {
                let link = link.spec.name.as_str();
                log::info!(link, remote:% = first; "the peer's name resolves to another address: the link is reopened");
                self.reopen(cx, id, Some(first));
            }
            _ => {}
        }
    }

    /// Reads keys and certificates again, and retries unopened links at once.
    pub(super) fn reload(&mut self, cx: &mut Context<'_>) {
        let all: Vec<LinkId> = self.links.keys().copied().collect();
        for id in all {
            let Some(link) = self.links.get(&id) else { continue };
            if link.retry.is_some() {
                if !link.spec.is_unresolved() {
                    self.open_late(cx, id);
                }
                continue;
            }
            let (name, kind) = (link.spec.name.clone(), link.spec.kind.clone());
            let source = self.sources.get_mut(&link.source).map(|source| &mut source.kind);
            match (source, kind) {
                (Some(SourceKind::Stream(stream)), _) => stream.renew(cx.now_ns),
                (Some(SourceKind::Tunnels(socket)), LinkKind::Causeway(tunnel)) => {
                    match read_key(&tunnel.private_key) {
                        Ok(own) if Some(own.public()) == socket.key() => {}
                        Ok(_) => {
                            log::info!(link = name.as_str(); "its private key changed: the link is reopened");
                            self.reopen(cx, id, None);
                        }
                        Err(error) => {
                            log::warn!(link = name.as_str(), error; "cannot read its private key again: the link keeps the old key");
                        }
                    }
                }
                _ => {}
            }
        }
        self.pending_ns = self.pending_deadline();
    }

    /// Closes a link and schedules its opening, with another peer address if one is given.
    fn reopen(&mut self, cx: &mut Context<'_>, id: LinkId, to: Option<SocketAddr>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.inbox.report_standing(LinkStatus {
            up: false,
            poor: false,
            rtt_ns: None,
            is_dormant: false,
        });
        self.detach(cx.now_ns, id);
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(to) = to {
            link.spec = link.spec.with_remote(to);
        }
        (link.source, link.tunnel) = (NO_SOURCE, None);
        link.retry = Some(OpenRetry::for_reopen(cx.now_ns));
        // The old carriers hold the socket; its address is free once the group has dropped them.
        link.inbox.replace_carriers(Box::new(ClosedCarrier), Some(Box::new(ClosedCarrier)));
        self.drop_unused_sources();
        self.pending_ns = self.pending_deadline();
    }
}

/// Logs that a link cannot be opened.
pub(super) fn log_unopened(spec: &LinkSpec, error: &CommandError) {
    let link = spec.name.as_str();
    log::warn!(link, error:% = error; "cannot open a link: it stays down and is retried");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_without_an_answer_is_repeated() {
        let mut lookup = Lookup::new(true, 1);
        lookup.asked(1);
        assert_eq!(lookup.again_ns, 1 + LOOKUP_NS_MAX);
        lookup.answered(2);
        assert_eq!(lookup.again_ns, 2 + LOOKUP_NS_MIN);
    }
}
