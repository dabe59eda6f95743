//! The service of one group: attachment of processes, their turns, and NICs of ports.
//!
//! [`MxService`] attaches the processes that connect to the socket of a NIC, serves a process, the
//! rings of an endpoint, a carrier or the notices of guests' sessions in each turn of the
//! dispatcher, and disconnects processes that broke a rule, left 1,024 messages unread, or are too
//! slow to wake. Their endpoints close. Answers to single requests are in `mx::requests`, connects
//! in `mx::connects`, guests' sessions in `mx::sessions`, frames in `mx::network`.
//!
//! A turn answers at most [`REQUESTS_PER_TURN_MAX`] (32) requests of a process. Requests that cost
//! system calls are charged to process and user ([`WORK_NS`], [`WORK_OF_USER_NS`]): 1,000 a second
//! for a process and 8,000 for a user, with a burst of about 1 s (`WORK_AHEAD_NS`); a process
//! beyond its rate is paused for at least [`PAUSE_NS`] (10 ms), and its requests wait in its
//! socket. The socket of a process beyond [`CLIENTS_PER_NIC_MAX`] (256) per NIC or
//! [`CLIENTS_PER_USER_MAX`] (224) per user and NIC is closed without an answer, as is that of a
//! user with more than 128 received descriptors that wait for their close, or with wake-ups that
//! took too long; a refusal is counted and noted for the operator. A port is refused if a NIC of
//! the group has its MAC or hostname, or if its carrier cannot be opened. The removal of a NIC
//! disconnects its processes; endpoints in direct mode continue without it.
//!
//! The *value* of a process is the number by which the dispatcher watches its socket. The service
//! sees no message of a channel, matches nothing, and never waits for a process. Called by
//! `fabric`'s dispatcher, one thread at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use causeway_attach::Model;
use causeway_attach::local::{LocalAttachment, LocalError};
use causeway_fabric::dense_map::DenseMap;
use causeway_fabric::{Context, PortId, Progress, Service, SourceProgress, WakeAccount};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::limits::UNCLOSED_MAX;
use causeway_model::{CommandError, PeerView, RequestDispatch, ServiceRequest};
use causeway_model::{MxSpec, PortSpec};
use causeway_mxoe::driver::random;
use causeway_wire::local::{ClientMessage, DaemonMessage};
use causeway_wire::mx::{Address, NicId};
use rustix::net::sockopt;

use crate::attachment::ProcessAttachment;
use crate::attention::Attention;
use crate::channels::ChannelTable;
use crate::client::ClientProcess;
use crate::control::{GuestJoined, ListPeers, ServeGuest};
use crate::limits::{
    CLIENTS_PER_NIC_MAX, CLIENTS_PER_USER_MAX, FRAME_NS, PAUSE_NS, REQUEST_NS,
    REQUESTS_PER_TURN_MAX, UNREAD_BYTES, UNREAD_ENDPOINTS_NAMED_MAX, UNREAD_EVENTS_WARNED,
    USERS_MAX, WORK_NS, WORK_OF_USER_NS,
};
use crate::network::{CarrierSpec, LockFiles, NetworkAction, NetworkConfig, NicNetwork};
use crate::nic::{EndpointEntry, LocalNic};
use crate::process;
use crate::sessions::{self, GuestOfNic, GuestSessions};
use crate::user::User;
use crate::view::ViewNics;

/// Name of the service for operators.
pub(crate) const NAME: &str = "mx";

/// Owner of a number that is watched or served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceOwner {
    /// An attached process.
    ClientProcess,
    /// The rings of an endpoint.
    Endpoint(PortId, u8),
    /// The network of a NIC.
    Carrier(PortId),
    /// Notices of the services that carry sessions.
    Sessions,
}

