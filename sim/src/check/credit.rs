//! A receiver never gets more than it has room for, and a sender is told of no room that is not
//! there.

use std::collections::BTreeMap;

use super::{Check, Violation, broken};
use crate::event::{Event, Way};

#[derive(Debug, Default)]
struct Room {
    /// The largest count of bytes that the receiver ever allowed.
    edge: u64,
    consumed: u32,
    got: u64,
    /// What the sender was told last.
    told: u32,
}

/// See the module. Counters stay far below 2^32 in any world.
#[derive(Debug, Default)]
pub struct Credits {
    rooms: BTreeMap<Way, Room>,
}

impl Check for Credits {
    fn see(&mut self, event: &Event) -> Result<(), Violation> {
        let fail = |what: &str| Err(broken("credit", format!("{what}: {event:?}")));
        match *event {
            Event::Room { way, consumed, buffer } => {
                let room = self.rooms.entry(way).or_default();
                if u64::from(consumed) > room.got {
                    return fail("the receiver consumed what it did not get");
                }
                room.edge = room.edge.max(u64::from(consumed) + u64::from(buffer));
                room.consumed = consumed;
            }
            Event::Told { way, consumed, buffer } => {
                let room = self.rooms.entry(way).or_default();
                if u64::from(consumed) + u64::from(buffer) > room.edge {
                    return fail("the sender is told of more room than there is");
                }
                if consumed > room.consumed || consumed < room.told {
                    return fail("the sender is told of other consumption");
                }
                room.told = consumed;
            }
            Event::Got { way, len, .. } => {
                let room = self.rooms.entry(way).or_default();
                room.got += u64::from(len);
                if room.got > room.edge {
                    return fail("more came than there is room for");
                }
            }
            _ => {}
        }
        Ok(())
    }
}
