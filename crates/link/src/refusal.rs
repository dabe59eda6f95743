//! Reasons for dropped datagrams, and their counters.
//!
//! Every drop on receipt is counted once, by its reason, except the records behind a refused record
//! of the same datagram, the earlier fragments of a refused fragment's frame, and a flooded frame
//! without room for its number ([`crate::flood::arrival`]), which have no counter. Counters are per
//! tunnel, or per underlay socket where no tunnel is known; `causeway link show` prints them by
//! name. Counters are lost when the tunnel or socket is closed.
//!
//! The core counts and returns the reason, in the thread of the tunnel; it logs nothing, and
//! [`crate::io::tunnels`] relies on the counter alone. Drops of frames to send, and of frames that
//! their group's mailbox has no room for, are counted by [`crate::io::stats`].

use std::collections::BTreeMap;

use causeway_model::CounterDefinition;

/// Declares the reasons with their counter names and texts.
macro_rules! refusals {
    ($($(#[$doc:meta])* $reason:ident, $name:literal, $text:literal;)+) => {
        /// Why a datagram, or a part of it, was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum Refusal {
            $($(#[$doc])* #[error($text)] $reason,)+
        }

        impl Refusal {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// Names and meanings of the counters.
            pub const COUNTERS: &[CounterDefinition] = &[$(($name, $text)),+];

            /// Returns the name of its counter.
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
    /// Not a datagram of a tunnel, or of another version.
    Foreign, "refused_foreign_total", "not a tunnel datagram: is the peer a causewayd?";
    /// A frame, a fragment's total or a datagram is too long.
    Oversized, "refused_oversized_total", "longer than a frame may be";
    /// Authentication failed.
    Forged, "refused_forged_total", "authentication failed: the datagram is forged or damaged";
    /// The datagram was received before, or is older than the replay window.
    Replayed, "refused_replayed_total", "the datagram is a replay";
    /// The session is unknown or has expired.
    Session, "refused_session_total", "no such session: the peer or this daemon was restarted";
    /// The peer is unknown: no link with that key or address is configured.
    Peer, "refused_peer_total", "unknown peer: add a link with its key and address";
    /// The tunnel does not carry this virtual network.
    Vni, "refused_vni_total", "no link of this tunnel has the virtual network";
    /// The time in the initiation is not newer than that of the last.
    Timestamp, "refused_timestamp_total", "the initiation is not newer than the last one";
    /// An initiation from another address while the peer is heard at its own.
    Clone, "refused_clone_total", "another host uses the peer's private key";
    /// The rate limit for initiations is reached.
    Rate, "refused_rate_total", "the rate limit for initiations is reached";
    /// An initiation without a valid cookie under load.
    Cookie, "refused_cookie_total", "under load, the initiation needs a cookie";
    /// A response or cookie reply without a matching initiation.
    Unasked, "refused_unasked_total", "a response without a matching request";
    /// Both ends began a handshake, and ours goes first.
    Crossed, "refused_crossed_total", "both ends began a handshake, and ours has precedence";
    /// Fragments of a frame overlap or contradict each other.
    Overlap, "refused_fragment_overlap_total", "fragments of a frame overlap or contradict";
    /// The rest of a frame did not arrive in time.
    Incomplete, "refused_fragment_timeout_total", "the rest of a frame did not arrive in time";
    /// An incomplete frame was dropped to make room for newer frames.
    Crowded, "refused_fragment_crowded_total", "too many frames were incomplete";
    /// The outer header reports congestion for a frame whose transport is Not-ECT (RFC 6040).
    Unmarkable, "drop_congestion_total", "the network marked congestion on a frame that is Not-ECT";
    /// The peer announced more addresses than its quota.
    Directory, "refused_directory_total", "the peer announced more addresses than its quota";
}

/// Counts of refusals, by reason.
#[derive(Debug, Clone, Default)]
pub struct RefusalCounters([u64; Refusal::ALL.len()]);

impl RefusalCounters {
    /// Counts one refusal.
    pub fn count(&mut self, reason: Refusal) {
        self.add(reason, 1);
    }

    /// Counts `more` refusals.
    pub fn add(&mut self, reason: Refusal, more: u64) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count = count.wrapping_add(more);
        }
    }

    /// Returns how often `reason` was counted.
    pub fn of(&self, reason: Refusal) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// Returns all counts, by counter name.
    pub fn view(&self) -> BTreeMap<String, u64> {
        Refusal::ALL.iter().map(|&reason| (reason.name().to_owned(), self.of(reason))).collect()
    }
}
