//! The limit of unexpected messages (messages without a posted receive), and the warning when it is
//! reached.
//!
//! The limit is [`UNEXPECTED_MIB`] (1,024 MiB), or `FI_CAUSEWAY_UNEXPECTED_MIB` (0 counts as 1; a
//! negative number, and text that is no number, give a warning and the default). The number of
//! messages is limited as well, to the bytes divided by
//! [`UNEXPECTED_GRAIN`](crate::limits::UNEXPECTED_GRAIN) (256). A single sender gets at most as
//! many bytes and messages as are left free, and always 16 messages with 64 KiB together. A long
//! message counts with its notice only, as its bytes stay with the sender; a control request counts
//! until it is served, a claimed message until it is received. At a limit, a sender waits with all
//! messages and requests behind the first that does not fit, even if receives are posted for them,
//! such as that of the bytes of a long message; none is dropped. A correct MPI program can reach
//! the limit: buffered sends, then a barrier.
//!
//! The engine enforces the limit; this module computes it when [`Rdm::new`] opens the endpoint, and
//! [`Rdm::progress`] writes the warning once per endpoint, in the thread that makes progress.

use super::Rdm;
use crate::limits::UNEXPECTED_MIB;

/// The variable that sets another limit, in MiB.
const MAX: &str = "FI_CAUSEWAY_UNEXPECTED_MIB";

/// Returns the limit in bytes.
pub fn bytes_max() -> usize {
    let requested = std::env::var(MAX).ok().filter(|requested| !requested.is_empty());
    let mib = requested.map_or(UNEXPECTED_MIB, |requested| {
        requested.parse().unwrap_or_else(|_| {
            let text = format!(
                "{MAX}={requested} is not a number of MiB: the limit is {UNEXPECTED_MIB} MiB"
            );
            crate::log::warn(&text, true);
            UNEXPECTED_MIB
        })
    });
    mib.clamp(1, usize::MAX >> 20) << 20
}

impl Rdm {
    /// Warns once that peers wait.
    #[inline]
    pub(super) fn warn_unexpected(&mut self) {
        if self.endpoint.library.take_unexpected_full()
            && !std::mem::replace(&mut self.has_warned_unexpected, true)
        {
            let (count, mib) = (self.endpoint.library.unexpected(), bytes_max() >> 20);
            crate::log::warn(
                &format!(
                    "the limit of unexpected messages is reached: peers wait until receives are \
                     posted; if the application does not continue, set {MAX} above {mib} \
                     (messages={count})"
                ),
                true,
            );
        }
    }
}
