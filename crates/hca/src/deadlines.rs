//! The times at which ports must be served, in order.
//!
//! A port without work has a deadline: the end of its pause, of a waiting time of its queue pairs,
//! or of the time in which moderation delays an event. A turn of the shard asks for the earliest
//! deadline only, which takes the same time for any number of ports; a change of a deadline takes
//! the logarithm of their number. A port whose deadline is over is served in its place among the
//! busy ports, so that a deadline gives no port a further call in a turn. A port has one deadline
//! or none, so that the list is bounded by the number of ports.
//!
//! [`crate::service`] sets the deadlines after each call that may change them, and `crate::call`
//! takes those that are over, both in the dispatcher's thread. The module serves no port and reads
//! no clock.

use std::collections::{BTreeMap, BTreeSet};

/// Deadlines of ports, by time.
#[derive(Debug)]
pub(crate) struct Deadlines<P> {
    by_time: BTreeSet<(u64, P)>,
    of: BTreeMap<P, u64>,
}

impl<P> Default for Deadlines<P> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), of: BTreeMap::new() }
    }
}

impl<P: Copy + Ord> Deadlines<P> {
    /// Replaces the deadline of a port, in nanoseconds; `None` removes the deadline.
    pub(crate) fn set(&mut self, port: P, deadline_ns: Option<u64>) {
        let old = match deadline_ns {
            Some(new) => self.of.insert(port, new),
            None => self.of.remove(&port),
        };
        if old == deadline_ns {
            return;
        }
        if let Some(old) = old {
            self.by_time.remove(&(old, port));
        }
        if let Some(new) = deadline_ns {
            self.by_time.insert((new, port));
        }
    }

    /// Returns the earliest deadline, in nanoseconds.
    pub(crate) fn first(&self) -> Option<u64> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }

    /// Removes the earliest deadline, if it is at `now_ns` or earlier. Returns its port.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<P> {
        let (_, port) = *self.by_time.first().filter(|(deadline, _)| *deadline <= now_ns)?;
        self.set(port, None);
        Some(port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_found_in_order() {
        let mut deadlines = Deadlines::default();
        for (port, time) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            deadlines.set(port, Some(time));
        }
        assert_eq!(deadlines.first(), Some(10));
        let due = |deadlines: &mut Deadlines<u32>, now| -> Vec<u32> {
            std::iter::from_fn(|| deadlines.take_due(now)).collect()
        };
        assert_eq!(due(&mut deadlines, 20), [2, 4, 3]);
        assert!(due(&mut deadlines, 20).is_empty(), "the deadlines are handled");
        deadlines.set(2, Some(40));
        deadlines.set(4, None);
        deadlines.set(3, Some(20));
        assert!(due(&mut deadlines, 19).is_empty());
        assert_eq!(due(&mut deadlines, 30), [3, 1]);
        deadlines.set(2, None);
        assert_eq!((deadlines.first(), deadlines.of.len()), (None, 0));
    }

    /// A value whose comparisons are counted.
    #[derive(Debug, Clone, Copy)]
    struct Counted(u32);

    thread_local! {
        static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted {}

    #[test]
    fn deadlines_of_many_ports_cost_a_turn_nothing() {
        let mut deadlines = Deadlines::default();
        for port in 0..4096 {
            deadlines.set(Counted(port), Some(7));
        }
        let comparisons = |act: &mut dyn FnMut()| {
            let before = COMPARISONS.get();
            act();
            COMPARISONS.get() - before
        };
        assert_eq!(comparisons(&mut || assert_eq!(deadlines.first(), Some(7))), 0);
        assert_eq!(comparisons(&mut || assert!(deadlines.take_due(6).is_none())), 0);
        let changed = comparisons(&mut || deadlines.set(Counted(2000), Some(8)));
        assert!(changed < 200, "{changed} comparisons");
    }
}
