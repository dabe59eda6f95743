//! Stations in a group whose members end in the test.

use std::collections::BTreeMap;
use std::sync::Mutex;

use causeway_fabric::capture::Recording;
use causeway_fabric::carrier::{
    BufferPool, Carrier, Join, Leave, LinkStatus, Message, OpenInbox, Outgoing, ReadDrops,
    ReceivedFrame, ReceivedFrames, Refusal,
};
use causeway_fabric::limits::HOPS_MAX;
use causeway_fabric::mailbox::Sender;
use causeway_fabric::station::{Denial, FramePath, Station};
use causeway_fabric::{PollConfig, Shard};
use causeway_model::commands::trace;
use causeway_model::{CaptureSpec, Forwarding, GroupKind, MacMatch, RouteEnd, RouteSpec};
use causeway_model::{TraceQuery, TraceView};
use causeway_wire::hello;

use super::*;
use crate::Ethernet;
use crate::request::{AddRoute, BeginCapture, DeleteRoute, SetRoutes};

/// A carrier that keeps the frames.
#[derive(Debug, Default, Clone)]
struct Wire(Arc<Mutex<Vec<Vec<u8>>>>);

impl Carrier for Wire {
    fn push(&mut self, frame: &Outgoing<'_>) -> Result<(), Refusal> {
        let mut bytes = vec![0; frame.len];
        frame.write(&mut bytes).unwrap();
        self.0.lock().unwrap().push(bytes);
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

fn mac(number: u32) -> Mac {
    Mac([2, 0, 0, 0, 0, number as u8])
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// Broadcast address.
const ALL: Mac = Mac([0xff; 6]);

/// A group of stations, named `a1`, `a2` and so on, and links. Member `n` has address `mac(n)`.
struct Group {
    shard: Shard,
    inbox: Sender<Message>,
    wires: BTreeMap<u32, Wire>,
    cell: PolicyCell,
    now: u64,
    /// Frames have reached the other stations.
    reached: bool,
}

impl Group {
    /// Returns a group of `count` stations and a link with the number `count + 1`.
    fn new(count: u32) -> Self {
        let service = Box::new(Ethernet::new());
        let mut shard = Shard::new(name("red"), service, PollConfig::default()).unwrap();
        let inbox = shard.ask(OpenInbox).unwrap();
        let (wires, cell) = (BTreeMap::new(), PolicyCell::default());
        let mut group = Self { shard, inbox, wires, cell, now: 1, reached: false };
        for number in 1..=count {
            group.join(number, mac(number)).unwrap();
        }
        group.add(count + 1, None).unwrap();
        let status = LinkStatus { up: true, poor: false, rtt_ns: None, is_dormant: false };
        group.inbox.push_urgent(Message::LinkStatus(LinkId(count + 1), status)).unwrap();
        group.step();
        group
    }

    /// Adds a station.
    fn join(&mut self, number: u32, address: Mac) -> Result<(), CommandError> {
        let policy = self.cell.clone();
        self.add(number, Some(Station { address, learns: false, policy }))
    }

    fn add(&mut self, number: u32, station: Option<Station>) -> Result<(), CommandError> {
        let wire = Wire::default();
        let prefix = if station.is_some() { "a" } else { "l" };
        self.wires.insert(number, wire.clone());
        self.shard.ask(Join(Membership {
            id: LinkId(number),
            name: name(&format!("{prefix}{number}")),
            peer: String::new(),
            metric: 1,
            transit: false,
            segment: false,
            notices: None,
            station,
            carrier: Box::new(wire),
        }))
    }

    fn step(&mut self) {
        self.now += 1;
        self.shard.step(self.now, 8).unwrap();
    }

    /// Sends a frame from a member. Returns the members that received it.
    fn send(&mut self, from: u32, source: Mac, destination: Mac) -> Vec<u32> {
        self.send_after(0, from, source, destination)
    }

    /// As [`Self::send`], after the frame crossed links.
    fn send_after(&mut self, hops: u8, from: u32, source: Mac, destination: Mac) -> Vec<u32> {
        let mut frame = [destination.0, source.0].concat();
        frame.resize(100, 0);
        let arrival = ReceivedFrame { at: 0..100, offload: [0; 10], hops, flood: None };
        let bytes = BufferPool::default().adopt(frame);
        let frames = ReceivedFrames { link: LinkId(from), bytes, frames: vec![arrival] };
        let message = match self.reached {
            true => Message::StationFrames(frames),
            false => Message::ReceivedFrames(frames),
        };
        self.inbox.push(message).unwrap();
        self.step();
        let wires = self.wires.iter();
        let got =
            wires.filter(|(_, wire)| !std::mem::take(&mut *wire.0.lock().unwrap()).is_empty());
        got.map(|(number, _)| *number).collect()
    }

    fn drops(&mut self, number: u32, why: &str) -> u64 {
        let drops = self.shard.ask(ReadDrops(None)).unwrap();
        drops.into_iter().find(|(id, _)| id.0 == number).unwrap().1[why]
    }

    /// Adds a route for one address pair.
    fn route(&mut self, number: u64, (source, destination): (Mac, Mac), to: &str) {
        let spec = RouteSpec {
            group: name("red"),
            source: MacMatch::Only(source),
            destination: MacMatch::Only(destination),
            to: RouteEnd::Interface(name(to)),
            from: None,
        };
        self.shard.ask(AddRoute(number, spec)).unwrap();
    }

    fn capture(&mut self, at: RouteEnd) -> Recording {
        let filter = serde_json::from_str("{}").unwrap();
        self.shard.ask(BeginCapture(CaptureSpec { at, filter, snap: 0, count: 0 })).unwrap()
    }

    fn is_direct(&self) -> bool {
        self.cell.state().frames() == FramePath::Direct
    }

    /// Returns whether the policy admits traffic from a station to another.
    fn check(&self, from: u32, to: u32) -> Result<(), Denial> {
        let policy = self.cell.policy();
        policy.map_or(Ok(()), |policy| policy.check(mac(from), mac(to), mac(to)))
    }

    fn trace(&mut self, from: &str, destination: Mac) -> TraceView {
        let query = TraceQuery::new(&trace::Frame { from: name(from), source: None, destination });
        self.shard.trace(&query).unwrap().unwrap()
    }
}

#[test]
fn station_receives_frames_to_its_address_and_broadcasts_only() {
    let mut group = Group::new(3);
    assert_eq!(group.send(1, mac(1), mac(2)), [2]);
    assert_eq!(group.send(4, mac(9), mac(2)), [2], "from a link");
    assert_eq!(group.send(1, mac(1), mac(9)), [4], "the address is known behind the link");
    assert_eq!(group.send(1, mac(1), mac(8)), [4], "an unknown address");
    assert_eq!(group.send(1, mac(1), ALL), [2, 3, 4]);
    assert_eq!(group.send(4, mac(9), ALL), [1, 2, 3]);
    for _ in 0..100 {
        assert_eq!(group.send(1, mac(1), ALL), [2, 3, 4], "a station may repeat a frame");
    }
    assert_eq!(group.send_after(HOPS_MAX, 4, mac(9), mac(2)), [2], "a station is no link");
    group.shard.ask(Leave(LinkId(2))).unwrap();
    assert_eq!(group.send(1, mac(1), mac(2)), [4], "the station has left");
    assert_eq!(group.send(1, mac(1), ALL), [3, 4]);
}

#[test]
fn station_frame_that_reached_the_stations_goes_to_the_others_only() {
    let mut group = Group::new(3);
    group.reached = true;
    assert_eq!(group.send(1, mac(1), ALL), [4]);
    group.route(1, (mac(1), ALL), "a2");
    assert!(group.send(1, mac(1), ALL).is_empty(), "the route is newer than the frame");
    assert_eq!(group.drops(1, "drop_no_route_total"), 0);
    group.reached = false;
    assert_eq!(group.send(1, mac(1), ALL), [2]);
}

#[test]
fn station_of_another_service_learns_and_misses_no_broadcast() {
    let mut group = Group::new(2);
    let other = Station { address: mac(9), learns: true, policy: PolicyCell::default() };
    group.add(9, Some(other)).unwrap();
    group.reached = true;
    assert_eq!(group.send(1, mac(1), ALL), [3, 9], "only a2 has the frame");
    group.reached = false;
    assert_eq!(group.send(1, mac(1), mac(50)), [3, 9], "unknown");
    assert_eq!(group.send(9, mac(50), mac(1)), [1]);
    assert_eq!(group.send(1, mac(1), mac(50)), [9], "learnt");
    assert!(group.send(9, mac(2), mac(1)).is_empty(), "the address of a2");
    assert_eq!(group.drops(9, "drop_spoofed_source_total"), 1);
}

#[test]
fn station_sends_from_its_own_address_only() {
    let mut group = Group::new(2);
    for source in [mac(2), mac(9), ALL, Mac([0; 6])] {
        assert!(group.send(1, source, ALL).is_empty(), "{source}");
    }
    assert_eq!(group.drops(1, "drop_spoofed_source_total"), 4);
    assert!(group.send(1, mac(1), Mac(hello::ADDRESS)).is_empty());
    assert_eq!(group.drops(1, "drop_unknown_destination_total"), 1, "as of a port");
    assert!(group.send(3, mac(1), mac(2)).is_empty(), "a link has no address of a station");
    assert_eq!(group.drops(3, "drop_spoofed_source_total"), 1);
    let id = LinkId(3);
    group.inbox.push(Message::AddressAdded(id, vec![mac(1)])).unwrap();
    group.step();
    assert_eq!(group.send(2, mac(2), mac(1)), [1], "a peer's claim moves no station");
    assert_eq!(group.drops(3, "contested_addresses_total"), 1);
}

#[test]
fn station_with_an_address_in_use_is_refused() {
    let mut group = Group::new(2);
    let refused = group.join(7, mac(2)).unwrap_err().to_string();
    assert!(refused.contains("port a7") && refused.contains("port a2"), "{refused}");
    assert_eq!(group.send(1, mac(1), mac(2)), [2]);
    group.shard.ask(Leave(LinkId(2))).unwrap();
    group.join(7, mac(2)).unwrap();
    assert_eq!(group.send(1, mac(1), mac(2)), [7]);
}

#[test]
fn station_obeys_routes_and_is_their_end() {
    let mut group = Group::new(3);
    assert!(group.is_direct());
    group.route(1, (mac(1), mac(2)), "a3");
    assert!(!group.is_direct(), "a route may apply");
    assert_eq!(group.send(1, mac(1), mac(2)), [3]);
    assert_eq!(group.check(1, 2), Err(Denial::Route(1)));
    assert_eq!((group.check(2, 1), group.check(1, 3)), (Ok(()), Ok(())));
    // Routes of one priority apply together.
    group.route(2, (mac(1), mac(2)), "a2");
    assert_eq!(group.send(1, mac(1), mac(2)), [2, 3]);
    assert_eq!(group.check(1, 2), Ok(()));
    group.shard.ask(DeleteRoute(2)).unwrap();
    group.shard.ask(DeleteRoute(1)).unwrap();
    assert!(group.is_direct());
    assert_eq!((group.check(1, 2), group.send(1, mac(1), mac(2))), (Ok(()), vec![2]));
    // A route to the sender leads nowhere.
    group.route(3, (mac(1), mac(2)), "a1");
    assert!(group.send(1, mac(1), mac(2)).is_empty());
    assert_eq!(group.drops(1, "drop_no_route_total"), 1);
    assert_eq!(group.check(1, 2), Err(Denial::Route(3)));
}

#[test]
fn station_in_a_group_of_routes_reaches_what_they_lead_to() {
    let mut group = Group::new(2);
    let (forwarding, kind) = (Forwarding::Routes, GroupKind::default());
    group.shard.ask(SetRoutes { routes: Vec::new(), forwarding, kind }).unwrap();
    assert!(!group.is_direct());
    assert!(group.send(1, mac(1), mac(2)).is_empty());
    assert_eq!(group.drops(1, "drop_no_route_total"), 1);
    assert_eq!(group.check(1, 2), Err(Denial::NoRoute));
    group.route(1, (mac(1), mac(2)), "a2");
    assert_eq!((group.check(1, 2), group.check(2, 1)), (Ok(()), Err(Denial::NoRoute)));
}

#[test]
fn station_that_is_no_member_is_denied() {
    let mut group = Group::new(2);
    // A route between other addresses makes the group publish a policy.
    group.route(1, (mac(1), mac(7)), "a1");
    assert_eq!((group.check(1, 2), group.check(2, 1)), (Ok(()), Ok(())));
    for (from, to) in [(1, 9), (9, 1), (9, 8)] {
        assert_eq!(group.check(from, to), Err(Denial::NoRoute), "{from} to {to}");
    }
    group.shard.ask(Leave(LinkId(2))).unwrap();
    assert_eq!(
        (group.check(1, 2), group.check(2, 1)),
        (Err(Denial::NoRoute), Err(Denial::NoRoute))
    );
}

#[test]
fn station_capture_sees_all_frames_while_it_runs() {
    let mut group = Group::new(2);
    let elsewhere = group.capture(RouteEnd::Edge(name("l3")));
    assert!(group.is_direct(), "frames between stations do not pass the link");
    let recording = group.capture(RouteEnd::Interface(name("a1")));
    assert!(!group.is_direct());
    group.send(1, mac(1), mac(2));
    group.send(2, mac(2), mac(1));
    group.send(2, mac(2), mac(9));
    assert_eq!(recording.fetch().frames, 2, "sent and received");
    recording.close();
    group.send(1, mac(1), mac(2));
    assert!(group.is_direct(), "the capture has ended");
    drop(elsewhere);
}

#[test]
fn station_capture_leaves_frames_of_other_stations_on_the_direct_path() {
    let mut group = Group::new(3);
    let observed = |group: &Group| (group.cell.state().frames(), group.cell.observed().to_vec());
    let captures = ["a1", "a1", "a3"].map(|port| group.capture(RouteEnd::Interface(name(port))));
    assert_eq!(observed(&group), (FramePath::Unobserved, vec![mac(1), mac(3)]));
    captures[0].close();
    group.send(1, mac(1), mac(2));
    assert_eq!(observed(&group).1, [mac(1), mac(3)], "another capture at the station runs");
    captures[1].close();
    group.send(1, mac(1), mac(2));
    assert_eq!(observed(&group).1, [mac(3)]);
    group.route(1, (mac(1), mac(2)), "a2");
    assert_eq!(observed(&group).0, FramePath::Service, "the route applies to all");
    group.shard.ask(DeleteRoute(1)).unwrap();
    group.shard.ask(Leave(LinkId(3))).unwrap();
    assert!(captures[2].fetch().closed && group.is_direct(), "the station has left");
}

#[test]
fn station_is_named_in_traces() {
    let mut group = Group::new(2);
    let trace = group.trace("a1", mac(2));
    assert_eq!((&*trace.verdict, trace.to), ("forward", vec!["a2".to_owned()]));
    assert!(trace.steps[0].contains("port a1"), "{:?}", trace.steps);
    let all = group.trace("a2", ALL);
    assert_eq!(all.to, ["a1", "l3"]);
    group.route(5, (mac(1), mac(2)), "a1");
    assert_eq!(group.trace("a1", mac(2)).verdict, "drop");
}
