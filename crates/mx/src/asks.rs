//! What processes ask for, answered.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use causeway_attach::doorbell;
use causeway_attach::local::Ended;
use causeway_channel::Layout;
use causeway_fabric::{Context, PortId};
use causeway_host::ReceivedFd;
use causeway_mxoe::driver::limits::REGION_BYTES_MAX;
use causeway_mxoe::driver::{RegionRefusal, random};
use causeway_wire::local::{Ask, Name, Tell, VERSION};
use causeway_wire::mx::{Address, NicId, RegionId, Status};

use crate::board::channel;
use crate::client::Client;
use crate::limits::{
    ENDPOINTS_PER_USER_MAX, REGIONS_PER_BOARD_MAX, REGIONS_PER_CLIENT_MAX,
    UNREAD_DESCRIPTORS_OF_USER_MAX, WAYS_OF_CLIENT_MAX, WAYS_OF_USER_MAX, WAYS_PER_ENDPOINT_MAX,
};
use crate::service::{Messages, Source, host};

/// `mx_return_t` of an endpoint that is taken, and of a host without room.
const BUSY: u32 = 20;
const NO_RESOURCES: u32 = 15;

impl Messages {
    /// Answers a process.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        value: u32,
        (ask, memory): (Ask, Option<ReceivedFd>),
    ) -> Result<(), Ended> {
        let Some(client) = self.clients.get_mut(&value) else { return Ok(()) };
        let port = client.port;
        if !client.greeted && !matches!(ask, Ask::Hello { .. }) {
            return Err(Ended::Closed);
        }
        let Some(board) = self.boards.get_mut(&port) else { return Err(Ended::Closed) };
        match ask {
            Ask::Hello { direct, .. } => {
                client.greeted = true;
                if direct == 0 {
                    client.process = None;
                }
                let name = Name::new(&board.name).ok_or(Ended::Closed)?;
                let (nic, host) = (board.nic.0, host());
                self.tell(value, &Tell::Welcome { version: VERSION, nic, host, name }, vec![]);
            }
            Ask::Open { tag, endpoint, key } => {
                let vacant = board.vacant(endpoint);
                self.open(cx, (value, port), tag, (endpoint, vacant), (key, random()));
            }
            Ask::Resume { tag, endpoint, key, session } => {
                let vacant = Some(endpoint).filter(|endpoint| board.is_resumable(*endpoint));
                self.open(cx, (value, port), tag, (endpoint, vacant), (key, session));
            }
            Ask::Close { endpoint } => self.close(cx.now_ns, value, port, endpoint),
            Ask::Connect { endpoint, to, key, token, nic } => {
                let to = Address { nic: NicId(nic), endpoint: to };
                match self.connect(value, (port, endpoint), to, key, token) {
                    Connected::Told => {}
                    Connected::Remote { known } => {
                        let known = u8::from(known);
                        self.tell(value, &Tell::Remote { endpoint, known, token }, vec![]);
                    }
                    Connected::Ended(status) => {
                        let status = u8::try_from(status as u32).unwrap_or(u8::MAX);
                        self.tell(value, &Tell::Refused { endpoint, status, token }, vec![]);
                    }
                }
            }
            Ask::Disconnect { endpoint, to, way, nic } => {
                let (own, to) =
                    (board.address(endpoint), Address { nic: NicId(nic), endpoint: to });
                if board.is_of(endpoint, value) && self.ways.remove(own, to, way) {
                    self.tell_gone(to, own, way);
                }
            }
            Ask::Find { tag, name } => {
                let nic = self.find(port, name.as_str());
                let (known, nic) = nic.map_or((0, 0), |nic| (1, nic.0));
                self.tell(value, &Tell::Host { tag, known, nic, name }, vec![]);
            }
            Ask::Name { tag, nic } => {
                let nic = NicId(nic);
                let peer =
                    board.network.as_ref().is_some_and(|network| network.peer(nic).is_some());
                let name = self.name(port, nic).and_then(Name::new);
                let known = u8::from(peer || name.is_some());
                let Some(name) = name.or_else(|| Name::new("")) else { return Ok(()) };
                let nic = nic.0;
                self.tell(value, &Tell::Host { tag, known, nic, name }, vec![]);
            }
            Ask::Region { tag, endpoint, len } => {
                let memory = memory.ok_or(Ended::Descriptors)?;
                let (code, region) = match self.lend((value, port), endpoint, memory.as_fd(), len) {
                    Ok(region) => (0, region.0),
                    Err(RegionRefusal::Limit) => (NO_RESOURCES, 0),
                    Err(RegionRefusal::Rule) => return Err(Ended::Descriptors),
                };
                self.tell(value, &Tell::Region { tag, code, endpoint, region }, vec![]);
            }
            Ask::Unregion { endpoint, region } => {
                if board.is_of(endpoint, value)
                    && let Some(network) = &mut board.network
                {
                    network.give_back(cx.now_ns, endpoint, RegionId(region));
                    client.lent.is(network.regions_of(|client| client == value));
                }
            }
        }
        Ok(())
    }

    /// The board of that name: of the group on this host, or of another host.
    fn find(&self, port: PortId, name: &str) -> Option<NicId> {
        let here = self.boards.values().find(|board| board.name == name);
        let network = || self.boards.get(&port)?.network.as_ref()?.find(name);
        here.map(|board| board.nic).or_else(network)
    }

    /// What a board is called.
    fn name(&self, port: PortId, nic: NicId) -> Option<&str> {
        let here = self.boards.values().find(|board| board.nic == nic);
        let network = || self.boards.get(&port)?.network.as_ref()?.peer(nic)?.name.as_deref();
        here.map(|board| &*board.name).or_else(network)
    }

    /// Opens an endpoint, or says why not.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        tag: u32,
        (wanted, vacant): (u8, Option<u8>),
        (key, session): (u32, u32),
    ) {
        let source = self.vacancy();
        let its = self.of_same_user(value);
        let Some(board) = self.boards.get_mut(&port) else { return };
        let its = board.endpoints.values().filter(|endpoint| its(endpoint.client)).count();
        let vacant = vacant.ok_or(BUSY).and_then(|endpoint| match its >= ENDPOINTS_PER_USER_MAX {
            true => Err(NO_RESOURCES),
            false => Ok(endpoint),
        });
        let opened = vacant.and_then(|endpoint| {
            let Some(network) = &mut board.network else {
                return Ok((endpoint, 0, Vec::new()));
            };
            // Its process has all that it needs at the network from the daemon before.
            if network.is_outlived(endpoint) {
                return Ok((endpoint, 1, Vec::new()));
            }
            if let Some(fds) = network.open_bypass(endpoint) {
                return Ok((endpoint, 1, fds));
            }
            let client = self.clients.get_mut(&value).ok_or(NO_RESOURCES)?;
            if !client.lent.open() {
                return Err(NO_RESOURCES);
            }
            let opened = network.open(cx, endpoint, (value, source), (key, session));
            if opened.is_err() {
                client.lent.close();
            }
            let fds = opened.map_err(|_| NO_RESOURCES)?;
            self.sources.insert(source, Source::Endpoint(port, endpoint));
            // It asks to be rung.
            cx.wake_source(source);
            Ok((endpoint, 0, fds))
        });
        match opened {
            Ok((endpoint, bypass, fds)) => {
                board.opened_total = board.opened_total.saturating_add(1);
                let entry = crate::board::Endpoint { client: value, session, key };
                board.endpoints.insert(endpoint, entry);
                let opened = Tell::Opened { tag, code: 0, session, endpoint, bypass };
                self.tell(value, &opened, fds);
            }
            Err(code) => {
                board.refused_total = board.refused_total.saturating_add(1);
                let refused = Tell::Opened { tag, code, session: 0, endpoint: wanted, bypass: 0 };
                self.tell(value, &refused, vec![]);
            }
        }
    }

    /// Whether a process is of the same user as another.
    fn of_same_user(&self, value: u32) -> impl Fn(u32) -> bool + use<> {
        let uid = self.clients.get(&value).and_then(|client| client.uid);
        let its = self.clients.iter().filter(|(_, client)| client.uid == uid);
        let its: BTreeSet<u32> = its.map(|(value, _)| *value).collect();
        move |client| its.contains(&client)
    }

    /// Takes memory for large messages.
    fn lend(
        &mut self,
        (value, port): (u32, PortId),
        endpoint: u8,
        memory: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, RegionRefusal> {
        let board = self.boards.get_mut(&port).filter(|board| board.is_of(endpoint, value));
        let network = board.and_then(|board| board.network.as_mut()).ok_or(RegionRefusal::Rule)?;
        if network.regions_of(|client| client == value).0 >= REGIONS_PER_CLIENT_MAX
            || network.regions_of(|_| true).0 >= REGIONS_PER_BOARD_MAX
        {
            return Err(RegionRefusal::Limit);
        }
        // Before it is mapped: others of its user may lend at the same time.
        let client = self.clients.get_mut(&value).ok_or(RegionRefusal::Rule)?;
        if !client.lent.add(len.min(REGION_BYTES_MAX)) {
            return Err(RegionRefusal::Limit);
        }
        let lent = network.lend(endpoint, memory, len);
        client.lent.is(network.regions_of(|client| client == value));
        lent
    }

    /// Both processes, where each may be handed to the other.
    fn mutual<'a>(
        &'a self,
        value: u32,
        other: Option<&'a Client>,
    ) -> Option<(&'a OwnedFd, &'a OwnedFd)> {
        let (own, other) = (self.clients.get(&value)?, other?);
        let same_user = own.uid.is_some() && own.uid == other.uid;
        own.process.as_ref().zip(other.process.as_ref()).filter(|_| same_user)
    }

    /// Makes a way.
    fn connect(
        &mut self,
        value: u32,
        (port, endpoint): (PortId, u8),
        to: Address,
        key: u32,
        token: u64,
    ) -> Connected {
        let Some(board) = self.boards.get(&port) else { return Connected::Told };
        let from = board.address(endpoint);
        let Some(own) = board.endpoints.get(&endpoint).filter(|e| e.client == value) else {
            return Connected::Ended(Status::BadEndpoint);
        };
        if !self.boards.values().any(|board| board.nic == to.nic) {
            return match &board.network {
                Some(network) => Connected::Remote { known: network.peer(to.nic).is_some() },
                None => Connected::Ended(Status::EndpointUnknown),
            };
        }
        let Some((_, other)) = self.at(to) else {
            return Connected::Ended(Status::EndpointClosed);
        };
        if other.key != key {
            return Connected::Ended(Status::BadKey);
        }
        if from == to {
            return Connected::Ended(Status::BadEndpoint);
        }
        if self.ways.between(from, to).is_some() {
            return Connected::Ended(Status::Success);
        }
        if [from, to].iter().any(|end| self.ways.count(*end) >= WAYS_PER_ENDPOINT_MAX) {
            return Connected::Ended(Status::NoResources);
        }
        // Neither one process alone takes all ways of an endpoint, nor is one that is busy given
        // more to read than it can.
        let of_ours = |end: &Address| self.at(*end).is_some_and(|(_, e)| e.client == value);
        let ours = self.ways.of(to).filter(of_ours).count();
        let reads = self.clients.get(&other.client).is_some_and(Client::reads);
        if other.client != value && (ours >= WAYS_OF_CLIENT_MAX || !reads) {
            return Connected::Ended(Status::NoResources);
        }
        // Nor do all of a user, together.
        let its = self.of_same_user(value);
        let of_user = |end: &Address| self.at(*end).is_some_and(|(_, e)| its(e.client));
        let client = self.clients.get(&other.client);
        // Who reads all adds nothing to what its user leaves unread.
        let unread = client.is_some_and(|client| client.unread_descriptors() > 0)
            && self.unread_of(client.and_then(|client| client.uid))
                >= UNREAD_DESCRIPTORS_OF_USER_MAX;
        if self.ways.of(to).filter(of_user).count() >= WAYS_OF_USER_MAX || unread {
            return Connected::Ended(Status::NoResources);
        }
        // To each the memory, its end of the doorbell, and the other process if it may have that.
        let made = || -> std::io::Result<[Vec<OwnedFd>; 2]> {
            let (file, [one, other]) = (channel(Layout::DEFAULT)?, doorbell::pair()?);
            let (mut fds, mut its_fds) = (vec![file.try_clone()?, one], vec![file, other]);
            if let Some((own, its)) = self.mutual(value, client) {
                fds.push(its.try_clone()?);
                its_fds.push(own.try_clone()?);
            }
            Ok([fds, its_fds])
        };
        let Ok([fds, its_fds]) = made() else {
            return Connected::Ended(Status::NoResources);
        };
        let (peer, own_session, session) = (other.client, own.session, other.session);
        let way = self.ways.add(from, to);
        let side = |endpoint, of: Address, session, token, side| {
            let (nic, of) = (of.nic.0, of.endpoint);
            Tell::Channel { endpoint, of, side, session, way, token, nic }
        };
        // The one that was asked hears first: what comes by the channel finds it there.
        self.tell(peer, &side(to.endpoint, from, own_session, 0, 1), its_fds);
        self.tell(value, &side(endpoint, to, session, token, 0), fds);
        if let Some(board) = self.boards.get_mut(&port) {
            board.ways_total = board.ways_total.saturating_add(1);
        }
        Connected::Told
    }
}

/// What came of a wish for a way.
enum Connected {
    /// Both were told.
    Told,
    /// It is another host's, whose board may be known.
    Remote { known: bool },
    /// How it ended.
    Ended(Status),
}
