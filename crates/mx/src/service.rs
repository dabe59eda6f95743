//! The service of boards: processes come, ask, and go.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;

use causeway_attach::Model;
use causeway_attach::local::{Ended, Local};
use causeway_fabric::control::CommandError;
use causeway_fabric::spec::{PortKind, PortSpec};
use causeway_fabric::{Context, PortId, Progress, Served, Service};
use causeway_message::split::{Address, NicId};
use causeway_message::status::Status;
use causeway_ring::channel::Layout;
use causeway_wire::local::{Ask, Name, Tell, VERSION};

use crate::board::{Board, channel};
use crate::client::Client;
use crate::limits::{ASKS_PER_TURN_MAX, CLIENTS_PER_BOARD_MAX, WAYS_PER_ENDPOINT_MAX};
use crate::ways::Ways;

/// `mx_return_t` of an endpoint that is taken, and of a host without room.
const BUSY: u32 = 20;
const NO_RESOURCES: u32 = 15;

/// The boards of one group.
#[derive(Debug, Default)]
pub struct Messages {
    boards: BTreeMap<PortId, Board>,
    /// By the values that they are watched with.
    clients: BTreeMap<u32, Client>,
    last: u32,
    ways: Ways,
}

/// Which daemon this is, as long as it runs.
fn host() -> [u8; 16] {
    static HOST: OnceLock<[u8; 16]> = OnceLock::new();
    *HOST.get_or_init(|| {
        let mut bytes = [0; 16];
        random(&mut bytes);
        // RFC 9562: version 4, variant 1.
        let [.., a, _, b, _, _, _, _, _, _, _] = &mut bytes;
        (*a, *b) = ((*a & 0x0f) | 0x40, (*b & 0x3f) | 0x80);
        bytes
    })
}

fn random(bytes: &mut [u8]) {
    // The kernel gives so few at once, once it has any at all.
    let _ = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
}

impl Messages {
    /// A service without boards.
    pub fn new() -> Self {
        Self::default()
    }

    fn at(&self, address: Address) -> Option<(PortId, &crate::board::Endpoint)> {
        let (port, board) = self.boards.iter().find(|(_, board)| board.nic == address.nic)?;
        Some((*port, board.endpoints.get(&address.endpoint)?))
    }

