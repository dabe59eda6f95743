//! What was counted, by endpoint and by peer: plain numbers with names.

/// A struct of counters, and a list of them with their names.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// Names and values.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }

            /// All values of both.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }
    };
}

counters! {
    /// Of one peer.
    PeerCounters {
        /// Messages sent, offers and notifies too; each once.
        messages_sent,
        /// Bytes of them that were sent at once.
        bytes_sent,
        /// Messages sent again.
        resent,
        /// Of them, because acknowledgements said so.
        resent_early,
        /// Messages given to the library, offers too.
        messages_received,
        /// Bytes of them.
        bytes_received,
        /// Packets of messages that were there already.
        duplicates,
        /// Messages that came before the one that was next.
        early,
        /// Packets of messages that had no room.
        no_room,
        /// Acknowledgements sent on their own.
        acks_sent,
        /// Acknowledgements received on their own.
        acks_received,
        /// Packets of another generation of numbers, or far off.
        wrong_number,
        /// Blocks asked for.
        blocks_asked,
        /// Of them, again.
        blocks_asked_again,
        /// Frames of blocks received that were missing.
        replies_received,
        /// Frames of blocks that were not asked for, or there already.
        replies_stray,
        /// Bytes pulled.
        bytes_pulled,
        /// Frames of blocks sent.
        replies_sent,
        /// Pulls of a window that is not this peer's, or of what lies outside of it.
        wrong_pulls,
        /// Pulls of what it had more than twice, which were not answered.
        pulled_too_often,
    }
}

counters! {
    /// Of one endpoint; what peers that are gone had counted is in `past`.
    EndpointCounters {
        /// Requests to connect sent, those that are tried again too.
        connects_sent,
        /// Requests to connect received.
        connects_received,
        /// Of them, with another key.
        wrong_key,
        /// Of them, without room for one more peer.
        no_partner,
        /// Peers that began anew.
        restarts,
        /// Peers that were said to be gone.
        doubts,
        /// Peers that were given up.
        gone,
        /// Packets for another session.
        wrong_session,
        /// Packets of NICs and endpoints that are no peer.
        strangers,
        /// Refusals sent.
        nacks_sent,
        /// Refusals received.
        nacks_received,
        /// Of them, without a known reason or of nothing that was sent.
        nacks_strange,
        /// Frames of blocks with a handle that is not one.
        replies_forged,
        /// Requests that named what there is not.
        wrong_requests,
        /// Regions that could not be read or written.
        region_faults,
        /// Times that the library had no room for an event.
        library_full,
    }
}

counters! {
    /// Of a NIC.
    NicCounters {
        /// Frames received.
        frames_received,
        /// Frames sent.
        frames_sent,
        /// Frames that are no packet.
        malformed,
        /// Frames to another NIC.
        not_ours,
        /// Frames of NICs that are not known.
        unknown_boards,
        /// Packets for endpoints that are not open.
        no_endpoint,
        /// Packets that a NIC does not serve.
        not_served,
    }
}
