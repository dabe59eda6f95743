//! The engine with its rings: serving of requests, frames and timers.
//!
//! [`Engine::serve`] takes requests of one endpoint from its ring, up to a budget, and passes them
//! to the [`Nic`]. A cancel counts as several requests, since it searches. A request that the
//! engine defers stays in the ring, and later requests of the endpoint wait behind it; the owner
//! retries after frames, timers and removals of regions ([`TxPath::retry`]). A malformed request,
//! one longer than [`MEDIUM_BYTES_MAX`] (32 KiB), an impossible index or unmapped rings break the
//! endpoint: it is not served again, [`TxPath::commit`] reports
//! [`Broken`](crate::driver::EndpointAction::Broken), and the owner closes it.
//!
//! Callers: `mx::network` (all endpoints of a NIC, one dispatcher), and `causeway-endpoint` in
//! direct mode (its own endpoint). After one or more calls the owner calls [`TxPath::commit`];
//! without it, wake-ups and the last frames stay queued. The engine never sleeps: the owner waits
//! for doorbells, frames and [`Engine::deadline`].

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use causeway_channel::mx_rings;
use causeway_host::AppMemory;
use causeway_memory::GuestSpans;
use causeway_wire::mx::limits::MEDIUM_BYTES_MAX;
use causeway_wire::mx::{NicId, PeerId, RegionId, Request};

use crate::driver::endpoint_io::{CheckedRegion, EndpointIo, LentRegion, RegionRefusal};
use crate::driver::limits::{
    COST_AT_CLOSE_MAX, REGION_BYTES_OF_ENDPOINT_MAX, REQUESTS_AT_CLOSE_MAX,
};
use crate::driver::tx_batch::Output;
use crate::driver::tx_path::TxPath;
use crate::local::{self, LocalSide};
use crate::{Admission, DropReason, Nic, NicConfig};

/// Outcome of serving the rings of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeOutcome {
    /// There may be more requests: the caller serves the endpoint again.
    Worked,
    /// There is no request, and the doorbell is not armed: the caller polls.
    Idle,
    /// The doorbell is armed: for the next request, or for room if the next request is deferred. An
    /// endpoint that is broken or not open is parked without a doorbell.
    Parked,
}

/// The other NICs of the same daemon.
pub trait Neighbours<W, E> {
    /// Returns the engine of a NIC, and marks it as used: the owner must call [`TxPath::commit`]
    /// for it too. `None` if there is no such NIC.
    fn engine(&mut self, nic: NicId) -> Option<&mut Engine<W, E>>;
}

/// No NICs: those of an engine whose peers are all on the network.
#[derive(Debug)]
pub struct NoNeighbours;

impl<W, E> Neighbours<W, E> for NoNeighbours {
    fn engine(&mut self, _nic: NicId) -> Option<&mut Engine<W, E>> {
        None
    }
}

/// The engine with rings and frames. `W` is the owner of an endpoint, `E` the output for frames.
#[derive(Debug)]
pub struct Engine<W, E> {
    /// The NIC.
    pub nic: Nic,
    /// Endpoints and network that the NIC writes to.
    pub tx_path: TxPath<W, E>,
    /// Buffer for the bytes of a request.
    request: Vec<u8>,
}

impl<W: Debug, E: Output> Engine<W, E> {
    /// Creates the engine of a NIC; its frames leave by `output`.
    pub fn new(config: NicConfig, output: Option<E>) -> Self {
        let request = vec![0; MEDIUM_BYTES_MAX];
        Self { nic: Nic::new(config), tx_path: TxPath::new(output), request }
    }

    /// Opens an endpoint with its rings. `(key, session)`: the key that peers must present, and the
    /// session of this instance.
    ///
    /// # Errors
    /// The endpoint is open already, or its number is invalid.
    pub fn open(
        &mut self,
        endpoint: u8,
        (key, session): (u32, u32),
        endpoint_io: EndpointIo<W>,
    ) -> io::Result<()> {
        self.nic
            .open_as(endpoint, key, session, &mut self.tx_path)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.tx_path.endpoints.insert(endpoint, endpoint_io);
        Ok(())
    }