/// The service for the NICs of one group.
#[derive(Debug, Default)]
pub struct MxService {
    /// NICs of the group, by port.
    pub(crate) nics: DenseMap<PortId, LocalNic>,
    /// Ports of the NICs, by address.
    pub(crate) ports: BTreeMap<NicId, PortId>,
    /// NICs that messages of other NICs reached in this turn.
    pub(crate) touched: Vec<PortId>,
    /// Raised by processes that the end of a call concerns.
    pub(crate) attention: Attention,
    /// Attached processes, by the number that is watched.
    pub(crate) clients: DenseMap<u32, ClientProcess>,
    /// Owners of all numbers that are watched or served.
    pub(crate) sources: DenseMap<u32, SourceOwner>,
    /// Channels between the endpoints of the group.
    pub(crate) channels: ChannelTable,
    /// Accounts of wake-ups, by user.
    wakes: BTreeMap<Option<u32>, Arc<Mutex<WakeAccount>>>,
    /// Sessions of guests' processes.
    pub(crate) sessions: GuestSessions,
    /// Times until which the requests of the users' processes are paid for.
    paid_ns: BTreeMap<User, u64>,
    /// Paused processes.
    paused: BTreeSet<u32>,
    /// The process of the latest costly request. Among paused processes, the next number has the
    /// next turn.
    last_charged: u32,
    /// Time at which the first pause ends, in ns.
    pause_ends_ns: Option<u64>,
    /// Time of the latest call in ns.
    pub(crate) now_ns: u64,
    /// The source in turn, and whether it must be served again although it parked: a message of a
    /// neighbour filled its rings afterwards. A wake-up of the source in turn has no effect.
    served: Option<u32>,
    serves_again: bool,
}

/// Returns a random identity of this daemon process (RFC 9562, version 4).
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

impl MxService {
    /// Creates the service without NICs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an open endpoint of this host and the port of its NIC.
    pub(crate) fn at(&self, address: Address) -> Option<(PortId, &EndpointEntry)> {
        let (port, local_nic) =
            self.nics.iter().find(|(_, local_nic)| local_nic.nic == address.nic)?;
        Some((*port, local_nic.endpoints.get(&address.endpoint)?))
    }

    /// Returns a number that is not watched or served. Numbers are small and are reused.
    pub(crate) fn free_number(&self) -> u32 {
        (0..u32::MAX).find(|value| !self.sources.contains_key(value)).unwrap_or(u32::MAX)
    }

    /// Sends a message with descriptors to a process, or queues it. Pauses a process if the kernel
    /// refuses its descriptors at present, or if waking it takes long.
    pub(crate) fn notify(&mut self, client: u32, message: &DaemonMessage, fds: Vec<OwnedFd>) {
        let Some(told) = self.clients.get_mut(&client) else { return };
        told.notify(message, fds);
        if told.is_at_descriptor_limit() || told.is_paused() {
            self.pause(client, self.now_ns);
        }
    }

    /// Pauses a process until `until` or somewhat later.
    fn pause(&mut self, value: u32, until: u64) {
        let until = until.max(self.now_ns.saturating_add(PAUSE_NS));
        self.paused.insert(value);
        self.pause_ends_ns = Some(self.pause_ends_ns.map_or(until, |at| at.min(until)));
    }

    /// Returns whether the requests of a process wait until its rate allows them.
    pub(crate) fn is_paused(&self, value: u32) -> bool {
        self.paused.contains(&value)
    }

    /// Charges a costly request to a process and its user.
    fn charge(&mut self, value: u32) {
        let now = self.now_ns;
        let Some(client) = self.clients.get_mut(&value) else { return };
        client.paid_ns = client.paid_ns.max(now).saturating_add(WORK_NS);
        let user = self.paid_ns.entry(client.user).or_default();
        *user = (*user).max(now).saturating_add(WORK_OF_USER_NS);
    }

    /// Returns the number of unread descriptors of the processes of a user.
    pub(crate) fn unread_of(&self, user: User) -> usize {
        let its = self.clients.values().filter(|client| client.user == user);
        its.map(ClientProcess::unread_descriptors).sum()
    }

    /// Reports to the process of the endpoint `to` that its channel `way` to `other` is closed.
    pub(crate) fn report_gone(&mut self, to: Address, other: Address, way: u32) {
        if let Some(client) = self.at(to).map(|(_, endpoint)| endpoint.client) {
            let (nic, of, endpoint) = (other.nic.0, other.endpoint, to.endpoint);
            if let Some(client) = self.clients.get_mut(&client) {
                client.report_gone(DaemonMessage::Gone { endpoint, of, way, nic });
            }
        }
    }

