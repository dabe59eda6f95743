//! One board: its name, and who has which of its endpoints.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use causeway_memory::{Mapping, View, create};
use causeway_message::split::{Address, NicId};
use causeway_ring::channel::{Layout, format};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use crate::limits::ENDPOINT_ANY;

/// An endpoint that is open.
#[derive(Debug)]
pub struct Endpoint {
    /// Whose it is.
    pub client: u32,
    pub session: u32,
    pub key: u32,
    /// Rung by its partners when something is in one of its channels. The daemon never rings it:
    /// who has it may make that wait for ever, and the socket tells as well.
    pub bell: OwnedFd,
}

/// A board.
#[derive(Debug)]
pub struct Board {
    pub nic: NicId,
    pub name: String,
    pub endpoints: BTreeMap<u8, Endpoint>,
    /// Processes that are attached.
    pub clients: usize,
    pub opened_total: u64,
    pub ways_total: u64,
    pub refused_total: u64,
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
            clients: 0,
            opened_total: 0,
            ways_total: 0,
            refused_total: 0,
        }
    }

    /// The address of one of its endpoints.
    pub fn address(&self, endpoint: u8) -> Address {
        Address { nic: self.nic, endpoint }
    }

    /// The number that is wanted, if it is free.
    pub fn vacant(&self, wanted: u8) -> Option<u8> {
        let free = |number: &u8| !self.endpoints.contains_key(number);
        if wanted == ENDPOINT_ANY {
            (0..ENDPOINT_ANY).find(free)
        } else {
            Some(wanted).filter(free)
        }
    }

    /// Opens an endpoint that is free. Gives its doorbell.
    pub fn open(
        &mut self,
        number: u8,
        client: u32,
        session: u32,
        key: u32,
    ) -> io::Result<Vec<OwnedFd>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let given = vec![bell.try_clone()?];
        self.endpoints.insert(number, Endpoint { client, session, key, bell });
        self.opened_total = self.opened_total.saturating_add(1);
        Ok(given)
    }
}
