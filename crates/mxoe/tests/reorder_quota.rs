//! What came early takes no room that what is next needs.

mod common;

use causeway_mxoe::Dropped;
use causeway_wire::mxoe::{Connect, Eager, Ends, Fragment, FragmentPlace, Greeting, Packet};
use common::script::{KEY, Script, THEIR_INDEX, TO_US};
use common::{MS, Told};

/// Of a message of medium length, each full.
const FRAGMENTS: u8 = 8;
const LEN: u16 = 32_768;

fn ends(source: u8) -> Ends {
    Ends { source, ..TO_US }
}

/// A NIC whose endpoints up to this one are peers.
fn partners(count: u8) -> Script {
    let mut script = Script::new();
    for source in 0..count {
        let connect = Connect {
            ends: ends(source),
            index_of_destination: THEIR_INDEX,
            session: u32::from(source) + 1,
            expected: 1,
            number: 1,
            greeting: Greeting::Request { key: KEY },
        };
        script.say(&Packet::Connect(connect)).unwrap();
    }
    script
}

/// All fragments of a message.
fn medium(script: &mut Script, source: u8, sequence: u16) -> Result<(), Dropped> {
    let (session, data) = (script.session, [source; 4096]);
    (0..FRAGMENTS).try_for_each(|number| {
        let place = FragmentPlace { message_len: LEN, number, pipeline: 12 };
        let match_info = sequence.into();
        let ends = ends(source);
        let eager = Eager { ends, sequence, acknowledged: 1, match_info, session, data: &data };
        script.say(&Packet::Medium(Fragment { eager, place }))
    })
}

/// Each sends all but its next, until there is no room.
fn fill(script: &mut Script, senders: u8) {
    for source in 0..senders {
        let refused = (2..200).find(|sequence| medium(script, source, *sequence).is_err());
        assert!(refused.is_some(), "{source} takes all");
    }
    script.pass(MS);
    assert_eq!(messages(script), []);
}

/// The messages that were told since: of how many bytes, and which.
fn messages(script: &mut Script) -> Vec<(u8, u64)> {
    let one = |told: Told| match told {
        Told::Message { match_info, data, .. } => {
            assert_eq!(data.len(), usize::from(LEN));
            Some((data[0], match_info))
        }
        Told::Event(_) => None,
    };
    script.told().into_iter().filter_map(one).collect()
}

#[test]
fn the_next_message_has_the_room_of_those_behind_it() {
    let mut script = partners(8);
    fill(&mut script, 8);
    for source in 0..8 {
        assert_eq!(medium(&mut script, source, 1), Ok(()), "of {source}");
        let told = messages(&mut script);
        assert_eq!(told[0], (source, 1));
        let numbers: Vec<_> = told.iter().map(|told| told.1).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "in order: {numbers:?}");
        // What gave way comes again.
        let next = numbers.len() as u16 + 1;
        assert_eq!(medium(&mut script, source, next), Ok(()));
        assert_eq!(messages(&mut script)[0], (source, next.into()));
    }
    let parked: usize = script.board.partners(common::script::OURS).iter().map(|p| p.parked).sum();
    assert_eq!(parked, 0);
}

#[test]
fn the_next_message_has_the_room_of_what_others_of_its_board_sent_early() {
    let mut script = partners(9);
    fill(&mut script, 8);
    // The others never send what is missing.
    for sequence in 1..20 {
        assert_eq!(medium(&mut script, 8, sequence), Ok(()));
        assert_eq!(messages(&mut script), [(8, sequence.into())]);
    }
}