    /// Closes an endpoint if it belongs to the process.
    pub(crate) fn close(&mut self, now: u64, value: u32, port: PortId, number: u8) {
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        if !local_nic.is_of(number, value) {
            return;
        }
        if let Some(memory) = self.sessions.take_detached_rings(port, number) {
            // It closes by this call, whose rest is then done.
            return self.close_detached(now, (port, number), memory);
        }
        let address = local_nic.address(number);
        self.drain(now, port, number);
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        local_nic.endpoints.remove(&number);
        let mut source = None;
        let stays = local_nic.network.as_ref().is_some_and(|network| network.stays(number));
        if let Some(network) = local_nic.network.as_mut() {
            source = network.close(now, number);
            // The daemon holds no resources of an endpoint in direct mode.
            if source.is_some()
                && let Some(client) = self.clients.get_mut(&value)
            {
                client.quota.release_endpoint();
                client.quota.set_regions(network.regions_of(|client| client == value));
            }
        }
        // Not before the last access: the carrying shard does not wait for the turn to revoke memory
        // that is forgotten.
        self.sessions.forget_endpoint(port, number);
        if let Some(source) = source {
            self.sources.remove(&source);
        }
        for (other, way) in self.channels.close(address) {
            // An endpoint in direct mode survives its NIC, and so do its channels.
            if !stays {
                self.report_gone(other, address, way);
            }
        }
    }

    /// Disconnects a process and closes its endpoints.
    fn disconnect(&mut self, cx: &mut Context<'_>, value: u32) {
        let Some(client) = self.clients.get(&value) else { return };
        let (port, is_guest) = (client.port, client.session().is_some());
        if is_guest && self.detach_client(value) {
            // Its endpoints close first.
            self.continue_closes(cx);
            return;
        }
        let Some(client) = self.clients.get(&value) else { return };
        match client.ended() {
            None | Some(LocalError::Closed) => {}
            Some(ended) => {
                cx.note(port, format_args!("a process was disconnected: {ended}"));
                let guest = self.nics.get_mut(&port).and_then(|local_nic| local_nic.guest.as_mut());
                if let Some(guest) = guest.filter(|_| is_guest) {
                    guest.failed_total = guest.failed_total.saturating_add(1);
                }
            }
        }
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        local_nic.clients = local_nic.clients.saturating_sub(1);
        let its = |(number, endpoint): (&u8, &EndpointEntry)| {
            (endpoint.client == value).then_some(*number)
        };
        for number in local_nic.endpoints.iter().filter_map(its).collect::<Vec<_>>() {
            self.close(cx.now_ns, value, port, number);
        }
        let client = self.clients.remove(&value);
        if let Some(session) = client.as_ref().and_then(ClientProcess::session) {
            self.sessions.forget_client(session.number());
        }
        let user = client.map(|client| client.user);
        self.sources.remove(&value);
        self.paused.remove(&value);
        if let Some(user) = user
            && self.paid_ns.get(&user).is_some_and(|paid| *paid <= cx.now_ns)
        {
            self.paid_ns.remove(&user);
        }
        self.perform_actions(cx, port);
    }

    /// Disconnects the marked processes, and watches sockets with unsent messages. Disconnecting
    /// may mark others.
    pub(crate) fn disconnect_marked(&mut self, cx: &mut Context<'_>) {
        if !self.attention.take() {
            return;
        }
        while let Some(value) = self.next_ended() {
            self.disconnect(cx, value);
        }
        self.clients.iter_mut().for_each(|(value, client)| client.watch_room(cx, *value));
    }

    /// Returns a process that ended and is not closing yet.
    fn next_ended(&self) -> Option<u32> {
        let is_due = |(value, client): &(&u32, &ClientProcess)| {
            client.ended().is_some() && !self.sessions.is_closing(**value)
        };
        self.clients.iter().find(is_due).map(|(value, _)| *value)
    }

    /// Passes packets of a NIC to its neighbours, and performs the actions that their networks
    /// noted.
    pub(crate) fn perform_actions(&mut self, cx: &mut Context<'_>, port: PortId) {
        let mut receivers = self.exchange(cx, port);
        self.perform_noted(cx, port);
        for receiver in receivers.drain(..) {
            self.perform_noted(cx, receiver);
        }
        if self.touched.is_empty() {
            // The list keeps its memory.
            self.touched = receivers;
        }
    }