    /// Takes the remaining requests of an endpoint before [`Self::close`], at most
    /// [`REQUESTS_AT_CLOSE_MAX`] (1,024) at a cost of at most [`COST_AT_CLOSE_MAX`] (4,096), until
    /// one is deferred.
    pub fn drain_requests(&mut self, now: u64, endpoint: u8) {
        self.drain_among(now, endpoint, &mut NoNeighbours);
    }

    /// Takes the remaining requests as [`Self::drain_requests`] does, and delivers messages to
    /// `neighbours` as [`Self::serve_among`] does.
    pub fn drain_among(&mut self, now: u64, endpoint: u8, neighbours: &mut dyn Neighbours<W, E>) {
        let mut cost = 0_u32;
        for _ in 0..REQUESTS_AT_CLOSE_MAX {
            let Some(taken) = self.take_request(now, endpoint, neighbours) else { break };
            cost = cost.saturating_add(taken);
            if cost >= COST_AT_CLOSE_MAX {
                break;
            }
        }
    }

    /// Closes an endpoint as [`Nic::close`] does, and returns its rings and regions, or `None` if
    /// it is not open. Requests left in the ring are lost.
    pub fn close(&mut self, now: u64, endpoint: u8) -> Option<EndpointIo<W>> {
        self.nic.close(now, endpoint, &mut self.tx_path);
        self.tx_path.endpoints.remove(&endpoint)
    }

    /// Registers memory for large messages of an endpoint.
    ///
    /// # Errors
    /// [`RegionRefusal`]: the memory breaks a rule, or a limit is reached.
    pub fn add_region(
        &mut self,
        endpoint: u8,
        file: BorrowedFd<'_>,
        len: u64,
    ) -> Result<RegionId, RegionRefusal> {
        let endpoint_io = self.tx_path.endpoints.get_mut(&endpoint).ok_or(RegionRefusal::Rule)?;
        let lent = endpoint_io.lend(file, len)?;
        self.keep_region(endpoint, len, lent)
    }

    /// Registers memory of a guest's process for large messages of an endpoint.
    ///
    /// # Errors
    /// [`RegionRefusal`]: the memory breaks a rule, a limit is reached, or the endpoint is not open.
    pub fn add_spans(
        &mut self,
        endpoint: u8,
        memory: GuestSpans,
    ) -> Result<RegionId, RegionRefusal> {
        let len = memory.len();
        let lent = EndpointIo::<W>::lend_spans(memory)?;
        self.keep_region(endpoint, len, lent)
    }

    /// Registers checked memory.
    fn keep_region(
        &mut self,
        endpoint: u8,
        len: u64,
        lent: CheckedRegion,
    ) -> Result<RegionId, RegionRefusal> {
        let endpoint_io = self.tx_path.endpoints.get_mut(&endpoint).ok_or(RegionRefusal::Rule)?;
        if endpoint_io.region_bytes.saturating_add(len) > REGION_BYTES_OF_ENDPOINT_MAX {
            return Err(RegionRefusal::Limit);
        }
        let region = self.nic.region_add(endpoint, len).ok_or(RegionRefusal::Limit)?;
        if endpoint_io.keep(region, lent) { Ok(region) } else { Err(RegionRefusal::Rule) }
    }

    /// Registers the memory of the endpoint's own process, from which long messages are sent in
    /// place. Returns `None` if the endpoint is not open, has such a region, or no number is free.
    pub fn add_own_region(&mut self, endpoint: u8, own: AppMemory) -> Option<RegionId> {
        let endpoints = &mut self.tx_path.endpoints;
        let endpoint_io = endpoints.get_mut(&endpoint).filter(|io| !io.has_own())?;
        let region = self.nic.region_add(endpoint, AppMemory::BYTES)?;
        endpoint_io.keep_own(region, own);
        Some(region)
    }

