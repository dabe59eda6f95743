//! The schedule of a dispatcher: deficit round robin over groups, by time.
//!
//! In each *cycle* every busy group has one turn of at most its quantum, [`QUANTUM_NS`] (50 us)
//! times its weight. A turn that overruns is a debt: the group's next turns are shortened or
//! skipped as long as other groups are busy. A group that becomes busy and had no turn in this
//! cycle is served next, before the groups that were busy already: the group waits for the present
//! turn, and for one turn of each group that became busy just before it. The group still has one
//! turn per cycle, so a group gains nothing by becoming idle and busy again.
//!
//! All shards of a group share its turn (Ethernet, sockets, messages), so a group with more kinds
//! of ports gets no more time. The schedule knows numbers and times only: [`crate::shard_table`]
//! asks for the next turn of a group, divides it into turns of the group's busy shards, and reports
//! the time that they used.
//!
//! The schedule cannot cut a turn short. A debt is at most [`DEBT_QUANTA_MAX`] (4) quanta, and
//! unused time is not saved beyond one quantum. Each dispatcher has one schedule, in its thread.
//! The number of groups is not bounded here, and no call fails. Groups on other dispatchers have no
//! part in it: weights compare the groups of one dispatcher.

use std::collections::VecDeque;

use crate::limits::{DEBT_QUANTA_MAX, QUANTUM_NS};
use causeway_model::Name;

/// A group with shards on this dispatcher.
#[derive(Debug)]
struct ScheduledGroup {
    name: Name,
    weight: u32,
    /// Number of its shards on this dispatcher.
    shards: usize,
    /// Busy shards, in the order in which they are served.
    busy: VecDeque<usize>,
    /// Remaining time; negative: debt.
    credit_ns: i64,
    /// Cycle of its last turn.
    cycle: u64,
    /// The group is in one of the lists below, or being served.
    is_listed: bool,
}

impl ScheduledGroup {
    /// Returns the time that the group earns in a cycle, in nanoseconds.
    fn quantum_ns(&self) -> i64 {
        i64::from(self.weight.max(1)).saturating_mul(QUANTUM_NS)
    }
}

/// A turn of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupTurn {
    /// Number of the group in the schedule.
    pub group: usize,
    /// Longest duration; the group pays back time beyond it.
    pub len_ns: u64,
    /// Number of busy shards.
    pub shards: usize,
}

/// The busy groups of a dispatcher.
#[derive(Debug)]
pub(crate) struct Schedule {
    groups: Vec<Option<ScheduledGroup>>,
    /// Groups that became busy and had no turn in this cycle.
    fresh: VecDeque<usize>,
    /// Groups that have their turn in this cycle.
    current: VecDeque<usize>,
    /// Groups that have their turn in the next cycle.
    next: VecDeque<usize>,
    cycle: u64,
    /// A group had its turn in this cycle.
    has_served: bool,
    /// Number of busy shards.
    busy: usize,
}

impl Default for Schedule {
    fn default() -> Self {
        let (fresh, current, next) = Default::default();
        Self { groups: Vec::new(), fresh, current, next, cycle: 1, has_served: false, busy: 0 }
    }
}

impl Schedule {
    /// Adds a shard of a group, sets the weight of the group, and returns the number of the group.
    pub(crate) fn join(&mut self, name: &Name, weight: u32) -> usize {
        let named = |group: &Option<ScheduledGroup>| {
            group.as_ref().is_some_and(|group| group.name == *name)
        };
        let index = match self.groups.iter().position(named) {
            Some(index) => index,
            None => self.add(name, weight),
        };
        if let Some(group) = self.get_mut(index) {
            (group.shards, group.weight) = (group.shards.saturating_add(1), weight);
        }
        index
    }

    /// Adds a group, and returns its number.
    fn add(&mut self, name: &Name, weight: u32) -> usize {
        let group = Some(ScheduledGroup {
            name: name.clone(),
            weight,
            shards: 0,
            busy: VecDeque::new(),
            credit_ns: 0,
            cycle: 0,
            is_listed: false,
        });
        let free = self.groups.iter().position(Option::is_none);
        let index = free.unwrap_or(self.groups.len());
        match self.groups.get_mut(index) {
            Some(place) => *place = group,
            None => self.groups.push(group),
        }
        index
    }