    fn tell(&mut self, client: u32, tell: &Tell, fds: Vec<OwnedFd>) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.tell(tell, fds);
        }
    }

    /// Answers a process.
    fn answer(&mut self, value: u32, ask: Ask) -> Result<(), Ended> {
        let Some(client) = self.clients.get_mut(&value) else { return Ok(()) };
        let port = client.port;
        if !client.greeted && !matches!(ask, Ask::Hello { .. }) {
            return Err(Ended::Closed);
        }
        let Some(board) = self.boards.get_mut(&port) else { return Err(Ended::Closed) };
        match ask {
            Ask::Hello { .. } => {
                client.greeted = true;
                let name = Name::new(&board.name).ok_or(Ended::Closed)?;
                let nic = board.nic.0;
                self.tell(
                    value,
                    &Tell::Welcome { version: VERSION, nic, host: host(), name },
                    vec![],
                );
            }
            Ask::Open { tag, endpoint, key } => {
                let (tell, fds) = open(board, value, tag, endpoint, key);
                self.tell(value, &tell, fds);
            }
            Ask::Close { endpoint } => self.close(value, port, endpoint),
            Ask::Connect { endpoint, to, key, token, nic } => {
                let to = Address { nic: NicId(nic), endpoint: to };
                let status = self.connect(value, (port, endpoint), to, key, token);
                if let Some(status) = status {
                    let status = u8::try_from(status as u32).unwrap_or(u8::MAX);
                    self.tell(value, &Tell::Refused { endpoint, status, token }, vec![]);
                }
            }
            Ask::Disconnect { endpoint, to, nic } => {
                let own = board.address(endpoint);
                let owned = board.endpoints.get(&endpoint).is_some_and(|e| e.client == value);
                if owned {
                    self.ways.remove(own, Address { nic: NicId(nic), endpoint: to });
                }
            }
            Ask::Find { tag, name } => {
                let found = self.boards.values().find(|board| board.name == name.as_str());
                let (known, nic) = found.map_or((0, 0), |board| (1, board.nic.0));
                self.tell(value, &Tell::Host { tag, known, nic, name }, vec![]);
            }
            Ask::Name { tag, nic } => {
                let found = self.boards.values().find(|board| board.nic == NicId(nic));
                let name = found.and_then(|board| Name::new(&board.name));
                let known = u8::from(name.is_some());
                let Some(name) = name.or_else(|| Name::new("")) else { return Ok(()) };
                self.tell(value, &Tell::Host { tag, known, nic, name }, vec![]);
            }
        }
        Ok(())
    }

    /// Makes a way. Gives how it ended at once, if it did; otherwise both were told.
    fn connect(
        &mut self,
        value: u32,
        (port, endpoint): (PortId, u8),
        to: Address,
        key: u32,
        token: u64,
    ) -> Option<Status> {
        let board = self.boards.get(&port)?;
        let from = board.address(endpoint);
        let Some(own) = board.endpoints.get(&endpoint).filter(|e| e.client == value) else {
            return Some(Status::BadEndpoint);
        };
        if !self.boards.values().any(|board| board.nic == to.nic) {
            return Some(Status::EndpointUnknown);
        }
        let Some((_, other)) = self.at(to) else { return Some(Status::EndpointClosed) };
        if other.key != key {
            return Some(Status::BadKey);
        }
        if from == to {
            return Some(Status::BadEndpoint);
        }
        if self.ways.has(from, to) {
            return Some(Status::Success);
        }
        if [from, to].iter().any(|end| self.ways.count(*end) >= WAYS_PER_ENDPOINT_MAX) {
            return Some(Status::NoResources);
        }
        let made = || -> std::io::Result<[OwnedFd; 4]> {
            let file = channel(Layout::DEFAULT)?;
            let (near, far) = (other.bell.try_clone()?, own.bell.try_clone()?);
            Ok([file.try_clone()?, near, file, far])
        };
        let Ok([first, near, second, far]) = made() else { return Some(Status::NoResources) };
        let (peer, own_session, session) = (other.client, own.session, other.session);
        let side = |endpoint, of: Address, session, token, side| {
            let (nic, of) = (of.nic.0, of.endpoint);
            Tell::Channel { endpoint, of, side, session, token, nic }
        };
        // The one that was asked hears first: what comes by the channel finds it there.
        self.tell(peer, &side(to.endpoint, from, own_session, 0, 1), vec![second, far]);
        self.tell(value, &side(endpoint, to, session, token, 0), vec![first, near]);
        self.ways.add(from, to);
        if let Some(board) = self.boards.get_mut(&port) {
            board.ways_total = board.ways_total.saturating_add(1);
        }
        None
    }

    /// Closes an endpoint if it is that process's.
    fn close(&mut self, value: u32, port: PortId, number: u8) {
        let Some(board) = self.boards.get_mut(&port) else { return };
        let address = board.address(number);
        let Some(endpoint) = board.endpoints.get(&number).filter(|e| e.client == value) else {
            return;
        };
        let session = endpoint.session;
        board.endpoints.remove(&number);
        for other in self.ways.close(address) {
            let Some(client) = self.at(other).map(|(_, endpoint)| endpoint.client) else {
                continue;
            };
            let (nic, of) = (address.nic.0, address.endpoint);
            let endpoint = other.endpoint;
            self.tell(client, &Tell::Gone { endpoint, of, session, nic }, vec![]);
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
        let its = |(number, endpoint): (&u8, &crate::board::Endpoint)| {
            (endpoint.client == value).then_some(*number)
        };
        for number in board.endpoints.iter().filter_map(its).collect::<Vec<_>>() {
            self.close(value, port, number);
        }
        self.clients.remove(&value);
    }

    /// Parts from those that are to be parted from; that may bring more.
    fn part_all(&mut self, cx: &mut Context<'_>) {
        while let Some(value) =
            self.clients.iter().find_map(|(value, c)| c.ended().is_some().then_some(*value))
        {
            self.part(cx, value);
        }
    }
}

