//! Counters of a NIC, its endpoints and their peers: numbers with names, without units unless the
//! name has `bytes`. They wrap around at 2^64, and nothing resets them.
//!
//! The endpoint keeps the sum of the counters of its removed peers. An endpoint that is opened
//! again starts at 0: counters of a closed endpoint are lost unless the caller read them before
//! (`mx::network` does, and adds them to the statistics of the NIC). A packet may count in several:
//! in the NIC, the endpoint and the peer. Readers use the thread of the NIC: values of one call of
//! [`Nic`](crate::Nic) are consistent.

/// Declares a struct of counters with the names of its fields.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: u64,)*
        }

        impl $name {
            /// Names, with the ending `_total`, and meanings of the counters.
            pub const COUNTERS: &[(&'static str, &'static str)] =
                &[$((concat!(stringify!($field), "_total"), concat!($($doc),+)),)*];

            /// Returns names and values.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// Adds the values of `other`.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }
    };
}

counters! {
    /// Counters of a peer.
    PeerCounters {
        /// Messages sent, including offers and notifications. Retransmissions do not count.
        messages_sent,
        /// Bytes of eager messages sent.
        bytes_sent,
        /// Messages retransmitted.
        resent,
        /// Messages retransmitted because of duplicate acknowledgements.
        resent_early,
        /// Messages given to the host side, including offers.
        messages_received,
        /// Bytes of the messages given to the host side.
        bytes_received,
        /// Packets of messages that had already arrived.
        duplicates,
        /// Messages received out of order.
        early,
        /// Packets of messages dropped because a limit was reached.
        no_room,
        /// Separate acknowledgements sent.
        acks_sent,
        /// Separate acknowledgements received.
        acks_received,
        /// Packets with another generation, or with a number far outside the window.
        wrong_number,
        /// Blocks requested.
        blocks_asked,
        /// Blocks requested again.
        blocks_asked_again,
        /// Frames of blocks received that were requested and had not arrived before.
        replies_received,
        /// Frames of blocks that were not requested, or had already arrived.
        replies_stray,
        /// Bytes pulled.
        bytes_pulled,
        /// Bytes of offered messages that the peer pulled.
        bytes_taken,
        /// Frames of blocks sent.
        replies_sent,
        /// Pulls of a window of another peer, or beyond the end of a window.
        wrong_pulls,
        /// Pulls beyond the byte quota of their window, which were not answered.
        pulled_too_often,
    }
}

counters! {
    /// Counters of an endpoint. The counters of its removed peers are separate.
    EndpointCounters {
        /// Connect requests sent, including repetitions.
        connects_sent,
        /// Connect requests received.
        connects_received,
        /// Connect requests received with another key.
        wrong_key,
        /// Connect requests received while the peer table was full.
        no_partner,
        /// Restarts of peers.
        restarts,
        /// Liveness queries because a peer was reported gone or its sequence numbers conflict.
        doubts,
        /// Peers removed.
        gone,
        /// Packets for another session.
        wrong_session,
        /// Packets of NICs and endpoints that are not peers.
        strangers,
        /// Refusals sent.
        nacks_sent,
        /// Refusals received.
        nacks_received,
        /// Refusals received without a known reason, or of packets that were not sent.
        nacks_strange,
        /// Frames of blocks with an invalid handle.
        replies_forged,
        /// Requests of the host side that name an unknown peer, handle or region.
        wrong_requests,
        /// Failed accesses to regions.
        region_faults,
        /// Attempts to report a message or offer for which the host side had no room.
        library_full,
    }
}

counters! {
    /// Counters of a NIC.
    NicCounters {
        /// Frames received.
        frames_received,
        /// Frames sent.
        frames_sent,
        /// Frames that are not valid packets.
        malformed,
        /// Frames to another NIC.
        not_ours,
        /// Frames of unknown NICs.
        unknown_boards,
        /// Packets for endpoints that are not open.
        no_endpoint,
        /// Raw packets and answers to name queries: discovery serves these.
        not_served,
    }
}
