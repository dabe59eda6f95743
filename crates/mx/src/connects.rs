//! Channels between endpoints of one host: checks, quotas, and the descriptors for both processes.
//!
//! A connect to a NIC of the group on this host ends here: the daemon creates the memory and two
//! doorbells, and sends the descriptors to both processes, to the target first. Any other connect
//! is answered with `Remote`, and the process requests it from the NIC side; if the NIC has no
//! network, it ends with `EndpointUnknown`. A connect from or to an endpoint that gets no channels
//! (its process refuses them, or runs in a guest) is answered with `Remote` too, after both
//! endpoints got rings; it ends with `EndpointUnreachable` if one of them is in direct mode, and
//! with `NoResources` if an endpoint gets no rings. The target process is not asked: its key
//! decides. A target number that is not open ends the connect with `EndpointClosed`, a wrong key
//! with `BadKey`, a connect of an endpoint to itself or from a foreign endpoint with `BadEndpoint`.
//!
//! An endpoint has at most [`CHANNELS_PER_ENDPOINT_MAX`] (1,024) channels. To one target endpoint,
//! the processes of one user request at most [`CHANNELS_OF_USER_MAX`] (896) of them, and another
//! process at most [`CHANNELS_OF_CLIENT_MAX`] (64). A target process with `BACKLOG_MAX` (256)
//! unread messages, or with unread descriptors while its user has 8,192, gets no new channels. (A
//! connect within one process is exempt from the 64 and the 256.) Beyond a quota, and if the kernel
//! has no memory or descriptors left, the connect ends with [`Status::NoResources`]. Two endpoints
//! that have a channel already get no second: the connect ends with [`Status::Success`]. Pidfds for
//! direct reads are passed only between processes of one user (`mx::process`). Called by
//! `mx::requests` on the dispatcher's thread.

use std::io;
use std::os::fd::OwnedFd;

use causeway_attach::doorbell;
use causeway_channel::Layout;
use causeway_fabric::{Context, PortId};
use causeway_wire::local::DaemonMessage;
use causeway_wire::mx::{Address, Status};

use crate::client::ClientProcess;
use crate::limits::{
    CHANNELS_OF_CLIENT_MAX, CHANNELS_OF_USER_MAX, CHANNELS_PER_ENDPOINT_MAX,
    UNREAD_DESCRIPTORS_OF_USER_MAX,
};
use crate::nic::{EndpointEntry, channel};
use crate::service::MxService;

/// Result of a connect request.
pub(crate) enum ConnectOutcome {
    /// Both processes were informed.
    Informed,
    /// The endpoint is on another host. `known`: its NIC is known.
    Remote { known: bool },
    /// The connect ended with a status.
    Ended(Status),
}

/// Returns whether two endpoints of the group get a channel. Otherwise their messages go through
/// the daemon.
fn may_have_channel(own: &EndpointEntry, other: &EndpointEntry) -> bool {
    own.has_channels && other.has_channels
}