    /// Performs the actions that the network of a NIC noted.
    fn perform_noted(&mut self, cx: &mut Context<'_>, port: PortId) {
        let Some(network) =
            self.nics.get_mut(&port).and_then(|local_nic| local_nic.network.as_mut())
        else {
            return;
        };
        if network.take_written() {
            // The reader may need the processor of this thread.
            cx.yield_to_process();
        }
        let mut notes = std::mem::take(&mut network.notes);
        for note in notes.drain(..) {
            match note {
                NetworkAction::Wake { client, endpoint } => {
                    self.notify(client, &DaemonMessage::Wake { endpoint }, vec![]);
                }
                NetworkAction::Serve(source) => {
                    self.wake(cx, source);
                }
                NetworkAction::Broken { client, why } => {
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.end(LocalError::Rule(why));
                    }
                }
            }
        }
        if let Some(local_nic) = self.nics.get_mut(&port)
            && let Some(network) = local_nic.network.as_mut()
            && network.notes.is_empty()
        {
            network.notes = notes;
        }
    }

    /// Has a source served, also if it is the source in turn.
    pub(crate) fn wake(&mut self, cx: &mut Context<'_>, source: u32) {
        self.serves_again |= self.served == Some(source);
        cx.wake_source(source);
    }

    /// Answers the requests of a process.
    fn serve_client(&mut self, cx: &mut Context<'_>, value: u32) -> SourceProgress {
        let mut served = SourceProgress { progress: Progress::Worked, count: 0 };
        let Some(port) = self.clients.get(&value).map(|client| client.port) else {
            return SourceProgress { progress: Progress::Parked, count: 0 };
        };
        for _ in 0..REQUESTS_PER_TURN_MAX {
            served.progress = Progress::Parked;
            // Requests of a session that ended may offer memory that its guest uses otherwise.
            let may =
                |client: &&mut ClientProcess| client.ended().is_none() && client.may_request();
            let Some(client) = self.clients.get_mut(&value).filter(may) else {
                break;
            };
            let paid = self.paid_ns.get(&client.user).copied().unwrap_or(0);
            if let Some(until) = client.charged_until(cx.now_ns, paid) {
                // A process that ended must not keep resources until its pause is over.
                if client.is_gone() {
                    client.end(LocalError::Closed);
                } else {
                    self.pause(value, until);
                }
                break;
            }
            let Some(asked) = client.next() else { break };
            served.progress = Progress::Worked;
            served.count = served.count.saturating_add(1);
            if let Some(local_nic) = self.nics.get_mut(&port) {
                local_nic.asked_total = local_nic.asked_total.wrapping_add(1);
            }
            if is_work(&asked.0) {
                self.charge(value);
                self.last_charged = value;
            }
            if let Err(ended) = self.answer(cx, value, asked)
                && let Some(client) = self.clients.get_mut(&value)
            {
                client.end(ended);
                served.progress = Progress::Parked;
                break;
            }
        }
        self.perform_actions(cx, port);
        served
    }

    /// Sends the queued messages of a process. `is_readable`: the socket may also be readable.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, value: u32, is_readable: bool) {
        if let Some(client) = self.clients.get_mut(&value) {
            client.flush();
            if client.is_at_descriptor_limit() || client.is_paused() {
                self.pause(value, self.now_ns);
            }
        }
        if is_readable {
            cx.wake_source(value);
        }
    }

    /// Returns whether the rings of an endpoint are empty and wait for nothing: most polls find
    /// that.
    #[inline]
    fn is_idle(&self, owner: SourceOwner) -> bool {
        let SourceOwner::Endpoint(port, endpoint) = owner else { return false };
        let network = self.nics.get(&port).and_then(|local_nic| local_nic.network.as_ref());
        network.is_some_and(|network| !network.has_work(endpoint))
    }

    /// Returns the network of a NIC.
    pub(crate) fn network(&mut self, port: PortId) -> Option<&mut NicNetwork> {
        self.nics.get_mut(&port)?.network.as_mut()
    }

    /// Connects a NIC with its network as configured.
    fn open_network(
        &mut self,
        cx: &mut Context<'_>,
        port: PortId,
        mx: MxSpec,
        socket: &Path,
    ) -> Result<NicNetwork, String> {
        let by = match (mx.interface, mx.udp) {
            (Some(interface), _) => CarrierSpec::Interface(interface),
            (None, Some(udp)) => CarrierSpec::Udp(udp.listen, udp.peers),
            (None, None) => CarrierSpec::Local,
        };
        let source = self.free_number();
        let peer = |peer: causeway_model::MxPeer| (NicId::of(peer.mac.0), peer.name);
        let peers = mx.peers.into_iter().map(peer).collect();
        let locks = LockFiles::new(socket);
        let config = NetworkConfig { carrier: by, source, peers, locks, bypass: mx.bypass };
        let network = NicNetwork::new(cx, NicId::of(mx.mac.0), &mx.hostname, config)?;
        self.sources.insert(source, SourceOwner::Carrier(port));
        cx.wake_source(source);
        Ok(network)
    }
}

