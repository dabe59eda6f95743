//! Operations that wait for a window or a slot continue when one is free.

use crate::common;

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, PeerId, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{Ack, Connect, ConnectBody, EndpointPair, Notify, Packet};

use common::script::{KEY, OURS, Script, THEIR_INDEX, TO_US, packets};
use common::{RecordedEvent, address};

/// Number of windows of an endpoint.
const WINDOWS: u16 = 256;
const LEN: u32 = 100_000;

struct World {
    script: Script,
    region: RegionId,
    acks: u32,
}

impl World {
    /// Creates a NIC with a region, and with all windows open to the first peer.
    fn without_windows() -> (Self, PeerId, Vec<(u8, u8)>) {
        let (mut script, peer) = Script::connected();
        let region = script.nic.region_add(OURS, LEN.into()).unwrap();
        script.side.regions.insert((OURS, region.0), vec![7; LEN as usize]);
        let mut world = Self { script, region, acks: 0 };
        let mut windows = Vec::new();
        for number in 1..=WINDOWS {
            windows.extend(world.offer(peer, number.into()));
            world.ack(number + 1);
        }
        assert_eq!(windows.len(), usize::from(WINDOWS));
        (world, peer, windows)
    }

    /// Offers a message. Returns its window.
    fn offer(&mut self, peer: PeerId, token: u64) -> Option<(u8, u8)> {
        let from = Window { region: self.region, offset: 0, len: LEN };
        let offer = Request::Offer { peer, token: Token(token), match_info: 1, from };
        assert_eq!(self.script.ask(&offer), Admission::Yes);
        self.offered().pop().map(|(_, window)| window)
    }

    /// Returns the receivers of offers since the last call, and their windows.
    fn offered(&mut self) -> Vec<(u8, (u8, u8))> {
        let frames = self.script.sent();
        let one = |packet: &Packet<'_>| match packet {
            Packet::Rendezvous(offer) => {
                Some((offer.ends.destination, (offer.window, offer.window_sequence)))
            }
            _ => None,
        };
        packets(&frames).iter().filter_map(one).collect()
    }

    /// Acknowledges all messages before a number in the name of the first peer.
    fn ack(&mut self, acknowledged: u16) {
        self.acks += 1;
        let (session, number) = (self.script.session, self.acks);
        let ack = Ack { ends: TO_US, session, acknowledged, number };
        self.script.deliver(&Packet::Ack(ack)).unwrap();
    }

    /// Sends a notification of the first peer for a window.
    fn notify(&mut self, sequence: u16, (window, window_sequence): (u8, u8)) {
        let notify = Notify {
            ends: TO_US,
            sequence,
            acknowledged: WINDOWS + 1,
            session: self.script.session,
            total_len: LEN,
            window,
            window_sequence,
        };
        self.script.deliver(&Packet::Notify(notify)).unwrap();
    }

    /// Connects another peer.
    fn partner(&mut self, source: u8) -> PeerId {
        let to = address(1, source);
        let token = Token(1_000_000 + u64::from(source));
        let connect = Request::Connect { token, to, key: 9, timeout_ns: None };
        assert_eq!(self.script.ask(&connect), Admission::Yes);
        let frames = self.script.sent();
        let number = packets(&frames).iter().find_map(|packet| match packet {
            Packet::Connect(connect) => Some(connect.number),
            _ => None,
        });
        let reply = Connect {
            ends: EndpointPair { source, ..TO_US },
            index_of_destination: THEIR_INDEX,
            session: self.script.session,
            expected: 1,
            number: number.unwrap(),
            greeting: ConnectBody::Reply {
                session: 0x7777_0000 + u32::from(source),
                answer: causeway_wire::mxoe::ConnectStatus::SUCCESS,
            },
        };
        self.script.deliver(&Packet::Connect(reply)).unwrap();
        let told = self.script.told();
        let Some(RecordedEvent::Event(Event::Connected { peer, .. })) = told.last() else {
            panic!("{told:?}, key {KEY}");
        };
        *peer
    }
}

#[test]
fn window_not_needed_goes_to_the_next_peer() {
    let (mut world, _, windows) = World::without_windows();
    let (one, two) = (world.partner(9), world.partner(10));
    assert_eq!((world.offer(one, 1001), world.offer(two, 1002)), (None, None), "no window is free");
    // The first waiting offer is cancelled.
    assert_eq!(world.script.ask(&Request::Cancel { token: Token(1001) }), Admission::Yes);
    world.notify(1, windows[0]);
    let offered = world.offered();
    assert!(matches!(offered[..], [(10, _)]), "{offered:?}");
}

#[test]
fn deregistration_ends_all_offers_of_a_region() {
    let (mut world, _, _) = World::without_windows();
    let one = world.partner(9);
    for token in 1001..1010 {
        assert_eq!(world.offer(one, token), None);
    }
    world.script.told();
    let World { script, region, .. } = &mut world;
    assert!(script.nic.region_remove(script.now, OURS, *region, &mut script.side));
    assert_eq!(world.offered(), []);
    let told = world.script.told();
    let sent = |told: &&RecordedEvent| matches!(told, RecordedEvent::Event(Event::Sent { .. }));
    assert_eq!(told.iter().filter(sent).count(), usize::from(WINDOWS) + 9, "all offers end");
}
