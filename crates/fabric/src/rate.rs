//! How often something may happen.

/// One token, so that rates need no fractions.
const TOKEN: u64 = 1_000_000_000;

/// So many a second, and as many at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bucket {
    /// Used up, in ns of one a second; it drains with time.
    used: u64,
    at: u64,
}

impl Bucket {
    /// Takes one of `rate` a second at time `now`, in nanoseconds, if it is there.
    pub fn take(&mut self, now: u64, rate: u64) -> bool {
        let drained = now.saturating_sub(self.at).saturating_mul(rate);
        self.used = self.used.saturating_sub(drained);
        self.at = now;
        let used = self.used.saturating_add(TOKEN);
        let there = used <= rate.saturating_mul(TOKEN);
        if there {
            self.used = used;
        }
        there
    }

    /// One of which everything was taken, and more.
    pub const fn emptied(now: u64) -> Self {
        Self { used: u64::MAX / 2, at: now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_so_many_a_second() {
        let mut bucket = Bucket::default();
        let mut taken = |now| (0..100).filter(|_| bucket.take(now, 5)).count();
        assert_eq!((taken(TOKEN), taken(TOKEN)), (5, 0));
        assert_eq!((taken(TOKEN + TOKEN / 5), taken(2 * TOKEN), taken(9 * TOKEN)), (1, 4, 5));
    }
}
