//! Adapters with queues in private memory.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;

use causeway_memory::{Map, Mapping, Region as MapRegion, create};
use causeway_verbs::region::{Region, RegionMemory, Rights, key_of};
use causeway_verbs::work::*;
use causeway_verbs::*;

/// Guest address of the first byte of memory.
pub const BASE: u64 = 0x10_0000;
/// Bytes of memory of each guest.
pub const BYTES: u64 = 1 << 20;
/// Every right.
pub const ALL: Rights = Rights::all();
/// Protection domain of the tests.
pub const DOMAIN: u32 = 5;
/// Queue key of datagrams.
pub const QUEUE_KEY: u32 = 0x1111;

/// Returns memory of a guest.
pub fn memory() -> Arc<Map> {
    let file = create("verbs", BYTES).unwrap();
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, BYTES).unwrap());
    Arc::new(Map::new(vec![MapRegion { guest: BASE, user: 0, mapping }]).unwrap())
}

/// Work queues, receive queues and completions in lists.
#[derive(Debug)]
pub struct Lists {
    pub map: Arc<Map>,
    pub sends: HashMap<u32, VecDeque<SendWork>>,
    pub receives: HashMap<ReceiveQueue, VecDeque<ReceiveWork>>,
    pub completions: Vec<(u32, Completion)>,
    pub events: Vec<AsyncEvent>,
    /// Completions that fit.
    pub room: usize,
    /// Queues that cannot be read.
    pub broken_sends: Vec<u32>,
    pub broken_receives: Vec<ReceiveQueue>,
    pub xrc_queues: Vec<XrcQueue>,
}

impl Queues for Lists {
    fn map(&self) -> &Map {
        &self.map
    }

    fn shared_map(&self) -> Arc<Map> {
        Arc::clone(&self.map)
    }

    fn next_send(&mut self, queue_pair: u32, work: &mut SendWork) -> Result<bool, QueueError> {
        if self.broken_sends.contains(&queue_pair) {
            return Err(QueueError("test"));
        }
        match self.sends.get_mut(&queue_pair).and_then(VecDeque::pop_front) {
            Some(next) => *work = next,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn next_receive(
        &mut self,
        queue: ReceiveQueue,
        work: &mut ReceiveWork,
    ) -> Result<bool, QueueError> {
        if self.broken_receives.contains(&queue) {
            return Err(QueueError("test"));
        }
        match self.receives.get_mut(&queue).and_then(VecDeque::pop_front) {
            Some(next) => *work = next,
            None => return Ok(false),
        }
        Ok(true)
    }

    fn posted(&self, queue: ReceiveQueue) -> u32 {
        self.receives.get(&queue).map_or(0, VecDeque::len) as u32
    }

    fn xrc_queue(&self, number: u32) -> Option<XrcQueue> {
        self.xrc_queues.iter().find(|queue| queue.number == number).copied()
    }

    fn complete(&mut self, queue: u32, completion: &Completion) -> Result<(), Overrun> {
        if self.completions.len() >= self.room {
            return Err(Overrun);
        }
        self.completions.push((queue, *completion));
        Ok(())
    }

    fn report(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }

    fn decode_page(&self, entry: [u8; 8]) -> u64 {
        u64::from_be_bytes(entry) & !0xfff
    }

    fn network_header(&self, _: &AddressVector, payload: u32) -> ([u8; 40], NetworkHeader) {
        let mut header = [0xaa; 40];
        header[..4].copy_from_slice(&payload.to_be_bytes());
        (header, NetworkHeader::Ipv6)
    }
}

/// A subnet with guests.
pub struct World {
    pub subnet: Subnet<Lists>,
    pub ids: Vec<AdapterId>,
    /// Key of all memory of each guest.
    pub keys: Vec<u32>,
    pub now: u64,
    next_index: u16,
}

/// An end of a connection: index of the guest, and number of the queue pair.
pub type End = (usize, u32);

/// Returns the Ethernet address of a guest.
pub fn mac(guest: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, guest as u8]
}

impl World {
    /// Returns a subnet of some guests.
    pub fn new(guests: usize) -> Self {
        Self::with_waiting(guests, limits::QUEUE_PAIRS_MAX)
    }

    /// Returns adapters of which each permits a number of waiting requests.
    pub fn with_waiting(guests: usize, waiting_requests: usize) -> Self {
        let mut world =
            Self { subnet: Subnet::new(), ids: vec![], keys: vec![], now: 1000, next_index: 0 };
        for guest in 0..guests {
            let lists = Lists {
                map: memory(),
                sends: HashMap::new(),
                receives: HashMap::new(),
                completions: Vec::new(),
                events: Vec::new(),
                room: usize::MAX,
                broken_sends: Vec::new(),
                broken_receives: Vec::new(),
                xrc_queues: Vec::new(),
            };
            let config = AdapterConfig { waiting_requests, ..AdapterConfig::new(mac(guest)) };
            let id = world.subnet.add(&config, lists).unwrap();
            world.ids.push(id);
            let key = world.register(guest, RegionMemory::Whole, 0, ALL);
            world.keys.push(key);
        }
        world
    }

    pub fn adapter(&mut self, guest: usize) -> &mut Adapter<Lists> {
        self.subnet.adapter_mut(self.ids[guest]).unwrap()
    }

    pub fn lists(&mut self, guest: usize) -> &mut Lists {
        self.adapter(guest).queues_mut()
    }

