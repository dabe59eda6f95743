//! Prints how many messages a thread executes per second: writes and sends between two adapters
//! with queues in private memory. The cost of the queues of a device is not included.

#[path = "../tests/engine/testing.rs"]
mod testing;

use std::time::Instant;

use causeway_memory::Map;
use causeway_verbs::work::*;
use causeway_verbs::*;

use testing::{BASE, memory};

/// Messages of a measurement, unless the first argument gives another number. The second argument
/// selects a length.
const MESSAGES: u32 = 2_000_000;

/// A send queue that repeats a work request, and a receive queue that never ends.
#[derive(Debug)]
struct Endless {
    map: std::sync::Arc<Map>,
    work: Option<SendWork>,
    receive: ReceiveWork,
    completed: u64,
}

impl Queues for Endless {
    fn map(&self) -> &Map {
        &self.map
    }
    fn shared_map(&self) -> std::sync::Arc<Map> {
        self.map.clone()
    }
    fn next_send(&mut self, _: u32, work: &mut SendWork) -> Result<bool, QueueError> {
        let Some(next) = &self.work else { return Ok(false) };
        work.clear();
        work.operation.clone_from(&next.operation);
        work.segments.extend_from_slice(&next.segments);
        work.is_signaled = next.is_signaled;
        Ok(true)
    }
    fn next_receive(
        &mut self,
        _: ReceiveQueue,
        work: &mut ReceiveWork,
    ) -> Result<bool, QueueError> {
        work.segments.clone_from(&self.receive.segments);
        Ok(true)
    }
    fn posted(&self, _: ReceiveQueue) -> u32 {
        1
    }
    fn complete(&mut self, _: u32, _: &Completion) -> Result<(), Overrun> {
        self.completed += 1;
        Ok(())
    }
    fn report(&mut self, event: AsyncEvent) {
        panic!("{event:?}");
    }
    fn decode_page(&self, entry: [u8; 8]) -> u64 {
        u64::from_be_bytes(entry)
    }
    fn network_header(&self, _: &AddressVector, _: u32) -> ([u8; 40], NetworkHeader) {
        ([0; 40], NetworkHeader::Ipv6)
    }
}

fn main() {
    let most = std::env::args().nth(1).and_then(|number| number.parse().ok());
    let most = most.unwrap_or(MESSAGES);
    let mut subnet = Subnet::new();
    let mut ids = Vec::new();
    for guest in 0..2 {
        let receive = ReceiveWork::default();
        let queues = Endless { map: memory(), work: None, receive, completed: 0 };
        let id = subnet.add(&AdapterConfig::new(testing::mac(guest)), queues).unwrap();
        let memory = region::RegionMemory::Pages {
            shift: 12,
            pages: (0..128).map(|page| BASE + page * 4096).collect(),
            capacity: 128,
        };
        let (domain, rights) = (1, testing::ALL);
        let (base, len, is_free, variable) = (0x7f00_0000_0000, 128 * 4096, false, 0);
        let region = region::Region { domain, base, len, rights, is_free, variable, memory };
        let adapter = subnet.adapter_mut(id).unwrap();
        let key = region::key_of(adapter.regions_mut().create(region).unwrap(), 0);
        ids.push((id, key));
    }
    let attributes = Attributes { domain: 1, rights: testing::ALL, ..Attributes::default() };
    let number = subnet.create_queue_pair(ids[0].0, Kind::Rc, attributes).unwrap();
    assert_eq!(number, subnet.create_queue_pair(ids[1].0, Kind::Rc, attributes).unwrap());
    for (guest, (id, _)) in ids.iter().enumerate() {
        let mac = testing::mac(1 - guest);
        let peer = Some(Peer { mac, queue_pair: number, gid: [0; 16] });
        let change = Change { peer, ..Change::default() };
        for state in [State::Init, State::ReadyToReceive, State::ReadyToSend] {
            subnet.modify(*id, number, state, &change).unwrap();
        }
    }
    let address = 0x7f00_0000_1000;
    let remote = RemoteAddress { address, key: ids[1].1 };
    let receive = vec![Segment { key: ids[1].1, address, len: 1 << 18 }];
    subnet.adapter_mut(ids[1].0).unwrap().queues_mut().receive.segments = receive;
    for (name, operation) in [("write", Operation::Write(remote)), ("send", Operation::Send)] {
        for len in [64, 4096, 65536] {
            if std::env::args().nth(2).is_some_and(|only| only != len.to_string()) {
                continue;
            }
            let segments = vec![Segment { key: ids[0].1, address, len }];
            let work = SendWork { operation: operation.clone(), segments, ..SendWork::default() };
            subnet.adapter_mut(ids[0].0).unwrap().queues_mut().work = Some(work);
            let messages = most.min(u32::try_from((4_u64 << 30) / u64::from(len)).unwrap());
            let start = Instant::now();
            let mut left = messages;
            while left > 0 {
                let mut budget = Budget::new(left.min(64), u64::MAX);
                let before = budget.messages();
                assert_eq!(subnet.progress(ids[0].0, number, &mut budget, 0), Progress::Yielded);
                left -= before - budget.messages();
            }
            let ns = start.elapsed().as_nanos() as f64 / f64::from(messages);
            let gigabytes = f64::from(len) / ns;
            println!("{name} {len:6} B: {ns:8.1} ns/message, {gigabytes:6.2} GB/s");
        }
    }
}
