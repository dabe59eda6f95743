//! Load balancing: chooses a shard to move to another dispatcher.
//!
//! A thread of the fabric has the registry call it every [`BALANCE_MS`](crate::limits::BALANCE_MS)
//! (1 s) and make one move at a time: from the busiest dispatcher to the least busy, the shard that
//! levels the two best. This module only decides; `crate::registry` moves. A move that fails is
//! logged, and is chosen again at the next call if the loads still demand it.
//!
//! No shard moves while the busiest dispatcher is below [`BALANCE_BUSY_MIN`] (70) percent, or if
//! the busier of the two is not at least [`BALANCE_GAIN_MIN`] (20) percentage points less busy
//! after the move, because a move costs a cold cache. A single shard that fills its dispatcher
//! stays: the ports of a shard are never divided. Placement by the operator is not remembered, so a
//! shard moved by command may move again.

use crate::limits::{BALANCE_BUSY_MIN, BALANCE_GAIN_MIN};

/// Load of a dispatcher and of each of its shards, in percent of its time.
#[derive(Debug, Clone)]
pub(crate) struct DispatcherLoad<K> {
    /// Load of the dispatcher.
    pub busy: u32,
    /// Its shards, each with its load.
    pub shards: Vec<(K, u32)>,
}

/// Returns the shard to move and the number of the target dispatcher; `None` if no move is worth
/// its cost. `loads` is in order of the dispatchers' numbers.
pub(crate) fn choose_move<K: Clone>(loads: &[DispatcherLoad<K>]) -> Option<(K, usize)> {
    let numbered = || loads.iter().enumerate();
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

    fn load_of(shards: &[(char, u32)]) -> DispatcherLoad<char> {
        DispatcherLoad { busy: shards.iter().map(|s| s.1).sum(), shards: shards.to_vec() }
    }

    #[test]
    fn the_shard_that_levels_best_moves() {
        let hot = load_of(&[('a', 60), ('b', 30), ('c', 10)]);
        assert_eq!(choose_move(&[hot.clone(), load_of(&[])]), Some(('a', 1)));
        assert_eq!(choose_move(&[load_of(&[('x', 20)]), hot.clone()]), Some(('b', 0)));
        assert_eq!(choose_move(&[load_of(&[('x', 75)]), hot]), None, "no move wins enough");
    }

    #[test]
    fn one_shard_alone_stays_and_so_do_idle_dispatchers() {
        assert_eq!(choose_move(&[load_of(&[('a', 100)]), load_of(&[])]), None);
        assert_eq!(choose_move(&[load_of(&[('a', 40), ('b', 25)]), load_of(&[])]), None);
        assert_eq!(choose_move(&[load_of(&[('a', 50), ('b', 50)])]), None);
        assert_eq!(choose_move::<char>(&[]), None);
    }

    #[test]
    fn moves_come_to_rest() {
        let mut loads =
            vec![load_of(&[('a', 40), ('b', 35), ('c', 25)]), load_of(&[]), load_of(&[])];
        let mut moves = 0;
        while let Some((key, to)) = choose_move(&loads) {
            let from = loads.iter().position(|b| b.shards.iter().any(|s| s.0 == key)).unwrap();
            let at = loads[from].shards.iter().position(|s| s.0 == key).unwrap();
            let shard = loads[from].shards.remove(at);
            loads[to].shards.push(shard);
            for b in &mut loads {
                b.busy = b.shards.iter().map(|s| s.1).sum();
            }
            moves += 1;
            assert!(moves < 10, "shards oscillate");
        }
        assert!(loads.iter().all(|b| b.busy < 70));
    }
}
