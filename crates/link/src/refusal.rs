//! Why something that came in was not taken, and how often.

use std::collections::BTreeMap;

/// Declares the reasons with their names in `causeway link show`.
macro_rules! refusals {
    ($($(#[$doc:meta])* $reason:ident, $name:literal, $text:literal;)+) => {
        /// Why a datagram, or a part of it, was not taken.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum Refusal {
            $($(#[$doc])* #[error($text)] $reason,)+
        }

        impl Refusal {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// Its name as a counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)+
                }
            }
        }
    };
}

refusals! {
    /// A header, a record or a frame is cut off.
    Truncated, "refused_truncated_total", "the datagram is cut off";
    /// No datagram of a tunnel, or of another version.
    Foreign, "refused_foreign_total", "the datagram is not of a tunnel: is the peer a causewayd?";
    /// A frame, a fragment's total or a datagram longer than any may be.
    Oversized, "refused_oversized_total", "longer than a frame may be";
    /// The seal is not right.
    Forged, "refused_forged_total", "not sealed by the peer: the datagram is forged or damaged";
    /// The datagram came before, or too long ago.
    Replayed, "refused_replayed_total", "the datagram came before";
    /// The session is not, or no longer, known.
    Session, "refused_session_total", "no such session: the peer or this daemon was restarted";
    /// Nobody with that key or address is configured.
    Peer, "refused_peer_total", "unknown peer: add a link with its key and address";
    /// The virtual network is not one of this tunnel.
    Vni, "refused_vni_total", "the virtual network is not one of this link's";
    /// An initiation older than the last.
    Timestamp, "refused_timestamp_total", "the initiation is not newer than the last one";
    /// An initiation from elsewhere while the peer is heard where it is.
    Clone, "refused_clone_total", "another host uses the peer's private key";
    /// Initiations come too fast.
    Rate, "refused_rate_total", "initiations come too fast";
    /// An initiation without a right cookie while there are many.
    Cookie, "refused_cookie_total", "a cookie was asked for";
    /// A handshake message that nobody waits for.
    Unasked, "refused_unasked_total", "an answer to nothing that was asked";
    /// Our own initiation goes first.
    Crossed, "refused_crossed_total", "both ends began a handshake: the other one goes on";
    /// Fragments of one frame cover the same bytes, or contradict each other.
    Overlap, "refused_fragment_overlap_total", "fragments of a frame overlap or contradict";
    /// The rest of a frame did not come in time.
    Incomplete, "refused_fragment_timeout_total", "the rest of a frame did not come in time";
    /// A frame gave way to newer ones.
    Crowded, "refused_fragment_crowded_total", "too many frames were incomplete";
    /// Congestion was experienced by a frame whose transport does not take part in ECN (RFC 6040).
    Unmarkable, "drop_congestion_total", "congestion was experienced by a frame that is Not-ECT";
    /// More addresses than one peer may have.
    Directory, "refused_directory_total", "the peer has more addresses than it may";
}

/// How often, by reason.
#[derive(Debug, Clone, Default)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// Counts one.
    pub fn count(&mut self, reason: Refusal) {
        self.add(reason, 1);
    }

    /// Counts `more`.
    pub fn add(&mut self, reason: Refusal, more: u64) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count = count.wrapping_add(more);
        }
    }

    /// How often `reason` was counted.
    pub fn of(&self, reason: Refusal) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// All of them, by name.
    pub fn view(&self) -> BTreeMap<String, u64> {
        Refusal::ALL.iter().map(|&reason| (reason.name().to_owned(), self.of(reason))).collect()
    }
}
