//! Rate limit of log lines that a guest or peer causes.
//!
//! A port, a link or another owner holds a [`LogLimit`] and asks it before each line; the caller
//! writes the line and adds the number of suppressed lines. At most [`LOG_LINES_MAX`] (10) lines
//! pass in a window of [`LOG_WINDOW_NS`] (5 s); further lines are counted and dropped, and the last
//! count of a burst appears only with the next admitted line. The limit does not distinguish kinds
//! of lines. The caller passes the time; the first window begins at time 0, each further one at the
//! first call after the end of the last. A caller with several threads puts the limit under a lock.

use crate::limits::{LOG_LINES_MAX, LOG_WINDOW_NS};

/// Admits [`LOG_LINES_MAX`] (10) lines per window and counts the rest.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// Start of the window.
    window_start_ns: u64,
    /// Lines admitted in the window.
    lines: u32,
    /// Lines refused since the last admitted line.
    suppressed: u64,
}

impl LogLimit {
    /// Returns the number of lines suppressed since the last admitted line, or `None` if no line
    /// may be written at `now_ns`.
    pub fn admit(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns.saturating_sub(self.window_start_ns) >= LOG_WINDOW_NS {
            self.window_start_ns = now_ns;
            self.lines = 0;
        }
        if self.lines >= LOG_LINES_MAX {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_limit_suppresses_and_counts_a_flood() {
        let mut limit = LogLimit::default();
        let passed = (0..1000).filter(|&i| limit.admit(LOG_WINDOW_NS + i).is_some()).count();
        assert_eq!(passed, LOG_LINES_MAX as usize);
        assert_eq!(limit.admit(3 * LOG_WINDOW_NS), Some(1000 - u64::from(LOG_LINES_MAX)));
    }
}