    /// Releases a region.
    pub fn remove_region(&mut self, now: u64, endpoint: u8, region: RegionId) {
        self.nic.region_remove(now, endpoint, region, &mut self.tx_path);
        if let Some(endpoint_io) = self.tx_path.endpoints.get_mut(&endpoint) {
            endpoint_io.give_back(region);
        }
    }

    /// Takes the memory of a region away, which must not be touched any more: accesses to it are
    /// faults. The caller then calls [`Self::remove_region`].
    pub fn detach_region(&mut self, endpoint: u8, region: RegionId) -> Option<LentRegion> {
        self.tx_path.endpoints.get_mut(&endpoint)?.give_back(region)
    }

    /// Serves at most `budget` requests of an endpoint. Returns the outcome and the number of
    /// requests. If `polled`, the caller polls the endpoint again and the doorbell stays unarmed.
    /// The caller must call [`TxPath::commit`] afterwards.
    pub fn serve(
        &mut self,
        now: u64,
        endpoint: u8,
        budget: usize,
        polled: bool,
    ) -> (ServeOutcome, u32) {
        self.serve_among(now, endpoint, budget, polled, &mut NoNeighbours)
    }

    /// Serves requests as [`Self::serve`] does. An eager message to an endpoint of `neighbours`, or
    /// of this NIC, goes into its ring at once if no earlier message waits and there is room.
    pub fn serve_among(
        &mut self,
        now: u64,
        endpoint: u8,
        budget: usize,
        polled: bool,
        neighbours: &mut dyn Neighbours<W, E>,
    ) -> (ServeOutcome, u32) {
        let Some(endpoint_io) = self.tx_path.endpoints.get_mut(&endpoint) else {
            return (ServeOutcome::Parked, 0);
        };
        endpoint_io.disarm();
        endpoint_io.later = false;
        if endpoint_io.has_room_again() | endpoint_io.holds.released() {
            self.nic.room(now, endpoint, &mut self.tx_path);
        }
        let mut count = 0_u32;
        while (count as usize) < budget
            && let Some(cost) = self.take_request(now, endpoint, neighbours)
        {
            count = count.saturating_add(cost);
        }
        let Some(endpoint_io) = self.tx_path.endpoints.get_mut(&endpoint) else {
            return (ServeOutcome::Parked, count);
        };
        let after = if endpoint_io.broken.is_some() {
            ServeOutcome::Parked
        } else if endpoint_io.later {
            if endpoint_io.arm_for_room() { ServeOutcome::Parked } else { ServeOutcome::Worked }
        } else if count as usize >= budget {
            ServeOutcome::Worked
        } else if polled {
            ServeOutcome::Idle
        } else if endpoint_io.arm() {
            ServeOutcome::Parked
        } else {
            ServeOutcome::Worked
        };
        if endpoint_io.broken.is_some() || endpoint_io.must_wake {
            self.tx_path.touch(endpoint);
        }
        (after, count)
    }

    /// Takes one request and returns its cost in requests, or `None` if no more can follow.
    fn take_request(
        &mut self,
        now: u64,
        endpoint: u8,
        neighbours: &mut dyn Neighbours<W, E>,
    ) -> Option<u32> {
        let endpoint_io = self.tx_path.endpoints.get_mut(&endpoint)?;
        if endpoint_io.broken.is_some() || endpoint_io.later {
            return None;
        }
        let event = match endpoint_io.receiver.poll() {
            Ok(Some(event)) => event,
            Ok(None) => return None,
            Err(broken) => {
                endpoint_io.broken = Some(broken.to_string());
                return None;
            }
        };
        let bytes = self.request.get_mut(..event.len).unwrap_or(&mut []);
        endpoint_io.receiver.copy(&event, 0, bytes);
        if bytes.len() < event.len {
            endpoint_io.broken =
                Some(format!("a request has {} bytes, more than a request can have", event.len));
            return None;
        }
        let request = match mx_rings::read_request(&event.head, bytes) {
            Ok(request) => request,
            Err(wrong) => {
                endpoint_io.broken = Some(format!("a request is malformed: {wrong}"));
                return None;
            }
        };
        let more = match request {
            Request::Cancel { .. } => self.nic.cancel_cost(endpoint),
            _ => 0,
        };
        let Self { nic, tx_path, .. } = self;
        let own = LocalSide { nic, out: tx_path };
        let taken = if deliver((now, endpoint), &request, own, neighbours) {
            Admission::Yes
        } else {
            nic.request(now, endpoint, &request, tx_path)
        };
        let endpoint_io = self.tx_path.endpoints.get_mut(&endpoint)?;
        if taken == Admission::Later {
            endpoint_io.later = true;
            return None;
        }
        endpoint_io.must_wake |= endpoint_io.receiver.advance(&event);
        u32::try_from(more.saturating_add(1)).ok()
    }