/// Returns the numbers in order, starting after `last`.
fn in_turn(mut all: BTreeSet<u32>, last: u32) -> impl Iterator<Item = u32> {
    let after = last.checked_add(1).map(|after| all.split_off(&after)).unwrap_or_default();
    after.into_iter().chain(all)
}

/// Returns whether a request costs system calls, so that its rate is limited.
fn is_work(ask: &ClientMessage) -> bool {
    matches!(
        ask,
        ClientMessage::Open { .. }
            | ClientMessage::Resume { .. }
            | ClientMessage::Connect { .. }
            | ClientMessage::Region { .. }
            | ClientMessage::Unregion { .. }
    )
}

impl MxService {
    /// Returns the NICs of other hosts that the group's NICs know.
    fn peers(&self, cx: &Context<'_>) -> Vec<PeerView> {
        let mut all = Vec::new();
        for (port, local_nic) in self.nics.iter() {
            let spec = cx.ports.get(*port).map(|port| &port.spec);
            let (Some(network), Some(spec)) = (local_nic.network.as_ref(), spec) else { continue };
            all.extend(network.peers(cx.now_ns, spec));
        }
        all
    }
}

impl Service for MxService {
    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn attaches(&self, _spec: &PortSpec) -> bool {
        true
    }

    fn attached(&mut self, cx: &mut Context<'_>, port: PortId, stream: UntrustedSocket) {
        let value = self.free_number();
        if self.wakes.len() >= USERS_MAX {
            self.wakes.retain(|_, wakes| Arc::strong_count(wakes) > 1);
        }
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        let Some(of) = cx.ports.get(port) else { return };
        let (group, account) = (of.spec.group.clone(), of.descriptor_account);
        let cred = sockopt::socket_peercred(&stream).ok();
        let uid = cred.map(|cred| cred.uid.as_raw());
        let giver = uid.map_or(account, |uid| account.of_user(uid));
        let stream = stream.charged_to(giver);
        let wakes = self.wakes.entry(uid).or_default().clone();
        let barred = wakes.lock().unwrap_or_else(PoisonError::into_inner).is_barred();
        let its = self
            .clients
            .values()
            .filter(|client| client.port == port && client.user == User::Host(uid));
        let most = match its.count() >= CLIENTS_PER_USER_MAX {
            true => {
                Some(format!("its user has {CLIENTS_PER_USER_MAX} processes here, the maximum"))
            }
            false if local_nic.clients >= CLIENTS_PER_NIC_MAX => {
                Some(format!("the NIC has {CLIENTS_PER_NIC_MAX} processes, the maximum"))
            }
            false if giver.is_behind() => {
                Some(format!("{UNCLOSED_MAX} descriptors of its user wait to be closed"))
            }
            false if barred => Some("waking the processes of its user took too long".to_owned()),
            false => None,
        };
        if let Some(most) = most {
            local_nic.refused_total = local_nic.refused_total.saturating_add(1);
            cx.note(port, format_args!("a process was refused: {most}"));
            return;
        }
        // A larger buffer than necessary does no harm.
        let _ = sockopt::set_socket_send_buffer_size(&stream, UNREAD_BYTES);
        match cx.watch_heard(stream.as_fd(), value) {
            Ok(watch) => {
                local_nic.clients = local_nic.clients.saturating_add(1);
                let process = cred
                    .and_then(|cred| process::open(stream.as_fd(), cred.pid, cred.uid.as_raw()));
                let local = Box::new(LocalAttachment::accepted(stream));
                let attachment = ProcessAttachment::Socket { local, watch, room: None };
                let user = User::Host(uid);
                let (owner, attention) = ((user, process), self.attention.clone());
                let client = ClientProcess::new(port, attachment, group, owner, wakes, attention);
                self.clients.insert(value, client);
                self.sources.insert(value, SourceOwner::ClientProcess);
            }
            Err(error) => cx.note(port, format_args!("a process cannot be watched: {error}")),
        }
    }

    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError> {
        let gate = self.sessions.gate();
        let (_turn, revoked) = sessions::enter(gate.as_ref());
        self.drop_revoked(cx, revoked);
        let spec = cx.ports.get(port).map(|port| port.spec.clone());
        let gone = || CommandError::Host("the port was removed".into());
        let PortSpec { kind, name, group, socket, .. } = spec.ok_or_else(gone)?;
        let mx: MxSpec = kind.get().ok_or_else(gone)?;
        let nic = NicId::of(mx.mac.0);
        for local_nic in self.nics.values() {
            let what = match (local_nic.nic == nic, local_nic.name == mx.hostname) {
                (true, _) => format!("mac {}", mx.mac),
                (_, true) => format!("hostname {}", mx.hostname),
                _ => continue,
            };
            let text = format!("port {name}: {what} belongs to another NIC of the group");
            return Err(CommandError::Conflict(text));
        }
        let mut local_nic = LocalNic::new(nic, mx.hostname.clone(), name.clone(), group);
        local_nic.guest = mx.adapter.clone().map(GuestOfNic::new);
        let network = self
            .open_network(cx, port, mx, &socket)
            .map_err(|text| CommandError::Host(format!("port {name}: {text}")))?;
        local_nic.network.put(Box::new(network));
        self.nics.insert(port, local_nic);
        self.add_neighbours(cx, port);
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, port: PortId) {
        let gate = self.sessions.gate();
        let (_turn, revoked) = sessions::enter(gate.as_ref());
        self.drop_revoked(cx, revoked);
        let guests = self.clients.iter().filter(|(_, client)| client.port == port);
        let guests = guests.filter(|(_, client)| client.session().is_some());
        for value in guests.map(|(value, _)| *value).collect::<Vec<_>>() {
            self.detach_client(value);
        }
        self.close_all_detached(cx);
        self.sessions.forget_nic(port);
        if let Some(network) = self.network(port) {
            network.leave();
        }
        let its = self.clients.iter().filter(|(_, client)| client.port == port);
        for value in its.map(|(value, _)| *value).collect::<Vec<_>>() {
            self.disconnect(cx, value);
        }
        if let Some(local_nic) = self.nics.remove(&port) {
            self.remove_neighbour(cx.now_ns, local_nic.nic);
            let ports: Vec<PortId> = self.nics.keys().copied().collect();
            ports.into_iter().for_each(|other| self.perform_actions(cx, other));
        }
        self.sources.retain(|_, source| match source {
            SourceOwner::ClientProcess | SourceOwner::Sessions => true,
            SourceOwner::Endpoint(of, _) | SourceOwner::Carrier(of) => *of != port,
        });
        self.disconnect_marked(cx);
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        let gate = self.sessions.gate();
        let (_turn, revoked) = sessions::enter(gate.as_ref());
        self.drop_revoked(cx, revoked);
        self.now_ns = cx.now_ns;
        self.flush(cx, value, readable || writable);
        self.disconnect_marked(cx);
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, budget: usize) -> SourceProgress {
        let gate = self.sessions.gate();
        let (_turn, revoked) = sessions::enter(gate.as_ref());
        self.drop_revoked(cx, revoked);
        self.now_ns = cx.now_ns;
        let polled = cx.awaits_source(value);
        let owner = self.sources.get(&value).copied();
        if polled && owner.is_some_and(|owner| self.is_idle(owner)) {
            return SourceProgress { progress: Progress::Idle, count: 0 };
        }
        (self.served, self.serves_again) = (Some(value), false);
        let now = cx.now_ns;
        let parked = SourceProgress { progress: Progress::Parked, count: 0 };
        let served = match owner {
            None => return parked,
            Some(SourceOwner::ClientProcess) => self.serve_client(cx, value),
            Some(SourceOwner::Sessions) => self.serve_notices(cx, value),
            Some(SourceOwner::Endpoint(port, endpoint)) => {
                let budget = budget.min(cx.steps(REQUEST_NS));
                let served = self.serve_rings(now, (port, endpoint), budget, polled);
                let served = served.unwrap_or(parked);
                cx.charge(u64::from(served.count).saturating_mul(REQUEST_NS));
                self.perform_actions(cx, port);
                served
            }
            Some(SourceOwner::Carrier(port)) => {
                let budget = budget.min(cx.steps(FRAME_NS));
                let served = self.network(port).map(|n| n.serve_carrier(now, budget, polled));
                let served = served.unwrap_or(parked);
                cx.charge(u64::from(served.count).saturating_mul(FRAME_NS));
                self.perform_actions(cx, port);
                match self.network(port).is_some_and(|network| network.has_local()) {
                    true => SourceProgress { progress: Progress::Worked, ..served },
                    false => served,
                }
            }
        };
        self.disconnect_marked(cx);
        self.served = None;
        match self.serves_again && served.progress == Progress::Parked {
            true => SourceProgress { progress: Progress::Worked, ..served },
            false => served,
        }
    }

