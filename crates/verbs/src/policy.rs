//! The rules of a group for traffic between its adapters.
//!
//! The owner of a [`crate::Subnet`] (`causeway-hca`, in the dispatcher's turn) sets a [`Policy`]
//! ([`crate::Subnet::set_policy`]) and replaces it when the rules change; without a policy every
//! adapter reaches every other. The engine asks for each datagram and each member of a multicast
//! group, and for a connection when its peer is looked up: again after each change of the policy or
//! of the adapters, so that a change also cuts connections. A reliable connection needs both
//! directions, as its responses are traffic too. An adapter always reaches itself.
//!
//! Multicast is traffic to the Ethernet address that belongs to the group's GID, whatever address
//! the sender writes.
//!
//! A check may scan many rules. Its results are kept, at most [`POLICY_RESULTS_MAX`] (4,096), until
//! the next change; a full table is emptied. A check beyond the table takes [`POLICY_CHECK_BYTES`]
//! of the budget.

use std::collections::HashMap;
use std::fmt;

use crate::budget::Budget;
use crate::limits::{POLICY_CHECK_BYTES, POLICY_RESULTS_MAX};

/// An Ethernet address.
type Mac = [u8; 6];

/// Why a policy denies traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Denial {
    /// The route of this number leads elsewhere.
    #[error("route {0} leads elsewhere")]
    Route(u64),
    /// The group forwards by routes, and none matches.
    #[error("the group forwards by routes, and no route matches")]
    NoRoute,
}

/// The rules of a group.
pub trait Policy: Send + fmt::Debug {
    /// Decides whether traffic of adapter `source` to the address `destination` reaches adapter
    /// `receiver`. The two addresses differ for multicast.
    ///
    /// # Errors
    /// The [`Denial`].
    fn check(&self, source: Mac, destination: Mac, receiver: Mac) -> Result<(), Denial>;
}

/// The policy of a subnet with its latest results.
#[derive(Debug, Default)]
pub(crate) struct CheckedPolicy {
    policy: Option<Box<dyn Policy>>,
    results: HashMap<[Mac; 3], Result<(), Denial>, foldhash::fast::RandomState>,
}

impl CheckedPolicy {
    /// Replaces the policy.
    pub fn set(&mut self, policy: Option<Box<dyn Policy>>) {
        self.policy = policy;
        self.results.clear();
    }

    /// Decides as [`Policy::check`], and takes a check that is not known from the budget.
    #[inline]
    pub fn check(
        &mut self,
        source: Mac,
        destination: Mac,
        receiver: Mac,
        budget: &mut Budget,
    ) -> Result<(), Denial> {
        let Some(policy) = self.policy.as_deref().filter(|_| source != receiver) else {
            return Ok(());
        };
        let key = [source, destination, receiver];
        if let Some(known) = self.results.get(&key) {
            return *known;
        }
        budget.take_bytes(POLICY_CHECK_BYTES);
        if self.results.len() >= POLICY_RESULTS_MAX {
            self.results.clear();
        }
        let result = policy.check(source, destination, receiver);
        self.results.insert(key, result);
        result
    }
}

/// Returns the Ethernet address to which a multicast GID is sent (RFC 1112, 6.4, for the IPv4
/// address in a GID; RFC 2464, 7, for others).
pub(crate) const fn multicast_address(gid: &[u8; 16]) -> Mac {
    let [g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, a, b, c, d] = *gid;
    let is_zero = g0 | g1 | g2 | g3 | g4 | g5 | g6 | g7 | g8 | g9 == 0;
    if is_zero && g10 == 0xff && g11 == 0xff {
        [0x01, 0x00, 0x5e, b & 0x7f, c, d]
    } else {
        [0x33, 0x33, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Denies everything, and counts checks.
    #[derive(Debug, Default)]
    struct Counting(Arc<AtomicUsize>);

    impl Policy for Counting {
        fn check(&self, _: Mac, _: Mac, _: Mac) -> Result<(), Denial> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Denial::Route(1))
        }
    }

    #[test]
    fn verbs_policy_results_are_kept_and_bounded() {
        let (mut checked, count) = (CheckedPolicy::default(), Arc::new(AtomicUsize::new(0)));
        let mac = |number: usize| {
            let [a, b, ..] = number.to_le_bytes();
            [2, 0, 0, 0, b, a]
        };
        let mut budget = Budget::new(1, 1 << 40);
        assert_eq!(checked.check(mac(1), mac(2), mac(2), &mut budget), Ok(()));
        checked.set(Some(Box::new(Counting(Arc::clone(&count)))));
        assert_eq!(checked.check(mac(1), mac(1), mac(1), &mut budget), Ok(()), "itself");
        assert_eq!(budget.bytes(), 1 << 40);
        for _ in 0..3 {
            assert!(checked.check(mac(1), mac(2), mac(2), &mut budget).is_err());
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(budget.bytes(), (1 << 40) - POLICY_CHECK_BYTES);
        for number in 2..10_000 {
            let _ = checked.check(mac(1), mac(number), mac(number), &mut budget);
        }
        assert!(checked.results.len() <= POLICY_RESULTS_MAX);
        checked.set(None);
        assert_eq!(checked.check(mac(1), mac(2), mac(2), &mut budget), Ok(()));
    }

    #[test]
    fn verbs_multicast_gid_has_the_address_of_its_kind() {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 239, 129, 2, 3]);
        assert_eq!(multicast_address(&gid), [0x01, 0x00, 0x5e, 1, 2, 3]);
        gid[0] = 0xff;
        assert_eq!(multicast_address(&gid), [0x33, 0x33, 239, 129, 2, 3]);
    }
}
