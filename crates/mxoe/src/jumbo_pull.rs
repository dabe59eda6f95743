//! Jumbo pulls: whether a peer is asked for two fragments in one frame, which halves the number of
//! frames.
//!
//! Each interface has a known MTU, but the network between them may drop long frames without a
//! notice. The engine therefore requests jumbo frames, and falls back to frames of the common
//! length if none arrives. If those arrive, the length may have been the reason, or the network was
//! down for a moment: the engine requests jumbo frames again after a pause.
//!
//! A pull falls back after [`JUMBO_TRIES_MAX`] requests without data (2 before the first jumbo
//! frame of the peer, 8 after it). If frames of the common length then arrive, all pulls from the
//! peer use them for [`JUMBO_PAUSE`] (10 s, doubled up to 640 s); if nothing arrives, no pause
//! begins. The state is kept per peer and forgotten when the own interface changes. Without
//! [`NicConfig::wide`](crate::NicConfig) no jumbo frame is requested. Only pulled data uses jumbo
//! frames; messages do not. [`pull`](crate::pull) asks before each request and reports arrivals.
//! The module sends nothing, has no timer and cannot fail; its state is that of one peer, in the
//! thread of the NIC.

use crate::limits::{JUMBO_PAUSE, JUMBO_PROVEN_TRIES_MAX, JUMBO_TRIES_MAX, WaitLimits};

/// State of jumbo pulls from one peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum JumboPull {
    /// No jumbo frame has arrived yet.
    #[default]
    Hoped,
    /// A jumbo frame arrived.
    Proven,
    /// Jumbo frames do not arrive: they are not requested before the time `until`, after a pause
    /// of `pause` ns.
    Narrow { until: u64, pause: u64 },
}

impl JumboPull {
    /// Returns whether a pull requests jumbo frames after `tries` requests without data.
    pub(crate) fn is_requested(self, now: u64, tries: u32) -> bool {
        tries < self.tries_max(now)
    }

    /// Records a jumbo frame.
    pub(crate) fn arrived(&mut self) {
        *self = Self::Proven;
    }

    /// Records a frame of the common length for a pull that had no data after `tries` requests.
    pub(crate) fn common_arrived(&mut self, now: u64, tries: u32) {
        if tries < self.tries_max(now) {
            return;
        }
        let WaitLimits { least_ns, most_ns } = JUMBO_PAUSE;
        let pause = match *self {
            Self::Narrow { until, .. } if now < until => return,
            Self::Narrow { pause, .. } => pause.saturating_mul(2).min(most_ns),
            Self::Hoped | Self::Proven => least_ns,
        };
        *self = Self::Narrow { until: now.saturating_add(pause), pause };
    }

    /// Returns after how many requests without data a pull falls back to the common length.
    fn tries_max(self, now: u64) -> u32 {
        match self {
            Self::Proven => JUMBO_PROVEN_TRIES_MAX,
            Self::Narrow { until, .. } if now < until => 0,
            Self::Hoped | Self::Narrow { .. } => JUMBO_TRIES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOPED: u32 = JUMBO_TRIES_MAX;
    const PROVEN: u32 = JUMBO_PROVEN_TRIES_MAX;
    const PAUSE: u64 = JUMBO_PAUSE.least_ns;

    #[test]
    fn jumbo_pause_doubles_without_frames() {
        let mut wide = JumboPull::default();
        assert!(wide.is_requested(5, 0) && !wide.is_requested(5, HOPED));
        // Data without a wasted request costs nothing: a peer without jumbo frames is asked again.
        wide.common_arrived(5, 0);
        assert!(wide.is_requested(5, 0));
        wide.common_arrived(5, HOPED);
        assert!(!wide.is_requested(5, 0));
        // Further frames do not extend the pause.
        wide.common_arrived(6, HOPED);
        let until = 5 + PAUSE;
        assert!(!wide.is_requested(until - 1, 0) && wide.is_requested(until, 0));
        wide.common_arrived(until, HOPED);
        assert!(
            !wide.is_requested(until + 2 * PAUSE - 1, 0) && wide.is_requested(until + 2 * PAUSE, 0)
        );
        for _ in 0..70 {
            wide.common_arrived(u64::MAX / 2, HOPED);
            let JumboPull::Narrow { pause, .. } = wide else { panic!("{wide:?}") };
            assert!(pause <= JUMBO_PAUSE.most_ns);
        }
    }

    #[test]
    fn jumbo_state_survives_a_loss_once_proven() {
        let mut wide = JumboPull::default();
        wide.arrived();
        wide.common_arrived(5, HOPED);
        assert!(wide.is_requested(5, HOPED) && !wide.is_requested(5, PROVEN));
        wide.common_arrived(5, PROVEN);
        assert!(!wide.is_requested(5, 0));
        wide.arrived();
        assert!(wide.is_requested(5, 0));
    }
}