    /// Registers memory under the variable byte 7. Returns the key.
    pub fn register(
        &mut self,
        guest: usize,
        memory: RegionMemory,
        base: u64,
        rights: Rights,
    ) -> u32 {
        let len = match &memory {
            RegionMemory::Whole => 0,
            RegionMemory::Pages { shift, pages, .. } => {
                ((pages.len() as u64) << shift) - (base & ((1 << shift) - 1))
            }
        };
        let region =
            Region { domain: DOMAIN, base, len, rights, is_free: false, variable: 7, memory };
        key_of(self.adapter(guest).regions_mut().create(region).unwrap(), 7)
    }

    pub fn attributes() -> Attributes {
        Attributes {
            domain: DOMAIN,
            send_queue: 1,
            receive_queue: 2,
            rights: ALL,
            queue_key: QUEUE_KEY,
            ..Attributes::default()
        }
    }

    pub fn create(&mut self, guest: usize, kind: Kind, attributes: Attributes) -> End {
        (guest, self.subnet.create_queue_pair(self.ids[guest], kind, attributes).unwrap())
    }

    pub fn modify(&mut self, end: End, to: State, change: &Change) {
        self.subnet.modify(self.ids[end.0], end.1, to, change).unwrap();
    }

    /// Moves a queue pair from reset to ready to send.
    pub fn ready(&mut self, end: End, peer: Option<End>) {
        let peer =
            peer.map(|(guest, queue_pair)| Peer { mac: mac(guest), queue_pair, gid: [0; 16] });
        let change = Change { peer, ..Change::default() };
        self.modify(end, State::Init, &change);
        self.modify(end, State::ReadyToReceive, &change);
        self.modify(end, State::ReadyToSend, &change);
    }

    /// Returns two connected queue pairs.
    pub fn connect_with(
        &mut self,
        (left, right): (usize, usize),
        kind: Kind,
        attributes: Attributes,
    ) -> (End, End) {
        let left = self.create(left, kind, attributes);
        let right = self.create(right, kind, attributes);
        self.ready(left, Some(right));
        self.ready(right, Some(left));
        (left, right)
    }

    pub fn connect(&mut self, ends: (usize, usize), kind: Kind) -> (End, End) {
        self.connect_with(ends, kind, Self::attributes())
    }

    /// Returns a segment of all memory.
    pub fn segment(&self, guest: usize, offset: u64, len: u32) -> Segment {
        Segment { key: self.keys[guest], address: BASE + offset, len }
    }

    pub fn remote(&self, guest: usize, offset: u64) -> RemoteAddress {
        RemoteAddress { address: BASE + offset, key: self.keys[guest] }
    }

    /// Posts a signaled work request with the given segments. Returns the index of its token.
    pub fn post(&mut self, end: End, operation: Operation, segments: Vec<Segment>) -> u16 {
        let work = SendWork { operation, segments, is_signaled: true, ..SendWork::default() };
        self.post_work(end, work)
    }

    pub fn post_work(&mut self, end: End, mut work: SendWork) -> u16 {
        self.next_index += 1;
        work.token = Token { index: self.next_index, opcode: 9 };
        self.lists(end.0).sends.entry(end.1).or_default().push_back(work);
        self.next_index
    }

    pub fn post_receive(&mut self, end: End, segments: Vec<Segment>) -> u16 {
        self.post_shared(end.0, ReceiveQueue::Own(end.1), segments)
    }

    pub fn post_shared(
        &mut self,
        guest: usize,
        queue: ReceiveQueue,
        segments: Vec<Segment>,
    ) -> u16 {
        self.next_index += 1;
        let token = Token { index: self.next_index, opcode: 0 };
        let work = ReceiveWork { segments, token };
        self.lists(guest).receives.entry(queue).or_default().push_back(work);
        self.next_index
    }

    /// Executes work of a queue pair with a large budget.
    pub fn run(&mut self, end: End) -> Progress {
        self.run_with(end, &mut Budget::new(1000, 1 << 32))
    }

    pub fn run_with(&mut self, end: End, budget: &mut Budget) -> Progress {
        self.subnet.progress(self.ids[end.0], end.1, budget, self.now)
    }

    /// Executes work of failed queue pairs and expired timers.
    pub fn run_due(&mut self, guest: usize) {
        while let Some(number) = self.subnet.next_due(self.ids[guest], self.now) {
            self.run((guest, number));
        }
    }

    /// Returns and forgets the completions of a guest: status, bytes, index of the token.
    pub fn completions(&mut self, guest: usize) -> Vec<(Status, u32, u16)> {
        let all = std::mem::take(&mut self.lists(guest).completions);
        all.iter().map(|(_, entry)| (entry.status, entry.bytes, entry.token.index)).collect()
    }

    /// Returns the statuses of the completions of a guest, and forgets the completions.
    pub fn statuses(&mut self, guest: usize) -> Vec<Status> {
        self.completions(guest).into_iter().map(|(status, ..)| status).collect()
    }

    pub fn events(&mut self, guest: usize) -> Vec<AsyncEvent> {
        std::mem::take(&mut self.lists(guest).events)
    }

    pub fn state(&mut self, end: End) -> State {
        self.adapter(end.0).queue_pair(end.1).unwrap().state()
    }

    pub fn write(&mut self, guest: usize, offset: u64, bytes: &[u8]) {
        self.lists(guest).map.write(BASE + offset, bytes).unwrap();
    }

    pub fn read(&mut self, guest: usize, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.lists(guest).map.read(BASE + offset, &mut bytes).unwrap();
        bytes
    }

    /// Fills the memory of a guest with a pattern. Returns it.
    pub fn fill(&mut self, guest: usize, seed: u8) -> Vec<u8> {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ seed;
        let bytes: Vec<u8> = (0..BYTES).map(byte).collect();
        self.write(guest, 0, &bytes);
        bytes
    }
}
