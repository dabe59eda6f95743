//! Names of endpoints, and the numbers by which the application knows them: an address vector.

use std::collections::HashMap;

use causeway_message::library::Source;
use causeway_message::split::{Address, NicId};

use super::Errno;
use crate::abi::{FI_ADDR_NOTAVAIL, FI_EINVAL, FI_ENOMEM};
use crate::limits::NAMES_MAX;

/// Bytes of a name.
pub const NAME_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"CWFI";
/// Nobody's number.
pub const NOBODY: u64 = FI_ADDR_NOTAVAIL;

/// A name: who an endpoint is, all over the network.
///
/// | bytes | what |
/// |---|---|
/// | 0 to 4 | `CWFI` |
/// | 4 to 8 | session, little-endian |
/// | 8 to 16 | address of the board, little-endian |
/// | 16 | number of the endpoint |
/// | 17 to 24 | 0 |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(pub Source);

impl Name {
    /// As the application passes it round.
    pub fn emit(self) -> [u8; NAME_BYTES] {
        let Source { address, session } = self.0;
        let mut bytes = [0; NAME_BYTES];
        let fields = MAGIC.into_iter().chain(session.to_le_bytes());
        let fields = fields.chain(address.nic.0.to_le_bytes()).chain([address.endpoint]);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    /// Reads one; none if it is not of ours.
    pub fn parse(bytes: &[u8; NAME_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (session, rest) = rest.split_first_chunk::<4>()?;
        let (nic, rest) = rest.split_first_chunk::<8>()?;
        let (&endpoint, zero) = rest.split_first()?;
        if *magic != MAGIC || zero.iter().any(|&byte| byte != 0) {
            return None;
        }
        let address = Address { nic: NicId(u64::from_le_bytes(*nic)), endpoint };
        Some(Self(Source { address, session: u32::from_le_bytes(*session) }))
    }
}

/// See above.
#[derive(Debug, Default)]
pub struct Book {
    names: Vec<Option<Source>>,
    /// The first number of each.
    numbers: HashMap<Source, u64>,
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
        self.names.push(Some(name.0));
        self.numbers.entry(name.0).or_insert(number);
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
            }
        }
        Ok(())
    }

    /// The name of a number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<Source> {
        self.names.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// The number of a name, or [`NOBODY`].
    pub fn find(&self, name: Source) -> u64 {
        self.numbers.get(&name).copied().unwrap_or(NOBODY)
    }
}
