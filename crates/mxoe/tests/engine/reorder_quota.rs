//! Early messages never use up the quota of the next message.

use crate::common;

use causeway_mxoe::DropReason;
use causeway_wire::mxoe::{
    Connect, ConnectBody, Eager, EndpointPair, Fragment, FragmentPlace, Packet,
};
use common::script::{KEY, Script, THEIR_INDEX, TO_US};
use common::{MS, RecordedEvent};

/// Fragments of a message of medium length.
const FRAGMENTS: u8 = 8;
const LEN: u16 = 32_768;

fn ends(source: u8) -> EndpointPair {
    EndpointPair { source, ..TO_US }
}

/// Creates a NIC with `count` peers.
fn partners(count: u8) -> Script {
    let mut script = Script::new();
    for source in 0..count {
        let connect = Connect {
            ends: ends(source),
            index_of_destination: THEIR_INDEX,
            session: u32::from(source) + 1,
            expected: 1,
            number: 1,
            greeting: ConnectBody::Request { key: KEY },
        };
        script.deliver(&Packet::Connect(connect)).unwrap();
    }
    script
}

/// Sends all fragments of a message.
fn medium(script: &mut Script, source: u8, sequence: u16) -> Result<(), DropReason> {
    let (session, data) = (script.session, [source; 4096]);
    (0..FRAGMENTS).try_for_each(|number| {
        let place = FragmentPlace { message_len: LEN, number, pipeline: 12 };
        let match_info = sequence.into();
        let ends = ends(source);
        let eager = Eager { ends, sequence, acknowledged: 1, match_info, session, data: &data };
        script.deliver(&Packet::Medium(Fragment { eager, place }))
    })
}

/// Each peer sends all messages but its next, until the quota is used up.
fn fill(script: &mut Script, senders: u8) {
    for source in 0..senders {
        let refused = (2..200).find(|sequence| medium(script, source, *sequence).is_err());
        assert!(refused.is_some(), "{source} takes all");
    }
    script.pass(MS);
    assert_eq!(messages(script), []);
}

/// Returns sender and number of the messages since the last call.
fn messages(script: &mut Script) -> Vec<(u8, u64)> {
    let one = |told: RecordedEvent| match told {
        RecordedEvent::Message { match_info, data, .. } => {
            assert_eq!(data.len(), usize::from(LEN));
            Some((data[0], match_info))
        }
        RecordedEvent::Event(_) => None,
    };
    script.told().into_iter().filter_map(one).collect()
}

#[test]
fn reorder_quota_of_later_messages_yields_to_the_next() {
    let mut script = partners(8);
    fill(&mut script, 8);
    for source in 0..8 {
        assert_eq!(medium(&mut script, source, 1), Ok(()), "sender {source}");
        let told = messages(&mut script);
        assert_eq!(told[0], (source, 1));
        let numbers: Vec<_> = told.iter().map(|told| told.1).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "in order: {numbers:?}");
        // A displaced message is retransmitted.
        let next = numbers.len() as u16 + 1;
        assert_eq!(medium(&mut script, source, next), Ok(()));
        assert_eq!(messages(&mut script)[0], (source, next.into()));
    }
    let pending_bytes: usize =
        script.nic.peer_states(common::script::OURS).iter().map(|p| p.pending_bytes).sum();
    assert_eq!(pending_bytes, 0);
}

#[test]
fn reorder_quota_of_other_peers_of_a_nic_yields_to_the_next_message() {
    let mut script = partners(9);
    fill(&mut script, 8);
    // The other peers never send the missing message.
    for sequence in 1..20 {
        assert_eq!(medium(&mut script, 8, sequence), Ok(()));
        assert_eq!(messages(&mut script), [(8, sequence.into())]);
    }
}