    /// Sends a message of the own process, in two pieces, without a request. `to`: peer and match
    /// information. The end of the message is reported only if it fails. Returns false without an
    /// effect if requests are pending, a limit is reached, or the endpoint is broken or not open;
    /// the message must be requested then. The caller must call [`TxPath::commit`] afterwards.
    #[inline]
    pub fn send_unreported(
        &mut self,
        now: u64,
        endpoint: u8,
        to: (PeerId, u64),
        (first, second): (&[u8], &[u8]),
    ) -> bool {
        let Some(endpoint_io) = self.tx_path.endpoints.get(&endpoint) else { return false };
        let behind = endpoint_io.later || endpoint_io.receiver.ready();
        if endpoint_io.broken.is_some() || behind || !self.nic.admits_unreported(endpoint) {
            return false;
        }
        let data = if second.is_empty() {
            first
        } else {
            let whole = self.request.get_mut(..first.len().saturating_add(second.len()));
            let Some((one, other)) = whole.and_then(|room| room.split_at_mut_checked(first.len()))
            else {
                return false;
            };
            one.copy_from_slice(first);
            other.copy_from_slice(second);
            self.request.get(..first.len().saturating_add(second.len())).unwrap_or(&[])
        };
        self.nic.send_unreported(now, endpoint, to, data, &mut self.tx_path)
    }

    /// Returns the NIC and its surroundings, for [`local::perform`].
    pub fn side(&mut self) -> LocalSide<'_> {
        LocalSide { nic: &mut self.nic, out: &mut self.tx_path }
    }

    /// Returns whether an endpoint has a request, or waits for room.
    #[inline]
    pub fn has_work(&self, endpoint: u8) -> bool {
        let endpoint_io = self.tx_path.endpoints.get(&endpoint);
        endpoint_io
            .is_some_and(|endpoint_io| endpoint_io.receiver.ready() || endpoint_io.is_waiting())
    }

    /// Processes a received frame.
    ///
    /// # Errors
    /// [`DropReason`]: the reason why the frame was dropped.
    pub fn receive(&mut self, now: u64, frame: &[u8]) -> Result<(), DropReason> {
        self.nic.receive(now, frame, &mut self.tx_path)
    }

    /// Returns when a timer is due ([`Self::tick`]) or unsent frames are sent again
    /// ([`TxPath::commit`]), in ns; `u64::MAX` means never.
    pub fn deadline(&self) -> u64 {
        let engine = self.nic.deadline().unwrap_or(u64::MAX);
        engine.min(self.tx_path.frames.again_ns.unwrap_or(u64::MAX))
    }

    /// Returns whether a timer is due.
    pub fn is_due(&self, now: u64) -> bool {
        self.nic.deadline().is_some_and(|at| at <= now)
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: u64) {
        self.nic.tick(now, &mut self.tx_path);
    }
}

