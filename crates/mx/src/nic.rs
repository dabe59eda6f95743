//! A NIC: its name, and the owners of its endpoints.
//!
//! A NIC is an MX address with up to 255 endpoints. A [`LocalNic`] exists as long as its port.
//! Endpoint numbers are 0 to 254, each open at most once; a request to open a number in use, or any
//! number while none is free, is answered with `MX_BUSY`. Numbers of endpoints that survived a
//! daemon are not assigned by a request to open. A request of a host process to resume gets any
//! number that no process of this daemon has: it is not checked that the process had the endpoint
//! before. This module assigns numbers and creates the memory of channels (a sealed memfd); it
//! passes no messages and checks no quotas (`mx::requests` and `mx::connects` do). Used by
//! `mx::service` and the modules beside it, on the dispatcher's thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_channel::{Layout, format};
use causeway_memory::{Mapping, View, create};
use causeway_model::Name;
use causeway_wire::mx::{Address, NicId};

use crate::limits::ENDPOINT_ANY;
use crate::network_slot::NetworkSlot;
use crate::sessions::GuestOfNic;

/// An open endpoint.
#[derive(Debug)]
pub struct EndpointEntry {
    /// The process that opened it.
    pub client: u32,
    /// Session of this instance of the endpoint.
    pub session: u32,
    /// Key that a connect must present.
    pub key: u32,
    /// The process gets channels to other processes. A guest's process, or a process that declined
    /// channels in its `Hello`, does not.
    pub has_channels: bool,
    /// The process has the network itself: the daemon serves no rings of the endpoint.
    pub is_direct: bool,
}

/// A NIC of the group.
#[derive(Debug)]
pub struct LocalNic {
    /// Address of the NIC.
    pub nic: NicId,
    /// Name of the NIC, by which peers find it.
    pub name: String,
    /// Name of the port, by which processes of this host find the NIC too.
    pub port_name: Name,
    /// Group of the port.
    pub group: Name,
    /// Open endpoints, by number.
    pub endpoints: BTreeMap<u8, EndpointEntry>,
    /// The NIC side of the endpoints, and the connection with other hosts if configured.
    pub network: NetworkSlot,
    /// Number of attached processes.
    pub clients: usize,
    /// Number of opened endpoints.
    pub opened_total: u64,
    /// Number of channels that processes of this NIC requested.
    pub ways_total: u64,
    /// Number of refused processes and endpoints.
    pub refused_total: u64,
    /// Number of requests that were read, also of those without an answer.
    pub asked_total: u64,
    /// The guest whose processes use the NIC, if it has one.
    pub guest: Option<GuestOfNic>,
}

/// Creates the memory of a channel.
pub fn channel(layout: Layout) -> io::Result<OwnedFd> {
    let other = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let len = layout.bytes();
    let file = create("causeway-channel", len as u64)?;
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(|e| other(&e))?;
    let view = View::new(Arc::new(mapping), 0, len).map_err(|e| other(&e))?;
    format(&view, layout).map_err(|e| other(&e))?;
    Ok(file)
}

impl LocalNic {
    pub fn new(nic: NicId, name: String, port_name: Name, group: Name) -> Self {
        Self {
            nic,
            name,
            port_name,
            group,
            endpoints: BTreeMap::new(),
            network: NetworkSlot::default(),
            clients: 0,
            opened_total: 0,
            ways_total: 0,
            refused_total: 0,
            asked_total: 0,
            guest: None,
        }
    }

    /// Returns the address of an endpoint.
    pub fn address(&self, endpoint: u8) -> Address {
        Address { nic: self.nic, endpoint }
    }

    /// Returns whether an endpoint belongs to a process.
    pub fn is_of(&self, endpoint: u8, client: u32) -> bool {
        self.endpoints.get(&endpoint).is_some_and(|e| e.client == client)
    }

    /// Returns whether a process may resume an endpoint of the previous daemon: the number is not
    /// in use by this daemon. A packet socket from the previous daemon does not count.
    pub fn is_resumable(&self, number: u8) -> bool {
        number != ENDPOINT_ANY && !self.endpoints.contains_key(&number)
    }

    /// Returns a number for a request to open: `wanted` if it is free, and `None` if it is in use;
    /// for [`ENDPOINT_ANY`] (255) the lowest free number. A number of an endpoint that survived the
    /// previous daemon is not free.
    pub fn free_endpoint(&self, wanted: u8) -> Option<u8> {
        let outlived = |number: u8| {
            self.network.as_ref().is_some_and(|n| n.is_survivor(number) || n.is_awaited(number))
        };
        let free = |number: &u8| !self.endpoints.contains_key(number) && !outlived(*number);
        if wanted == ENDPOINT_ANY {
            (0..ENDPOINT_ANY).find(free)
        } else {
            Some(wanted).filter(free)
        }
    }
}
