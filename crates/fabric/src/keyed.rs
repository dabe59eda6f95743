//! Hash tables with secret seeds, for keys that guests choose and that are looked up for each frame
//! or packet.
//!
//! The address table and the routes of `ethernet`, the connection table of `socket` and the traffic
//! matrix ([`crate::traffic`]) use them, each in the thread of its shard. The hash costs a few
//! multiplications. A guest that knew colliding keys could lengthen look-ups up to the capacity of
//! the table; that needs the seeds, which each process and each table draws at random. The hash is
//! not cryptographic, and a table has no limit of its own: its owner bounds the number of keys.
//! Iteration order differs between runs.
//!
//! The hash is finalized (foldhash `quality`): without that, 1 of 30 seeds clusters addresses that
//! differ in few bits.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// A hash table that guests fill.
pub type Keyed<K, V> = HashMap<K, V, SeedableRandomState>;

/// Returns a random number from the standard library's hasher seeds.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Returns an empty table with its own seed.
pub fn keyed<K, V>() -> Keyed<K, V> {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let shared = SHARED.get_or_init(|| SharedSeed::from_u64(random_seed()));
    HashMap::with_hasher(SeedableRandomState::with_seed(random_seed(), shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_tables_have_their_own_seeds() {
        let hashes: std::collections::BTreeSet<u64> =
            (0..100).map(|_| keyed::<u64, ()>().hasher().hash_one(7_u64)).collect();
        assert_eq!(hashes.len(), 100);
    }

    #[test]
    fn keyed_spreads_addresses_that_differ_in_few_bits() {
        let table = keyed::<u64, ()>();
        // The table uses the low bits as the position and the highest bits as the tag.
        for shift in [0, 8, 16, 24, 32, 40] {
            let mut places = vec![0_u32; 1024];
            for at in 0..256_u64 {
                let hash = table.hasher().hash_one(0x02 | at << shift);
                places[hash as usize % 1024] += 1;
            }
            assert!(places.iter().all(|&count| count <= 8), "{shift}: {places:?}");
        }
    }
}