/// Delivers a request that is an eager message to a peer of the same daemon. Returns false if it is
/// none, or if it must wait.
#[inline]
fn deliver<W: Debug, E: Output>(
    (now, endpoint): (u64, u8),
    request: &Request<'_>,
    own: LocalSide<'_>,
    neighbours: &mut dyn Neighbours<W, E>,
) -> bool {
    let Some(route) = local::route(own.nic, endpoint, request) else { return false };
    if route.to() == own.nic.id() {
        return local::deliver(now, &route, request, own, None);
    }
    let Some(other) = neighbours.engine(route.to()) else { return false };
    let LocalSide { nic, out } = own;
    local::deliver(now, &route, request, LocalSide { nic, out }, Some(other.side()))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::sync::{Arc, Mutex};

    use causeway_channel::mx_rings::{read_event, write_request};
    use causeway_channel::{Receiver, Sender, Side, open};
    use causeway_host::net::send::OutgoingFrame;
    use causeway_memory::{Mapping, View};
    use causeway_wire::mx::Status;
    use causeway_wire::mx::{Address, Event, NicId, Token};

    use super::*;

    /// A network that keeps frames until they are received.
    #[derive(Debug, Clone, Default)]
    struct Wire(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Output for Wire {
        fn send<'a>(
            &self,
            frames: impl Iterator<Item = OutgoingFrame<'a>> + Clone,
        ) -> io::Result<usize> {
            let mut wire = self.0.lock().unwrap();
            let before = wire.len();
            wire.extend(frames.map(|frame| frame.head.to_vec()));
            Ok(wire.len() - before)
        }
    }

    /// A NIC with one endpoint, and the host side's end of its rings.
    struct Host {
        engine: Engine<(), Wire>,
        wire: Wire,
        asks: Sender,
        hears: Receiver,
        now: u64,
    }

    fn rings(file: &OwnedFd) -> (Sender, Receiver) {
        let len = rustix::fs::fstat(file).unwrap().st_size as usize;
        let mapping = Mapping::new(file.as_fd(), 0, len as u64).unwrap();
        open(&View::new(Arc::new(mapping), 0, len).unwrap(), Side::First).unwrap()
    }

    fn nic(number: u8) -> NicId {
        NicId::of([2, 0, 0, 0, 0, number])
    }

    impl Host {
        fn new(number: u8, other: u8) -> Self {
            let wire = Wire::default();
            let mut engine = Engine::new(NicConfig::new(nic(number), ""), Some(wire.clone()));
            engine.nic.nic_add(nic(other)).unwrap();
            let (endpoint_io, file) = EndpointIo::new(()).unwrap();
            engine.open(0, (9, u32::from(number)), endpoint_io).unwrap();
            let (asks, hears) = rings(&file);
            Self { engine, wire, asks, hears, now: 1 }
        }

        fn ask(&mut self, request: &Request<'_>) -> bool {
            write_request(&mut self.asks, request).unwrap()
        }

        fn serve(&mut self, budget: usize) {
            self.engine.serve(self.now, 0, budget, true);
            self.engine.tx_path.commit(self.now, |_, (), _| ());
        }

        fn send(&mut self, to: PeerId, info: u64, data: (&[u8], &[u8])) -> bool {
            let sent = self.engine.send_unreported(self.now, 0, (to, info), data);
            self.engine.tx_path.commit(self.now, |_, (), _| ());
            sent
        }

        /// Receives the frames of another NIC, and returns the reported events with their bytes.
        fn hear(&mut self, from: &Wire) -> Vec<(Event<'static>, Vec<u8>)> {
            for frame in from.0.lock().unwrap().drain(..) {
                self.engine.receive(self.now, &frame).unwrap();
            }
            self.engine.tx_path.commit(self.now, |_, (), _| ());
            let mut told = Vec::new();
            while let Some(event) = self.hears.poll().unwrap() {
                let mut bytes = vec![0; event.len];
                self.hears.copy(&event, 0, &mut bytes);
                told.push((read_event(&event.head, event.len).unwrap(), bytes));
                self.hears.advance(&event);
            }
            told
        }
    }

    /// Returns two connected NICs, and the second as a peer of the first.
    fn pair() -> (Host, Host, PeerId) {
        let (mut one, mut two) = (Host::new(1, 2), Host::new(2, 1));
        let to = Address { nic: nic(2), endpoint: 0 };
        assert!(one.ask(&Request::Connect { token: Token(1), to, key: 9, timeout_ns: None }));
        one.serve(9);
        two.hear(&one.wire);
        let told = one.hear(&two.wire);
        let Some((Event::Connected { status: Status::Success, peer, .. }, _)) = told.last() else {
            panic!("{told:?}");
        };
        let peer = *peer;
        (one, two, peer)
    }

    /// Returns the received messages.
    fn messages(told: Vec<(Event<'static>, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
        let message = |(event, bytes)| match event {
            Event::Message { match_info, .. } => Some((match_info, bytes)),
            _ => None,
        };
        told.into_iter().filter_map(message).collect()
    }

    #[test]
    fn unreported_sends_join_parts_and_keep_the_order() {
        let (mut one, mut two, peer) = pair();
        assert!(one.send(peer, 1, (b"in two ", b"pieces")));
        let asked =
            |info: u64| Request::Eager { peer, token: Token(info), match_info: info, data: b"" };
        assert!(one.ask(&asked(2)) && one.ask(&asked(3)));
        assert!(!one.send(peer, 4, (b"x", b"")), "two requests are pending");
        one.serve(1);
        assert!(!one.send(peer, 4, (b"x", b"")), "a request is pending");
        one.serve(1);
        assert!(one.send(peer, 4, (b"", b"x")));
        let long = vec![7; MEDIUM_BYTES_MAX];
        assert!(!one.send(peer, 5, (&long, b"x")) && !one.send(peer, 5, (b"x", &long)));
        assert!(one.send(peer, 5, (&long, b"")));
        let come = messages(two.hear(&one.wire));
        let wanted = [(1, b"in two pieces".to_vec()), (2, vec![]), (3, vec![]), (4, b"x".to_vec())];
        assert_eq!(come[..4], wanted);
        assert_eq!(come[4..], [(5, long)]);
    }

    #[test]
    fn unreported_sends_wait_behind_deferred_requests() {
        let (mut one, _two, peer) = pair();
        let asked = Request::Eager { peer, token: Token(2), match_info: 2, data: &[1; 30_000] };
        while one.ask(&asked) {
            one.serve(1);
        }
        assert!(!one.send(peer, 3, (b"x", b"")), "requests in the ring come first");
    }

    #[test]
    fn drain_at_close_is_bounded_by_the_cost_of_the_requests() {
        let (mut one, _two, peer) = pair();
        // Messages that the peer does not acknowledge, so that a cancel searches them.
        for number in 0..4096 {
            let eager = Request::Eager { peer, token: Token(number), match_info: 1, data: b"" };
            assert!(one.ask(&eager));
            one.serve(9);
        }
        let cost = u32::try_from(one.engine.nic.cancel_cost(0) + 1).unwrap();
        assert!(cost > 60, "{cost}");
        let missing = Request::Cancel { token: Token(1 << 40) };
        let asked = (0..1000).take_while(|_| one.ask(&missing)).count() as u32;
        assert!(asked * cost > 3 * COST_AT_CLOSE_MAX, "{asked} requests");
        one.engine.drain_requests(one.now, 0);
        let (_, left) = one.engine.serve(one.now, 0, usize::MAX, true);
        assert_eq!(asked - left / cost, COST_AT_CLOSE_MAX.div_ceil(cost));
    }

    #[test]
    fn own_memory_of_an_endpoint_is_one_region() {
        let mut one = Host::new(1, 2);
        let own = AppMemory::new().unwrap();
        assert!(one.engine.add_own_region(0, own.clone()).is_some());
        assert_eq!(one.engine.add_own_region(0, own), None, "the first keeps its number");
    }

    #[test]
    fn unreported_sends_need_an_open_unbroken_endpoint() {
        let (mut one, _two, peer) = pair();
        assert!(
            !one.engine.send_unreported(1, 1, (peer, 3), (b"x", b"")),
            "the endpoint is not open"
        );
        assert!(one.send(peer, 3, (b"x", b"")));
        one.engine.tx_path.endpoints.get_mut(&0).unwrap().broken = Some("nonsense".into());
        assert!(!one.send(peer, 3, (b"x", b"")));
    }
}
