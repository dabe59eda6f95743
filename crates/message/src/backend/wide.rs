//! Two frames in one: whether a partner is asked for that.
//!
//! Half as many frames cross the network, where it carries such. That both interfaces do, both know
//! of their own; what lies between them may not, and says nothing of it. So it is asked for, and
//! where nothing comes, for frames of the common length; if these come, it was the length.

use crate::limits::WIDE_TRIES_MAX;

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Wide {
    /// None came yet.
    #[default]
    Hoped,
    /// One came.
    Proven,
    /// They do not come.
    Never,
}

impl Wide {
    /// Whether it is asked for, by a pull of which nothing came so often.
    pub(super) fn is_asked(self, tries: u32) -> bool {
        tries < self.tries_max()
    }

    /// Something came, two in one or not, of a pull of which nothing had come so often.
    pub(super) fn came(&mut self, two: bool, tries: u32) {
        if two {
            *self = Self::Proven;
        } else if tries >= self.tries_max() {
            *self = Self::Never;
        }
    }

    fn tries_max(self) -> u32 {
        let (hoped, proven) = WIDE_TRIES_MAX;
        match self {
            Self::Hoped => hoped,
            Self::Proven => proven,
            Self::Never => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_is_asked_for_no_more_once_the_rest_comes() {
        let mut wide = Wide::default();
        let (most, _) = WIDE_TRIES_MAX;
        assert!(wide.is_asked(0) && !wide.is_asked(most));
        // Who does not know of it answers at once, and is asked on: that costs nothing.
        wide.came(false, 0);
        assert!(wide.is_asked(0));
        wide.came(false, most);
        assert!(!wide.is_asked(0));
    }

    #[test]
    fn what_came_once_is_not_given_up_for_a_loss() {
        let (mut wide, (hoped, proven)) = (Wide::default(), WIDE_TRIES_MAX);
        wide.came(true, 1);
        wide.came(false, hoped);
        assert!(wide.is_asked(hoped) && !wide.is_asked(proven));
        // The network was changed.
        wide.came(false, proven);
        assert!(!wide.is_asked(0));
    }
}
