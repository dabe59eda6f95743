//! The quota of pending messages, by NIC: out of order, incomplete, or without room at the host side.
//!
//! An endpoint keeps [`PENDING_BYTES_MAX`] (8 MiB). A remote NIC may use half of the bytes that
//! other NICs leave free, and [`PENDING_BYTES_OF_NIC_MIN`] (32 KiB) in any case, even beyond the 8
//! MiB: with 1,024 NICs the maximum is 40 MiB. The quota counts bytes of messages, not entries or
//! fragments. It knows no messages: [`pending_bytes`](crate::pending_bytes) charges them and drops
//! later ones for earlier ones.

use std::collections::HashMap;

use crate::limits::{PENDING_BYTES_MAX, PENDING_BYTES_OF_NIC_MIN};

/// Bytes of the pending messages of an endpoint, in total and by NIC.
#[derive(Debug, Default)]
pub(crate) struct ReorderQuota {
    /// Bytes of all NICs.
    total: usize,
    /// Bytes by NIC number.
    of_host: HashMap<u16, usize>,
}

impl ReorderQuota {
    /// Charges `len` bytes to a NIC. Returns whether they fit. A NIC may use half of the bytes that
    /// others have left, so that none can use up the quota.
    pub(crate) fn take(&mut self, host: u16, len: usize) -> bool {
        let total = self.total.saturating_add(len);
        let more = self.of_host.get(&host).copied().unwrap_or(0).saturating_add(len);
        let left = PENDING_BYTES_MAX.saturating_sub(total);
        if more > left && more > PENDING_BYTES_OF_NIC_MIN {
            return false;
        }
        self.total = total;
        self.of_host.insert(host, more);
        true
    }

    /// Releases bytes of a NIC.
    pub(crate) fn give(&mut self, host: u16, len: usize) {
        self.total = self.total.saturating_sub(len);
        if let Some(of_host) = self.of_host.get_mut(&host) {
            *of_host = of_host.saturating_sub(len);
            if *of_host == 0 {
                self.of_host.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KNOWN_NICS_MAX;

    fn fill(reorder_quota: &mut ReorderQuota, host: u16) -> usize {
        (0..).take_while(|_| reorder_quota.take(host, 1024)).count() * 1024
    }

    #[test]
    fn hostile_nics_together_leave_room_for_others() {
        let mut reorder_quota = ReorderQuota::default();
        assert_eq!(fill(&mut reorder_quota, 1), PENDING_BYTES_MAX / 2);
        let second = fill(&mut reorder_quota, 2);
        assert!((PENDING_BYTES_MAX / 4..=PENDING_BYTES_MAX / 3).contains(&second), "{second}");
        for host in 3..KNOWN_NICS_MAX as u16 {
            assert!(fill(&mut reorder_quota, host) >= PENDING_BYTES_OF_NIC_MIN, "{host}");
        }
        let most = PENDING_BYTES_MAX + KNOWN_NICS_MAX * PENDING_BYTES_OF_NIC_MIN;
        assert!(reorder_quota.total <= most, "{}", reorder_quota.total);
        for host in 1..KNOWN_NICS_MAX as u16 {
            let has = reorder_quota.of_host[&host];
            reorder_quota.give(host, has);
        }
        assert!(reorder_quota.total == 0 && reorder_quota.of_host.is_empty());
    }
}
