//! Jumbo frames: with support of both NICs and the network, and the fallback without.

use crate::common;

use causeway_mxoe::limits::{JUMBO_PAUSE, JUMBO_PROVEN_TRIES_MAX};
use causeway_mxoe::{Admission, DropReason};
use causeway_wire::mx::{Event, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{FRAGMENT_LEN, JUMBO_LEN, Packet, Pull, PullReply, Rendezvous};

use common::hosts::{HostSides, Place};
use common::script::{OURS, Script, TO_US, packets};
use common::{MS, NetworkFaults, World};

const PLACES: &[Place] = &[(0, 0), (1, 3)];
/// Long, and not a multiple of a frame.
const LEN: usize = (1 << 20) + 5000;

/// Sends messages of these lengths in both directions. Returns the number of jumbo frames and of
/// replies.
fn carry(world: &mut World, host_sides: &mut HostSides, lens: &[usize]) -> (u64, u64) {
    let replies = |world: &World| -> u64 {
        let partners = PLACES.iter().flat_map(|place| world.nics[place.0].peer_states(place.1));
        partners.map(|partner| partner.counters.replies_sent).sum()
    };
    let before = (world.long, replies(world));
    host_sides.plan(lens);
    host_sides.finish(world, 60_000 * MS);
    host_sides.check();
    (world.long - before.0, replies(world) - before.1)
}

fn world(wide: [bool; 2]) -> (World, HostSides) {
    let (mut world, mut host_sides) = (World::new(3, 2), HostSides::default());
    world.widen(&wide);
    host_sides.open(&mut world, PLACES);
    (world, host_sides)
}

#[test]
fn jumbo_frames_are_used_where_both_nics_support_them() {
    let (mut world, mut host_sides) = world([true; 2]);
    let (long, replies) = carry(&mut world, &mut host_sides, &[LEN]);
    let halves = LEN.div_ceil(JUMBO_LEN) as u64;
    assert_eq!((long, replies), (2 * halves, 2 * halves), "of two messages");
}

#[test]
fn jumbo_frames_are_not_used_without_support() {
    for wide in [[true, false], [false, true], [false, false]] {
        let (mut world, mut host_sides) = world(wide);
        let (long, replies) = carry(&mut world, &mut host_sides, &[LEN]);
        assert_eq!((long, replies), (0, 2 * LEN.div_ceil(FRAGMENT_LEN) as u64), "{wide:?}");
    }
}

#[test]
fn jumbo_frames_are_given_up_on_a_narrow_path() {
    let (mut world, mut host_sides) = world([true; 2]);
    world.narrow = true;
    let begun = world.now;
    let (long, _) = carry(&mut world, &mut host_sides, &[LEN]);
    assert!(long > 0 && world.now - begun < 1_000 * MS, "{} ms", (world.now - begun) / MS);
    let (long, _) = carry(&mut world, &mut host_sides, &[LEN; 3]);
    assert_eq!(long, 0, "one attempt suffices");
    // The loss may have had another cause: jumbo frames are tried again after pauses.
    world.pass(JUMBO_PAUSE.least_ns);
    assert!(carry(&mut world, &mut host_sides, &[LEN]).0 > 0);
    world.pass(JUMBO_PAUSE.least_ns);
    assert_eq!(carry(&mut world, &mut host_sides, &[LEN]).0, 0, "the pause doubles");
}

#[test]
fn jumbo_frames_return_after_an_outage() {
    let nothing = NetworkFaults { lost: 100, ..NetworkFaults::default() };
    for (first, down_ms) in [(true, 100), (false, 3_000)] {
        let (mut world, mut host_sides) = world([true; 2]);
        if !first {
            carry(&mut world, &mut host_sides, &[LEN]);
        }
        // Down as soon as jumbo frames are requested.
        host_sides.plan(&[LEN]);
        let long = world.long;
        while world.long == long {
            host_sides.run_host_sides(&mut world);
            world.step(world.now + MS);
        }
        world.faults = nothing;
        world.pass(down_ms * MS);
        world.faults = NetworkFaults::default();
        carry(&mut world, &mut host_sides, &[]);
        world.pass(JUMBO_PAUSE.least_ns);
        let (long, replies) = carry(&mut world, &mut host_sides, &[LEN]);
        assert_eq!(long, replies, "{first}");
    }
}

#[test]
fn jumbo_state_is_reset_by_a_network_change() {
    let (mut world, mut host_sides) = world([true; 2]);
    world.narrow = true;
    carry(&mut world, &mut host_sides, &[LEN]);
    world.narrow = false;
    assert_eq!(carry(&mut world, &mut host_sides, &[LEN]).0, 0);
    world.widen(&[true; 2]);
    assert!(carry(&mut world, &mut host_sides, &[LEN]).0 > 0);
}

#[test]
fn jumbo_state_ignores_a_single_missing_frame() {
    let (mut script, _) = Script::connected_wide();
    // Nine frames, the last without a neighbour.
    let pull = pulling(&mut script, 8 * FRAGMENT_LEN + 100);
    let bytes = [0xbd; JUMBO_LEN];
    for frame in [0, 2, 4, 6] {
        script.deliver(&Packet::PullReply(reply(pull, frame, &bytes))).unwrap();
    }
    script.pass(10_000 * MS);
    let sent = script.sent();
    assert!(packets(&sent).len() > JUMBO_PROVEN_TRIES_MAX as usize, "the block is requested again");
    script.deliver(&Packet::PullReply(reply(pull, 8, &bytes[..100]))).unwrap();
    script.sent();
    script.told();
    assert!(next_pulling(&mut script, LEN, 2).wide);
}

#[test]
fn jumbo_frame_loss_is_repaired() {
    for seed in 0..20 {
        let (mut world, mut host_sides) = (World::new(seed, 2), HostSides::default());
        world.widen(&[true; 2]);
        world.faults = NetworkFaults { lost: 5, doubled: 5, late: 10, damaged: 1 };
        host_sides.open(&mut world, PLACES);
        let (long, replies) = carry(&mut world, &mut host_sides, &[LEN; 4]);
        assert!(long > replies / 2, "{long} of {replies}");
    }
}

#[test]
fn jumbo_frames_follow_network_changes() {
    let (mut world, mut host_sides) = world([true; 2]);
    assert!(carry(&mut world, &mut host_sides, &[LEN]).0 > 0);
    world.narrow = true;
    carry(&mut world, &mut host_sides, &[LEN]);
    assert_eq!(carry(&mut world, &mut host_sides, &[LEN]).0, 0);
}

/// Pulls a message that the peer offers. Returns the pull.
fn pulling(script: &mut Script, len: usize) -> Pull {
    next_pulling(script, len, 1)
}

/// As [`pulling`], with the given sequence number.
fn next_pulling(script: &mut Script, len: usize, sequence: u16) -> Pull {
    let offer = Rendezvous {
        ends: TO_US,
        sequence,
        acknowledged: 1,
        match_info: 1,
        session: script.session,
        message_len: len as u32,
        window: 7,
        window_sequence: 8,
        offset: 0,
    };
    script.deliver(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let [common::RecordedEvent::Event(Event::Offered { handle, .. })] = told[..] else {
        panic!("{told:?}")
    };
    let region = script.nic.region_add(OURS, len as u64).unwrap();
    script.side.regions.insert((OURS, region.0), vec![0; len]);
    let into = Window { region, offset: 0, len: len as u32 };
    script.sent();
    assert_eq!(script.ask(&Request::Pull { handle, token: Token(9), into }), Admission::Yes);
    let sent = script.sent();
    let Packet::Pull(pull) = packets(&sent)[0] else { panic!("{sent:?}") };
    pull
}

fn reply(pull: Pull, frame: u32, data: &[u8]) -> PullReply<'_> {
    let (handle, magic, [frame_sequence, ..]) = (pull.handle, pull.magic, frame.to_le_bytes());
    PullReply { frame_sequence, offset: frame * FRAGMENT_LEN as u32, handle, magic, data }
}

fn filled(script: &Script) -> usize {
    let all = &script.side.regions[&(OURS, 0)];
    all.iter().filter(|byte| **byte == 0xbd).count()
}

#[test]
fn hostile_unrequested_jumbo_frames_write_nothing() {
    let (mut script, _) = Script::connected();
    let pull = pulling(&mut script, LEN);
    assert!(!pull.wide);
    let two = Packet::PullReply(reply(pull, 0, &[0xbd; JUMBO_LEN]));
    assert_eq!(script.deliver(&two), Err(DropReason::Number));
    assert_eq!(filled(&script), 0);
}

#[test]
fn hostile_jumbo_frames_must_lie_in_a_block_and_be_complete() {
    let (mut script, _) = Script::connected_wide();
    let pull = pulling(&mut script, LEN);
    assert!(pull.wide);
    let bytes = [0xbd; JUMBO_LEN];
    // Frames of two blocks, and lengths of neither one nor two frames.
    for (frame, len) in [(7, JUMBO_LEN), (0, JUMBO_LEN - 1), (0, FRAGMENT_LEN + 1)] {
        let two = Packet::PullReply(reply(pull, frame, &bytes[..len]));
        assert_eq!(script.deliver(&two), Err(DropReason::Number), "{frame}: {len}");
    }
    assert_eq!(filled(&script), 0);
    // Accepted if one of both frames is missing, but not if both have arrived.
    for (frame, filled_then) in [(1, 2), (0, 3), (3, 5)] {
        let two = Packet::PullReply(reply(pull, frame, &bytes));
        assert_eq!(script.deliver(&two), Ok(()), "{frame}");
        assert_eq!(filled(&script), filled_then * FRAGMENT_LEN, "{frame}");
        assert_eq!(script.deliver(&two), Err(DropReason::Number), "already present");
    }
}

#[test]
fn hostile_requests_for_jumbo_frames_respect_the_network() {
    for (connected, longest) in
        [(Script::connected(), FRAGMENT_LEN), (Script::connected_wide(), JUMBO_LEN)]
    {
        let ((mut script, peer), bytes) = (connected, 40_000);
        let region = RegionId(script.nic.region_add(OURS, bytes).unwrap().0);
        script.side.regions.insert((OURS, region.0), vec![7; bytes as usize]);
        let from = Window { region, offset: 0, len: bytes as u32 };
        let offer = Request::Offer { peer, token: Token(2), match_info: 1, from };
        assert_eq!(script.ask(&offer), Admission::Yes);
        let sent = script.sent();
        let Packet::Rendezvous(offer) = packets(&sent)[0] else { panic!("{sent:?}") };
        let pull = Pull {
            ends: TO_US,
            session: script.session,
            total_len: bytes as u32,
            window: offer.window,
            window_sequence: offer.window_sequence,
            offset: 0,
            handle: 1,
            magic: 2,
            first_frame_offset: 0,
            block_len: 32_768,
            frame_index: 0,
            wide: true,
        };
        assert_eq!(script.deliver(&Packet::Pull(pull)), Ok(()));
        let sent = script.sent();
        assert_eq!(replies(&sent), each(0, 32_768, longest));
        // An odd number of frames, the last of which is short.
        let tail = Pull { frame_index: 7, block_len: 40_000 - 7 * 4096, ..pull };
        assert_eq!(script.deliver(&Packet::Pull(tail)), Ok(()));
        assert_eq!(replies(&script.sent()), each(7 * 4096, 40_000, longest));
    }
}

/// Returns first frame, offset and length of each reply.
fn replies(sent: &[Vec<u8>]) -> Vec<(u8, u32, usize)> {
    let one = |packet: &Packet<'_>| match packet {
        Packet::PullReply(reply) => (reply.frame_sequence, reply.offset, reply.data.len()),
        other => panic!("{other:?}"),
    };
    packets(sent).iter().map(one).collect()
}

/// Returns the expected replies for a byte range.
fn each(from: usize, to: usize, longest: usize) -> Vec<(u8, u32, usize)> {
    let one = |at: usize| ((at / FRAGMENT_LEN) as u8, at as u32, longest.min(to - at));
    (from..to).step_by(longest).map(one).collect()
}
