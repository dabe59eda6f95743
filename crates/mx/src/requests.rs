//! Requests of processes: endpoints, channels, names and regions. Each request gets one answer,
//! except `Close`, `Disconnect` and `Unregion`, which have none.
//!
//! The first request must be `Hello`; a repeated `Hello` is answered again, and so is a `Hello` of
//! another version of the protocol, which is noted for the operator. A request before it, a
//! malformed request, or a `Region` without memory that can be lent disconnects the process. An
//! `Open`, `Resume` or `Region` beyond a limit or without kernel resources, and an `Open` or
//! `Resume` of a number in use, is answered with an `mx_return_t`, a `Connect` with a status
//! (`mx_status_code_t`); a `Find` or `Name` without a result with `known` 0. Requests that a host
//! process sent before it closed its socket are performed, unless its rate is used up; requests
//! that are unread at a disconnect are discarded. Limits: [`ENDPOINTS_PER_USER_MAX`] (224)
//! endpoints of a user on a NIC, [`REGIONS_PER_CLIENT_MAX`] (512) regions of a process,
//! [`REGIONS_PER_NIC_MAX`] (8,192) of a NIC, and the quotas of `mx::quotas`.
//!
//! For an endpoint that is not open or of another process, `Close`, `Disconnect` and `Unregion`
//! have no effect, `Connect` ends with `BadEndpoint`, and `Region` disconnects a host process, and
//! is answered with `MX_NO_RESOURCES` to a guest's process. `Region` for an endpoint without rings
//! disconnects too. `mx::service` reads the requests, limits their rate and calls
//! `MxService::answer` on the dispatcher's thread; `mx::connects` decides about connects, and
//! `mx::session_requests` serves requests with memory of a guest; messages do not pass here.
//! Answers are sent at once, or queued while the socket is full.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use causeway_attach::local::LocalError;
use causeway_fabric::{Context, PortId};
use causeway_mxoe::driver::limits::REGION_BYTES_MAX;
use causeway_mxoe::driver::{RegionRefusal, random};
use causeway_wire::local::{
    ClientMessage, DaemonMessage, HELLO_NO_CHANNELS, HELLO_PIDFDS, Name, VERSION,
};
use causeway_wire::mx::{Address, NicId, RegionId};

use crate::attachment::RequestMemory;
use crate::connects::ConnectOutcome;
use crate::limits::{ENDPOINTS_PER_USER_MAX, REGIONS_PER_CLIENT_MAX, REGIONS_PER_NIC_MAX};
use crate::nic::EndpointEntry;
use crate::service::{MxService, SourceOwner, host};

/// `mx_return_t` codes of an endpoint in use, and of a reached limit.
pub(crate) const BUSY: u32 = 20;
pub(crate) const NO_RESOURCES: u32 = 15;

/// Returns the endpoint of the process that a request names.
fn named_endpoint(ask: &ClientMessage) -> Option<u8> {
    match ask {
        ClientMessage::Close { endpoint }
        | ClientMessage::Connect { endpoint, .. }
        | ClientMessage::Disconnect { endpoint, .. }
        | ClientMessage::Region { endpoint, .. }
        | ClientMessage::Unregion { endpoint, .. } => Some(*endpoint),
        ClientMessage::Hello { .. }
        | ClientMessage::Open { .. }
        | ClientMessage::Resume { .. }
        | ClientMessage::Find { .. }
        | ClientMessage::Name { .. } => None,
    }
}

/// Notes in the log that a process has another version of the protocol.
fn note_version(cx: &mut Context<'_>, port: PortId, version: u16) {
    cx.remark(
        port,
        format_args!(
            "a process has version {version} of the protocol, causewayd {VERSION}: it cannot use \
             the NIC; install its library from the release of causewayd"
        ),
    );
}