impl MxService {
    /// Creates a channel from the endpoint `(port, endpoint)` of the process `value` to the
    /// endpoint `to`, which must have the key. `token`: identifies the request in its answer.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Context<'_>,
        value: u32,
        (port, endpoint): (PortId, u8),
        to: Address,
        key: u32,
        token: u64,
    ) -> ConnectOutcome {
        let Some(local_nic) = self.nics.get(&port) else { return ConnectOutcome::Informed };
        let from = local_nic.address(endpoint);
        let Some(own) = local_nic.endpoints.get(&endpoint).filter(|e| e.client == value) else {
            return ConnectOutcome::Ended(Status::BadEndpoint);
        };
        if !self.nics.values().any(|local_nic| local_nic.nic == to.nic) {
            return match local_nic.network.as_ref().filter(|network| network.is_external()) {
                Some(network) => ConnectOutcome::Remote { known: network.peer(to.nic).is_some() },
                None => ConnectOutcome::Ended(Status::EndpointUnknown),
            };
        }
        let other = match self.target(from, to, key) {
            Ok(other) => other,
            Err(status) => return ConnectOutcome::Ended(status),
        };
        if !may_have_channel(own, other) {
            return self.connect_by_rings(cx, from, to);
        }
        if !self.has_quota(value, from, to, other.client) {
            return ConnectOutcome::Ended(Status::NoResources);
        }
        let Ok([fds, its_fds]) = self.channel_descriptors(value, other.client) else {
            return ConnectOutcome::Ended(Status::NoResources);
        };
        let (peer, own_session, session) = (other.client, own.session, other.session);
        let way = self.channels.add(from, to);
        let side = |endpoint, of: Address, session, token, side| {
            let (nic, of) = (of.nic.0, of.endpoint);
            DaemonMessage::Channel { endpoint, of, side, session, way, token, nic }
        };
        // The target learns of the channel before its first message arrives.
        self.notify(peer, &side(to.endpoint, from, own_session, 0, 1), its_fds);
        self.notify(value, &side(endpoint, to, session, token, 0), fds);
        if let Some(local_nic) = self.nics.get_mut(&port) {
            local_nic.ways_total = local_nic.ways_total.saturating_add(1);
        }
        ConnectOutcome::Informed
    }

    /// Admits a connect through the daemon: both endpoints have rings from now on, and the process
    /// requests the connect from the NIC side.
    fn connect_by_rings(
        &mut self,
        cx: &mut Context<'_>,
        from: Address,
        to: Address,
    ) -> ConnectOutcome {
        if [from, to].iter().any(|end| self.at(*end).is_some_and(|(_, e)| e.is_direct)) {
            return ConnectOutcome::Ended(Status::EndpointUnreachable);
        }
        match self.give_rings(cx, to) && self.give_rings(cx, from) {
            true => ConnectOutcome::Remote { known: true },
            false => ConnectOutcome::Ended(Status::NoResources),
        }
    }

    /// Returns the target of a connect, or the status with which the connect ends:
    /// [`Status::Success`] if both endpoints have a channel already.
    fn target(&self, from: Address, to: Address, key: u32) -> Result<&EndpointEntry, Status> {
        let (_, other) = self.at(to).ok_or(Status::EndpointClosed)?;
        if other.key != key {
            return Err(Status::BadKey);
        }
        if from == to {
            return Err(Status::BadEndpoint);
        }
        match self.channels.between(from, to) {
            Some(_) => Err(Status::Success),
            None => Ok(other),
        }
    }

    /// Returns whether the quotas of both endpoints, of the process and of its user admit a
    /// channel, and whether the target process reads its messages.
    fn has_quota(&self, value: u32, from: Address, to: Address, target: u32) -> bool {
        if [from, to].iter().any(|end| self.channels.count(*end) >= CHANNELS_PER_ENDPOINT_MAX) {
            return false;
        }
        let of_process = |end: &Address| self.at(*end).is_some_and(|(_, e)| e.client == value);
        let own = self.channels.of(to).filter(of_process).count();
        let client = self.clients.get(&target);
        let reads = client.is_some_and(ClientProcess::is_reading);
        if target != value && (own >= CHANNELS_OF_CLIENT_MAX || !reads) {
            return false;
        }
        let its = self.of_same_user(value);
        let of_user = |end: &Address| self.at(*end).is_some_and(|(_, e)| its(e.client));
        // A process that has read all descriptors is not blocked by others of its user.
        let unread = client.is_some_and(|client| client.unread_descriptors() > 0)
            && client.map_or(0, |client| self.unread_of(client.user))
                >= UNREAD_DESCRIPTORS_OF_USER_MAX;
        self.channels.of(to).filter(of_user).count() < CHANNELS_OF_USER_MAX && !unread
    }

    /// Creates the memory and the doorbells of a channel. Returns the descriptors for each process:
    /// the memory, its end of the doorbells, and the pidfd of the other process if permitted.
    fn channel_descriptors(&self, value: u32, target: u32) -> io::Result<[Vec<OwnedFd>; 2]> {
        let (file, [one, other]) = (channel(Layout::DEFAULT)?, doorbell::pair()?);
        let (mut fds, mut its_fds) = (vec![file.try_clone()?, one], vec![file, other]);
        if let Some((own, its)) = self.shareable_pidfds(value, self.clients.get(&target)) {
            fds.push(its.try_clone()?);
            its_fds.push(own.try_clone()?);
        }
        Ok([fds, its_fds])
    }

    /// Returns the pidfds of both processes, if each may get that of the other.
    fn shareable_pidfds<'a>(
        &'a self,
        value: u32,
        other: Option<&'a ClientProcess>,
    ) -> Option<(&'a OwnedFd, &'a OwnedFd)> {
        let (own, other) = (self.clients.get(&value)?, other?);
        let same_user = own.user.is_same_of_host(other.user);
        own.process.as_ref().zip(other.process.as_ref()).filter(|_| same_user)
    }
}
