//! Explains whether queue pairs of one adapter reach those of another: `causeway trace verbs`.
//!
//! The shard of the group answers from the state of this moment, and changes nothing. Each
//! connected queue pair of either adapter that names the other adapter as its peer is compared with
//! the queue pair that it names: at most [`TRACED_QUEUE_PAIRS_MAX`] (64) of each adapter, by slot.
//! Datagram queue pairs name no peer; the trace counts those that receive. [`crate::service`] is
//! the caller, in the dispatcher's thread. A source that is no adapter of the group is an error; a
//! destination that is none is the verdict `refused`. The trace sends nothing, and does not predict
//! whether a request finds a receive work request, a region or a right.
//!
//! | verdict | meaning |
//! |---|---|
//! | `connected` | a queue pair of the source that sends and one of the destination that receives name each other, and the rules permit their traffic |
//! | `possible` | both adapters have a driver, the rules permit traffic to the destination, and no two queue pairs are connected |
//! | `refused` | the destination is no adapter of the group, a driver is missing, or the rules of the group deny traffic to the destination |
//!
//! Rules that deny only the traffic back, which has the responses, disconnect reliable queue pairs
//! alone: a step states it, and the verdict is `possible` unless queue pairs of another kind are
//! connected.

use causeway_fabric::Ports;
use causeway_mlx5::Function;
use causeway_model::{CommandError, HcaState, Mac, Name, TraceView};
use causeway_verbs::policy::Denial;
use causeway_verbs::{Adapter, Kind, QueuePair, State, Subnet, WaitReason};

use crate::adapter_port::{AdapterPort, AdapterPorts};
use crate::limits::TRACED_QUEUE_PAIRS_MAX;
use crate::policy::GroupPolicy;
use crate::view::{kind_name, state, state_name};

/// An adapter of the trace.
struct End<'a> {
    name: &'a Name,
    port: &'a AdapterPort,
    adapter: &'a Adapter<Function>,
    state: HcaState,
}

/// Returns the trace from the adapter of one port to that of another.
///
/// # Errors
/// The first port is no adapter of the shard.
pub(crate) fn verbs(
    (subnet, policy): (&Subnet<Function>, Option<&GroupPolicy>),
    adapters: &AdapterPorts,
    ports: &Ports,
    (from, to): (&Name, &Name),
) -> Result<TraceView, CommandError> {
    let find = |name: &Name| {
        let (id, port) = adapters.iter().find(|(_, port)| port.name == *name)?;
        let of = ports.get(*id)?;
        let adapter = subnet.adapter(port.adapter)?;
        let state = state(adapter, of.map().is_some());
        Some((End { name: &port.name, port, adapter, state }, &of.spec.group))
    };
    let (own, group) = find(from).ok_or_else(|| {
        CommandError::Invalid(format!("port {from} is no adapter: expected a port of kind hca"))
    })?;
    let refused = |steps| TraceView { verdict: "refused".into(), to: Vec::new(), steps };
    let Some((there, _)) = find(to) else {
        let step = format!(
            "{to} is no adapter of group {group}, the group of {from}: queue pairs reach adapters of \
             their own group on this host only"
        );
        return Ok(refused(vec![step]));
    };
    let mut steps = vec![format!("{from} and {to} are adapters of group {group}")];
    steps.extend([&own, &there].map(describe_end));
    if [&own, &there].iter().any(|end| end.state == HcaState::NoDriver) {
        return Ok(refused(steps));
    }
    let rules = Rules::new(policy, &own, &there);
    steps.extend(rules.describe(&own, &there));
    let mut reached = Vec::new();
    describe_pairs((&own, &there), &rules, &mut steps, &mut reached);
    if from != to {
        describe_one_sided(&there, &own, &mut steps);
    }
    steps.push(describe_datagrams(&own, &there));
    let verdict = match (reached.is_empty(), rules.forth) {
        (false, _) => "connected",
        (true, None) => "possible",
        (true, Some(_)) => "refused",
    };
    Ok(TraceView { verdict: verdict.into(), to: reached, steps })
}

/// The decisions of the group's rules between two adapters.
struct Rules {
    /// Why traffic to the destination is denied.
    forth: Option<Denial>,
    /// Why the destination's traffic, which has the responses, is denied.
    back: Option<Denial>,
}

impl Rules {
    fn new(policy: Option<&GroupPolicy>, own: &End<'_>, there: &End<'_>) -> Self {
        let check = |from: &End<'_>, to: &End<'_>| {
            policy.and_then(|policy| policy.check(from.port.mac, to.port.mac).err())
        };
        Self { forth: check(own, there), back: check(there, own) }
    }

    /// Returns whether the rules deny the messages of a queue pair, or the responses to them.
    fn deny(&self, pair: &QueuePair) -> bool {
        self.forth.is_some() || pair.kind().is_reliable() && self.back.is_some()
    }

    /// Returns a step for each direction that is denied.
    fn describe(&self, own: &End<'_>, there: &End<'_>) -> Vec<String> {
        let step = |denial: Option<Denial>, from: &End<'_>, to: &End<'_>, effect| {
            let denial = denial?;
            let (from, to) = (from.name, to.name);
            Some(format!(
                "the rules of the group deny traffic from {from} to {to}: {denial}{effect}"
            ))
        };
        let forth = step(self.forth, own, there, "; add or delete routes to change that");
        let back = step(self.back, there, own, "; so reliable connections get no responses");
        forth.into_iter().chain(back.filter(|_| own.name != there.name)).collect()
    }
}

