//! The service of boards: processes come, ask, and go.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use causeway_attach::Model;
use causeway_attach::local::{Ended, Local};
use causeway_fabric::{Context, PortId, Progress, Served, Service, Wakes};
use causeway_host::fd::receive::Incoming;
use causeway_host::limits::UNCLOSED_MAX;
use causeway_model::{CommandError, Dispatch, PeerView, Request};
use causeway_model::{MxSpec, PortSpec};
use causeway_mxoe::driver::random;
use causeway_wire::local::{Ask, Tell};
use causeway_wire::mx::{Address, NicId};
use rustix::net::sockopt;

use crate::board::{Board, Endpoint};
use crate::client::Client;
use crate::control::Peers;
use crate::limits::{
    ASKS_PER_TURN_MAX, CLIENTS_PER_BOARD_MAX, CLIENTS_PER_USER_MAX, FRAME_NS, REQUEST_NS, REST_NS,
    UNREAD_BYTES, USERS_MAX, WORK_NS, WORK_OF_USER_NS,
};
use crate::network::{By, Locks, Network, Note, Wiring};
use crate::process;
use crate::ways::Ways;

/// The name by which operators know the service.
pub(crate) const NAME: &str = "mx";

/// What a number is watched or served for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A process.
    Client,
    /// The rings of an endpoint.
    Endpoint(PortId, u8),
    /// What carries the frames of a board.
    Carrier(PortId),
}

/// The boards of one group.
#[derive(Debug, Default)]
pub struct Messages {
    pub(crate) boards: BTreeMap<PortId, Board>,
    /// By the values that they are watched with.
    pub(crate) clients: BTreeMap<u32, Client>,
    pub(crate) sources: BTreeMap<u32, Source>,
    pub(crate) ways: Ways,
    /// What messages to users' processes cost.
    wakes: BTreeMap<Option<u32>, Arc<Mutex<Wakes>>>,
    /// What users' processes asked for is paid by then.
    paid_ns: BTreeMap<Option<u32>, u64>,
    /// Processes that rest, and when they have their turn again.
    resting: BTreeSet<u32>,
    /// The process that the host worked for last: of those that rest the next has its turn first.
    worked_for: u32,
    rested_ns: Option<u64>,
    /// The last time that was told.
    now_ns: u64,
}

/// Which daemon this is, as long as it runs.
pub(crate) fn host() -> [u8; 16] {
    static HOST: OnceLock<[u8; 16]> = OnceLock::new();
    *HOST.get_or_init(|| {
        let mut bytes = [0; 16];
        for word in bytes.chunks_exact_mut(4) {
            word.copy_from_slice(&random().to_ne_bytes());
        }
        // RFC 9562: version 4, variant 1.
        let [.., a, _, b, _, _, _, _, _, _, _] = &mut bytes;
        (*a, *b) = ((*a & 0x0f) | 0x40, (*b & 0x3f) | 0x80);
        bytes
    })
}