    fn ask(&mut self, cx: &mut Context<'_>, request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|ListPeers| Ok(self.peers(cx)))
            .on(|request: ViewNics| Ok(self.views(cx, &request)))
            .on(|ServeGuest(name)| self.serve_guest(cx, &name))
            .on(|GuestJoined { nic, is_joined }| {
                self.guest_joined(&nic, is_joined);
                Ok(())
            })
    }

    fn deadline_ns(&self) -> Option<u64> {
        let all = self.nics.values().map(|local_nic| local_nic.network.deadline_ns());
        let engines = all.min().filter(|at| *at != u64::MAX);
        [engines, self.pause_ends_ns].into_iter().flatten().min()
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        let gate = self.sessions.gate();
        let (_turn, revoked) = sessions::enter(gate.as_ref());
        self.drop_revoked(cx, revoked);
        self.now_ns = cx.now_ns;
        if self.pause_ends_ns.is_some_and(|at| at <= cx.now_ns) {
            self.pause_ends_ns = None;
            for value in in_turn(std::mem::take(&mut self.paused), self.last_charged) {
                self.flush(cx, value, true);
            }
        }
        let due = |(port, local_nic): (&PortId, &LocalNic)| {
            (local_nic.network.deadline_ns() <= cx.now_ns).then_some(*port)
        };
        for port in self.nics.iter().filter_map(due).collect::<Vec<_>>() {
            if let Some(network) = self.network(port) {
                network.tick(cx);
            }
            self.perform_actions(cx, port);
        }
        self.disconnect_marked(cx);
    }