/// Returns the state, address and rate of an adapter.
fn describe_end(end: &End<'_>) -> String {
    let state = match end.state {
        HcaState::NoDriver => "has no driver: the guest is off, or its driver is not loaded",
        HcaState::Starting => "has a driver that has made no queues yet",
        HcaState::Active => "has a driver",
    };
    let rate = match end.port.counters.rate_pauses {
        0 => String::new(),
        pauses => format!("; {pauses} calls ended at its rate limit"),
    };
    format!("{} {state}; its address is {}{rate}", end.name, Mac(end.port.mac))
}

/// Returns the connected queue pairs of an adapter that name another, with the number of their
/// peer.
fn naming<'a>(
    end: &'a End<'_>,
    peer: &End<'_>,
) -> impl Iterator<Item = (u32, &'a QueuePair, u32)> + use<'a> {
    let mac = peer.port.mac;
    let named = end.adapter.queue_pairs().filter_map(move |(number, pair)| {
        let peer = pair.attributes().peer.filter(|peer| peer.mac == mac)?;
        Some((number, pair, peer.queue_pair))
    });
    named.take(TRACED_QUEUE_PAIRS_MAX)
}

/// Returns why a queue pair does not accept requests of another, if it does not.
fn fault_of(
    (own, pair): (u32, &QueuePair),
    from: &End<'_>,
    target: Option<&QueuePair>,
) -> Option<String> {
    let Some(target) = target else { return Some("does not exist".into()) };
    let fits = target.kind() == pair.kind().responder() || pair.kind() == target.kind().responder();
    if !fits {
        return Some(format!("has type {}", kind_name(target.kind())));
    }
    match target.attributes().peer {
        None => return Some("names no peer".into()),
        Some(back) if back.mac != from.port.mac => {
            return Some(format!("names an adapter with address {}", Mac(back.mac)));
        }
        Some(back) if back.queue_pair != own => {
            return Some(format!("names queue pair {} instead", back.queue_pair));
        }
        Some(_) => {}
    }
    let receives = target.state().is_receiving();
    (!receives).then(|| format!("does not receive in state {}", state_name(target.state())))
}

/// Appends a step for each queue pair of `own` that names `there`, and the queue pairs reached.
fn describe_pairs(
    (own, there): (&End<'_>, &End<'_>),
    rules: &Rules,
    steps: &mut Vec<String>,
    reached: &mut Vec<String>,
) {
    let before = steps.len();
    for (number, pair, peer) in naming(own, there) {
        let target = there.adapter.queue_pair(peer);
        let result = match fault_of((number, pair), own, target) {
            Some(fault) => format!("which {fault}"),
            None if rules.deny(pair) => "which names it in return: denied by the rules".into(),
            None if pair.state() == State::ReadyToSend => {
                reached.push(format!("{} queue pair {peer}", there.name));
                let state = target.map_or("", |target| state_name(target.state()));
                format!("which names it in return and is {state}: connected")
            }
            None => "which accepts requests; it does not send in this state".into(),
        };
        steps.push(format!(
            "queue pair {number} of {} ({}, {}) names queue pair {peer} of {}, {result}{}",
            own.name,
            kind_name(pair.kind()),
            state_name(pair.state()),
            there.name,
            history(pair),
        ));
    }
    if steps.len() == before {
        steps.push(format!("no connected queue pair of {} names {}", own.name, there.name));
    }
}

/// Returns the refused and waiting requests of a queue pair.
fn history(pair: &QueuePair) -> String {
    let mut text = String::new();
    if pair.refusals() > 0 {
        text = format!("; {} requests found no responder", pair.refusals());
        if let Some(refusal) = pair.refusal() {
            text = format!("{text}, the last because {refusal}");
        }
    }
    match pair.wait_reason() {
        Some(WaitReason::Unanswered) => text.push_str("; a request waits for the responder"),
        Some(WaitReason::Restart) => {
            text.push_str("; a request waits until the responder's adapter is restored");
        }
        Some(WaitReason::NotReady) => text.push_str("; a request waits for a receive work request"),
        None => {}
    }
    text
}

/// Appends a step for each queue pair of `there` that names a queue pair of `own` which does not
/// name it in return.
fn describe_one_sided(there: &End<'_>, own: &End<'_>, steps: &mut Vec<String>) {
    for (number, pair, peer) in naming(there, own) {
        let fault = fault_of((number, pair), there, own.adapter.queue_pair(peer));
        if let Some(fault) = fault {
            steps.push(format!(
                "queue pair {number} of {} ({}, {}) names queue pair {peer} of {}, which {fault}{}",
                there.name,
                kind_name(pair.kind()),
                state_name(pair.state()),
                own.name,
                history(pair),
            ));
        }
    }
}

/// Returns the datagram queue pairs of both adapters.
fn describe_datagrams(own: &End<'_>, there: &End<'_>) -> String {
    let count = |end: &End<'_>, is_wanted: fn(&QueuePair) -> bool| {
        end.adapter.queue_pairs().filter(|(_, pair)| is_wanted(pair)).count()
    };
    let sends = |pair: &QueuePair| pair.kind().is_datagram() && pair.state() == State::ReadyToSend;
    let receives = |pair: &QueuePair| pair.kind() == Kind::Ud && pair.state().is_receiving();
    let manages = |pair: &QueuePair| pair.kind() == Kind::Gsi && pair.state().is_receiving();
    let management = if count(there, manages) > 0 { "answers" } else { "does not answer" };
    format!(
        "{} datagram queue pairs of {} send, {} of {} receive; {} {management} connection managers",
        count(own, sends),
        own.name,
        count(there, receives),
        there.name,
        there.name,
    )
}
