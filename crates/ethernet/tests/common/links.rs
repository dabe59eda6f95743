//! A group whose links end in the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use causeway_ethernet::Ethernet;
use causeway_fabric::carrier::{
    BufferPool, Carrier, LinkId, LinkStatus, Membership, Message, OFFLOAD_BYTES, Outgoing,
    ReceivedFrame, ReceivedFrames, Refusal,
};
use causeway_fabric::carrier::{Join, OpenInbox, ReadDrops};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::{PollConfig, Shard};

/// Numbers and frames that left by a link.
type Sent = Arc<Mutex<Vec<(Option<u64>, Vec<u8>)>>>;

/// A carrier that keeps the frames.
#[derive(Debug, Default, Clone)]
struct Wire {
    sent: Sent,
    /// The carrier takes no frames with offloads.
    finished: bool,
}

impl Carrier for Wire {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let mut bytes = vec![0; frame.len];
        frame.write(&mut bytes).unwrap();
        self.sent.lock().unwrap().push((frame.flood, bytes));
        Ok(())
    }
    fn flush(&mut self) -> u64 {
        0
    }
    fn takes_offloads(&self) -> bool {
        !self.finished
    }
    fn longest(&self) -> usize {
        65_557
    }
}

/// A group with links only. Link `n` is named by its number.
pub struct Group {
    shard: Shard,
    inbox: Sender<Message>,
    wires: BTreeMap<u32, Wire>,
    now: u64,
}

impl Group {
    /// Returns a group with links, each for transit or not.
    pub fn new(links: &[bool]) -> Self {
        Self::of(links, false)
    }

    /// As [`Self::new`]; the links take no offloads if `finished` is set.
    pub fn of(links: &[bool], finished: bool) -> Self {
        let links: Vec<_> = links.iter().map(|transit| (*transit, false)).collect();
        Self::with_segments(&links, finished)
    }

    /// Returns a group with links, each for transit or not, and to a network segment or not.
    pub fn with_segments(links: &[(bool, bool)], finished: bool) -> Self {
        let service = Box::new(Ethernet::new());
        let mut shard = Shard::new("red".parse().unwrap(), service, PollConfig::default()).unwrap();
        let inbox = shard.ask(OpenInbox).unwrap();
        let mut wires = BTreeMap::new();
        for (at, &(transit, segment)) in links.iter().enumerate() {
            let wire = Wire { finished, ..Wire::default() };
            let id = LinkId(at as u32);
            let member = Membership {
                id,
                name: format!("l{at}").parse().unwrap(),
                peer: format!("h{at}"),
                metric: 1,
                transit,
                segment,
                notices: None,
                station: None,
                carrier: Box::new(wire.clone()),
            };
            shard.ask(Join(member)).unwrap();
            inbox
                .push_urgent(Message::LinkStatus(
                    id,
                    LinkStatus { up: true, poor: false, rtt_ns: None, is_dormant: false },
                ))
                .unwrap();
            wires.insert(id.0, wire);
        }
        Self { shard, inbox, wires, now: 1 }
    }

    /// Injects a frame that arrives by a link.
    pub fn inject(&mut self, link: u32, number: Option<u64>, frame: &[u8]) {
        self.inject_with_offload(link, number, frame, [0; 10]);
    }

    /// As [`Self::inject`], with an offload.
    pub fn inject_with_offload(
        &mut self,
        link: u32,
        number: Option<u64>,
        frame: &[u8],
        offload: [u8; OFFLOAD_BYTES],
    ) {
        let bytes = BufferPool::default().adopt(frame.to_vec());
        let arrival = ReceivedFrame { at: 0..frame.len(), offload, hops: 1, flood: number };
        let arrivals = ReceivedFrames { link: LinkId(link), bytes, frames: vec![arrival] };
        self.inbox.push(Message::ReceivedFrames(arrivals)).unwrap();
        self.shard.step(self.now, 8).unwrap();
    }

    /// Runs the work that is due at a time, in nanoseconds.
    pub fn step(&mut self, now: u64) {
        self.now = now;
        self.shard.step(now, 8).unwrap();
    }

    /// Returns the links by which frames left since the last call, with flood numbers.
    pub fn left(&self) -> Vec<(u32, Option<u64>)> {
        self.frames().into_iter().map(|(link, number, _)| (link, number)).collect()
    }

    /// As [`Self::left`], with the frames.
    pub fn frames(&self) -> Vec<(u32, Option<u64>, Vec<u8>)> {
        let each = self.wires.iter().flat_map(|(link, wire)| {
            let sent = std::mem::take(&mut *wire.sent.lock().unwrap());
            sent.into_iter().map(|(number, frame)| (*link, number, frame))
        });
        each.collect()
    }

    /// Returns the number of a link's frames that were dropped for a reason.
    pub fn drops(&mut self, link: u32, why: &str) -> u64 {
        let drops = self.shard.ask(ReadDrops(None)).unwrap();
        let of = drops.into_iter().find(|(id, _)| id.0 == link);
        of.unwrap().1[why]
    }
}