impl MxService {
    /// Answers a request of a process.
    ///
    /// # Errors
    /// [`LocalError`]: the process broke a rule and must be disconnected.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context<'_>,
        value: u32,
        (ask, memory): (ClientMessage, RequestMemory),
    ) -> Result<(), LocalError> {
        let Some(client) = self.clients.get_mut(&value) else { return Ok(()) };
        let port = client.port;
        if !client.greeted && !matches!(ask, ClientMessage::Hello { .. }) {
            return Err(LocalError::Closed);
        }
        if let Some(endpoint) = named_endpoint(&ask).filter(|_| client.session().is_some()) {
            self.note_forged(cx, (value, port), endpoint);
        }
        let Some(client) = self.clients.get_mut(&value) else { return Ok(()) };
        let Some(local_nic) = self.nics.get_mut(&port) else { return Err(LocalError::Closed) };
        match ask {
            ClientMessage::Hello { version, direct } => {
                if version != VERSION {
                    note_version(cx, port, version);
                }
                self.answer_hello(value, port, direct)?;
            }
            ClientMessage::Open { tag, endpoint, key } => {
                let vacant = local_nic.free_endpoint(endpoint);
                let (number, secrets) = ((endpoint, vacant), (key, random()));
                self.open_any(cx, (value, port), tag, number, secrets, memory)?;
            }
            ClientMessage::Resume { tag, endpoint, key, session } => {
                let vacant = Some(endpoint).filter(|endpoint| local_nic.is_resumable(*endpoint));
                let (number, secrets) = ((endpoint, vacant), (key, session));
                self.open_any(cx, (value, port), tag, number, secrets, memory)?;
            }
            ClientMessage::Close { endpoint } => self.close(cx.now_ns, value, port, endpoint),
            ClientMessage::Connect { endpoint, to, key, token, nic } => {
                let to = Address { nic: NicId(nic), endpoint: to };
                self.answer_connect(cx, value, (port, endpoint), to, key, token);
            }
            ClientMessage::Disconnect { endpoint, to, way, nic } => {
                let (own, to) =
                    (local_nic.address(endpoint), Address { nic: NicId(nic), endpoint: to });
                if local_nic.is_of(endpoint, value) && self.channels.remove(own, to, way) {
                    self.report_gone(to, own, way);
                }
            }
            ClientMessage::Find { tag, name } => {
                let nic = self.find(port, name.as_str());
                let (known, nic) = nic.map_or((0, 0), |nic| (1, nic.0));
                self.notify(value, &DaemonMessage::Host { tag, known, nic, name }, vec![]);
            }
            ClientMessage::Name { tag, nic } => self.answer_name(value, port, tag, NicId(nic)),
            ClientMessage::Region { tag, endpoint, len } => {
                self.answer_region(cx, (value, port), (tag, endpoint, len), memory)?;
            }
            ClientMessage::Unregion { endpoint, region } => {
                if local_nic.is_of(endpoint, value)
                    && let Some(network) = local_nic.network.as_mut()
                {
                    network.remove_region(cx.now_ns, endpoint, RegionId(region));
                    self.sessions.forget_region(port, endpoint, RegionId(region));
                    client.quota.set_regions(network.regions_of(|client| client == value));
                }
            }
        }
        Ok(())
    }

    /// Registers the memory of a request for large messages of an endpoint, and answers.
    fn answer_region(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        (tag, endpoint, len): (u32, u8, u64),
        memory: RequestMemory,
    ) -> Result<(), LocalError> {
        let memory = match memory {
            RequestMemory::File(file) => file,
            RequestMemory::Guest(memory) => {
                return self.region_in_guest(cx, value, port, (tag, endpoint, len), memory);
            }
            RequestMemory::None => return Err(LocalError::Descriptors),
        };
        let added = self.add_region((value, port), endpoint, memory.as_fd(), len);
        let (code, region) = match added {
            Ok(region) => (0, region.0),
            Err(RegionRefusal::Limit) => (NO_RESOURCES, 0),
            Err(RegionRefusal::Rule) => return Err(LocalError::Descriptors),
        };
        self.notify(value, &DaemonMessage::Region { tag, code, endpoint, region }, vec![]);
        Ok(())
    }

    /// Welcomes a process. `direct`: bits of [`ClientMessage::Hello`].
    fn answer_hello(&mut self, value: u32, port: PortId, direct: u8) -> Result<(), LocalError> {
        let Some(client) = self.clients.get_mut(&value) else { return Ok(()) };
        let Some(local_nic) = self.nics.get(&port) else { return Err(LocalError::Closed) };
        client.greeted = true;
        client.has_channels &= direct & HELLO_NO_CHANNELS == 0;
        if direct & HELLO_PIDFDS == 0 {
            client.process = None;
        }
        let name = Name::new(&local_nic.name).ok_or(LocalError::Closed)?;
        let (nic, host) = (local_nic.nic.0, host());
        self.notify(value, &DaemonMessage::Welcome { version: VERSION, nic, host, name }, vec![]);
        Ok(())
    }

    /// Connects two endpoints of this host. Answers that the process must connect by its network
    /// instead, or the reason if no connection is possible.
    fn answer_connect(
        &mut self,
        cx: &mut Context<'_>,
        value: u32,
        (port, endpoint): (PortId, u8),
        to: Address,
        key: u32,
        token: u64,
    ) {
        match self.connect(cx, value, (port, endpoint), to, key, token) {
            ConnectOutcome::Informed => {}
            ConnectOutcome::Remote { known } => {
                let known = u8::from(known);
                self.notify(value, &DaemonMessage::Remote { endpoint, known, token }, vec![]);
            }
            ConnectOutcome::Ended(status) => {
                let status = u8::try_from(status as u32).unwrap_or(u8::MAX);
                self.notify(value, &DaemonMessage::Refused { endpoint, status, token }, vec![]);
            }
        }
    }

    /// Answers with the name of a NIC, as far as it is known.
    fn answer_name(&mut self, value: u32, port: PortId, tag: u32, nic: NicId) {
        let network = self.nics.get(&port).and_then(|local_nic| local_nic.network.as_ref());
        let peer = network.is_some_and(|network| network.peer(nic).is_some());
        let name = self.name(port, nic).and_then(Name::new);
        let known = u8::from(peer || name.is_some());
        let Some(name) = name.or_else(|| Name::new("")) else { return };
        self.notify(value, &DaemonMessage::Host { tag, known, nic: nic.0, name }, vec![]);
    }

    /// Returns the NIC with a name: of the group on this host, or of another host. The name of a
    /// port of this host counts after all names of NICs.
    fn find(&self, port: PortId, name: &str) -> Option<NicId> {
        let here = self.nics.values().find(|local_nic| local_nic.name == name);
        let network = || self.nics.get(&port)?.network.as_ref()?.find(name);
        let by_port = || self.nics.values().find(|local_nic| local_nic.port_name.as_str() == name);
        here.map(|local_nic| local_nic.nic)
            .or_else(network)
            .or_else(|| by_port().map(|local_nic| local_nic.nic))
    }

    /// Returns the name of a NIC.
    fn name(&self, port: PortId, nic: NicId) -> Option<&str> {
        let here = self.nics.values().find(|local_nic| local_nic.nic == nic);
        let network = || self.nics.get(&port)?.network.as_ref()?.peer(nic)?.name.as_deref();
        here.map(|local_nic| &*local_nic.name).or_else(network)
    }

    /// Opens an endpoint of a host process, or of a guest's process in its memory.
    fn open_any(
        &mut self,
        cx: &mut Context<'_>,
        client: (u32, PortId),
        tag: u32,
        number: (u8, Option<u8>),
        secrets: (u32, u32),
        memory: RequestMemory,
    ) -> Result<(), LocalError> {
        match memory {
            RequestMemory::Guest(memory) => {
                self.open_in_guest(cx, client, tag, number, secrets, memory)
            }
            _ => {
                self.open(cx, client, tag, number, secrets);
                Ok(())
            }
        }
    }

    /// Opens an endpoint, and answers the process with success or failure. `wanted`: the requested
    /// number; `vacant`: the number to open, or `None` if it is in use.
    fn open(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        tag: u32,
        (wanted, vacant): (u8, Option<u8>),
        (key, session): (u32, u32),
    ) {
        let its = self.of_same_user(value);
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        let its = local_nic.endpoints.values().filter(|endpoint| its(endpoint.client)).count();
        let vacant = vacant.ok_or(BUSY).and_then(|endpoint| match its >= ENDPOINTS_PER_USER_MAX {
            true => Err(NO_RESOURCES),
            false => Ok(endpoint),
        });
        let has_channels = self.clients.get(&value).is_some_and(|client| client.has_channels);
        let opened = vacant.and_then(|endpoint| {
            let network = self.network(port).ok_or(NO_RESOURCES)?;
            // The process kept its packet socket from the previous daemon.
            if network.is_survivor(endpoint) {
                return Ok((endpoint, 1, Vec::new()));
            }
            // A process without channels reaches the endpoints of this host by rings of the daemon.
            if has_channels && let Some(fds) = network.open_direct(endpoint) {
                return Ok((endpoint, 1, fds));
            }
            // An endpoint of the previous daemon had rings if it is awaited.
            if has_channels && !network.is_external() && !network.is_awaited(endpoint) {
                return Ok((endpoint, 0, Vec::new()));
            }
            let fds = self.open_rings(cx, (value, port), endpoint, (key, session))?;
            Ok((endpoint, 0, fds))
        });
        let Some(local_nic) = self.nics.get_mut(&port) else { return };
        match opened {
            Ok((endpoint, bypass, fds)) => {
                local_nic.opened_total = local_nic.opened_total.saturating_add(1);
                let is_direct = bypass == 1;
                let entry = EndpointEntry { client: value, session, key, has_channels, is_direct };
                local_nic.endpoints.insert(endpoint, entry);
                let opened = DaemonMessage::Opened { tag, code: 0, session, endpoint, bypass };
                self.notify(value, &opened, fds);
            }
            Err(code) => {
                local_nic.refused_total = local_nic.refused_total.saturating_add(1);
                let refused =
                    DaemonMessage::Opened { tag, code, session: 0, endpoint: wanted, bypass: 0 };
                self.notify(value, &refused, vec![]);
            }
        }
    }

    /// Opens the rings of an endpoint, and serves them from now on. `(key, session)`: those of the
    /// endpoint. Returns the descriptors for its process.
    fn open_rings(
        &mut self,
        cx: &mut Context<'_>,
        (value, port): (u32, PortId),
        endpoint: u8,
        secrets: (u32, u32),
    ) -> Result<Vec<OwnedFd>, u32> {
        let source = self.free_number();
        let client = self.clients.get_mut(&value).ok_or(NO_RESOURCES)?;
        if !client.quota.charge_endpoint() {
            return Err(NO_RESOURCES);
        }
        let network = self.nics.get_mut(&port).and_then(|local_nic| local_nic.network.as_mut());
        let opened =
            network.and_then(|network| network.open(cx, endpoint, (value, source), secrets).ok());
        let Some(fds) = opened else {
            client.quota.release_endpoint();
            return Err(NO_RESOURCES);
        };
        self.sources.insert(source, SourceOwner::Endpoint(port, endpoint));
        // The endpoint is not armed yet: the first pass arms its doorbell.
        cx.wake_source(source);
        Ok(fds)
    }

    /// Gives an open endpoint its rings, if it has none. Returns false without resources, or if its
    /// process has the network itself.
    pub(crate) fn give_rings(&mut self, cx: &mut Context<'_>, to: Address) -> bool {
        let Some((port, entry)) = self.at(to) else { return false };
        let EndpointEntry { client, session, key, is_direct, .. } = *entry;
        let endpoint = to.endpoint;
        if is_direct || self.network(port).is_some_and(|network| network.has_rings(endpoint)) {
            return !is_direct;
        }
        let Ok(fds) = self.open_rings(cx, (client, port), endpoint, (key, session)) else {
            return false;
        };
        let opened = DaemonMessage::Opened { tag: 0, code: 0, session, endpoint, bypass: 0 };
        self.notify(client, &opened, fds);
        true
    }

    /// Returns a predicate for the processes of the same user.
    pub(crate) fn of_same_user(&self, value: u32) -> impl Fn(u32) -> bool + use<> {
        let user = self.clients.get(&value).map(|client| client.user);
        let its = self.clients.iter().filter(|(_, client)| Some(client.user) == user);
        let its: BTreeSet<u32> = its.map(|(value, _)| *value).collect();
        move |client| its.contains(&client)
    }

    /// Registers memory for large messages of an endpoint of the process.
    fn add_region(
        &mut self,
        (value, port): (u32, PortId),
        endpoint: u8,
        memory: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, RegionRefusal> {
        let local_nic =
            self.nics.get_mut(&port).filter(|local_nic| local_nic.is_of(endpoint, value));
        let network = local_nic
            .and_then(|local_nic| local_nic.network.as_mut())
            .ok_or(RegionRefusal::Rule)?;
        if network.regions_of(|client| client == value).0 >= REGIONS_PER_CLIENT_MAX
            || network.regions_of(|_| true).0 >= REGIONS_PER_NIC_MAX
        {
            return Err(RegionRefusal::Limit);
        }
        // The quota is charged before mapping: other processes of the user may register
        // concurrently.
        let client = self.clients.get_mut(&value).ok_or(RegionRefusal::Rule)?;
        if !client.quota.charge_region(len.min(REGION_BYTES_MAX)) {
            return Err(RegionRefusal::Limit);
        }
        let lent = network.add_region(endpoint, memory, len);
        client.quota.set_regions(network.regions_of(|client| client == value));
        lent
    }
}