/// Opens an endpoint, or says why not.
fn open(board: &mut Board, value: u32, tag: u32, wanted: u8, key: u32) -> (Tell, Vec<OwnedFd>) {
    let refuse = |code| (Tell::Opened { tag, code, session: 0, endpoint: wanted }, Vec::new());
    let Some(endpoint) = board.vacant(wanted) else {
        board.refused_total = board.refused_total.saturating_add(1);
        return refuse(BUSY);
    };
    let mut session = [0; 4];
    random(&mut session);
    let session = u32::from_ne_bytes(session);
    match board.open(endpoint, value, session, key) {
        Ok(fds) => (Tell::Opened { tag, code: 0, session, endpoint }, fds),
        Err(_) => {
            board.refused_total = board.refused_total.saturating_add(1);
            refuse(NO_RESOURCES)
        }
    }
}

impl Service for Messages {
    fn name(&self) -> &'static str {
        "mx"
    }

    fn serves(&self, spec: &PortSpec) -> bool {
        matches!(spec.kind, PortKind::Mx(_))
    }

    fn model(&self, _spec: &PortSpec) -> Model {
        Model::new(0, 0, Vec::new())
    }

    fn attaches(&self, spec: &PortSpec) -> bool {
        self.serves(spec)
    }

    fn attached(&mut self, cx: &mut Context<'_>, port: PortId, stream: OwnedFd) {
        let Some(board) = self.boards.get_mut(&port) else { return };
        if board.clients >= CLIENTS_PER_BOARD_MAX {
            board.refused_total = board.refused_total.saturating_add(1);
            let text = format_args!("a process was turned away: {CLIENTS_PER_BOARD_MAX} are here");
            cx.note(port, text);
            return;
        }
        self.last = self.last.wrapping_add(1);
        match cx.watch(stream.as_fd(), self.last) {
            Ok(watch) => {
                board.clients = board.clients.saturating_add(1);
                self.clients.insert(self.last, Client::new(port, Local::new(stream), watch));
            }
            Err(error) => cx.note(port, format_args!("a process cannot be watched: {error}")),
        }
    }

    fn added(&mut self, cx: &mut Context<'_>, port: PortId) -> Result<(), CommandError> {
        let spec = cx.ports.get(port).map(|port| port.spec.clone());
        let Some(PortSpec { kind: PortKind::Mx(mx), name, .. }) = spec else {
            return Err(CommandError::Host("the port is gone".into()));
        };
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
        self.boards.insert(port, Board::new(nic, mx.hostname));
        Ok(())
    }

    fn removed(&mut self, cx: &mut Context<'_>, port: PortId) {
        let its = self.clients.iter().filter(|(_, client)| client.port == port);
        for value in its.map(|(value, _)| *value).collect::<Vec<_>>() {
            self.part(cx, value);
        }
        self.boards.remove(&port);
        self.part_all(cx);
    }

    fn ready(&mut self, cx: &mut Context<'_>, value: u32, readable: bool, writable: bool) {
        if writable && let Some(client) = self.clients.get_mut(&value) {
            client.flush();
        }
        if readable {
            cx.wake_source(value);
        }
        self.part_all(cx);
    }

    fn serve_source(&mut self, cx: &mut Context<'_>, value: u32, _budget: usize) -> Served {
        let mut served = Served { progress: Progress::Worked, count: 0 };
        for _ in 0..ASKS_PER_TURN_MAX {
            let Some(bytes) = self.clients.get_mut(&value).and_then(Client::next) else {
                served.progress = Progress::Parked;
                break;
            };
            served.count = served.count.saturating_add(1);
            let answered = match Ask::parse(&bytes) {
                Ok(ask) => self.answer(value, ask),
                Err(error) => Err(Ended::Host(std::io::Error::other(error))),
            };
            if let (Err(ended), Some(client)) = (answered, self.clients.get_mut(&value)) {
                client.end(ended);
                served.progress = Progress::Parked;
                break;
            }
        }
        self.part_all(cx);
        served
    }

    fn counters(&self, port: PortId) -> BTreeMap<String, u64> {
        let Some(board) = self.boards.get(&port) else { return BTreeMap::new() };
        [
            ("processes", board.clients as u64),
            ("endpoints", board.endpoints.len() as u64),
            ("endpoints_opened_total", board.opened_total),
            ("ways_total", board.ways_total),
            ("refused_total", board.refused_total),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
