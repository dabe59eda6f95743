//! Packets damaged without a wrong checksum: they cost a message or a peer, but no operation hangs.

use crate::common;

use causeway_mxoe::limits::FOREIGN_PACKETS_MAX;
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Event, Request, Status, Token, Window};
use causeway_wire::mxoe::{
    Eager, Fragment, FragmentPlace, Notify, Packet, Pull, PullNack, Rendezvous, nack,
};

use common::RecordedEvent;
use common::script::{OURS, Script, TO_US, packets};

fn tiny(script: &mut Script, sequence: u16, match_info: u64) {
    let (ends, session, data) = (TO_US, script.session, b"data");
    let tiny = Eager { ends, sequence, acknowledged: 1, match_info, session, data };
    let _ = script.deliver(&Packet::Tiny(tiny));
}

/// Returns the match information of the messages since the last call.
fn infos(script: &mut Script) -> Vec<u64> {
    let one = |told| match told {
        RecordedEvent::Message { match_info, .. } => match_info,
        RecordedEvent::Event(event) => panic!("{event:?}"),
    };
    script.told().into_iter().map(one).collect()
}

#[test]
fn damaged_number_does_not_displace_a_message() {
    let (mut script, _) = Script::connected();
    // The second message has the number of the third; then the third arrives.
    tiny(&mut script, 3, 2);
    tiny(&mut script, 3, 3);
    for number in [1, 2, 3] {
        tiny(&mut script, number, number.into());
    }
    assert_eq!(infos(&mut script), [1, 2, 3]);
}

#[test]
fn damaged_fragment_does_not_block_a_message() {
    let (mut script, _) = Script::connected();
    let session = script.session;
    let fragment = |script: &mut Script, message_len, number| {
        let place = FragmentPlace { message_len, number, pipeline: 12 };
        let (ends, data) = (TO_US, &[7; 4096]);
        let eager = Eager { ends, sequence: 1, acknowledged: 1, match_info: 5, session, data };
        let _ = script.deliver(&Packet::Medium(Fragment { eager, place }));
    };
    fragment(&mut script, 16_384, 0);
    for _ in 0..=FOREIGN_PACKETS_MAX {
        fragment(&mut script, 8192, 0);
        fragment(&mut script, 8192, 1);
    }
    assert_eq!(infos(&mut script), [5]);
}

#[test]
fn pull_refused_twice_is_reported_to_its_sender() {
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
    script.deliver(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let [RecordedEvent::Event(Event::Offered { handle, .. })] = told[..] else {
        panic!("{told:?}")
    };
    let region = script.nic.region_add(OURS, 40_000).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; 40_000]);
    let into = Window { region, offset: 0, len: 40_000 };
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(9), into }), Admission::Yes);
    let frames = script.sent();
    let asked = packets(&frames);
    let Some(Packet::Pull(pull)) = asked.first().copied() else { panic!("{asked:?}") };
    let (handle, magic, reason) = (pull.handle, pull.magic, nack::BAD_SESSION);
    let refusal = Packet::PullNack(PullNack { source: TO_US.source, reason, handle, magic });
    script.deliver(&refusal).unwrap();
    let frames = script.sent();
    let Some(Packet::Pull(again)) = packets(&frames).first().copied() else { panic!("not again") };
    assert!(
        again.magic != magic && again == Pull { magic: again.magic, ..pull },
        "the request is repeated"
    );
    // A duplicate, and refusals of other blocks.
    for _ in 0..3 {
        assert_eq!(script.deliver(&refusal), Err(DropReason::Refusal));
    }
    assert_eq!((script.told(), script.sent()), (vec![], Vec::<Vec<u8>>::new()));
    let magic = again.magic;
    script
        .deliver(&Packet::PullNack(PullNack { source: TO_US.source, reason, handle, magic }))
        .unwrap();
    let pulled = Event::Pulled { token: Token(9), status: Status::BadSession };
    assert_eq!(script.told(), [RecordedEvent::Event(pulled)]);
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
