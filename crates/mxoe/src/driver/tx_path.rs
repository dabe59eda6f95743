//! The destinations of the engine: the rings and regions of its endpoints, and the network.

use std::collections::BTreeMap;

use causeway_wire::mx::{Event, PeerId, RegionId};

use crate::driver::endpoint_io::EndpointIo;
use crate::driver::tx_batch::{Output, TxBatch};
use crate::{Outside, RegionFault};

/// An action that an endpoint needs after a turn of the engine.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Wake its process, which sleeps while an event is in the ring.
    Wake,
    /// Serve the endpoint.
    Serve,
    /// Close the endpoint: its process broke this rule.
    Broken(String),
}

/// Endpoints and network of an engine.
#[derive(Debug)]
pub struct TxPath<W, E> {
    /// Rings and regions of the open endpoints, by number.
    pub desks: BTreeMap<u8, EndpointIo<W>>,
    /// Frames to send.
    pub frames: TxBatch<E>,
    touched: Vec<u8>,
    /// An event was written since the owner cleared the flag.
    pub told: bool,
}

impl<W, E: Output> TxPath<W, E> {
    /// Creates it without endpoints. Frames leave by `exit`.
    pub fn new(exit: Option<E>) -> Self {
        let (desks, frames) = (BTreeMap::new(), TxBatch::new(exit));
        Self { desks, frames, touched: Vec::new(), told: false }
    }

    /// Marks an endpoint for [`Self::settle`].
    pub(crate) fn touch(&mut self, endpoint: u8) {
        self.touched.push(endpoint);
    }

    /// Ends a turn: sends the frames, and passes the actions that endpoints need to `say`.
    pub fn settle(&mut self, now_ns: u64, mut say: impl FnMut(u8, &W, Action)) {
        self.frames.flush(now_ns);
        while let Some(endpoint) = self.touched.pop() {
            let Some(desk) = self.desks.get_mut(&endpoint) else { continue };
            if let Some(why) = &desk.broken {
                say(endpoint, &desk.whose, Action::Broken(why.clone()));
                continue;
            }
            let written = std::mem::take(&mut desk.touched);
            self.told |= written;
            if std::mem::take(&mut desk.wish) || (written && desk.sender.take_wish()) {
                say(endpoint, &desk.whose, Action::Wake);
            }
            if desk.full.is_some() {
                say(endpoint, &desk.whose, Action::Serve);
            }
        }
    }

    /// Passes the owners of all endpoints with a deferred request to `say`, because a limit may allow
    /// the request now.
    pub fn retry(&mut self, mut say: impl FnMut(&W)) {
        for desk in self.desks.values().filter(|desk| desk.later) {
            say(&desk.whose);
        }
    }
}

/// Returns an unpredictable random number.
pub fn random() -> u32 {
    let mut bytes = [0; 4];
    // This cannot fail: the kernel returns up to 256 bytes at once after its generator is seeded.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_ne_bytes(bytes)
}

impl<W: std::fmt::Debug, E: Output> Outside for TxPath<W, E> {
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
        // The event may allow the host side to reuse lent memory.
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
        let mut outlet = TxPath::<(), std::convert::Infallible>::new(None);
        outlet.frames.push_lent(&[3; 16], crate::driver::tx_batch::tests::lent(50, 4));
        outlet.event(1, &Event::Pulled { token: Token(1), status: Status::Success });
        assert_eq!(outlet.frames.down, 1, "it had nowhere to go, but it did");
    }
}
