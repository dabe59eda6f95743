//! Views of adapters for the operator: `causeway hca` and `GET /v1/hcas`.
//!
//! The controller, in the thread of the operator's command, asks the shard of each group
//! ([`ViewAdapters`]); the shard samples its adapters in its dispatcher's thread ([`views`]). A
//! list has no queue pairs; the view of a single adapter has at most [`HCA_QUEUE_PAIRS_SHOWN_MAX`]
//! (256), the first by slot, and the number of omitted ones. The shard visits each queue pair
//! to count them, and changes nothing. [`crate::control`] adds the frames that the forwarding
//! service dropped. An unknown port, and a shard that does not answer, fail the
//! command.

use std::collections::BTreeMap;

use causeway_fabric::{Context, Control};
use causeway_mlx5::Function;
use causeway_model::limits::HCA_QUEUE_PAIRS_SHOWN_MAX;
use causeway_model::{
    CommandError, HcaActivity, HcaObjects, HcaQueuePairView, HcaState, HcaView, Mac, Name,
    TypedRequest,
};
use causeway_verbs::session::names_service;
use causeway_verbs::{Adapter, Kind, QueuePair, State, Subnet, WaitReason};

use crate::NAME;
use crate::adapter_port::{AdapterPort, AdapterPorts};
use crate::counters;
use crate::limits::{OFFERED_RANGES_OF_PORT_MAX, SESSIONS_MAX};
use crate::recent::Sums;

/// Asks a shard for views: of the adapter of a port with its queue pairs, or of all adapters
/// without them.
#[derive(Debug)]
pub(crate) struct ViewAdapters {
    /// Name of the port; `None` for all ports.
    pub port: Option<Name>,
}

impl TypedRequest for ViewAdapters {
    type Answer = Vec<HcaView>;
}

/// Returns all adapters, by port.
///
/// # Errors
/// A shard does not answer.
pub(crate) fn list(control: &Control<'_>) -> Result<Vec<HcaView>, CommandError> {
    let mut all = Vec::new();
    for shard in control.shards(NAME) {
        all.append(&mut control.ask(&shard, ViewAdapters { port: None })?);
    }
    all.sort_by(|a, b| a.port.cmp(&b.port));
    Ok(all)
}

/// Returns the adapter of a port.
///
/// # Errors
/// No port of kind `hca` has the name, or its shard does not answer.
pub(crate) fn show(control: &Control<'_>, name: &Name) -> Result<HcaView, CommandError> {
    let missing = || CommandError::NotFound { what: "hca port", name: name.to_string() };
    let (_, shard) = control.port(name).map_err(|_| missing())?;
    if shard.service != NAME {
        return Err(missing());
    }
    let views = control.ask(shard, ViewAdapters { port: Some(name.clone()) })?;
    views.into_iter().next().ok_or_else(missing)
}

/// Returns the views that a request asks for.
pub(crate) fn views(
    cx: &Context<'_>,
    subnet: &Subnet<Function>,
    ports: &AdapterPorts,
    request: &ViewAdapters,
) -> Vec<HcaView> {
    let names = ports.values().map(|port| (port.mac, &port.name)).collect();
    let most = if request.port.is_some() { HCA_QUEUE_PAIRS_SHOWN_MAX } else { 0 };
    let is_wanted =
        |port: &AdapterPort| request.port.as_ref().is_none_or(|name| *name == port.name);
    let mut all = Vec::new();
    for (id, port) in ports.iter().filter(|(_, port)| is_wanted(port)) {
        let adapter = subnet.adapter(port.adapter);
        let (Some(adapter), Some(of)) = (adapter, cx.ports.get(*id)) else { continue };
        let state = state(adapter, of.map().is_some());
        let mut view = view(adapter, state, (&port.name, &of.spec.group), &names, most);
        port.extend_counters(&mut view.counters);
        view.activity = activity(adapter, port, cx.now_ns);
        all.push(view);
    }
    all
}

/// Peer of a queue pair with a session; no port has this name.
const SERVICE: &str = "(service)";

/// Ports by the address of their adapter.
type PortNames<'a> = BTreeMap<[u8; 6], &'a Name>;

