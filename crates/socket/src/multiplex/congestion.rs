//! Round-trip time and congestion window of a session, after RFC 9002.
//!
//! Slow start until the first loss, then an additive increase of one datagram per round trip; a loss
//! reduces the window to 0.7 of its size, once per round trip. Three unanswered probes reduce it to
//! two datagrams. The window counts bytes of datagrams with pieces; acknowledgements alone are not
//! counted. All times are in nanoseconds of the caller's clock.

use crate::limits::{
    ACK_DELAY_NS, PROBE_NS_MAX, PROBE_NS_MIN, WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX,
};

/// Assumed round-trip time before the first measurement.
const FIRST_RTT_NS: u64 = 100_000_000;

/// Round-trip time and window.
#[derive(Debug)]
pub struct Congestion {
    /// Smoothed round-trip time; `None` before the first measurement.
    smoothed_ns: Option<u64>,
    /// Mean deviation of the round-trip time.
    deviation_ns: u64,
    /// The last measurement.
    latest_ns: u64,
    /// Bytes that may be in flight.
    window: usize,
    /// Window at which slow start ends.
    threshold: usize,
    /// Bytes acknowledged since the last additive increase.
    acked: usize,
    /// Losses of packets sent before this time belong to the last reduction.
    recovery_ns: u64,
    /// Length of the longest datagram sent.
    datagram: usize,
}

impl Default for Congestion {
    fn default() -> Self {
        Self {
            smoothed_ns: None,
            deviation_ns: 0,
            latest_ns: 0,
            window: WINDOW_BYTES_FIRST,
            threshold: usize::MAX,
            acked: 0,
            recovery_ns: 0,
            datagram: 1,
        }
    }
}

impl Congestion {
    /// Returns whether a datagram may be sent while `in_flight` bytes are in flight.
    pub const fn has_room(&self, in_flight: usize) -> bool {
        in_flight < self.window
    }

    /// Returns the window in bytes.
    pub const fn window(&self) -> usize {
        self.window
    }

    /// Returns the smoothed round-trip time, if it was measured.
    pub const fn rtt_ns(&self) -> Option<u64> {
        self.smoothed_ns
    }

    /// Notes a sent datagram.
    pub fn sent(&mut self, len: usize) {
        self.datagram = self.datagram.max(len);
    }

    /// Records a measured round-trip time.
    pub fn measure(&mut self, rtt_ns: u64) {
        self.latest_ns = rtt_ns;
        match self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(rtt_ns);
                self.deviation_ns = rtt_ns / 2;
            }
            Some(smoothed) => {
                let off = smoothed.abs_diff(rtt_ns);
                self.deviation_ns = (self.deviation_ns.saturating_mul(3).saturating_add(off)) / 4;
                self.smoothed_ns = Some((smoothed.saturating_mul(7).saturating_add(rtt_ns)) / 8);
            }
        }
    }

    /// Returns the time after which an unacknowledged packet is lost if a later one was
    /// acknowledged.
    pub fn loss_ns(&self) -> u64 {
        let rtt = self.smoothed_ns.unwrap_or(FIRST_RTT_NS).max(self.latest_ns);
        rtt.saturating_add(rtt / 8).max(1_000_000)
    }

    /// Returns the time after which a probe is sent if nothing was acknowledged, after `probes`
    /// unanswered probes.
    pub fn probe_ns(&self, probes: u32) -> u64 {
        let rtt = self.smoothed_ns.unwrap_or(FIRST_RTT_NS);
        let wait = rtt
            .saturating_add(self.deviation_ns.saturating_mul(4).max(1_000_000))
            .saturating_add(ACK_DELAY_NS)
            .max(PROBE_NS_MIN);
        wait.saturating_mul(1 << probes.min(16)).min(PROBE_NS_MAX)
    }

    /// Grows the window after an acknowledgement of `len` bytes of a packet sent at `sent_ns`, up
    /// to [`WINDOW_BYTES_MAX`] (16 MiB). `is_full`: at least half of the window was in flight; if
    /// not, the window does not limit the sender, and stays. The window also stays for packets sent
    /// before the last reduction.
    pub fn acked(&mut self, len: usize, sent_ns: u64, is_full: bool) {
        if !is_full || sent_ns <= self.recovery_ns {
            return;
        }
        if self.window < self.threshold {
            self.window = self.window.saturating_add(len);
        } else {
            self.acked = self.acked.saturating_add(len);
            if self.acked >= self.window {
                self.acked = self.acked.saturating_sub(self.window);
                self.window = self.window.saturating_add(self.datagram);
            }
        }
        self.window = self.window.min(WINDOW_BYTES_MAX);
    }

    /// Shrinks the window after the loss of a packet sent at `sent_ns`.
    pub fn lost(&mut self, now_ns: u64, sent_ns: u64) {
        if sent_ns <= self.recovery_ns {
            return;
        }
        self.recovery_ns = now_ns;
        self.window = (self.window / 10).saturating_mul(7).max(self.least());
        self.threshold = self.window;
    }

    /// Shrinks the window to its least size: the path was silent for long.
    pub fn collapse(&mut self) {
        self.threshold = (self.window / 2).max(self.least());
        self.window = self.least();
    }

    /// Returns the least window.
    const fn least(&self) -> usize {
        self.datagram.saturating_mul(2)
    }
}
