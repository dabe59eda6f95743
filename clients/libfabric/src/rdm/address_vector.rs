//! The address vector: names of endpoints, and the indices by which the application refers to them
//! (`fi_addr_t`). It stores names only; connections are in [`connect`](super::connect).
//!
//! # Limits
//! A vector takes at most [`ADDRESSES_MAX`] (2^20) names in its life (`FI_ENOMEM` beyond), because
//! an index is not reused after its removal; removal of an unknown index gives `FI_EINVAL`. A name
//! may have several indices; [`connect`](super::connect) keeps the connection of its endpoint at
//! the first. Insertion does not check that the endpoint exists. Removal of the first or only index
//! of an endpoint is linear in the size of the vector.
//!
//! # Place
//! `shell::av` inserts and removes in the application's threads; all operations look up their peer
//! here, and completions report the first index of a sender, or [`NOT_IN_VECTOR`]. The lock of the
//! domain protects the vector. If an endpoint is inserted with several services, the last applies
//! to all of its indices; a later insertion without a service does not change it.

use std::collections::HashMap;

use causeway_message::library::EndpointIdentity;
use causeway_message::split::{Address, NicId};

use crate::abi::{FI_ADDR_NOTAVAIL, FI_EINVAL, FI_ENOMEM};
use crate::address;
use crate::errno::Errno;
use crate::limits::ADDRESSES_MAX;

/// Marks a name of this provider.
const MAGIC: [u8; 4] = *b"CWFI";
/// The index of an endpoint that is not in the vector.
pub const NOT_IN_VECTOR: u64 = FI_ADDR_NOTAVAIL;

/// The name of an endpoint, which identifies it in the whole network and over time.
///
/// | bytes | field |
/// |---|---|
/// | 0 to 8 | address of the NIC, little-endian |
/// | 8 | number of the endpoint |
/// | 9 to 12 | 0 |
/// | 12 to 16 | session, little-endian |
/// | 16 to 20 | `CWFI` |
/// | 20 to 24 | service, little-endian; 0 if the endpoint was opened without a service |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointName {
    /// The endpoint.
    pub source: EndpointIdentity,
    /// The service that the endpoint was opened for, or 0. It determines the key of a connect.
    pub service: u32,
}

impl EndpointName {
    /// Returns the address that applications exchange.
    pub fn emit(self) -> address::Address {
        let EndpointIdentity { address: Address { nic, endpoint }, session } = self.source;
        let mut bytes = address::of_service(nic.0, self.service);
        let fields = [endpoint, 0, 0, 0].into_iter().chain(session.to_le_bytes()).chain(MAGIC);
        bytes.iter_mut().skip(8).zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Parses an address; returns `None` if it is not a name of this provider.
    pub fn parse(bytes: &address::Address) -> Option<Self> {
        let (_, rest) = bytes.split_first_chunk::<8>()?;
        let (&[endpoint, zero @ ..], rest) = rest.split_first_chunk::<4>()?;
        let (session, rest) = rest.split_first_chunk::<4>()?;
        if !rest.starts_with(&MAGIC) || zero != [0; 3] {
            return None;
        }
        let address = Address { nic: NicId(address::nic(bytes)), endpoint };
        let source = EndpointIdentity { address, session: u32::from_le_bytes(*session) };
        Some(Self { source, service: address::service(bytes) })
    }
}

/// An address vector.
#[derive(Debug, Default)]
pub struct AddressVector {
    /// Endpoints by index; `None` after removal.
    names: Vec<Option<EndpointIdentity>>,
    /// The first index of each endpoint.
    numbers: HashMap<EndpointIdentity, u64>,
    /// The services of endpoints that were opened for a service.
    services: HashMap<EndpointIdentity, u32>,
}

impl AddressVector {
    /// Appends an endpoint name; returns its index. An endpoint may have several indices.
    ///
    /// # Errors
    /// The vector is full.
    pub fn insert(&mut self, name: EndpointName) -> Result<u64, Errno> {
        if self.names.len() >= ADDRESSES_MAX {
            return Err(Errno(FI_ENOMEM));
        }
        let number = u64::try_from(self.names.len()).map_err(|_| Errno(FI_ENOMEM))?;
        self.names.push(Some(name.source));
        self.numbers.entry(name.source).or_insert(number);
        if name.service != 0 {
            self.services.insert(name.source, name.service);
        }
        Ok(number)
    }

    /// Removes an index, which is not reused.
    ///
    /// # Errors
    /// The index is not in use.
    pub fn remove(&mut self, number: u64) -> Result<(), Errno> {
        let slot = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at));
        let name = slot.and_then(Option::take).ok_or(Errno(FI_EINVAL))?;
        if self.numbers.get(&name) == Some(&number) {
            self.numbers.remove(&name);
            let again = self.names.iter().position(|other| *other == Some(name));
            if let Some(again) = again.and_then(|at| u64::try_from(at).ok()) {
                self.numbers.insert(name, again);
            } else {
                self.services.remove(&name);
            }
        }
        Ok(())
    }

    /// Returns the endpoint of an index.
    #[inline]
    pub fn get(&self, number: u64) -> Option<EndpointIdentity> {
        self.names.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// Returns the name of an index, with the last service that was inserted for its endpoint.
    pub fn name(&self, number: u64) -> Option<EndpointName> {
        let source = self.get(number)?;
        let service = self.services.get(&source).copied().unwrap_or(0);
        Some(EndpointName { source, service })
    }

    /// Returns the first index of the same endpoint, which has the state of the connection.
    #[inline]
    pub fn first(&self, number: u64) -> u64 {
        if self.numbers.len() == self.names.len() {
            return number;
        }
        self.get(number).map_or(number, |source| self.find(source))
    }

    /// Returns the first index of an endpoint, or [`NOT_IN_VECTOR`].
    pub fn find(&self, name: EndpointIdentity) -> u64 {
        self.numbers.get(&name).copied().unwrap_or(NOT_IN_VECTOR)
    }
}

impl std::fmt::Display for EndpointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let EndpointIdentity { address: Address { nic, endpoint }, session } = self.source;
        write!(f, "causeway://{:012x}/{endpoint}#{session:08x}", nic.0)
    }
}