    /// Removes a shard of a group, and the group with its last shard.
    pub(crate) fn leave(&mut self, index: usize, shard: usize) {
        let Some(group) = self.groups.get_mut(index).and_then(Option::as_mut) else { return };
        let before = group.busy.len();
        group.busy.retain(|&busy| busy != shard);
        self.busy = self.busy.saturating_sub(before.saturating_sub(group.busy.len()));
        group.shards = group.shards.saturating_sub(1);
        if group.shards == 0 {
            for list in [&mut self.fresh, &mut self.current, &mut self.next] {
                list.retain(|&listed| listed != index);
            }
            if let Some(place) = self.groups.get_mut(index) {
                *place = None;
            }
        }
    }

    /// Marks an idle shard busy. The caller must not mark a busy shard: it would be served twice.
    pub(crate) fn wake(&mut self, index: usize, shard: usize) {
        let cycle = self.cycle;
        let Some(group) = self.groups.get_mut(index).and_then(Option::as_mut) else { return };
        group.busy.push_back(shard);
        self.busy = self.busy.saturating_add(1);
        if std::mem::replace(&mut group.is_listed, true) {
            return;
        }
        if group.cycle == cycle {
            self.next.push_back(index);
        } else {
            self.fresh.push_back(index);
        }
    }

    /// Returns whether no shard is busy.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Returns the busy shards of all groups.
    pub(crate) fn busy(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().flatten().flat_map(|group| group.busy.iter().copied())
    }

    /// Returns the turn of the next group, or `None` at the end of a cycle. The caller ends each
    /// turn by [`Self::end_turn`].
    pub(crate) fn next_turn(&mut self) -> Option<GroupTurn> {
        loop {
            let Some(index) = self.fresh.pop_front().or_else(|| self.current.pop_front()) else {
                self.cycle = self.cycle.wrapping_add(1);
                std::mem::swap(&mut self.current, &mut self.next);
                // If all groups are in debt, no group waits for the time: the next cycle begins at
                // once.
                if std::mem::take(&mut self.has_served) || self.current.is_empty() {
                    return None;
                }
                continue;
            };
            let cycle = self.cycle;
            let Some(group) = self.groups.get_mut(index).and_then(Option::as_mut) else { continue };
            if group.busy.is_empty() {
                group.is_listed = false;
                continue;
            }
            let quantum = group.quantum_ns();
            // A group earns a quantum per cycle, also for cycles in which it was idle.
            let cycles = i64::try_from(cycle.wrapping_sub(group.cycle)).unwrap_or(i64::MAX);
            let earned = quantum.saturating_mul(cycles.max(1));
            group.credit_ns = group.credit_ns.saturating_add(earned).min(quantum);
            group.cycle = cycle;
            match u64::try_from(group.credit_ns) {
                Ok(len_ns @ 1..) => {
                    self.has_served = true;
                    return Some(GroupTurn { group: index, len_ns, shards: group.busy.len() });
                }
                _ => self.next.push_back(index),
            }
        }
    }

    /// Removes the next busy shard of a group and returns it.
    pub(crate) fn next_shard(&mut self, index: usize) -> Option<usize> {
        let shard = self.get_mut(index)?.busy.pop_front()?;
        self.busy = self.busy.saturating_sub(1);
        Some(shard)
    }

