//! Rate limits: leaky buckets without fractions.
//!
//! An owner (a port; in `socket` the host socket of a port; in `link` the handshake guard of a
//! tunnel socket, and a listener; in `stream` an end of a stream port) keeps a [`Bucket`] and asks
//! it at each event, with the rate and its own clock in nanoseconds. The burst equals the events of
//! one second and cannot be chosen. A bucket decides only: the owner delays or refuses. It is not
//! shared between threads. A clock that goes back drains nothing.

/// Units of an event, so that rates need no fractions.
const TOKEN: u64 = 1_000_000_000;

/// A limit of `rate` events per second, with a burst of as many. A new bucket (`default`) admits
/// the whole burst at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bucket {
    /// Units in use; they drain by `rate` per nanosecond.
    used: u64,
    /// Time of the last drain.
    at: u64,
}

impl Bucket {
    /// Takes an event of `rate` per second at time `now`, in nanoseconds, and returns true if the
    /// limit admits it.
    pub fn take(&mut self, now: u64, rate: u64) -> bool {
        self.drain(now, rate);
        let used = self.used.saturating_add(TOKEN);
        let there = used <= rate.saturating_mul(TOKEN);
        if there {
            self.used = used;
        }
        there
    }

    /// Takes `count` events of `rate` per second even if the limit is exceeded. Returns the
    /// nanoseconds until the next event is admitted; 0 if it is admitted now.
    pub fn charge(&mut self, now: u64, rate: u64, count: u64) -> u64 {
        self.drain(now, rate);
        self.used = self.used.saturating_add(count.saturating_mul(TOKEN));
        let all = rate.saturating_mul(TOKEN);
        self.used.saturating_add(TOKEN).saturating_sub(all).checked_div(rate).unwrap_or(0)
    }

    /// Removes the units that drained since the last call.
    fn drain(&mut self, now: u64, rate: u64) {
        let drained = now.saturating_sub(self.at).saturating_mul(rate);
        self.used = self.used.saturating_sub(drained);
        self.at = now;
    }

    /// Returns a bucket that admits no event.
    pub const fn emptied(now: u64) -> Self {
        Self { used: u64::MAX / 2, at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_admits_a_burst_and_then_the_rate() {
        let mut bucket = Bucket::default();
        let mut taken = |now| (0..100).filter(|_| bucket.take(now, 5)).count();
        assert_eq!((taken(TOKEN), taken(TOKEN)), (5, 0));
        assert_eq!((taken(TOKEN + TOKEN / 5), taken(2 * TOKEN), taken(9 * TOKEN)), (1, 4, 5));
    }

    #[test]
    fn rate_charge_beyond_the_limit_is_waited_for() {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.charge(0, 10, 9), 0);
        assert_eq!(bucket.charge(0, 10, 1), TOKEN / 10);
        assert_eq!(bucket.charge(0, 10, 20), 21 * TOKEN / 10);
        assert_eq!(bucket.charge(TOKEN, 10, 0), 11 * TOKEN / 10);
        assert_eq!(bucket.charge(3 * TOKEN, 10, 0), 0);
    }
}
