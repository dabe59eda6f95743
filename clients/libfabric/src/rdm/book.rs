//! Names of endpoints, and the numbers by which the application knows them: an address vector.

use std::collections::HashMap;

use causeway_message::library::Source;
use causeway_message::split::{Address, NicId};

use super::Errno;
use crate::abi::{FI_ADDR_NOTAVAIL, FI_EINVAL, FI_ENOMEM};
use crate::address;
use crate::limits::NAMES_MAX;

const MAGIC: [u8; 4] = *b"CWFI";
/// Nobody's number.
pub const NOBODY: u64 = FI_ADDR_NOTAVAIL;

/// A name: who an endpoint is, all over the network.
///
/// | bytes | what |
/// |---|---|
/// | 0 to 8 | address of the board, little-endian |
/// | 8 | number of the endpoint |
/// | 9 to 12 | 0 |
/// | 12 to 16 | session, little-endian |
/// | 16 to 20 | `CWFI` |
/// | 20 to 24 | service, little-endian; 0 if the endpoint was opened without one |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// The endpoint.
    pub source: Source,
    /// The service that it was opened for, or 0. The key of a connect depends on it.
    pub service: u32,
}

impl Name {
    /// As the application passes it round.
    pub fn emit(self) -> address::Address {
        let Source { address: Address { nic, endpoint }, session } = self.source;
        let mut bytes = address::of_service(nic.0, self.service);
        let fields = [endpoint, 0, 0, 0].into_iter().chain(session.to_le_bytes()).chain(MAGIC);
        bytes.iter_mut().skip(8).zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads one; none if it is not of ours.
    pub fn parse(bytes: &address::Address) -> Option<Self> {
        let (_, rest) = bytes.split_first_chunk::<8>()?;
        let (&[endpoint, zero @ ..], rest) = rest.split_first_chunk::<4>()?;
        let (session, rest) = rest.split_first_chunk::<4>()?;
        if !rest.starts_with(&MAGIC) || zero != [0; 3] {
            return None;
        }
        let address = Address { nic: NicId(address::board(bytes)), endpoint };
        let source = Source { address, session: u32::from_le_bytes(*session) };
        Some(Self { source, service: address::service(bytes) })
    }
}

/// See above.
#[derive(Debug, Default)]
pub struct Book {
    names: Vec<Option<Source>>,
    /// The first number of each.
    numbers: HashMap<Source, u64>,
    /// The services of those that were opened for one.
    services: HashMap<Source, u32>,
}

impl Book {
    /// Adds a name; gives its number. The same name may be there more than once.
    ///
    /// # Errors
    /// There are too many.
    pub fn insert(&mut self, name: Name) -> Result<u64, Errno> {
        if self.names.len() >= NAMES_MAX {
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

    /// Takes one out; its number is not used again.
    ///
    /// # Errors
    /// There is none.
    pub fn remove(&mut self, number: u64) -> Result<(), Errno> {
        let place = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at));
        let name = place.and_then(Option::take).ok_or(Errno(FI_EINVAL))?;
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

    /// The name of a number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Source> {
        self.names.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// Returns the name of a number as it was inserted.
    pub fn name(&self, number: u64) -> Option<Name> {
        let source = self.get(number)?;
        let service = self.services.get(&source).copied().unwrap_or(0);
        Some(Name { source, service })
    }

    /// The first number of who has this one: what is counted of each is counted there.
    #[inline]
    pub fn first(&self, number: u64) -> u64 {
        if self.numbers.len() == self.names.len() {
            return number;
        }
        self.get(number).map_or(number, |source| self.find(source))
    }

    /// The number of a name, or [`NOBODY`].
    pub fn find(&self, name: Source) -> u64 {
        self.numbers.get(&name).copied().unwrap_or(NOBODY)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Source { address: Address { nic, endpoint }, session } = self.source;
        write!(f, "causeway://{:012x}/{endpoint}#{session:08x}", nic.0)
    }
}
