//! Datagrams that no daemon would send: truncated, oversized, forged, replayed, and nonsense from a
//! peer with the right key.

use crate::common::*;
use causeway_link::limits::DATAGRAM_BYTES_MAX;
use causeway_link::{Refusal, TunnelSession};
use causeway_wire::tunnel::record::{self, Fragment};
use causeway_wire::tunnel::{DatagramKind, Inner, Outer};
use proptest::prelude::*;

/// Seals any plaintext as the peer itself would.
fn seal(world: &World, host: usize, text: &[u8]) -> Vec<u8> {
    let path = world.tunnel(host).tx_path().path().unwrap();
    let mut bytes = Vec::new();
    TunnelSession::seal(&path.session, text, &mut bytes).unwrap();
    bytes
}

fn record(kind: u8, bare: bool, body: &[u8]) -> Vec<u8> {
    let len = body.len() as u16;
    [&record::Header { kind, bare, hops: 0, len }.emit()[..], body].concat()
}

fn text(records: &[Vec<u8>]) -> Vec<u8> {
    [&Inner { vni: VNI, flags: 0 }.emit()[..], &records.concat()].concat()
}

#[test]
fn truncated_datagrams_are_refused_at_every_length() {
    let mut world = World::pair(1, false, 1_472);
    let good = seal(&world, 0, &text(&[record(record::FRAME, true, &[5; 60])]));
    for len in 0..good.len() {
        let refusal = world.deliver(1, address(0), &good[..len]).unwrap_err();
        let expected = if len < 32 { Refusal::Truncated } else { Refusal::Forged };
        assert_eq!(refusal, expected, "{len}");
    }
    assert_eq!(world.deliver(1, address(0), &good), Ok(()));
    assert_eq!(world.deliver(1, address(0), &good), Err(Refusal::Replayed));
    let longer = [&good[..], &[0]].concat();
    assert_eq!(world.deliver(1, address(0), &longer), Err(Refusal::Forged));
    assert_eq!(world.hosts[1].got.len(), 1);
}

#[test]
fn malformed_records_are_refused_and_earlier_records_kept() {
    let mut world = World::pair(2, false, 1_472);
    let good = record(record::FRAME, true, &[5; 60]);
    let mut longer = record(record::FRAME, true, &[5; 60]);
    longer[3] += 1;
    let fragment = |offset, total, len| {
        let fragment = Fragment { id: 1, offset, total };
        record(record::FRAGMENT, true, &[&fragment.emit()[..], &vec![1; len]].concat())
    };
    for (lie, refusal) in [
        (longer, Refusal::Truncated),
        (vec![record::FRAME, 0, 0], Refusal::Truncated),
        (record(record::FRAME, false, &[1; 9]), Refusal::Truncated),
        (record(record::FRAGMENT, true, &[1; 11]), Refusal::Truncated),
        (fragment(0, 100, 0), Refusal::Truncated),
        (fragment(0, 65_558, 9), Refusal::Oversized),
        (fragment(u32::MAX, u32::MAX, 9), Refusal::Oversized),
        (record(record::ECHO, false, &[1; 19]), Refusal::Truncated),
        (record(record::ECHO_REPLY, false, &[1; 11]), Refusal::Truncated),
        (record(record::HERE, false, &[1; 15]), Refusal::Truncated),
        (record(record::GONE, false, &[1; 13]), Refusal::Truncated),
    ] {
        let bytes = seal(&world, 0, &text(&[good.clone(), lie]));
        assert_eq!(world.deliver(1, address(0), &bytes), Err(refusal));
        assert_eq!(world.hosts[1].got.len(), 1, "what stood before the lie");
        world.hosts[1].got.clear();
    }
    let bytes = seal(&world, 0, &[1, 2, 3]);
    assert_eq!(world.deliver(1, address(0), &bytes), Err(Refusal::Truncated));
}

#[test]
fn records_of_unknown_kinds_are_skipped() {
    let mut world = World::pair(3, false, 1_472);
    let good = record(record::FRAME, true, &[5; 60]);
    let bytes = seal(&world, 0, &text(&[record(99, true, &[1; 9]), good]));
    assert_eq!(world.deliver(1, address(0), &bytes), Ok(()));
    assert_eq!(world.hosts[1].got.len(), 1);
}

#[test]
fn many_heartbeats_in_one_datagram_get_one_answer() {
    let mut world = World::pair(4, true, 1_472);
    let echo = record(record::ECHO, false, &record::Echo { time: 1, size: 0, digest: 0 }.emit());
    let mut bytes = Outer { kind: DatagramKind::Plain, receiver: 0, counter: 0 }.emit().to_vec();
    bytes.extend(text(&vec![echo; 50]));
    world.tape = Some(Vec::new());
    world.deliver(1, address(0), &bytes).unwrap();
    let tape = world.tape.take().unwrap();
    assert_eq!(tape.len(), 1);
    assert!(tape[0].bytes.len() < bytes.len());
}

#[test]
fn plain_datagrams_are_taken_from_the_peers_address_only_and_never_for_sealed_ones() {
    let frame = text(&[record(record::FRAME, true, &[5; 60])]);
    let mut bytes = Outer { kind: DatagramKind::Plain, receiver: 0, counter: 0 }.emit().to_vec();
    bytes.extend(&frame);
    let mut world = World::pair(5, true, 1_472);
    assert_eq!(world.deliver(1, address(9), &bytes), Err(Refusal::Peer));
    assert_eq!(world.deliver(1, address(0), &bytes), Ok(()));
    let mut world = World::pair(5, false, 1_472);
    assert_eq!(world.deliver(1, address(0), &bytes), Err(Refusal::Peer));
    bytes[4..8].copy_from_slice(&[0, 0, 0, 1]);
    assert!(world.deliver(1, address(0), &bytes).is_err());
    assert!(world.hosts[1].got.is_empty());
}

#[test]
fn the_longest_datagram_is_taken() {
    let mut world = World::pair(6, false, DATAGRAM_BYTES_MAX);
    let body = vec![5; DATAGRAM_BYTES_MAX - 16 - 16 - 4 - 4];
    let bytes = seal(&world, 0, &text(&[record(record::FRAME, true, &body)]));
    assert_eq!(bytes.len(), DATAGRAM_BYTES_MAX);
    assert_eq!(world.deliver(1, address(0), &bytes), Ok(()));
    assert_eq!(world.hosts[1].got[0].3, body);
}

proptest! {
    /// Any bytes, and any plaintext under a valid seal, are refused or accepted, without a panic.
    #[test]
    fn hostile_bytes_do_no_harm(
        letters in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 0_u8..9, any::<bool>()), 1..30)
    ) {
        let mut world = World::pair(7, false, 1_472);
        for (mut bytes, kind, sealed) in letters {
            if sealed {
                if let Some(first) = bytes.get_mut(4) { *first = kind; }
                bytes = seal(&world, 0, &bytes);
            } else if let Some(first) = bytes.first_chunk_mut::<4>() {
                *first = [0xc1, kind, 0, 0];
            }
            let _ = world.deliver(1, address(0), &bytes);
        }
        world.run(20 * 1_000 * MS);
        prop_assert!(world.tunnel(0).is_up() && world.tunnel(1).is_up());
        let state = world.tunnel(1).state(world.now);
        prop_assert_eq!(state.fragments, (0, 0));
        prop_assert_eq!(state.addresses, (0, 0));
    }
}
