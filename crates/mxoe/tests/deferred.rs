//! What waits for a window or a place goes on when there is one, whoever else waits.

mod common;

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, PeerId, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{Ack, Connect, Ends, Greeting, Notify, Packet};

use common::script::{KEY, OURS, Script, THEIR_INDEX, TO_US, packets};
use common::{Told, address};

/// Windows of an endpoint.
const WINDOWS: u16 = 256;
const LEN: u32 = 100_000;

struct World {
    script: Script,
    region: RegionId,
    acks: u32,
}

impl World {
    /// With a region, and all windows open to the first peer.
    fn without_windows() -> (Self, PeerId, Vec<(u8, u8)>) {
        let (mut script, peer) = Script::connected();
        let region = script.board.region_add(OURS, LEN.into()).unwrap();
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

    /// Offers a message: the window that it got.
    fn offer(&mut self, peer: PeerId, token: u64) -> Option<(u8, u8)> {
        let from = Window { region: self.region, offset: 0, len: LEN };
        let offer = Request::Offer { peer, token: Token(token), match_info: 1, from };
        assert_eq!(self.script.ask(&offer), Admission::Yes);
        self.offered().pop().map(|(_, window)| window)
    }

    /// To whom messages were offered since, and their windows.
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

    /// The first peer has all before that number.
    fn ack(&mut self, acknowledged: u16) {
        self.acks += 1;
        let (session, number) = (self.script.session, self.acks);
        let ack = Ack { ends: TO_US, session, acknowledged, number };
        self.script.say(&Packet::Ack(ack)).unwrap();
    }

    /// The first peer took what was offered in a window.
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
        self.script.say(&Packet::Notify(notify)).unwrap();
    }

    /// One more peer.
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
            ends: Ends { source, ..TO_US },
            index_of_destination: THEIR_INDEX,
            session: self.script.session,
            expected: 1,
            number: number.unwrap(),
            greeting: Greeting::Reply {
                session: 0x7777_0000 + u32::from(source),
                answer: causeway_wire::mxoe::Answer::SUCCESS,
            },
        };
        self.script.say(&Packet::Connect(reply)).unwrap();
        let told = self.script.told();
        let Some(Told::Event(Event::Connected { peer, .. })) = told.last() else {
            panic!("{told:?}, key {KEY}");
        };
        *peer
    }
}

#[test]
fn a_window_that_one_has_no_use_for_goes_to_the_next() {
    let (mut world, _, windows) = World::without_windows();
    let (one, two) = (world.partner(9), world.partner(10));
    assert_eq!((world.offer(one, 1001), world.offer(two, 1002)), (None, None), "none is left");
    // The first that waits gives up.
    assert_eq!(world.script.ask(&Request::Cancel { token: Token(1001) }), Admission::Yes);
    world.notify(1, windows[0]);
    let offered = world.offered();
    assert!(matches!(offered[..], [(10, _)]), "{offered:?}");
}

#[test]
fn memory_that_is_given_back_is_offered_to_nobody_any_more() {
    let (mut world, _, _) = World::without_windows();
    let one = world.partner(9);
    for token in 1001..1010 {
        assert_eq!(world.offer(one, token), None);
    }
    world.script.told();
    let World { script, region, .. } = &mut world;
    assert!(script.board.region_remove(script.now, OURS, *region, &mut script.side));
    assert_eq!(world.offered(), []);
    let told = world.script.told();
    let sent = |told: &&Told| matches!(told, Told::Event(Event::Sent { .. }));
    assert_eq!(told.iter().filter(sent).count(), usize::from(WINDOWS) + 9, "all of them end");
}
