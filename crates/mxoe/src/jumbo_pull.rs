//! Two frames in one: whether a partner is asked for that.
//!
//! Half as many frames cross the network, where it carries such. That both interfaces do, both know
//! of their own; what lies between them may not, and says nothing of it. So it is asked for, and
//! where nothing comes, for frames of the common length; if these come, it may have been the
//! length. Or the network was down for a moment: so it is asked for again after a while.

use crate::limits::{WIDE_AGAIN_NS, WIDE_TRIES_MAX};

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wide {
    /// None came yet.
    #[default]
    Hoped,
    /// One came.
    Proven,
    /// They do not come: until then it is not asked for. And how long that was.
    Narrow { until: u64, pause: u64 },
}

impl Wide {
    /// Whether it is asked for, by a pull of which nothing came so often.
    pub(crate) fn is_asked(self, now: u64, tries: u32) -> bool {
        tries < self.tries_max(now)
    }

    /// Two in one came.
    pub(crate) fn came(&mut self) {
        *self = Self::Proven;
    }

    /// Of a pull of which nothing had come so often one came, and two could have.
    pub(crate) fn one_came(&mut self, now: u64, tries: u32) {
        if tries < self.tries_max(now) {
            return;
        }
        let (first, most) = WIDE_AGAIN_NS;
        let pause = match *self {
            Self::Narrow { until, .. } if now < until => return,
            Self::Narrow { pause, .. } => pause.saturating_mul(2).min(most),
            Self::Hoped | Self::Proven => first,
        };
        *self = Self::Narrow { until: now.saturating_add(pause), pause };
    }

    /// How often nothing comes of a pull until it asks for the common length.
    fn tries_max(self, now: u64) -> u32 {
        let (hoped, proven) = WIDE_TRIES_MAX;
        match self {
            Self::Proven => proven,
            Self::Narrow { until, .. } if now < until => 0,
            Self::Hoped | Self::Narrow { .. } => hoped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPED: u32 = WIDE_TRIES_MAX.0;
    const PROVEN: u32 = WIDE_TRIES_MAX.1;
    const PAUSE: u64 = WIDE_AGAIN_NS.0;

    #[test]
    fn what_does_not_come_is_not_asked_for_for_a_while_that_doubles() {
        let mut wide = Wide::default();
        assert!(wide.is_asked(5, 0) && !wide.is_asked(5, HOPED));
        // Who does not know of it answers at once, and is asked on: that costs nothing.
        wide.one_came(5, 0);
        assert!(wide.is_asked(5, 0));
        wide.one_came(5, HOPED);
        assert!(!wide.is_asked(5, 0));
        // What comes meanwhile says nothing more.
        wide.one_came(6, HOPED);
        let until = 5 + PAUSE;
        assert!(!wide.is_asked(until - 1, 0) && wide.is_asked(until, 0));
        wide.one_came(until, HOPED);
        assert!(!wide.is_asked(until + 2 * PAUSE - 1, 0) && wide.is_asked(until + 2 * PAUSE, 0));
        for _ in 0..70 {
            wide.one_came(u64::MAX / 2, HOPED);
            let Wide::Narrow { pause, .. } = wide else { panic!("{wide:?}") };
            assert!(pause <= WIDE_AGAIN_NS.1);
        }
    }

    #[test]
    fn what_came_once_is_not_given_up_for_a_loss() {
        let mut wide = Wide::default();
        wide.came();
        wide.one_came(5, HOPED);
        assert!(wide.is_asked(5, HOPED) && !wide.is_asked(5, PROVEN));
        wide.one_came(5, PROVEN);
        assert!(!wide.is_asked(5, 0));
        wide.came();
        assert!(wide.is_asked(5, 0));
    }
}
