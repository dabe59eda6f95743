//! One board: its name, and who has which of its endpoints.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use causeway_channel::{Layout, format};
use causeway_memory::{Mapping, View, create};
use causeway_wire::mx::{Address, NicId};

use crate::limits::ENDPOINT_ANY;
use crate::network::Network;

/// An endpoint that is open.
#[derive(Debug)]
pub struct Endpoint {
    /// Whose it is.
    pub client: u32,
    pub session: u32,
    pub key: u32,
}

/// A board.
#[derive(Debug)]
pub struct Board {
    pub nic: NicId,
    pub name: String,
    pub endpoints: BTreeMap<u8, Endpoint>,
    /// What leads to other hosts, if anything does.
    pub network: Option<Network>,
    /// Processes that are attached.
    pub clients: usize,
    pub opened_total: u64,
    pub ways_total: u64,
    pub refused_total: u64,
    /// Questions of processes that were answered.
    pub asked_total: u64,
}

/// The memory of a new channel.
pub fn channel(layout: Layout) -> io::Result<OwnedFd> {
    let other = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
    let len = layout.bytes();
    let file = create("causeway-channel", len as u64)?;
    let mapping = Mapping::new(file.as_fd(), 0, len as u64).map_err(|e| other(&e))?;
    let view = View::new(Arc::new(mapping), 0, len).map_err(|e| other(&e))?;
    format(&view, layout).map_err(|e| other(&e))?;
    Ok(file)
}

impl Board {
    pub fn new(nic: NicId, name: String) -> Self {
        Self {
            nic,
            name,
            endpoints: BTreeMap::new(),
            network: None,
            clients: 0,
            opened_total: 0,
            ways_total: 0,
            refused_total: 0,
            asked_total: 0,
        }
    }

    /// The address of one of its endpoints.
    pub fn address(&self, endpoint: u8) -> Address {
        Address { nic: self.nic, endpoint }
    }

    /// Whether an endpoint is that process's.
    pub fn is_of(&self, endpoint: u8, client: u32) -> bool {
        self.endpoints.get(&endpoint).is_some_and(|e| e.client == client)
    }

    /// Whether a process may have the number that it had from a daemon before: nobody else has it
    /// from this one. At the network it still is, where its process is there itself.
    pub fn is_resumable(&self, number: u8) -> bool {
        number != ENDPOINT_ANY && !self.endpoints.contains_key(&number)
    }

    /// The number that is wanted, if it is free.
    pub fn vacant(&self, wanted: u8) -> Option<u8> {
        let outlived = |number: u8| {
            self.network.as_ref().is_some_and(|n| n.is_outlived(number) || n.is_awaited(number))
        };
        let free = |number: &u8| !self.endpoints.contains_key(number) && !outlived(*number);
        if wanted == ENDPOINT_ANY {
            (0..ENDPOINT_ANY).find(free)
        } else {
            Some(wanted).filter(free)
        }
    }
}