/// Returns the view of the adapter of a port and group with at most `most` queue pairs.
fn view(
    adapter: &Adapter<Function>,
    state: HcaState,
    (port, group): (&Name, &Name),
    names: &PortNames<'_>,
    most: usize,
) -> HcaView {
    let (function, regions) = (adapter.queues(), adapter.regions());
    let config = function.config();
    let listed = adapter.queue_pairs().take(most);
    let queue_pair_list: Vec<_> =
        listed.map(|(number, pair)| queue_pair_view(number, pair, adapter.mac(), names)).collect();
    let queue_pairs = adapter.queue_pairs().count();
    HcaView {
        port: port.clone(),
        group: group.clone(),
        mac: Mac(adapter.mac()),
        state,
        queue_pairs,
        queue_pairs_max: config.queue_pairs_max,
        completion_queues: function.completion_queues(),
        completion_queues_max: config.completion_queues_max,
        regions: regions.len(),
        regions_max: config.regions_max,
        registered_bytes: regions.bytes(),
        registered_bytes_max: config.registered_bytes_max,
        counters: counters::of(adapter),
        activity: HcaActivity::default(),
        queue_pairs_omitted: queue_pairs.saturating_sub(queue_pair_list.len()),
        queue_pair_list,
    }
}

/// Returns the limits of a port beside those of its objects, and what its adapter does now.
fn activity(adapter: &Adapter<Function>, port: &AdapterPort, now_ns: u64) -> HcaActivity {
    let mut states = BTreeMap::new();
    for (_, pair) in adapter.queue_pairs() {
        let count: &mut usize = states.entry(state_name(pair.state()).to_owned()).or_default();
        *count = count.saturating_add(1);
    }
    let (waiting_requests, waiting_requests_max) = adapter.waiting_requests();
    let objects = adapter.queues().object_counts();
    let sessions = port.sessions.iter().flat_map(|sessions| {
        let ranges = sessions.offered_ranges();
        let count = adapter.session_count();
        [("sessions", count, SESSIONS_MAX), ("offered ranges", ranges, OFFERED_RANGES_OF_PORT_MAX)]
    });
    let errors = adapter.counters().by_status;
    HcaActivity {
        doorbell: port.options.doorbell.as_str().into(),
        weight: port.options.weight,
        byte_rate_max: port.options.byte_rate_max,
        message_rate_max: port.options.message_rate_max,
        rate_pauses_total: port.counters.rate_pauses,
        waiting_requests,
        waiting_requests_max,
        queue_pair_states: states,
        objects: objects
            .into_iter()
            .chain(sessions)
            .map(|(name, count, max)| (name.to_owned(), HcaObjects { count, max }))
            .collect(),
        errors: errors.iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        rates: port.recent.rates(now_ns, &Sums::of(adapter)),
    }
}

/// Returns the progress of an adapter's driver.
pub(crate) fn state(adapter: &Adapter<Function>, has_frontend: bool) -> HcaState {
    let function = adapter.queues();
    if !has_frontend || function.registers().command_queue() == 0 {
        return HcaState::NoDriver;
    }
    let has_queues = function.completion_queues() > 0 || function.is_active();
    if has_queues { HcaState::Active } else { HcaState::Starting }
}

/// Returns the view of a queue pair.
fn queue_pair_view(
    number: u32,
    queue_pair: &QueuePair,
    own: [u8; 6],
    names: &PortNames<'_>,
) -> HcaQueuePairView {
    let attributes = queue_pair.attributes();
    let peer = attributes.peer;
    let name = |mac| names.get(mac).map_or_else(|| Mac(*mac).to_string(), |n| n.to_string());
    HcaQueuePairView {
        number,
        kind: kind_name(queue_pair.kind()).into(),
        state: state_name(queue_pair.state()).into(),
        peer: peer.as_ref().map(|peer| match names_service(own, queue_pair.kind(), attributes) {
            true => SERVICE.to_owned(),
            false => name(&peer.mac),
        }),
        peer_queue_pair: peer.map(|peer| peer.queue_pair),
        send_completion_queue: attributes.send_queue,
        receive_completion_queue: attributes.receive_queue,
        refusal: queue_pair.refusal().map(|refusal| refusal.to_string()),
        refusals: queue_pair.refusals(),
        waits_for: queue_pair.wait_reason().map(|reason| wait_name(reason).to_owned()),
    }
}

