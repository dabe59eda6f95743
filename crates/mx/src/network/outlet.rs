//! What a board has around it: the rings of its endpoints, and the wire.

use std::collections::BTreeMap;

use causeway_message::backend::{Outside, RegionFault};
use causeway_message::split::{Event, PeerId, RegionId};

use super::desk::Desk;
use super::frames::Frames;

/// What is to be done after a board had its turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Note {
    /// A process sleeps, and something is there for it.
    Wake { client: u32, endpoint: u8 },
    /// A source is to be served.
    Serve(u32),
    /// A process broke a rule.
    Broken { client: u32, why: String },
}

/// See above.
#[derive(Debug)]
pub struct Outlet {
    pub desks: BTreeMap<u8, Desk>,
    pub frames: Frames,
    touched: Vec<u8>,
    /// Something was written to a process since this was last looked at.
    pub told: bool,
}

impl Outlet {
    pub fn new() -> Self {
        Self { desks: BTreeMap::new(), frames: Frames::new(), touched: Vec::new(), told: false }
    }

    /// Notes that something of an endpoint is to be looked at when the turn is over.
    pub fn touch(&mut self, endpoint: u8) {
        self.touched.push(endpoint);
    }

    /// The turn is over: frames leave, and what else is to be done is noted.
    pub fn settle(&mut self, now_ns: u64, notes: &mut Vec<Note>) {
        self.frames.flush(now_ns);
        while let Some(endpoint) = self.touched.pop() {
            let Some(desk) = self.desks.get_mut(&endpoint) else { continue };
            let client = desk.client;
            if let Some(why) = &desk.broken {
                notes.push(Note::Broken { client, why: why.clone() });
                continue;
            }
            let written = std::mem::take(&mut desk.touched);
            self.told |= written;
            if std::mem::take(&mut desk.wish) || (written && desk.sender.take_wish()) {
                notes.push(Note::Wake { client, endpoint });
            }
            if desk.full.is_some() {
                notes.push(Note::Serve(desk.source));
            }
        }
    }

    /// Something changed: requests that were not taken may be now.
    pub fn retry(&mut self, notes: &mut Vec<Note>) {
        for desk in self.desks.values_mut().filter(|desk| desk.later) {
            notes.push(Note::Serve(desk.source));
        }
    }
}

impl Outside for Outlet {
    fn random(&mut self) -> u32 {
        crate::service::random_number()
    }

    fn frame(&mut self, head: &[u8], data: &[u8]) {
        self.frames.push(head, data);
    }

    fn frame_of(
        &mut self,
        head: &[u8],
        endpoint: u8,
        region: RegionId,
        (offset, len): (u64, usize),
    ) -> Result<(), RegionFault> {
        let desk = self.desks.get(&endpoint).ok_or(RegionFault)?;
        self.frames.push_lent(head, desk.view(region, offset, len)?);
        Ok(())
    }

    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool {
        // It may say that what was lent may be used again.
        self.frames.part_from_lent();
        let Some(desk) = self.desks.get_mut(&endpoint) else { return true };
        if !desk.touched {
            self.touched.push(endpoint);
        }
        desk.event(event)
    }

    fn holds(&self, endpoint: u8, peer: PeerId) -> bool {
        self.desks.get(&endpoint).is_some_and(|desk| desk.holds.has(peer))
    }

    fn read(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault> {
        self.desks.get(&endpoint).ok_or(RegionFault)?.read(region, offset, into)
    }

    fn write(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault> {
        self.desks.get(&endpoint).ok_or(RegionFault)?.write(region, offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_message::split::Token;
    use causeway_message::status::Status;

    #[test]
    fn what_was_lent_leaves_before_anybody_hears_that_it_may_be_used_again() {
        let mut outlet = Outlet::new();
        outlet.frames.push_lent(&[3; 16], crate::network::frames::tests::lent(50, 4));
        outlet.event(1, &Event::Pulled { token: Token(1), status: Status::Success });
        assert_eq!(outlet.frames.down, 1, "it had nowhere to go, but it did");
    }
}
