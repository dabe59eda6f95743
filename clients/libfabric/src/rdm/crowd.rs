//! Messages that no receive is posted for: how many are kept, and what is said when there are more.
//!
//! Where there are, their sender waits with all that it sends behind them. An MPI program that
//! keeps to the rules can come there: sends that may be buffered, then a barrier.

use super::Rdm;
use crate::limits::UNEXPECTED_MIB;

/// Asks for another bound, in MiB.
const MAX: &str = "FI_CAUSEWAY_UNEXPECTED_MIB";

/// How much is kept, in bytes.
pub fn bytes_max() -> usize {
    let asked = std::env::var(MAX).ok().filter(|asked| !asked.is_empty());
    let mib = asked.map_or(UNEXPECTED_MIB, |asked| {
        asked.parse().unwrap_or_else(|_| {
            let text = format!("{MAX}={asked}: not a number of MiB; {UNEXPECTED_MIB} it is");
            crate::say::warn(&text, true);
            UNEXPECTED_MIB
        })
    });
    mib.clamp(1, usize::MAX >> 20) << 20
}

impl Rdm {
    /// Says once that partners wait.
    #[inline]
    pub(super) fn look_at_crowd(&mut self) {
        if self.endpoint.library.take_crowded() && !std::mem::replace(&mut self.crowded, true) {
            let (count, mib) = (self.endpoint.library.unexpected(), bytes_max() >> 20);
            crate::say::warn(
                &format!(
                    "{count} messages wait for receives, and a partner may send no more of them \
                     until some are posted: if the application does not go on, give {MAX} more \
                     than {mib}"
                ),
                true,
            );
        }
    }
}
