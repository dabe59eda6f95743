//! Frames that leave by links without offloads: cut and checksummed on the way.

use crate::common::links::Group;
use crate::common::*;
use causeway_wire::virtio_net::Header;

/// Returns the frames that leave by link 1 for a frame that arrives by link 0.
fn sent(header: Header, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut group = Group::of(&[true, true], true);
    let mut offload = [0; 10];
    offload.copy_from_slice(&header.emit()[..10]);
    group.inject_with_offload(0, None, frame, offload);
    let left = group.frames();
    assert!(left.iter().all(|(link, ..)| *link == 1));
    left.into_iter().map(|(_, _, frame)| frame).collect()
}

#[test]
fn link_segments_leave_as_whole_frames() {
    for (header, frame) in [
        tcp(1, 2, false, &pattern(65_000), 1448),
        tcp(1, 2, true, &pattern(60_001), 1428),
        tcp(1, 2, false, &pattern(9), 8),
        udp(1, 2, &pattern(40_000), 1472),
    ] {
        let pieces = sent(header, &frame);
        let payload = payload_of(&frame);
        assert_eq!(pieces.len(), payload.len().div_ceil(usize::from(header.gso_size)));
        assert!(pieces.iter().all(|piece| checksum_is_right(piece)));
        let joined: Vec<u8> = pieces.iter().flat_map(|piece| payload_of(piece).to_vec()).collect();
        assert!(joined == payload);
    }
}

#[test]
fn link_incomplete_checksum_is_completed() {
    let (header, frame) = tcp(1, 2, false, &pattern(100), 1448);
    let header = Header { gso_type: 0, gso_size: 0, hdr_len: 0, ..header };
    let [one] = sent(header, &frame).try_into().unwrap();
    assert!(checksum_is_right(&one) && !checksum_is_right(&frame));
    assert_eq!(payload_of(&one), payload_of(&frame));
}

#[test]
fn link_segments_beyond_a_turn_leave_in_later_turns() {
    let (header, frame) = tcp(1, 2, false, &pattern(60_000), 32);
    let mut group = Group::of(&[true, true], true);
    let mut offload = [0; 10];
    offload.copy_from_slice(&header.emit()[..10]);
    group.inject_with_offload(0, None, &frame, offload);
    let whole = payload_of(&frame);
    let mut joined = Vec::new();
    let (mut rounds, mut first) = (0, None);
    while joined.len() < whole.len() {
        let left = group.frames();
        first.get_or_insert(left.len());
        for (link, _, piece) in left {
            assert_eq!(link, 1);
            assert!(checksum_is_right(&piece));
            joined.extend_from_slice(payload_of(&piece));
        }
        rounds += 1;
        assert!(rounds < 1000, "{} bytes", joined.len());
        group.step(1 + rounds);
    }
    assert!(joined == whole);
    assert!(first.unwrap() < 1875, "all segments in {first:?} turns");
}
