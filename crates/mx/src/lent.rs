//! What users' processes have of the daemon's, on all boards of their group: mappings of what they
//! lent, and what it keeps of messages of their endpoints. Both are as scarce for one board as for
//! another. Groups are tenants: the user of one is not held to what the user of another has, though
//! both are the same to the host.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_model::Name;

use crate::limits::{
    ENDPOINTS_HELD_PER_USER_MAX, REGION_BYTES_PER_USER_MAX, REGIONS_MAX, REGIONS_PER_USER_MAX,
};

/// Regions, and their bytes; and endpoints that are on a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    regions: usize,
    bytes: u64,
    endpoints: usize,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        let regions = self.regions.saturating_add(other.regions);
        let endpoints = self.endpoints.saturating_add(other.endpoints);
        Self { regions, bytes: self.bytes.saturating_add(other.bytes), endpoints }
    }

    fn minus(self, other: Self) -> Self {
        let regions = self.regions.saturating_sub(other.regions);
        let endpoints = self.endpoints.saturating_sub(other.endpoints);
        Self { regions, bytes: self.bytes.saturating_sub(other.bytes), endpoints }
    }
}

/// A group, and whom its processes run as, if that is known.
type User = (Name, Option<u32>);

static USERS: Mutex<BTreeMap<User, Sum>> = Mutex::new(BTreeMap::new());

fn users() -> MutexGuard<'static, BTreeMap<User, Sum>> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one process lent: a part of what its user did.
#[derive(Debug)]
pub struct Lent {
    user: User,
    own: Sum,
}

impl Lent {
    /// Nothing yet.
    pub fn nothing(group: Name, uid: Option<u32>) -> Self {
        Self { user: (group, uid), own: Sum::default() }
    }

    /// One region more, if its user and all users together may.
    pub fn add(&mut self, bytes: u64) -> bool {
        let mut users = users();
        let all = users.values().fold(0_usize, |sum, user| sum.saturating_add(user.regions));
        let user = users.entry(self.user.clone()).or_default();
        let one = Sum { regions: 1, bytes, ..Sum::default() };
        let then = user.plus(one);
        let fits = all < REGIONS_MAX
            && then.regions <= REGIONS_PER_USER_MAX
            && then.bytes <= REGION_BYTES_PER_USER_MAX;
        if fits {
            *user = then;
            self.own = self.own.plus(one);
        }
        fits
    }

    /// One endpoint more on a network, if its user may: the daemon keeps messages of each.
    pub fn open(&mut self) -> bool {
        let mut users = users();
        let user = users.entry(self.user.clone()).or_default();
        let fits = user.endpoints < ENDPOINTS_HELD_PER_USER_MAX;
        if fits {
            let one = Sum { endpoints: 1, ..Sum::default() };
            (*user, self.own) = (user.plus(one), self.own.plus(one));
        }
        fits
    }

    /// One endpoint less.
    pub fn close(&mut self) {
        let one = Sum { endpoints: 1, ..Sum::default() };
        self.set(self.own.minus(one));
    }

    /// So much is lent now.
    pub fn is(&mut self, (regions, bytes): (usize, u64)) {
        self.set(Sum { regions, bytes, ..self.own });
    }

    fn set(&mut self, now: Sum) {
        let mut users = users();
        let user = users.entry(self.user.clone()).or_default();
        *user = user.minus(self.own).plus(now);
        self.own = now;
        if *user == Sum::default() {
            users.remove(&self.user);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.set(Sum::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_lends_so_much_on_all_boards_and_leaves_some_to_others() {
        // As many processes as there may be of it, on many boards.
        let lender = |group: &str, uid| Lent::nothing(group.parse().unwrap(), Some(uid));
        let of = |uid| (0..20).map(|_| lender("red", uid)).collect::<Vec<_>>();
        let (mut one, mut other) = (of(1), of(2));
        let mut elsewhere = (0..20).map(|_| lender("blue", 1)).collect::<Vec<_>>();
        let lend = |all: &mut Vec<Lent>| {
            (0..=REGIONS_PER_USER_MAX).filter(|at| all[at % 20].add(4096)).count()
        };
        assert_eq!(lend(&mut one), REGIONS_PER_USER_MAX);
        assert_eq!(lend(&mut other), REGIONS_PER_USER_MAX, "it has its own");
        assert_eq!(lend(&mut elsewhere), REGIONS_PER_USER_MAX, "so has its name in another group");
        drop(elsewhere);
        one[3].is((1, 4096));
        let given = REGIONS_PER_USER_MAX.div_ceil(20) - 1;
        assert!((given - 1..=given).contains(&lend(&mut one)), "what it gave back it may lend");
        drop(one);
        let mut again = lender("red", 1);
        assert!(again.add(REGION_BYTES_PER_USER_MAX) && !again.add(1), "and so many bytes");
        again.is((0, 0));
        // All users together leave some of what the daemon may map.
        let mut many = (10..20).map(of).collect::<Vec<_>>();
        let lent = many.iter_mut().map(lend).sum::<usize>();
        assert_eq!(lent, REGIONS_MAX - REGIONS_PER_USER_MAX);
        const { assert!(REGIONS_MAX <= causeway_memory::limits::MAPPINGS_MAX / 2) };
        drop((other, many));
        // Endpoints, likewise.
        let mut processes = of(3);
        let opened = (0..1000).filter(|at| processes[at % 20].open()).count();
        assert_eq!(opened, ENDPOINTS_HELD_PER_USER_MAX);
        processes[0].close();
        assert!(processes[1].open() && !processes[1].open());
        assert!(lender("red", 4).open() && lender("blue", 3).open(), "others may");
        drop(processes);
        assert!(users().is_empty(), "nothing is left behind");
    }
}
