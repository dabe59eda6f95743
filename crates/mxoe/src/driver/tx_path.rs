//! The destinations of the engine: the rings and regions of its endpoints, and the network.
//!
//! [`TxPath`] implements [`Outside`] for the engine: events go to the ring of the endpoint, frames
//! to the batch. No process is woken before [`TxPath::commit`]; frames may leave earlier, when 64
//! are queued, or before an event after which the host side may reuse lent memory. For an event
//! without room in the ring, for a broken endpoint, and for a message or offer of a peer that the
//! host side holds, [`Outside::event`] returns false, and the engine keeps the event. An event for
//! an endpoint that is not open is dropped, and its regions are faults. Reads and writes of regions
//! are checked against the mapping; a [`RegionFault`] does not end the process. The owner of the
//! [`Engine`](crate::driver::Engine) calls [`TxPath::commit`] after each batch of calls, and gets
//! the needed [`EndpointAction`]s of endpoints used since the last call; `Serve` and `Broken` may
//! be repeated.

use std::collections::BTreeMap;

use causeway_wire::mx::{Event, PeerId, RegionId};

use crate::driver::endpoint_io::EndpointIo;
use crate::driver::tx_batch::{Output, TxBatch};
use crate::{CopyFault, LentBytes, Outside, RegionFault};

/// Most bytes of data of a frame.
const DATA_BYTES_MAX: usize = causeway_wire::mxoe::FRAME_LEN_MAX;

/// An action that an endpoint needs after a turn of the engine.
#[derive(Debug, PartialEq, Eq)]
pub enum EndpointAction {
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
    pub endpoints: BTreeMap<u8, EndpointIo<W>>,
    /// Frames to send.
    pub frames: TxBatch<E>,
    /// Endpoints that [`Self::commit`] examines.
    touched: Vec<u8>,
    /// An event was offered to a ring since the owner cleared the flag.
    pub has_written: bool,
}

impl<W, E: Output> TxPath<W, E> {
    /// Creates it without endpoints. Frames leave by `output`.
    pub fn new(output: Option<E>) -> Self {
        let (endpoints, frames) = (BTreeMap::new(), TxBatch::new(output));
        Self { endpoints, frames, touched: Vec::new(), has_written: false }
    }

    /// Marks an endpoint for [`Self::commit`].
    pub(crate) fn touch(&mut self, endpoint: u8) {
        self.touched.push(endpoint);
    }

    /// Ends a turn: sends the frames, and passes the actions that endpoints need to `act`.
    pub fn commit(&mut self, now_ns: u64, mut act: impl FnMut(u8, &W, EndpointAction)) {
        self.frames.flush(now_ns);
        while let Some(endpoint) = self.touched.pop() {
            let Some(endpoint_io) = self.endpoints.get_mut(&endpoint) else { continue };
            if let Some(why) = &endpoint_io.broken {
                act(endpoint, &endpoint_io.owner, EndpointAction::Broken(why.clone()));
                continue;
            }
            let written = std::mem::take(&mut endpoint_io.touched);
            self.has_written |= written;
            if std::mem::take(&mut endpoint_io.must_wake)
                || (written && endpoint_io.sender.take_wake_request())
            {
                act(endpoint, &endpoint_io.owner, EndpointAction::Wake);
            }
            if endpoint_io.full.is_some() {
                endpoint_io.note_full();
                act(endpoint, &endpoint_io.owner, EndpointAction::Serve);
            }
        }
    }

    /// Passes the owners of all endpoints with a deferred request to `act`, because a limit may
    /// allow the request now.
    pub fn retry(&mut self, mut act: impl FnMut(&W)) {
        for endpoint_io in self.endpoints.values().filter(|endpoint_io| endpoint_io.later) {
            act(&endpoint_io.owner);
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
        let endpoint_io = self.endpoints.get(&endpoint).ok_or(RegionFault)?;
        match endpoint_io.view(region, offset, len) {
            Ok(view) => self.frames.push_lent(head, view),
            // Memory of a guest may lie in several places: its bytes are copied.
            Err(RegionFault) => {
                let mut bytes = [0; DATA_BYTES_MAX];
                let data = bytes.get_mut(..len).ok_or(RegionFault)?;
                endpoint_io.read(region, offset, data)?;
                self.frames.push(head, data);
            }
        }
        Ok(())
    }

    fn event(&mut self, endpoint: u8, event: &Event<'_>) -> bool {
        // The event may allow the host side to reuse lent memory.
        self.frames.part_from_lent();
        let Some(endpoint_io) = self.endpoints.get_mut(&endpoint) else { return true };
        if !endpoint_io.touched {
            self.touched.push(endpoint);
        }
        endpoint_io.event(event)
    }

    fn holds(&self, endpoint: u8, peer: PeerId) -> bool {
        self.endpoints.get(&endpoint).is_some_and(|endpoint_io| endpoint_io.holds.has(peer))
    }

    fn read(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), RegionFault> {
        self.endpoints.get(&endpoint).ok_or(RegionFault)?.read(region, offset, into)
    }

    fn write(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault> {
        self.endpoints.get(&endpoint).ok_or(RegionFault)?.write(region, offset, bytes)
    }

    fn lend(
        &mut self,
        endpoint: u8,
        region: RegionId,
        (offset, len): (u64, usize),
    ) -> Result<LentBytes, RegionFault> {
        self.endpoints.get(&endpoint).ok_or(RegionFault)?.lend_part(region, offset, len)
    }

    fn copy_in(
        &mut self,
        endpoint: u8,
        region: RegionId,
        offset: u64,
        from: &LentBytes,
    ) -> Result<(), CopyFault> {
        let endpoint_io = self.endpoints.get(&endpoint).ok_or(CopyFault::Destination)?;
        endpoint_io.copy_in(region, offset, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_wire::mx::Status;
    use causeway_wire::mx::Token;

    #[test]
    fn lent_memory_is_sent_before_an_event_allows_reuse() {
        let mut tx_path = TxPath::<(), std::convert::Infallible>::new(None);
        tx_path.frames.push_lent(&[3; 16], crate::driver::tx_batch::tests::lent(50, 4));
        tx_path.event(1, &Event::Pulled { token: Token(1), status: Status::Success });
        assert_eq!(tx_path.frames.down, 1, "the frame was sent without an output");
    }
}
