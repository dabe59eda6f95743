//! The budget of address space. All mappings of granted files take from it, and a range counts
//! until `munmap` has returned. *Peer* is an [`Owner`] here: the frontends of a port. Memory that
//! MX processes lend belongs to this process (`crate::owner`), and neither rule below applies to
//! it.
//!
//! Memory files may be of any size and cost nothing while they are empty, so a frontend that maps
//! and replaces large files could exhaust the addresses of the process. Two rules prevent that: the
//! grants of a peer take at most 1/[`ADDRESS_SHARES`] (1/16) of the addresses that other peers
//! leave of [`ADDRESSES_MAX`] (112 TiB), or the grant is an error ([`fits`]); and while more than
//! [`UNMAPPING_BYTES_MAX`] (7 TiB) of a peer wait for `munmap` in another thread, `attach` reads no
//! messages of it, so that it can map nothing further ([`is_behind`], outside of this crate
//! `has_unmap_backlog`). Its queues are served meanwhile.
//!
//! `attach` and [`crate::Grants`] call [`fits`] before they map; `crate::mapping` and
//! `crate::unmap` count. The check and the count are separate steps: peers that map at the same
//! time may exceed their shares together. The budget does not limit memory that is allocated, and
//! nothing here maps or unmaps.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::{ADDRESS_SHARES, ADDRESSES_MAX, UNMAPPING_BYTES_MAX};
use crate::mapping::MappingError;
use crate::owner::Owner;

/// Bytes of all mappings, including those that wait for `munmap`.
static MAPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes that wait for `munmap`, by the peer that granted them. At most one entry per mapping.
static UNMAPPING: Mutex<BTreeMap<Owner, u64>> = Mutex::new(BTreeMap::new());

/// Locks the bytes that wait for `munmap`.
fn unmapping() -> MutexGuard<'static, BTreeMap<Owner, u64>> {
    UNMAPPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that a peer that has mapped `held` bytes may map `more`.
///
/// # Errors
/// [`MappingError::Share`] if that exceeds the largest share of a peer, [`MappingError::Scarce`] if
/// only the addresses that others hold prevent it.
pub fn fits(held: u64, more: u64) -> Result<(), MappingError> {
    fits_beside(MAPPED.load(Ordering::Relaxed).saturating_sub(held), held, more)
}

/// As [`fits`], beside `others` mapped bytes of other peers.
fn fits_beside(others: u64, held: u64, more: u64) -> Result<(), MappingError> {
    let part = |bytes: u64| bytes.checked_div(ADDRESS_SHARES).unwrap_or(0);
    let (share, left) = (part(ADDRESSES_MAX), part(ADDRESSES_MAX.saturating_sub(others)));
    let wanted = held.saturating_add(more);
    if wanted <= left {
        Ok(())
    } else if wanted > share {
        Err(MappingError::Share { wanted, share })
    } else {
        Err(MappingError::Scarce { wanted, left })
    }
}

/// Returns whether so many bytes of `peer` wait for `munmap` that no more may be mapped for it.
/// Always false for the default peer, which is this process.
pub fn is_behind(peer: Owner) -> bool {
    peer != Owner::default()
        && unmapping().get(&peer).is_some_and(|bytes| *bytes > UNMAPPING_BYTES_MAX)
}

/// Returns the bytes of all mappings.
#[cfg(test)]
pub(crate) fn mapped() -> u64 {
    MAPPED.load(Ordering::Relaxed)
}

/// Counts a new mapping.
pub(crate) fn take(len: usize) {
    MAPPED.fetch_add(len as u64, Ordering::Relaxed);
}

/// Counts a mapping that `munmap` has removed.
pub(crate) fn give_back(len: usize) {
    MAPPED.fetch_sub(len as u64, Ordering::Relaxed);
}

/// Counts a mapping of `peer` that begins to wait for `munmap`.
pub(crate) fn begin(peer: Owner, len: usize) {
    let mut unmapping = unmapping();
    let bytes = unmapping.entry(peer).or_insert(0);
    *bytes = bytes.saturating_add(len as u64);
}

/// Counts a mapping of `peer` that no longer waits.
pub(crate) fn end(peer: Owner, len: usize) {
    let mut unmapping = unmapping();
    if let Some(bytes) = unmapping.get_mut(&peer) {
        *bytes = bytes.saturating_sub(len as u64);
        if *bytes == 0 {
            unmapping.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn addresses_shortage_of_the_host_and_excess_of_a_peer_are_two_errors() {
        assert!(fits_beside(0, TIB, 6 * TIB).is_ok());
        let excess = fits_beside(0, TIB, 7 * TIB);
        assert!(matches!(excess, Err(MappingError::Share { wanted, .. }) if wanted == 8 * TIB));
        assert!(!excess.unwrap_err().is_shortage());
        let shortage = fits_beside(96 * TIB, 0, 2 * TIB);
        assert!(matches!(shortage, Err(MappingError::Scarce { left, .. }) if left == TIB));
        assert!(shortage.unwrap_err().is_shortage());
    }

    #[test]
    fn addresses_that_wait_for_unmapping_hold_back_their_peer_alone() {
        let (one, other) = (Owner::unique(), Owner::unique());
        let len = usize::try_from(UNMAPPING_BYTES_MAX).unwrap();
        begin(one, len);
        assert!(!is_behind(one));
        begin(one, 4096);
        assert!(is_behind(one) && !is_behind(other));
        end(one, 4096);
        assert!(!is_behind(one));
        end(one, len);
        assert!(!unmapping().contains_key(&one));
    }
}
