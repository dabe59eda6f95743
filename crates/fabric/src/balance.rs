//! Load balancing: chooses a shard to move to another dispatcher.
//!
//! The registry calls this every [`BALANCE_MS`](crate::limits::BALANCE_MS) and makes one move at a
//! time: from the busiest dispatcher to the least busy one, the shard that levels the two best, and
//! only if the gain is worth a cold cache. This module only decides; the registry moves.

use crate::limits::{BALANCE_BUSY_MIN, BALANCE_GAIN_MIN};

/// Load of a dispatcher and of each of its shards, in percent of its time.
#[derive(Debug, Clone)]
pub(crate) struct Burden<K> {
    pub busy: u32,
    pub shards: Vec<(K, u32)>,
}

/// Returns the shard to move and the number of the target dispatcher.
pub(crate) fn relief<K: Clone>(burdens: &[Burden<K>]) -> Option<(K, usize)> {
    let numbered = || burdens.iter().enumerate();
    let (from, hot) = numbered().max_by_key(|(_, b)| b.busy)?;
    let (to, cold) = numbered().min_by_key(|(_, b)| b.busy)?;
    if from == to || hot.busy < BALANCE_BUSY_MIN {
        return None;
    }
    // Load of the busier of the two after the move.
    let after = |load: u32| hot.busy.saturating_sub(load).max(cold.busy.saturating_add(load));
    let (key, load) = hot.shards.iter().min_by_key(|(_, load)| after(*load))?;
    let gain = hot.busy.saturating_sub(after(*load));
    (gain >= BALANCE_GAIN_MIN).then(|| (key.clone(), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burden(shards: &[(char, u32)]) -> Burden<char> {
        Burden { busy: shards.iter().map(|s| s.1).sum(), shards: shards.to_vec() }
    }

    #[test]
    fn the_shard_that_levels_best_moves() {
        let hot = burden(&[('a', 60), ('b', 30), ('c', 10)]);
        assert_eq!(relief(&[hot.clone(), burden(&[])]), Some(('a', 1)));
        assert_eq!(relief(&[burden(&[('x', 20)]), hot.clone()]), Some(('b', 0)));
        assert_eq!(relief(&[burden(&[('x', 75)]), hot]), None, "no move wins enough");
    }

    #[test]
    fn one_shard_alone_stays_and_so_do_idle_dispatchers() {
        assert_eq!(relief(&[burden(&[('a', 100)]), burden(&[])]), None);
        assert_eq!(relief(&[burden(&[('a', 40), ('b', 25)]), burden(&[])]), None);
        assert_eq!(relief(&[burden(&[('a', 50), ('b', 50)])]), None);
        assert_eq!(relief::<char>(&[]), None);
    }

    #[test]
    fn moves_come_to_rest() {
        let mut burdens =
            vec![burden(&[('a', 40), ('b', 35), ('c', 25)]), burden(&[]), burden(&[])];
        let mut moves = 0;
        while let Some((key, to)) = relief(&burdens) {
            let from = burdens.iter().position(|b| b.shards.iter().any(|s| s.0 == key)).unwrap();
            let at = burdens[from].shards.iter().position(|s| s.0 == key).unwrap();
            let shard = burdens[from].shards.remove(at);
            burdens[to].shards.push(shard);
            for b in &mut burdens {
                b.busy = b.shards.iter().map(|s| s.1).sum();
            }
            moves += 1;
            assert!(moves < 10, "shards go to and fro");
        }
        assert!(burdens.iter().all(|b| b.busy < 70));
    }
}