impl Messages {
    /// A service without boards.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn at(&self, address: Address) -> Option<(PortId, &Endpoint)> {
        let (port, board) = self.boards.iter().find(|(_, board)| board.nic == address.nic)?;
        Some((*port, board.endpoints.get(&address.endpoint)?))
    }

    /// A number that nothing is watched or served for: small, and used again.
    pub(crate) fn vacancy(&self) -> u32 {
        (0..u32::MAX).find(|value| !self.sources.contains_key(value)).unwrap_or(u32::MAX)
    }

    pub(crate) fn tell(&mut self, client: u32, tell: &Tell, fds: Vec<OwnedFd>) {
        let Some(told) = self.clients.get_mut(&client) else { return };
        told.tell(tell, fds);
        if told.is_stuck() || told.is_paused() {
            self.rest(client, self.now_ns);
        }
    }

    /// A process has its turn again then, or somewhat later.
    fn rest(&mut self, value: u32, until: u64) {
        let until = until.max(self.now_ns.saturating_add(REST_NS));
        self.resting.insert(value);
        self.rested_ns = Some(self.rested_ns.map_or(until, |at| at.min(until)));
    }

    /// It asked for something that is work for the host: it pays, and so does its user.
    fn pay(&mut self, value: u32) {
        let now = self.now_ns;
        let Some(client) = self.clients.get_mut(&value) else { return };
        client.paid_ns = client.paid_ns.max(now).saturating_add(WORK_NS);
        let user = self.paid_ns.entry(client.uid).or_default();
        *user = (*user).max(now).saturating_add(WORK_OF_USER_NS);
    }

    /// How many descriptors the processes of a user have not read.
    pub(crate) fn unread_of(&self, uid: Option<u32>) -> usize {
        let its = self.clients.values().filter(|client| client.uid == uid);
        its.map(Client::unread_descriptors).sum()
    }

    /// Tells the one end of a way that it is closed at the other.
    pub(crate) fn tell_gone(&mut self, to: Address, other: Address, way: u32) {
        if let Some(client) = self.at(to).map(|(_, endpoint)| endpoint.client) {
            let (nic, of, endpoint) = (other.nic.0, other.endpoint, to.endpoint);
            if let Some(client) = self.clients.get_mut(&client) {
                client.tell_gone(Tell::Gone { endpoint, of, way, nic });
            }
        }
    }

    /// Closes an endpoint if it is that process's.
    pub(crate) fn close(&mut self, now: u64, value: u32, port: PortId, number: u8) {
        let Some(board) = self.boards.get_mut(&port) else { return };
        if !board.is_of(number, value) {
            return;
        }
        let address = board.address(number);
        board.endpoints.remove(&number);
        let mut source = None;
        let stays = board.network.as_ref().is_some_and(|network| network.stays(number));
        if let Some(network) = &mut board.network {
            source = network.close(now, number);
            // Of one whose process is at the network itself the daemon has nothing.
            if source.is_some()
                && let Some(client) = self.clients.get_mut(&value)
            {
                client.lent.close();
                client.lent.is(network.regions_of(|client| client == value));
            }
        }
        if let Some(source) = source {
            self.sources.remove(&source);
        }
        for (other, way) in self.ways.close(address) {
            // What goes past the daemon outlives it, and so do its ways here.
            if !stays {
                self.tell_gone(other, address, way);
            }
        }
    }

    /// Parts from a process.
    fn part(&mut self, cx: &mut Context<'_>, value: u32) {
        let Some(client) = self.clients.get(&value) else { return };
        let port = client.port;
        match client.ended() {
            None | Some(Ended::Closed) => {}
            Some(ended) => cx.note(port, format_args!("a process was parted from: {ended}")),
        }
        let Some(board) = self.boards.get_mut(&port) else { return };
        board.clients = board.clients.saturating_sub(1);
        let its =
            |(number, endpoint): (&u8, &Endpoint)| (endpoint.client == value).then_some(*number);
        for number in board.endpoints.iter().filter_map(its).collect::<Vec<_>>() {
            self.close(cx.now_ns, value, port, number);
        }
        let uid = self.clients.remove(&value).and_then(|client| client.uid);
        self.sources.remove(&value);
        self.resting.remove(&value);
        if self.paid_ns.get(&uid).is_some_and(|paid| *paid <= cx.now_ns) {
            self.paid_ns.remove(&uid);
        }
        self.heed(cx, port);
    }

    /// Parts from those that are to be parted from; that may bring more.
    fn part_all(&mut self, cx: &mut Context<'_>) {
        while let Some(value) =
            self.clients.iter().find_map(|(value, c)| c.ended().is_some().then_some(*value))
        {
            self.part(cx, value);
        }
        self.clients.iter_mut().for_each(|(value, client)| client.watch_room(cx, *value));
    }

    /// Does what a board's network noted.
    fn heed(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(network) = self.boards.get_mut(&port).and_then(|board| board.network.as_mut())
        else {
            return;
        };
        if network.told() {
            // It may need this very processor to hear it.
            cx.let_in();
        }
        let mut notes = std::mem::take(&mut network.notes);
        for note in notes.drain(..) {
            match note {
                Note::Wake { client, endpoint } => {
                    self.tell(client, &Tell::Wake { endpoint }, vec![]);
                }
                Note::Serve(source) => cx.wake_source(source),
                Note::Broken { client, why } => {
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.end(Ended::Host(std::io::Error::other(why)));
                    }
                }
            }
        }
        if let Some(board) = self.boards.get_mut(&port)
            && let Some(network) = &mut board.network
            && network.notes.is_empty()
        {
            network.notes = notes;
        }
    }

    /// Answers what a process asks.
    fn serve_client(&mut self, cx: &mut Context<'_>, value: u32) -> Served {
        let mut served = Served { progress: Progress::Worked, count: 0 };
        let Some(port) = self.clients.get(&value).map(|client| client.port) else {
            return Served { progress: Progress::Parked, count: 0 };
        };
        for _ in 0..ASKS_PER_TURN_MAX {
            served.progress = Progress::Parked;
            let Some(client) = self.clients.get_mut(&value).filter(|client| client.is_heard())
            else {
                break;
            };
            let paid = self.paid_ns.get(&client.uid).copied().unwrap_or(0);
            if let Some(until) = client.rests_until(cx.now_ns, paid) {
                // Who is gone asks nothing any more, and others wait for what it has.
                if client.is_gone() {
                    client.end(Ended::Closed);
                } else {
                    self.rest(value, until);
                }
                break;
            }
            let Some(asked) = client.next() else { break };
            served.progress = Progress::Worked;
            served.count = served.count.saturating_add(1);
            if let Some(board) = self.boards.get_mut(&port) {
                board.asked_total = board.asked_total.wrapping_add(1);
            }
            if is_work(&asked.0) {
                self.pay(value);
                self.worked_for = value;
            }
            if let Err(ended) = self.answer(cx, value, asked)
                && let Some(client) = self.clients.get_mut(&value)
            {
                client.end(ended);
                served.progress = Progress::Parked;
                break;
            }
        }
        self.heed(cx, port);
        served
    }

    /// Tells a process what waits; `hears`: there may be something to hear of it.
    fn flush(&mut self, cx: &mut Context<'_>, value: u32, hears: bool) {
        if let Some(client) = self.clients.get_mut(&value) {
            client.flush();
            if client.is_stuck() || client.is_paused() {
                self.rest(value, self.now_ns);
            }
        }
        if hears {
            cx.wake_source(value);
        }
    }

    fn network(&mut self, port: PortId) -> Option<&mut Network> {
        self.boards.get_mut(&port)?.network.as_mut()
    }

    /// What leads to other hosts, as the operator wants it.
    fn wire(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        mx: MxSpec,
        socket: &Path,
    ) -> Result<Option<Network>, String> {
        let by = match (mx.interface, mx.udp) {
            (Some(interface), _) => By::Interface(interface),
            (None, Some(udp)) => By::Udp(udp.listen, udp.peers),
            (None, None) => return Ok(None),
        };
        let source = self.vacancy();
        let peer = |peer: causeway_model::MxPeer| (NicId::of(peer.mac.0), peer.name);
        let peers = mx.peers.into_iter().map(peer).collect();
        let locks = Locks::new(socket);
        let wiring = Wiring { by, source, peers, locks, bypass: mx.bypass };
        let network = Network::new(cx, NicId::of(mx.mac.0), &mx.hostname, wiring)?;
        self.sources.insert(source, Source::Carrier(port));
        cx.wake_source(source);
        Ok(Some(network))
    }
}