    /// Ends a group's turn of `used_ns`.
    pub(crate) fn end_turn(&mut self, index: usize, used_ns: u64) {
        let Some(group) = self.groups.get_mut(index).and_then(Option::as_mut) else { return };
        let used = i64::try_from(used_ns).unwrap_or(i64::MAX);
        let debt = group.quantum_ns().saturating_mul(DEBT_QUANTA_MAX);
        group.credit_ns = group.credit_ns.saturating_sub(used).max(debt.saturating_neg());
        group.is_listed = !group.busy.is_empty();
        if group.is_listed {
            self.next.push_back(index);
        }
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut ScheduledGroup> {
        self.groups.get_mut(index)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTUM: u64 = QUANTUM_NS as u64;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Serves cycles until `turns` turns were served, each as long as `take` returns; a shard stays
    /// busy while `take` returns more than 0. Returns the time of each group.
    fn serve(
        schedule: &mut Schedule,
        turns: usize,
        mut take: impl FnMut(usize, u64) -> u64,
    ) -> Vec<u64> {
        let mut times = vec![0; 8];
        let mut served = 0;
        while served < turns {
            let Some(turn) = schedule.next_turn() else {
                if schedule.is_idle() {
                    break;
                }
                continue;
            };
            served += 1;
            let mut used = 0;
            for _ in 0..turn.shards {
                let shard = schedule.next_shard(turn.group).unwrap();
                let took = take(shard, turn.len_ns - used.min(turn.len_ns));
                used += took;
                if took > 0 {
                    schedule.wake(turn.group, shard);
                }
            }
            times[turn.group] += used;
            schedule.end_turn(turn.group, used);
        }
        times
    }

    #[test]
    fn schedule_shares_time_by_weight_however_many_shards_a_group_has() {
        let mut schedule = Schedule::default();
        let red = schedule.join(&name("red"), 1);
        assert_eq!(schedule.join(&name("red"), 1), red);
        assert_eq!(schedule.join(&name("red"), 1), red);
        let blue = schedule.join(&name("blue"), 3);
        (0..3).for_each(|shard| schedule.wake(red, shard));
        schedule.wake(blue, 3);
        let times = serve(&mut schedule, 4000, |_, left| left);
        let ratio = times[blue] as f64 / times[red] as f64;
        assert!((2.9..3.1).contains(&ratio), "{times:?}");
    }

    #[test]
    fn schedule_lets_a_group_pay_back_what_it_took_beyond_its_turn() {
        let mut schedule = Schedule::default();
        let (red, blue) = (schedule.join(&name("red"), 1), schedule.join(&name("blue"), 1));
        schedule.wake(red, 0);
        schedule.wake(blue, 1);
        // Each turn of red takes three quanta.
        let times = serve(&mut schedule, 9000, |shard, left| match shard {
            0 => 3 * QUANTUM,
            _ => left,
        });
        let ratio = times[red] as f64 / times[blue] as f64;
        assert!((0.9..1.1).contains(&ratio), "{times:?}");
    }

    #[test]
    fn schedule_serves_next_a_group_that_becomes_busy_and_once_a_cycle() {
        let mut schedule = Schedule::default();
        let bulk: Vec<_> = (0..5).map(|n| schedule.join(&name(&format!("bulk-{n}")), 1)).collect();
        bulk.iter().for_each(|&group| schedule.wake(group, group));
        let sparse = schedule.join(&name("sparse"), 1);
        serve(&mut schedule, bulk.len(), |_, left| left);
        assert_eq!(schedule.next_turn(), None, "the cycle is over");
        let first = schedule.next_turn().unwrap();
        schedule.next_shard(first.group).unwrap();
        schedule.wake(first.group, first.group);
        schedule.wake(sparse, 9);
        schedule.end_turn(first.group, QUANTUM);
        assert_eq!(schedule.next_turn().unwrap().group, sparse, "before the other four");
        schedule.next_shard(sparse).unwrap();
        schedule.end_turn(sparse, 1000);
        schedule.wake(sparse, 9);
        let mut order = Vec::new();
        while let Some(turn) = schedule.next_turn() {
            order.push(turn.group);
            schedule.next_shard(turn.group).unwrap();
            schedule.wake(turn.group, turn.group);
            schedule.end_turn(turn.group, QUANTUM);
        }
        assert_eq!(order, &bulk[1..], "it had its turn in this cycle");
    }

    #[test]
    fn schedule_forgets_groups_without_shards_and_serves_one_alone_in_spite_of_its_debt() {
        let mut schedule = Schedule::default();
        let red = schedule.join(&name("red"), 1);
        schedule.wake(red, 0);
        let turn = schedule.next_turn().unwrap();
        schedule.next_shard(turn.group).unwrap();
        schedule.wake(red, 0);
        schedule.end_turn(red, u64::MAX);
        assert_eq!(schedule.next_turn(), None, "the cycle is over");
        assert_eq!(schedule.next_turn().map(|turn| turn.group), Some(red), "at once");
        schedule.next_shard(red).unwrap();
        schedule.wake(red, 0);
        schedule.end_turn(red, 1);
        schedule.leave(red, 0);
        assert!(schedule.is_idle());
        assert_eq!(schedule.join(&name("blue"), 1), red, "its place is free");
        assert_eq!(schedule.next_turn(), None);
        assert_eq!(schedule.next_turn(), None);
    }
}
