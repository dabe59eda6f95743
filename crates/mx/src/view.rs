//! Views of the NICs of a group for the operator: `causeway nic` and `GET /v1/nics`.
//!
//! The controller, in the thread of the operator's command, asks the shard of each group
//! ([`ViewNics`]); the shard samples its NICs in its dispatcher's thread ([`MxService::views`]). A
//! list has no processes; the view of one NIC has all of them, at most
//! [`CLIENTS_PER_NIC_MAX`](crate::limits::CLIENTS_PER_NIC_MAX) (256), and their endpoints. Nothing is
//! changed, and no memory of a process is read. An unknown port, and a shard that does not answer,
//! fail the command.

use std::borrow::Cow;
use std::collections::BTreeMap;

use causeway_fabric::{Context, Control, PortId, Service as _};
use causeway_model::{
    CommandError, Mac, Name, NicEndpointView, NicProcessView, NicView, TypedRequest,
};

use crate::client::ClientProcess;
use crate::limits::UNREAD_MAX;
use crate::network::RingState;
use crate::nic::{EndpointEntry, LocalNic};
use crate::service::{MxService, NAME};
use crate::user::User;

/// Asks a shard for views: of the NIC of a port with its processes, or of all NICs without them.
#[derive(Debug)]
pub(crate) struct ViewNics {
    /// Name of the port; `None` for all ports.
    pub port: Option<Name>,
}

impl TypedRequest for ViewNics {
    type Answer = Vec<NicView>;
}

/// Returns all NICs, by port.
///
/// # Errors
/// A shard does not answer.
pub(crate) fn list(control: &Control<'_>) -> Result<Vec<NicView>, CommandError> {
    let mut all = Vec::new();
    for shard in control.shards(NAME) {
        all.append(&mut control.ask(&shard, ViewNics { port: None })?);
    }
    all.sort_by(|a, b| a.port.cmp(&b.port));
    Ok(all)
}

/// Returns the NIC of a port, with its processes.
///
/// # Errors
/// No port of kind `mx` has the name, or its shard does not answer.
pub(crate) fn show(control: &Control<'_>, name: &Name) -> Result<NicView, CommandError> {
    let missing = || CommandError::NotFound { what: "mx port", name: name.to_string() };
    let (_, shard) = control.port(name).map_err(|_| missing())?;
    if shard.service != NAME {
        return Err(missing());
    }
    let views = control.ask(shard, ViewNics { port: Some(name.clone()) })?;
    views.into_iter().next().ok_or_else(missing)
}

impl MxService {
    /// Returns the views that a request asks for.
    pub(crate) fn views(&self, cx: &Context<'_>, request: &ViewNics) -> Vec<NicView> {
        let wanted = request.port.as_ref();
        let is_wanted = |nic: &LocalNic| wanted.is_none_or(|name| *name == nic.port_name);
        let mut all = Vec::new();
        for (port, nic) in self.nics.iter().filter(|(_, nic)| is_wanted(nic)) {
            let mut view = self.view(cx, *port, nic);
            if wanted.is_some() {
                let its = self.clients.iter().filter(|(_, client)| client.port == *port);
                view.process_list =
                    its.map(|(value, client)| self.process_view(nic, *value, client)).collect();
                view.process_list.sort_by_key(|process| process.session);
            }
            all.push(view);
        }
        all
    }

    /// Returns the view of a NIC without its processes.
    fn view(&self, cx: &Context<'_>, port: PortId, nic: &LocalNic) -> NicView {
        let [_, _, mac @ ..] = nic.nic.0.to_be_bytes();
        let its = |client: &&ClientProcess| client.port == port && client.session().is_some();
        let of_port = cx.ports.get(port);
        let refusal = of_port.and_then(|of| of.last_fault(cx.now_ns));
        let notice = of_port.and_then(|of| of.last_notice(cx.now_ns));
        NicView {
            port: nic.port_name.clone(),
            group: nic.group.clone(),
            mac: Mac(mac),
            hostname: nic.name.clone(),
            adapter: nic.guest.as_ref().map(|guest| guest.adapter().clone()),
            guest: match &nic.guest {
                None => "none",
                Some(guest) if guest.is_joined() => "served",
                Some(_) => "waits",
            }
            .into(),
            processes: nic.clients,
            sessions: self.clients.values().filter(its).count(),
            endpoints: nic.endpoints.len(),
            warnings: self.warnings(port),
            refusal: refusal.map(|(reason, _)| reason.to_owned()),
            refusal_age_seconds: refusal.map(|(_, age)| age),
            notice: notice.map(|(event, _)| event.to_owned()),
            notice_age_seconds: notice.map(|(_, age)| age),
            counters: self.counters(port),
            process_list: Vec::new(),
        }
    }

    /// Returns the view of a process with its endpoints.
    fn process_view(&self, nic: &LocalNic, value: u32, client: &ClientProcess) -> NicProcessView {
        let network = nic.network.as_ref();
        let of_process = |owner| owner == value;
        let (regions, region_bytes) =
            network.map_or((0, 0), |network| network.regions_of(of_process));
        let endpoints = nic.endpoints.iter().filter(|(_, entry)| entry.client == value);
        NicProcessView {
            place: if client.session().is_some() { "guest" } else { "host" }.into(),
            session: client.session().map(|session| session.number()),
            user: match client.user {
                User::Host(user) => user,
                User::Guest(_) => None,
            },
            state: self.process_state(value, client).into(),
            unread_messages: client.unread_messages(),
            regions,
            region_bytes,
            endpoint_list: endpoints.map(|(n, entry)| endpoint_view(nic, *n, entry)).collect(),
        }
    }

    /// Returns the name of the state of a process.
    fn process_state(&self, value: u32, client: &ClientProcess) -> &'static str {
        if client.ended().is_some() {
            "ending"
        } else if !client.greeted {
            "attaching"
        } else if self.is_paused(value) {
            "paused"
        } else if client.unread_messages() >= UNREAD_MAX {
            "not reading"
        } else {
            "active"
        }
    }
}

/// Returns the view of an endpoint.
fn endpoint_view(nic: &LocalNic, number: u8, entry: &EndpointEntry) -> NicEndpointView {
    let network = nic.network.as_ref();
    let rings = network.and_then(|network| network.rings(number));
    let state: Cow<'static, str> = match &rings {
        Some(rings) => match rings.state {
            RingState::Polled => "polled",
            RingState::Parked => "parked",
            RingState::Deferred => "deferred",
            RingState::Unread => "unread",
        },
        None if entry.is_direct => "direct",
        None if entry.has_channels => "channels",
        None => "closing",
    }
    .into();
    let unread_seconds = rings.as_ref().and_then(|rings| Some(rings.unread_for?.as_secs_f64()));
    let (peers, counters) =
        rings.map_or((0, BTreeMap::new()), |rings| (rings.peers, rings.counters));
    NicEndpointView { number, state, unread_seconds, peers, counters }
}
