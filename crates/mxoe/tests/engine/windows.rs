//! The limited windows of an endpoint: waiting offers delay nothing else.

use crate::common;

use causeway_mxoe::Admission;
use causeway_wire::mx::{Event, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{Ack, Notify, Packet, Rendezvous};

use common::RecordedEvent;
use common::script::{OURS, Script, THEIR_SESSION, TO_US, packets};

/// Number of windows of an endpoint.
const WINDOWS: u64 = 256;

#[test]
fn notifications_precede_offers_that_wait_for_a_window() {
    let (mut script, peer) = Script::connected();
    let region = script.nic.region_add(OURS, 100_000).unwrap();
    assert_eq!(region, RegionId(0));
    script.side.regions.insert((OURS, 0), vec![7; 100_000]);
    let from = Window { region, offset: 0, len: 100_000 };
    // More offers than windows. Those with a window have arrived.
    let (mut number, mut first) = (0, None);
    for token in 0..WINDOWS + 3 {
        let offer = Request::Offer { peer, token: Token(token), match_info: 1, from };
        assert_eq!(script.ask(&offer), Admission::Yes);
        let sent = script.sent();
        let numbers = packets(&sent).into_iter().map(|packet| match packet {
            Packet::Rendezvous(offer) => {
                first.get_or_insert((offer.window, offer.window_sequence));
                offer.sequence
            }
            other => panic!("{other:?}"),
        });
        let Some(last) = numbers.last() else { continue };
        number = last + 1;
        let (session, acknowledged) = (script.session, number);
        let ack = Ack { ends: TO_US, session, acknowledged, number: token as u32 + 1 };
        script.deliver(&Packet::Ack(ack)).unwrap();
    }
    assert_eq!(number as u64, WINDOWS + 1, "the other offers wait");
    // The peer, which may lack windows as well, offers a message of which nothing is wanted.
    let offer = Rendezvous {
        ends: TO_US,
        sequence: 1,
        acknowledged: number,
        match_info: 1,
        session: script.session,
        message_len: 40_000,
        window: 7,
        window_sequence: 8,
        offset: 0,
    };
    script.deliver(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let [RecordedEvent::Event(Event::Offered { handle, .. })] = told[..] else {
        panic!("{told:?}")
    };
    let into = Window { region, offset: 0, len: 0 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(9000), into }), Admission::Yes);
    let sent = script.sent();
    let said = packets(&sent);
    let [Packet::Notify(notify)] = said[..] else { panic!("{said:?}") };
    assert_eq!((notify.window, notify.window_sequence), (7, 8));
    assert_eq!((notify.sequence, notify.session), (number, THEIR_SESSION));
    // When a window is free again, a waiting offer follows.
    let (window, window_sequence) = first.unwrap();
    let taken = Notify {
        ends: TO_US,
        sequence: 2,
        acknowledged: number + 1,
        session: script.session,
        total_len: 100_000,
        window,
        window_sequence,
    };
    script.deliver(&Packet::Notify(taken)).unwrap();
    let sent = script.sent();
    let offered =
        |packet: &Packet<'_>| matches!(packet, Packet::Rendezvous(offer) if offer.window == window);
    assert_eq!(packets(&sent).iter().filter(|packet| offered(packet)).count(), 1);
}
