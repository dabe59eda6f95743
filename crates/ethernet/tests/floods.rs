//! Frames for many between the links of a group: each copy but the first is known by its number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use causeway_ethernet::Ethernet;
use causeway_fabric::carrier::{
    Arrival, Arrivals, Carrier, LinkId, Membership, Message, Outgoing, Pool, Refusal, Standing,
};
use causeway_fabric::mailbox::Sender;
use causeway_fabric::orders::{Order, Outcome};
use causeway_fabric::{Pacing, Shard};

/// What left by a link: numbers and frames.
type Sent = Arc<Mutex<Vec<(Option<u64>, Vec<u8>)>>>;

#[derive(Debug, Default, Clone)]
struct Wire(Sent);

impl Carrier for Wire {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let mut bytes = vec![0; frame.len];
        frame.reader().read(&mut bytes).unwrap();
        self.0.lock().unwrap().push((frame.flood, bytes));
        Ok(())
    }
    fn flush(&mut self) -> u64 {
        0
    }
    fn takes_offloads(&self) -> bool {
        true
    }
    fn longest(&self) -> usize {
        65_557
    }
}

/// A group that has links alone. Link `n` is named by its number.
struct Group {
    shard: Shard,
    inbox: Sender<Message>,
    wires: BTreeMap<u32, Wire>,
}

impl Group {
    /// With links, each for transit or not.
    fn new(links: &[bool]) -> Self {
        let service = Box::new(Ethernet::new());
        let mut shard = Shard::new("red".parse().unwrap(), service, Pacing::default()).unwrap();
        let Ok(Outcome::Inbox(inbox)) = shard.order(Order::Inbox) else { panic!("no inbox") };
        let mut wires = BTreeMap::new();
        for (at, &transit) in links.iter().enumerate() {
            let wire = Wire::default();
            let id = LinkId(at as u32);
            let member = Membership {
                id,
                name: format!("l{at}").parse().unwrap(),
                peer: format!("h{at}"),
                metric: 1,
                transit,
                notices: None,
                carrier: Box::new(wire.clone()),
            };
            shard.order(Order::Join(member)).unwrap();
            inbox.insist(Message::Standing(id, Standing { up: true, rtt_ns: None })).unwrap();
            wires.insert(id.0, wire);
        }
        Self { shard, inbox, wires }
    }

    /// A frame comes by a link.
    fn bring(&mut self, link: u32, number: Option<u64>, frame: &[u8]) {
        let bytes = Pool::default().adopt(frame.to_vec());
        let arrival = Arrival { at: 0..frame.len(), offload: [0; 10], hops: 1, flood: number };
        let arrivals = Arrivals { link: LinkId(link), bytes, frames: vec![arrival] };
        self.inbox.push(Message::Arrivals(arrivals)).unwrap();
        self.shard.step(1, 8).unwrap();
    }

    /// By which links frames left since the last call, with their numbers.
    fn left(&self) -> Vec<(u32, Option<u64>)> {
        let each = self.wires.iter().flat_map(|(link, wire)| {
            let sent = std::mem::take(&mut *wire.0.lock().unwrap());
            sent.into_iter().map(|(number, _)| (*link, number))
        });
        each.collect()
    }

    fn drops(&mut self, link: u32, why: &str) -> u64 {
        let Ok(Outcome::LinkDrops(drops)) = self.shard.order(Order::LinkDrops) else { panic!() };
        let of = drops.into_iter().find(|(id, _)| id.0 == link);
        of.unwrap().1[why]
    }
}

fn broadcast(from: u8, text: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, from], &[0x88, 0xb5], text].concat()
}

#[test]
fn a_frame_for_many_goes_on_once_however_it_comes() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    group.bring(0, Some(7), &frame);
    assert_eq!(group.left(), [(1, Some(7)), (2, Some(7))]);
    group.bring(1, Some(7), &frame);
    group.bring(0, Some(7), &frame);
    assert_eq!(group.left(), []);
    assert_eq!(
        (group.drops(0, "drop_duplicate_total"), group.drops(1, "drop_duplicate_total")),
        (1, 1)
    );
}

#[test]
fn what_is_refused_does_not_silence_the_frame_of_its_number() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    // Too short; from an address that nobody has; the number on another frame.
    group.bring(0, Some(7), &frame[..12]);
    group.bring(0, Some(7), &[&[0xff; 6][..], &[0; 6], &frame[12..]].concat());
    assert_eq!(group.left(), []);
    group.bring(0, Some(7), &broadcast(1, b"howdy"));
    assert_eq!(group.left(), [(1, Some(7)), (2, Some(7))]);
    group.bring(1, Some(7), &frame);
    assert_eq!(group.left(), [(0, Some(7)), (2, Some(7))], "it is heard all the same");
}

#[test]
fn a_hostile_flood_by_one_link_makes_no_copy_of_anothers_frame_new() {
    let mut group = Group::new(&[true, true, true]);
    let frame = broadcast(1, b"hello");
    group.bring(0, Some(7), &frame);
    for number in 1_000..15_000 {
        group.bring(1, Some(number), &broadcast(2, b"noise"));
        group.left();
    }
    group.bring(2, Some(7), &frame);
    assert_eq!(group.left(), []);
}

#[test]
fn a_copy_by_transit_goes_where_the_first_was_not_allowed_to() {
    // The first came straight, and might leave by the transit link only.
    let mut group = Group::new(&[false, false, true, false]);
    let frame = broadcast(1, b"hello");
    group.bring(0, Some(7), &frame);
    assert_eq!(group.left(), [(2, Some(7))]);
    group.bring(2, Some(7), &frame);
    assert_eq!(group.left(), [(1, Some(7)), (3, Some(7))], "not to where it came from first");
    group.bring(2, Some(7), &frame);
    group.bring(1, Some(7), &frame);
    assert_eq!(group.left(), [], "it has been everywhere");
}

#[test]
fn a_frame_that_got_its_number_here_is_known_when_it_comes_back() {
    let mut group = Group::new(&[true, true]);
    let frame = broadcast(1, b"hello");
    // As from a link that carries no numbers.
    group.bring(0, None, &frame);
    let left = group.left();
    let [(1, Some(number))] = left.as_slice() else { panic!("{left:?}") };
    for _ in 0..10_000 {
        group.bring(0, None, &broadcast(2, b"more"));
    }
    group.left();
    group.bring(1, Some(*number), &frame);
    assert_eq!(group.left(), []);
    assert_eq!(group.drops(1, "drop_duplicate_total"), 1);
}
