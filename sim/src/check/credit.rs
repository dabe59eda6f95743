//! Credit: a receiver never gets more bytes than it advertised, and a sender never gets an
//! advertisement that exceeds the receiver's.
//!
//! The tape passes each event to the checker ([`super::Check`]), in the thread of the world. The
//! checker reads the bytes and the credit advertisements (virtio 1.3, 5.10.6.3) of each direction
//! of a vsock connection, and returns a violation for the first event that breaks the rule.
//! Counters stay far below 2^32 in every world, so wrap-around is not modelled. The checker acts on
//! no guest.

use std::collections::BTreeMap;

use super::{Check, Violation, broken};
use crate::event::{Direction, Event};

/// The credit of one direction.
#[derive(Debug, Default)]
struct CreditState {
    /// The highest byte count that the receiver has allowed so far.
    edge: u64,
    /// Bytes that the receiver consumed, as advertised last.
    consumed: u32,
    /// Bytes that arrived.
    got: u64,
    /// The last advertisement that reached the sender.
    advertised: u32,
}

/// The checker. Counters stay far below 2^32 in every world, so wrap-around is not modelled.
#[derive(Debug, Default)]
pub struct Credits {
    /// The credit of each direction.
    rooms: BTreeMap<Direction, CreditState>,
}

impl Check for Credits {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let fail = |what: &str| Err(broken("credit", format!("{what}: {event:?}")));
        match *event {
            Event::CreditAdvertised { direction, consumed, buffer } => {
                let room = self.rooms.entry(direction).or_default();
                if u64::from(consumed) > room.got {
                    return fail("the receiver consumed bytes that it never received");
                }
                room.edge = room.edge.max(u64::from(consumed) + u64::from(buffer));
                room.consumed = consumed;
            }
            Event::CreditReceived { direction, consumed, buffer } => {
                let room = self.rooms.entry(direction).or_default();
                if u64::from(consumed) + u64::from(buffer) > room.edge {
                    return fail("the sender got more credit than the receiver advertised");
                }
                if consumed > room.consumed || consumed < room.advertised {
                    return fail("the sender got a consumed count that was never advertised");
                }
                room.advertised = consumed;
            }
            Event::Got { direction, len, .. } => {
                let room = self.rooms.entry(direction).or_default();
                room.got += u64::from(len);
                if room.got > room.edge {
                    return fail("the receiver got more bytes than it advertised");
                }
            }
            _ => {}
        }
        Ok(())
    }
}
