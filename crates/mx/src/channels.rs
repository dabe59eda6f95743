//! The channels between the endpoints of a group.
//!
//! A channel is memory with rings that two processes share: it joins two endpoints of one host, and
//! has a number that is not reused before 2^32 others: a late report of an earlier channel between
//! the same endpoints has no effect. Two endpoints have at most one channel. The table has no
//! limits of its own (`mx::connects` checks the quotas), holds no memory or descriptors, and
//! informs no process: the caller does. Removing a channel twice, or by the number of an earlier
//! channel, has no effect and returns false. Used by `mx::connects`, `mx::requests` and
//! `mx::service` on the dispatcher's thread.

use std::collections::BTreeMap;

use causeway_wire::mx::Address;

/// The channels of a group with their numbers, by the address of each end.
#[derive(Debug, Default)]
pub struct ChannelTable {
    /// Number of each channel, by own end and other end; each channel is entered twice.
    all: BTreeMap<Address, BTreeMap<Address, u32>>,
    /// Number of the latest channel.
    last: u32,
}

impl ChannelTable {
    /// Returns the number of the channel between two endpoints.
    pub fn between(&self, a: Address, b: Address) -> Option<u32> {
        self.all.get(&a)?.get(&b).copied()
    }

    /// Returns the endpoints that have a channel to an endpoint.
    pub fn of(&self, a: Address) -> impl Iterator<Item = Address> {
        self.all.get(&a).into_iter().flat_map(|others| others.keys().copied())
    }

    /// Returns the number of channels of an endpoint.
    pub fn count(&self, a: Address) -> usize {
        self.all.get(&a).map_or(0, BTreeMap::len)
    }

    /// Adds a channel and returns its number. The caller has checked that the endpoints have none.
    pub fn add(&mut self, a: Address, b: Address) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.all.entry(a).or_default().insert(b, self.last);
        self.all.entry(b).or_default().insert(a, self.last);
        self.last
    }

    /// Removes the channel between two endpoints. Returns false if there is none with this number.
    pub fn remove(&mut self, a: Address, b: Address, number: u32) -> bool {
        if self.between(a, b) != Some(number) {
            return false;
        }
        for (one, other) in [(a, b), (b, a)] {
            if let Some(others) = self.all.get_mut(&one) {
                others.remove(&other);
                if others.is_empty() {
                    self.all.remove(&one);
                }
            }
        }
        true
    }

    /// Removes the channels of an endpoint. Returns their other ends and their numbers.
    pub fn close(&mut self, a: Address) -> Vec<(Address, u32)> {
        let others = self.all.get(&a).into_iter().flatten();
        let others: Vec<(Address, u32)> = others.map(|(other, number)| (*other, *number)).collect();
        for (other, number) in &others {
            self.remove(a, *other, *number);
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::mx::NicId;

    #[test]
    fn channel_has_two_ends_and_a_number() {
        let at = |endpoint| Address { nic: NicId(1), endpoint };
        let mut ways = ChannelTable::default();
        let first = ways.add(at(1), at(2));
        let second = ways.add(at(3), at(1));
        assert_eq!(ways.between(at(2), at(1)), Some(first));
        assert_eq!(ways.between(at(1), at(3)), Some(second));
        assert_eq!(ways.between(at(2), at(3)), None);
        assert_eq!(ways.count(at(1)), 2);
        assert!(!ways.remove(at(1), at(3), first), "another's number");
        assert!(ways.remove(at(1), at(3), second) && !ways.remove(at(1), at(3), second));
        assert_eq!(ways.close(at(1)), [(at(2), first)]);
        assert_eq!((ways.count(at(2)), ways.all.len()), (0, 0), "all entries are removed");
        assert_ne!(ways.add(at(1), at(2)), first);
    }
}
