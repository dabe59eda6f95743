//! Tables that are looked into for each frame, under keys that guests choose: by a hash that costs
//! a few multiplications, and whose seeds nobody knows.
//!
//! Whoever knew keys that fall together could make each look-up longer, up to the bounds that such
//! tables have. That takes the seeds, which the host draws anew in each process.
//!
//! The hash is mixed once more at its end: without that, one seed in thirty puts addresses that differ
//! in few bits near each other.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

/// A table that guests fill.
pub type Keyed<K, V> = HashMap<K, V, SeedableRandomState>;

/// A number that nobody knows.
fn secret() -> u64 {
    RandomState::new().hash_one(0)
}

/// An empty one, with a seed of its own.
pub fn keyed<K, V>() -> Keyed<K, V> {
    static SHARED: OnceLock<SharedSeed> = OnceLock::new();
    let shared = SHARED.get_or_init(|| SharedSeed::from_u64(secret()));
    HashMap::with_hasher(SeedableRandomState::with_seed(secret(), shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_seeds_of_its_own() {
        let hashes: std::collections::BTreeSet<u64> =
            (0..100).map(|_| keyed::<u64, ()>().hasher().hash_one(7_u64)).collect();
        assert_eq!(hashes.len(), 100);
    }

    #[test]
    fn addresses_that_differ_in_few_bits_are_spread() {
        let table = keyed::<u64, ()>();
        // As the table takes them: the low bits for the place, the highest for the tag.
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