/// Numbers in order, those after `last` first.
fn in_turn(mut all: BTreeSet<u32>, last: u32) -> impl Iterator<Item = u32> {
    let after = last.checked_add(1).map(|after| all.split_off(&after)).unwrap_or_default();
    after.into_iter().chain(all)
}

/// Whether a question makes the host work: a process that asks such ones alone is to cost others
/// little.
fn is_work(ask: &Ask) -> bool {
    matches!(
        ask,
        Ask::Open { .. }
            | Ask::Resume { .. }
            | Ask::Connect { .. }
            | Ask::Region { .. }
            | Ask::Unregion { .. }
    )
}

impl Messages {
    /// Returns the NICs of other hosts that the group's NICs know.
    fn peers(&self, cx: &Context<'_>) -> Vec<PeerView> {
        let mut all = Vec::new();
        for (port, board) in &self.boards {
            let spec = cx.ports.get(*port).map(|port| &port.spec);
            let (Some(network), Some(spec)) = (&board.network, spec) else { continue };
            all.extend(network.peers(cx.now_ns, spec));
        }
        all
    }
}

impl Service for Messages {
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn attaches(&self, _spec: &PortSpec) -> bool {
        true
    }

    fn attached(&mut self, cx: &mut Context<'_>, port: PortId, stream: Incoming) {
        let value = self.vacancy();
        if self.wakes.len() >= USERS_MAX {
            self.wakes.retain(|_, wakes| Arc::strong_count(wakes) > 1);
        }
        let Some(board) = self.boards.get_mut(&port) else { return };
        let Some(of) = cx.ports.get(port) else { return };
        let (group, account) = (of.spec.group.clone(), of.giver);
        let cred = sockopt::socket_peercred(&stream).ok();
        let uid = cred.map(|cred| cred.uid.as_raw());
        let giver = uid.map_or(account, |uid| account.of_user(uid));
        let stream = stream.given_by(giver);
        let wakes = self.wakes.entry(uid).or_default().clone();
        let barred = wakes.lock().unwrap_or_else(PoisonError::into_inner).is_barred();
        let its = self.clients.values().filter(|client| client.port == port && client.uid == uid);
        let most = match its.count() >= CLIENTS_PER_USER_MAX {
            true => Some(format!("its user has {CLIENTS_PER_USER_MAX} here")),
            false if board.clients >= CLIENTS_PER_BOARD_MAX => {
                Some(format!("{CLIENTS_PER_BOARD_MAX} are here"))
            }
            false if giver.is_behind() => {
                Some(format!("{UNCLOSED_MAX} descriptors of its user are yet to be closed"))
            }
            false if barred => Some("waking those of its user took too long".to_owned()),
            false => None,
        };
        if let Some(most) = most {
            board.refused_total = board.refused_total.saturating_add(1);
            cx.note(port, format_args!("a process was turned away: {most}"));
            return;
        }
        // Without it there is only more room than is needed.
        let _ = sockopt::set_socket_send_buffer_size(&stream, UNREAD_BYTES);
        match cx.watch_heard(stream.as_fd(), value) {
            Ok(watch) => {
                board.clients = board.clients.saturating_add(1);
                let process = cred
                    .and_then(|cred| process::open(stream.as_fd(), cred.pid, cred.uid.as_raw()));
                let local = Local::accepted(stream);
                let client = Client::new(port, local, watch, group, (uid, process), wakes);
                self.clients.insert(value, client);
                self.sources.insert(value, Source::Client);
            }
            Err(error) => cx.note(port, format_args!("a process cannot be watched: {error}")),
        }
    }

    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError> {
        let spec = cx.ports.get(port).map(|port| port.spec.clone());
        let gone = || CommandError::Host("the port is gone".into());
        let PortSpec { kind, name, socket, .. } = spec.ok_or_else(gone)?;
        let mx: MxSpec = kind.get().ok_or_else(gone)?;
        let nic = NicId::of(mx.mac.0);
        for board in self.boards.values() {
            let what = match (board.nic == nic, board.name == mx.hostname) {
                (true, _) => format!("mac {}", mx.mac),
                (_, true) => format!("hostname {}", mx.hostname),
                _ => continue,
            };
            let text = format!("port {name}: {what} is that of another board of the group");
            return Err(CommandError::Conflict(text));
        }
        let mut board = Board::new(nic, mx.hostname.clone());
        board.network = self
            .wire(cx, port, mx, &socket)
            .map_err(|text| CommandError::Host(format!("port {name}: {text}")))?;
        self.boards.insert(port, board);
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, port: PortId) {
        if let Some(network) = self.network(port) {
            network.leave();
        }
        let its = self.clients.iter().filter(|(_, client)| client.port == port);
        for value in its.map(|(value, _)| *value).collect::<Vec<_>>() {
            self.part(cx, value);
        }
        self.boards.remove(&port);
        self.sources.retain(|_, source| match source {
            Source::Client => true,
            Source::Endpoint(of, _) | Source::Carrier(of) => *of != port,
        });
        self.part_all(cx);
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        self.now_ns = cx.now_ns;
        self.flush(cx, value, readable || writable);
        self.part_all(cx);
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> Served {
        self.now_ns = cx.now_ns;
        let polled = cx.awaits_source(value);
        let now = cx.now_ns;
        let parked = Served { progress: Progress::Parked, count: 0 };
        let served = match self.sources.get(&value).copied() {
            None => return parked,
            Some(Source::Client) => self.serve_client(cx, value),
            Some(Source::Endpoint(port, endpoint)) => {
                let network = self.network(port);
                let budget = budget.min(cx.steps(REQUEST_NS));
                let served = network.map(|n| n.serve_endpoint(now, endpoint, budget, polled));
                let served = served.unwrap_or(parked);
                cx.charge(u64::from(served.count).saturating_mul(REQUEST_NS));
                self.heed(cx, port);
                served
            }
            Some(Source::Carrier(port)) => {
                let budget = budget.min(cx.steps(FRAME_NS));
                let served = self.network(port).map(|n| n.serve_carrier(now, budget, polled));
                let served = served.unwrap_or(parked);
                cx.charge(u64::from(served.count).saturating_mul(FRAME_NS));
                self.heed(cx, port);
                served
            }
        };
        self.part_all(cx);
        served
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: Request) -> Dispatch {
        Dispatch::new(request).on(|Peers| Ok(self.peers(cx)))
    }

    fn deadline_ns(&self) -> Option<u64> {
        let networks = self.boards.values().filter_map(|board| board.network.as_ref());
        let engines = networks.map(Network::deadline).min().filter(|at| *at != u64::MAX);
        [engines, self.rested_ns].into_iter().flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.now_ns = cx.now_ns;
        if self.rested_ns.is_some_and(|at| at <= cx.now_ns) {
            self.rested_ns = None;
            for value in in_turn(std::mem::take(&mut self.resting), self.worked_for) {
                self.flush(cx, value, true);
            }
        }
        let due = |(port, board): (&PortId, &Board)| {
            let at = board.network.as_ref().map(Network::deadline)?;
            (at <= cx.now_ns).then_some(*port)
        };
        for port in self.boards.iter().filter_map(due).collect::<Vec<_>>() {
            if let Some(network) = self.network(port) {
                network.tick(cx);
            }
            self.heed(cx, port);
        }
        self.part_all(cx);
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let Some(board) = self.boards.get(&port) else { return BTreeMap::new() };
        let own = [
            ("processes", board.clients as u64),
            ("endpoints", board.endpoints.len() as u64),
            ("endpoints_opened_total", board.opened_total),
            ("ways_total", board.ways_total),
            ("refused_total", board.refused_total),
            ("asked_total", board.asked_total),
        ];
        let mut all = board.network.as_ref().map(Network::counters).unwrap_or_default();
        all.extend(own.map(|(name, value)| (name.to_owned(), value)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_served_last_has_the_next_turn() {
        let all = || BTreeSet::from([2, 5, 9]);
        let turns = |last| in_turn(all(), last).collect::<Vec<_>>();
        assert_eq!(turns(0), [2, 5, 9]);
        assert_eq!(turns(2), [5, 9, 2]);
        assert_eq!(turns(7), [9, 2, 5]);
        assert_eq!((turns(9), turns(u32::MAX)), (vec![2, 5, 9], vec![2, 5, 9]));
    }
}
