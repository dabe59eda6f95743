//! What the engine has around it: the rings of its endpoints, and the wire.

use std::collections::BTreeMap;

use causeway_wire::mx::{Event, PeerId, RegionId};

use crate::driver::endpoint_io::Desk;
use crate::driver::tx_batch::{Exit, Frames};
use crate::{Outside, RegionFault};

/// What is to be done for an endpoint after the engine had its turn.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Its process sleeps, and something is there for it.
    Wake,
    /// It is to be served.
    Serve,
    /// Its process broke a rule.
    Broken(String),
}

/// See above.
#[derive(Debug)]
pub struct Outlet<W, E> {
    /// Of the endpoints that are open.
    pub desks: BTreeMap<u8, Desk<W>>,
    /// What leaves.
    pub frames: Frames<E>,
    touched: Vec<u8>,
    /// Something was written to a process since this was last looked at.
    pub told: bool,
}

impl<W, E: Exit> Outlet<W, E> {
    /// Without endpoints; frames leave there.
    pub fn new(exit: Option<E>) -> Self {
        let (desks, frames) = (BTreeMap::new(), Frames::new(exit));
        Self { desks, frames, touched: Vec::new(), told: false }
    }

    /// Notes that something of an endpoint is to be looked at when the turn is over.
    pub(crate) fn touch(&mut self, endpoint: u8) {
        self.touched.push(endpoint);
    }

    /// The turn is over: frames leave, and `say` hears what else is to be done.
    pub fn settle(&mut self, now_ns: u64, mut say: impl FnMut(u8, &W, Said)) {
        self.frames.flush(now_ns);
        while let Some(endpoint) = self.touched.pop() {
            let Some(desk) = self.desks.get_mut(&endpoint) else { continue };
            if let Some(why) = &desk.broken {
                say(endpoint, &desk.whose, Said::Broken(why.clone()));
                continue;
            }
            let written = std::mem::take(&mut desk.touched);
            self.told |= written;
            if std::mem::take(&mut desk.wish) || (written && desk.sender.take_wish()) {
                say(endpoint, &desk.whose, Said::Wake);
            }
            if desk.full.is_some() {
                say(endpoint, &desk.whose, Said::Serve);
            }
        }
    }

    /// Something changed: requests that were not taken may be now, of those that `say` hears of.
    pub fn retry(&mut self, mut say: impl FnMut(&W)) {
        for desk in self.desks.values().filter(|desk| desk.later) {
            say(&desk.whose);
        }
    }
}

/// A random number that nobody can guess.
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    // The kernel gives so few at once, once it has any at all.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}

impl<W: std::fmt::Debug, E: Exit> Outside for Outlet<W, E> {
    fn random(&mut self) -> u32 {
        random()
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
    use causeway_wire::mx::Status;
    use causeway_wire::mx::Token;

    #[test]
    fn what_was_lent_leaves_before_anybody_hears_that_it_may_be_used_again() {
        let mut outlet = Outlet::<(), std::convert::Infallible>::new(None);
        outlet.frames.push_lent(&[3; 16], crate::driver::tx_batch::tests::lent(50, 4));
        outlet.event(1, &Event::Pulled { token: Token(1), status: Status::Success });
        assert_eq!(outlet.frames.down, 1, "it had nowhere to go, but it did");
    }
}
