//! Which endpoints have a way to each other.

use std::collections::{BTreeMap, BTreeSet};

use causeway_message::split::Address;

/// All ways of a group. Each is there from both ends.
#[derive(Debug, Default)]
pub struct Ways {
    all: BTreeMap<Address, BTreeSet<Address>>,
}

impl Ways {
    /// Whether there is a way.
    pub fn has(&self, a: Address, b: Address) -> bool {
        self.all.get(&a).is_some_and(|others| others.contains(&b))
    }

    /// How many ways an endpoint has.
    pub fn count(&self, a: Address) -> usize {
        self.all.get(&a).map_or(0, BTreeSet::len)
    }

    /// There is a way from now on.
    pub fn add(&mut self, a: Address, b: Address) {
        self.all.entry(a).or_default().insert(b);
        self.all.entry(b).or_default().insert(a);
    }

    /// There is none any more. Says whether there was.
    pub fn remove(&mut self, a: Address, b: Address) -> bool {
        let mut was = false;
        for (one, other) in [(a, b), (b, a)] {
            if let Some(others) = self.all.get_mut(&one) {
                was |= others.remove(&other);
                if others.is_empty() {
                    self.all.remove(&one);
                }
            }
        }
        was
    }

    /// An endpoint is closed: those that had ways to it.
    pub fn close(&mut self, a: Address) -> Vec<Address> {
        let others: Vec<Address> = self.all.get(&a).into_iter().flatten().copied().collect();
        for other in &others {
            self.remove(a, *other);
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_message::split::NicId;

    #[test]
    fn a_way_has_two_ends() {
        let at = |endpoint| Address { nic: NicId(1), endpoint };
        let mut ways = Ways::default();
        ways.add(at(1), at(2));
        ways.add(at(3), at(1));
        assert!(ways.has(at(2), at(1)) && ways.has(at(1), at(3)) && !ways.has(at(2), at(3)));
        assert_eq!(ways.count(at(1)), 2);
        assert!(ways.remove(at(1), at(3)) && !ways.remove(at(1), at(3)));
        assert_eq!(ways.close(at(1)), [at(2)]);
        assert_eq!((ways.count(at(2)), ways.all.len()), (0, 0), "nothing is left behind");
    }
}