/// Returns the name of what a request waits for.
const fn wait_name(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Unanswered => "responder",
        WaitReason::Restart => "restart",
        WaitReason::NotReady => "receive",
    }
}

/// Returns the name of a transport service.
pub(crate) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Rc => "RC",
        Kind::Uc => "UC",
        Kind::Ud => "UD",
        Kind::Gsi => "GSI",
        Kind::Registration => "registration",
        Kind::XrcInitiator => "XRC-INI",
        Kind::XrcTarget => "XRC-TGT",
    }
}

/// Returns the name of a state of queue pairs.
pub(crate) const fn state_name(state: State) -> &'static str {
    match state {
        State::Reset => "reset",
        State::Init => "init",
        State::ReadyToReceive => "ready to receive",
        State::ReadyToSend => "ready to send",
        State::Drained => "send queue drained",
        State::SendQueueError => "send queue error",
        State::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use causeway_mlx5::FunctionConfig;
    use causeway_verbs::{Attributes, Change, Peer};

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn config() -> FunctionConfig {
        FunctionConfig {
            mac: MAC,
            mtu: 1500,
            vectors: 4,
            uar_bytes: 32 << 20,
            queue_pairs_max: 1024,
            completion_queues_max: 64,
            regions_max: 128,
            registered_bytes_max: 1 << 30,
        }
    }

    /// Returns the view of an adapter with `pairs` connected queue pairs to `peer`.
    fn sample(pairs: u32, peer: [u8; 6], most: usize) -> HcaView {
        let mut subnet = Subnet::new();
        let adapter = causeway_mlx5::adapter_config(&config());
        let id = subnet.add(&adapter, Function::new(config())).unwrap();
        for number in 0..pairs {
            let attributes =
                Attributes { send_queue: 3, receive_queue: 4, ..Attributes::default() };
            let own = subnet.create_queue_pair(id, Kind::Rc, attributes).unwrap();
            let peer = Some(Peer { mac: peer, queue_pair: number, ..Peer::default() });
            let change = Change { peer, ..Change::default() };
            for state in [State::Init, State::ReadyToReceive] {
                subnet.modify(id, own, state, &change).unwrap();
            }
        }
        let (port, group, other) =
            ("a".parse().unwrap(), "g".parse().unwrap(), "b".parse().unwrap());
        let names = [(MAC, &port), (OTHER, &other)].into();
        let adapter = subnet.adapter(id).unwrap();
        view(adapter, state(adapter, true), (&port, &group), &names, most)
    }

    #[test]
    fn view_names_the_port_of_a_peer_in_the_group() {
        let hca = sample(1, OTHER, 256);
        assert_eq!((hca.port.as_str(), hca.group.as_str(), hca.mac), ("a", "g", Mac(MAC)));
        let pair = &hca.queue_pair_list[0];
        assert_eq!((&*pair.kind, &*pair.state), ("RC", "ready to receive"));
        assert_eq!((pair.peer.as_deref(), pair.peer_queue_pair), (Some("b"), Some(0)));
        assert_eq!((pair.send_completion_queue, pair.receive_completion_queue), (3, 4));
        let elsewhere = sample(1, [2, 0, 0, 0, 0, 9], 256);
        assert_eq!(elsewhere.queue_pair_list[0].peer.as_deref(), Some("02:00:00:00:00:09"));
    }

    #[test]
    fn view_has_the_limits_and_a_bounded_list() {
        let hca = sample(300, OTHER, HCA_QUEUE_PAIRS_SHOWN_MAX);
        assert_eq!((hca.queue_pairs, hca.queue_pair_list.len()), (300, 256));
        assert_eq!((hca.queue_pairs_omitted, hca.queue_pairs_max), (44, 1024));
        assert_eq!((hca.completion_queues, hca.completion_queues_max), (0, 64));
        assert_eq!((hca.regions_max, hca.registered_bytes_max), (128, 1 << 30));
        let listed = sample(2, OTHER, 0);
        assert_eq!((listed.queue_pair_list.len(), listed.queue_pairs_omitted), (0, 2));
        assert_eq!(listed.counters["requests_total"], 0);
    }

    #[test]
    fn view_without_a_command_queue_has_no_driver() {
        assert_eq!(sample(0, OTHER, 0).state, HcaState::NoDriver);
    }
}
