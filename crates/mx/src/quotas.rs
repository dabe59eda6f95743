//! Quotas of users: mappings of lent memory, and endpoints with a network.
//!
//! Limits per user and group: [`REGIONS_PER_USER_MAX`] (6,144) regions of together
//! [`REGION_BYTES_PER_USER_MAX`] (64 GiB), and [`ENDPOINTS_HELD_PER_USER_MAX`] (320) endpoints;
//! over all users [`REGIONS_MAX`] (28,672) regions, without a common limit of bytes or endpoints.
//! Processes of a group with an unknown user count as one user, as do all processes of a guest. A
//! charge beyond a quota returns false without effect, and the request is answered with an error:
//! an open or a region with `MX_NO_RESOURCES`, a connect that needs rings with `NoResources`.
//!
//! The quotas apply to all NICs of a group together, because mappings and memory are shared
//! resources of the daemon. Groups are tenants: users of different groups have separate quotas even
//! if the kernel sees the same user. Endpoints without rings of the daemon (in direct mode, or with
//! channels alone) are not charged.
//!
//! The accounts are a global table with a lock, because dispatchers of different groups share
//! [`REGIONS_MAX`]; the lock is held for a sum over the users. A [`ProcessQuota`] returns its
//! charges when it is dropped. Held by `mx::client`; charged by `mx::requests` and
//! `mx::session_requests`, reduced by them, `mx::service` and `mx::sessions`, on the dispatchers'
//! threads.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_model::Name;

use crate::limits::{
    ENDPOINTS_HELD_PER_USER_MAX, REGION_BYTES_PER_USER_MAX, REGIONS_MAX, REGIONS_PER_USER_MAX,
};
use crate::user::User;

/// Regions with their bytes, and endpoints with a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ResourceUsage {
    regions: usize,
    bytes: u64,
    endpoints: usize,
}

impl ResourceUsage {
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

/// A group, and the user of a process.
type QuotaUser = (Name, User);

/// The usage of each user in each group.
static USERS: Mutex<BTreeMap<QuotaUser, ResourceUsage>> = Mutex::new(BTreeMap::new());

fn users() -> MutexGuard<'static, BTreeMap<QuotaUser, ResourceUsage>> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resources of a process, charged to its user until it is dropped.
#[derive(Debug)]
pub struct ProcessQuota {
    user: QuotaUser,
    own: ResourceUsage,
}

impl ProcessQuota {
    /// Creates an empty account.
    pub fn new(group: Name, user: User) -> Self {
        Self { user: (group, user), own: ResourceUsage::default() }
    }

    /// Charges a region. Returns false if the quota of the user or of all users is used up.
    pub fn charge_region(&mut self, bytes: u64) -> bool {
        let mut users = users();
        let all = users.values().fold(0_usize, |sum, user| sum.saturating_add(user.regions));
        let user = users.entry(self.user.clone()).or_default();
        let one = ResourceUsage { regions: 1, bytes, ..ResourceUsage::default() };
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

    /// Charges an endpoint with a network. Returns false if the quota of the user is used up.
    pub fn charge_endpoint(&mut self) -> bool {
        let mut users = users();
        let user = users.entry(self.user.clone()).or_default();
        let fits = user.endpoints < ENDPOINTS_HELD_PER_USER_MAX;
        if fits {
            let one = ResourceUsage { endpoints: 1, ..ResourceUsage::default() };
            (*user, self.own) = (user.plus(one), self.own.plus(one));
        }
        fits
    }

    /// Releases an endpoint.
    pub fn release_endpoint(&mut self) {
        let one = ResourceUsage { endpoints: 1, ..ResourceUsage::default() };
        self.set(self.own.minus(one));
    }

    /// Sets the number of regions and their bytes.
    pub fn set_regions(&mut self, (regions, bytes): (usize, u64)) {
        self.set(ResourceUsage { regions, bytes, ..self.own });
    }

    fn set(&mut self, now: ResourceUsage) {
        let mut users = users();
        let user = users.entry(self.user.clone()).or_default();
        *user = user.minus(self.own).plus(now);
        self.own = now;
        if *user == ResourceUsage::default() {
            users.remove(&self.user);
        }
    }
}

impl Drop for ProcessQuota {
    fn drop(&mut self) {
        self.set(ResourceUsage::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_of_a_user_applies_to_all_nics_and_leaves_room_for_others() {
        // The maximum number of processes on many NICs.
        let lender =
            |group: &str, uid| ProcessQuota::new(group.parse().unwrap(), User::Host(Some(uid)));
        let of = |uid| (0..20).map(|_| lender("red", uid)).collect::<Vec<_>>();
        let (mut one, mut other) = (of(1), of(2));
        let mut elsewhere = (0..20).map(|_| lender("blue", 1)).collect::<Vec<_>>();
        let lend = |all: &mut Vec<ProcessQuota>| {
            (0..=REGIONS_PER_USER_MAX).filter(|at| all[at % 20].charge_region(4096)).count()
        };
        assert_eq!(lend(&mut one), REGIONS_PER_USER_MAX);
        assert_eq!(lend(&mut other), REGIONS_PER_USER_MAX, "each user has a separate quota");
        assert_eq!(
            lend(&mut elsewhere),
            REGIONS_PER_USER_MAX,
            "the same user in another group has a separate quota"
        );
        drop(elsewhere);
        one[3].set_regions((1, 4096));
        let given = REGIONS_PER_USER_MAX.div_ceil(20) - 1;
        assert!(
            (given - 1..=given).contains(&lend(&mut one)),
            "released regions can be used again"
        );
        drop(one);
        let mut again = lender("red", 1);
        assert!(
            again.charge_region(REGION_BYTES_PER_USER_MAX) && !again.charge_region(1),
            "and so many bytes"
        );
        again.set_regions((0, 0));
        // All users together leave mappings for the rest of the daemon.
        let mut many = (10..20).map(of).collect::<Vec<_>>();
        let lent = many.iter_mut().map(lend).sum::<usize>();
        assert_eq!(lent, REGIONS_MAX - REGIONS_PER_USER_MAX);
        const { assert!(REGIONS_MAX <= causeway_memory::limits::MAPPINGS_MAX / 2) };
        drop((other, many));
        // The same for endpoints.
        let mut processes = of(3);
        let opened = (0..1000).filter(|at| processes[at % 20].charge_endpoint()).count();
        assert_eq!(opened, ENDPOINTS_HELD_PER_USER_MAX);
        processes[0].release_endpoint();
        assert!(processes[1].charge_endpoint() && !processes[1].charge_endpoint());
        assert!(
            lender("red", 4).charge_endpoint() && lender("blue", 3).charge_endpoint(),
            "others may"
        );
        drop(processes);
        assert!(users().is_empty(), "all entries are removed");
    }
}
