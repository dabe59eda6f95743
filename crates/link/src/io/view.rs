//! Views of links, as `causeway link show` prints them.
//!
//! [`super::service`] calls [`Links::view`] in the shard of links for a request of
//! `super::control`, which adds the drops that the group counted. A link that is not open is shown
//! as down with the reason; values that the kind does not have are absent. The module reads state
//! only, but costs a few system calls per link (route MTU, TCP_INFO). `vnet` and `vxlan` links, and
//! `raw` links with an interface that is up, are shown as *open*, because their protocols do not
//! show whether the peer is alive. MTUs above 65535 are shown as 65535, and counters of a shared
//! socket (`socket_*`) appear in the view of each link that shares it.

use causeway_model::limits::UNDERLAY_MTU;
use causeway_model::{LinkKind, udp_headers};
use causeway_model::{LinkState, LinkView};

use super::limits::EXPIRY_DAYS;
use super::path;
use super::raw::RawLink;
use super::service::{LinkEntry, Links, SourceKind};
use super::stream::StreamLink;
use super::tls::days_until;
use crate::tunnel::{HandshakeFault, TunnelState};

/// Returns a length as 16 bits; 65535 for longer.
fn short(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// Returns a percentage; `None` if `of` is 0.
fn percent(lost: usize, of: usize) -> Option<u8> {
    let percent = lost.min(of).saturating_mul(100).checked_div(of)?;
    u8::try_from(percent).ok()
}

impl Links {
    /// Returns the view of one link.
    pub(crate) fn view(&self, link: &LinkEntry, now_ns: u64) -> LinkView {
        let path_mtu = match &link.spec.kind {
            _ if link.spec.is_unresolved() => None,
            LinkKind::Vnet(udp) | LinkKind::Vxlan(udp) => {
                path::route_mtu(udp.local.ip(), udp.remote.ip())
            }
            _ => None,
        };
        let mut view = LinkView {
            spec: link.spec.clone(),
            is_of_cluster: false,
            state: LinkState::Down,
            reason: "its socket was closed".into(),
            endpoint: None,
            rtt_us: None,
            loss_percent: None,
            certificate_expires: None,
            path_mtu,
            mtu: link.spec.kind.mtu(path_mtu.unwrap_or(UNDERLAY_MTU)),
            ups_total: 0,
            counters: link.inbox.stats.by_name(),
        };
        if let Some(retry) = &link.retry {
            let own = format!("link {}: ", link.spec.name);
            let reason = retry.reason.strip_prefix(&own).unwrap_or(&retry.reason);
            view.reason = reason.to_owned();
        }
        match self.sources.get(&link.source).map(|source| &source.kind) {
            Some(SourceKind::Bare(socket)) => {
                view.state = LinkState::Open;
                view.reason = "this kind of link does not detect whether the peer is alive".into();
                let unmatched = socket.unmatched;
                if let Some(last) = unmatched.last {
                    let text = format!(
                        "; its socket received datagrams that match no link, the last from {last}"
                    );
                    view.reason.push_str(&text);
                }
                for (name, count) in [
                    ("unknown_peer", unmatched.unknown_peer),
                    ("wrong_vni", unmatched.wrong_vni),
                    ("truncated", unmatched.truncated),
                ] {
                    view.counters.insert(format!("socket_drop_{name}_total"), count);
                }
            }
            Some(SourceKind::Tunnels(socket)) => {
                let state = link.tunnel.and_then(|(number, _)| socket.state(number, now_ns));
                if let Some((state, ups)) = state {
                    tunnel(&mut view, &state, ups);
                    let foreign = self.claims.foreign_of(link.inbox.id);
                    view.counters.insert("addresses_foreign_total".to_owned(), foreign);
                }
                for (name, count) in socket.refusals().view() {
                    view.counters.insert(format!("socket_{name}"), count);
                }
            }
            Some(SourceKind::Stream(stream)) => self.stream(&mut view, stream, link.source),
            Some(SourceKind::Raw(link)) => raw(&mut view, link),
            Some(SourceKind::Listener(_)) | None => {}
        }
        view
    }

    /// Adds the state of a `tcp` or `tls` link to a view.
    fn stream(&self, view: &mut LinkView, stream: &StreamLink, source: u32) {
        (view.state, view.reason) = match stream.down_reason() {
            None => (LinkState::Up, "the peer is connected".to_owned()),
            Some(reason) => (LinkState::Down, reason.to_owned()),
        };
        view.endpoint = stream.endpoint();
        view.certificate_expires = stream.expires();
        if let Some(days) = stream.expires().map(days_until).filter(|days| *days < EXPIRY_DAYS) {
            let text = match days {
                ..0 => "; our certificate has expired".to_owned(),
                days => format!("; our certificate expires in {days} days"),
            };
            view.reason.push_str(&text);
        }
        if let Some(known) = stream.connection() {
            view.rtt_us = known.round_trip.map(|rtt| rtt.as_secs_f64() * 1e6);
            view.loss_percent = percent(known.sent_again as usize, known.sent as usize);
            view.path_mtu = u16::try_from(known.path_mtu).ok().or(Some(u16::MAX));
        }
        view.mtu = u16::MAX;
        view.ups_total = stream.ups;
        view.counters.insert("connections_failed_total".to_owned(), stream.refused);
        for listener in self.sources.values() {
            if let SourceKind::Listener(listener) = &listener.kind
                && listener.serves(source)
            {
                for (name, count) in [
                    ("unknown_peer", listener.unknown_peer),
                    ("too_often", listener.too_often),
                    ("no_descriptor", listener.no_descriptor),
                ] {
                    view.counters.insert(format!("socket_drop_{name}_total"), count);
                }
            }
        }
    }
}

/// Adds the state of a `raw` link to a view.
fn raw(view: &mut LinkView, link: &RawLink) {
    (view.state, view.reason) = match link.down_reason() {
        None => (
            LinkState::Open,
            "this kind of link does not detect whether hosts are there".to_owned(),
        ),
        Some(reason) => (LinkState::Down, reason.to_owned()),
    };
    view.path_mtu = link.mtu().map(short);
    view.mtu = view.path_mtu.unwrap_or(view.mtu);
    view.ups_total = link.ups;
    for (name, count) in [
        ("not_ours", link.not_ours),
        ("own_source", link.looped),
        ("unreadable", link.unreadable()),
        ("no_room", link.unqueued),
    ] {
        view.counters.insert(format!("socket_drop_{name}_total"), count);
    }
}

/// Adds the state of a tunnel to a view.
fn tunnel(view: &mut LinkView, state: &TunnelState, ups: u64) {
    (view.state, view.reason) = match (state.up, state.remote, state.handshakes) {
        _ if state.is_dormant => (
            LinkState::Dormant,
            "no traffic: the link has no session, and the next frame begins one".to_owned(),
        ),
        _ if state.is_waking => {
            (LinkState::Dormant, "frames wait for a session: a handshake has begun".to_owned())
        }
        (true, ..) if state.poor => {
            let text = "the peer answers, but loss is high: other links to it are preferred";
            (LinkState::Up, text.to_owned())
        }
        (true, ..) => (LinkState::Up, "the peer answers".to_owned()),
        (false, None, _) => (LinkState::Down, "the peer has not connected yet".to_owned()),
        (false, Some(_), 0) if state.peer.is_some() => (
            LinkState::Down,
            "the peer has not answered: address, keys, clock, firewall?".to_owned(),
        ),
        (false, Some(_), _) => (LinkState::Down, "the peer does not answer".to_owned()),
    };
    match state.fault {
        Some(HandshakeFault::Clone(at)) => {
            let text = format!("; another host, at {at}, uses its private key and is refused");
            view.reason.push_str(&text);
        }
        Some(HandshakeFault::Behind(ns)) if !state.up => {
            let hours = ns as f64 / 3.6e12;
            view.reason = format!(
                "the peer's clock was set back by {hours:.1} h: its handshakes are refused until its \
                 last session has ended"
            );
        }
        _ => {}
    }
    view.endpoint = state.remote;
    view.rtt_us = state.rtt.map(|ns| ns as f64 / 1000.0);
    let (of, lost) = state.loss;
    view.loss_percent = percent(lost, of);
    view.path_mtu =
        state.remote.map(|at| short(state.datagram).saturating_add(udp_headers(at.is_ipv4())));
    view.mtu = u16::MAX;
    view.ups_total = ups;
    view.counters.extend(state.refusals.view());
    for (name, count) in [
        ("handshakes_total", state.handshakes),
        ("addresses_told", state.addresses.0 as u64),
        ("addresses_heard", state.addresses.1 as u64),
        ("fragmented_frames", state.fragments.0 as u64),
        ("segments_cut", u64::from(state.lossy)),
        ("waiting_frames", state.waiting.0 as u64),
        ("drop_unanswered_total", state.waiting.1),
    ] {
        view.counters.insert(name.to_owned(), count);
    }
}
