//! Packets that are not what was sent, and that no checksum told: they cost a message or a peer,
//! and nothing waits for ever.

mod common;

use causeway_mxoe::limits::STRANGE_PACKETS_MAX;
use causeway_mxoe::{Admission, Dropped};
use causeway_wire::mx::{Event, Request, Status, Token, Window};
use causeway_wire::mxoe::{
    Eager, Fragment, FragmentPlace, Notify, Packet, Pull, PullNack, Rendezvous, nack,
};

use common::Told;
use common::script::{OURS, Script, TO_US, packets};

fn tiny(script: &mut Script, sequence: u16, match_info: u64) {
    let (ends, session, data) = (TO_US, script.session, b"data");
    let tiny = Eager { ends, sequence, acknowledged: 1, match_info, session, data };
    let _ = script.say(&Packet::Tiny(tiny));
}

/// What the messages that were told since say of themselves.
fn infos(script: &mut Script) -> Vec<u64> {
    let one = |told| match told {
        Told::Message { match_info, .. } => match_info,
        Told::Event(event) => panic!("{event:?}"),
    };
    script.told().into_iter().map(one).collect()
}

#[test]
fn a_message_with_the_number_of_another_does_not_take_its_place() {
    let (mut script, _) = Script::connected();
    // The second is sent as if it were the third; then the third comes too.
    tiny(&mut script, 3, 2);
    tiny(&mut script, 3, 3);
    for number in [1, 2, 3] {
        tiny(&mut script, number, number.into());
    }
    assert_eq!(infos(&mut script), [1, 2, 3]);
}

#[test]
fn a_fragment_of_no_message_does_not_keep_the_message_out() {
    let (mut script, _) = Script::connected();
    let session = script.session;
    let fragment = |script: &mut Script, message_len, number| {
        let place = FragmentPlace { message_len, number, pipeline: 12 };
        let (ends, data) = (TO_US, &[7; 4096]);
        let eager = Eager { ends, sequence: 1, acknowledged: 1, match_info: 5, session, data };
        let _ = script.say(&Packet::Medium(Fragment { eager, place }));
    };
    fragment(&mut script, 16_384, 0);
    for _ in 0..=STRANGE_PACKETS_MAX {
        fragment(&mut script, 8192, 0);
        fragment(&mut script, 8192, 1);
    }
    assert_eq!(infos(&mut script), [5]);
}

#[test]
fn a_pull_that_is_refused_is_asked_for_once_more_and_then_its_sender_hears_of_it() {
    let (mut script, _) = Script::connected();
    let session = script.session;
    let offer = Rendezvous {
        ends: TO_US,
        sequence: 1,
        acknowledged: 1,
        match_info: 1,
        session,
        message_len: 40_000,
        window: 7,
        window_sequence: 8,
        offset: 0,
    };
    script.say(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let [Told::Event(Event::Offered { handle, .. })] = told[..] else { panic!("{told:?}") };
    let region = script.board.region_add(OURS, 40_000).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; 40_000]);
    let into = Window { region, offset: 0, len: 40_000 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(9), into }), Admission::Yes);
    let frames = script.sent();
    let asked = packets(&frames);
    let Some(Packet::Pull(pull)) = asked.first().copied() else { panic!("{asked:?}") };
    let (handle, magic, reason) = (pull.handle, pull.magic, nack::BAD_SESSION);
    let refusal = Packet::PullNack(PullNack { source: TO_US.source, reason, handle, magic });
    script.say(&refusal).unwrap();
    let frames = script.sent();
    let Some(Packet::Pull(again)) = packets(&frames).first().copied() else { panic!("not again") };
    assert!(again.magic != magic && again == Pull { magic: again.magic, ..pull }, "once more");
    // The network doubled it; and it is of other blocks too.
    for _ in 0..3 {
        assert_eq!(script.say(&refusal), Err(Dropped::Refusal));
    }
    assert_eq!((script.told(), script.sent()), (vec![], Vec::<Vec<u8>>::new()));
    let magic = again.magic;
    script
        .say(&Packet::PullNack(PullNack { source: TO_US.source, reason, handle, magic }))
        .unwrap();
    let pulled = Event::Pulled { token: Token(9), status: Status::BadSession };
    assert_eq!(script.told(), [Told::Event(pulled)]);
    let frames = script.sent();
    assert!(
        matches!(
            packets(&frames)[..],
            [Packet::Notify(Notify { total_len: 0, window: 7, window_sequence: 8, .. })]
        ),
        "{:?}",
        packets(&frames)
    );
}