    fn warnings(&self, port: PortId) -> Vec<String> {
        let Some(local_nic) = self.nics.get(&port) else { return Vec::new() };
        let guest = local_nic.guest.as_ref();
        let waits = guest.and_then(|guest| guest.warning(&local_nic.group));
        let networks = local_nic.network.as_ref().into_iter();
        let unread = networks.flat_map(|network| network.unread_endpoints(UNREAD_EVENTS_WARNED));
        let unread = unread.take(UNREAD_ENDPOINTS_NAMED_MAX).map(|(endpoint, time)| {
            format!(
                "the process of endpoint {endpoint} has read no events for {} s, and there is no \
                 room for more: messages to it wait at their senders until it calls its library",
                time.as_secs()
            )
        });
        waits.into_iter().chain(unread).collect()
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let Some(local_nic) = self.nics.get(&port) else { return BTreeMap::new() };
        let own = [
            ("processes", local_nic.clients as u64),
            ("endpoints", local_nic.endpoints.len() as u64),
            ("endpoints_opened_total", local_nic.opened_total),
            ("ways_total", local_nic.ways_total),
            ("refused_total", local_nic.refused_total),
            ("asked_total", local_nic.asked_total),
        ];
        let mut all = local_nic.network.as_ref().map(NicNetwork::counters).unwrap_or_default();
        let sessions = self.session_counters(port);
        all.extend(own.into_iter().chain(sessions).map(|(name, value)| (name.to_owned(), value)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_start_after_the_process_served_last() {
        let all = || BTreeSet::from([2, 5, 9]);
        let turns = |last| in_turn(all(), last).collect::<Vec<_>>();
        assert_eq!(turns(0), [2, 5, 9]);
        assert_eq!(turns(2), [5, 9, 2]);
        assert_eq!(turns(7), [9, 2, 5]);
        assert_eq!((turns(9), turns(u32::MAX)), (vec![2, 5, 9], vec![2, 5, 9]));
    }
}
