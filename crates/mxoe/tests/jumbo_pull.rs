//! Two frames in one, where both NICs and what is between them carry such, and what is done where
//! not.

mod common;

use causeway_mxoe::limits::{WIDE_AGAIN_NS, WIDE_TRIES_MAX};
use causeway_mxoe::{Admission, Dropped};
use causeway_wire::mx::{Event, RegionId, Request, Token, Window};
use causeway_wire::mxoe::{FRAGMENT_LEN, Packet, Pull, PullReply, Rendezvous, WIDE_LEN};

use common::hosts::{Libraries, Place};
use common::script::{OURS, Script, TO_US, packets};
use common::{MS, Weather, World};

const PLACES: &[Place] = &[(0, 0), (1, 3)];
/// Long, and no multiple of anything.
const LEN: usize = (1 << 20) + 5000;

/// Messages of these lengths, both ways: how many frames were long, and how many replies there
/// were.
fn carry(world: &mut World, libraries: &mut Libraries, lens: &[usize]) -> (u64, u64) {
    let replies = |world: &World| -> u64 {
        let partners = PLACES.iter().flat_map(|place| world.boards[place.0].partners(place.1));
        partners.map(|partner| partner.counters.replies_sent).sum()
    };
    let before = (world.long, replies(world));
    libraries.plan(lens);
    libraries.finish(world, 60_000 * MS);
    libraries.check();
    (world.long - before.0, replies(world) - before.1)
}

fn world(wide: [bool; 2]) -> (World, Libraries) {
    let (mut world, mut libraries) = (World::new(3, 2), Libraries::default());
    world.widen(&wide);
    libraries.open(&mut world, PLACES);
    (world, libraries)
}

#[test]
fn two_frames_go_in_one_where_both_boards_take_such() {
    let (mut world, mut libraries) = world([true; 2]);
    let (long, replies) = carry(&mut world, &mut libraries, &[LEN]);
    let halves = LEN.div_ceil(WIDE_LEN) as u64;
    assert_eq!((long, replies), (2 * halves, 2 * halves), "of two messages");
}

#[test]
fn who_carries_none_is_sent_none_and_sends_none() {
    for wide in [[true, false], [false, true], [false, false]] {
        let (mut world, mut libraries) = world(wide);
        let (long, replies) = carry(&mut world, &mut libraries, &[LEN]);
        assert_eq!((long, replies), (0, 2 * LEN.div_ceil(FRAGMENT_LEN) as u64), "{wide:?}");
    }
}

#[test]
fn a_network_between_them_that_carries_none_is_found_out() {
    let (mut world, mut libraries) = world([true; 2]);
    world.narrow = true;
    let begun = world.now;
    let (long, _) = carry(&mut world, &mut libraries, &[LEN]);
    assert!(long > 0 && world.now - begun < 1_000 * MS, "{} ms", (world.now - begun) / MS);
    let (long, _) = carry(&mut world, &mut libraries, &[LEN; 3]);
    assert_eq!(long, 0, "once is enough");
    // It may have been something else: it is tried again now and then.
    world.pass(WIDE_AGAIN_NS.0);
    assert!(carry(&mut world, &mut libraries, &[LEN]).0 > 0);
    world.pass(WIDE_AGAIN_NS.0);
    assert_eq!(carry(&mut world, &mut libraries, &[LEN]).0, 0, "less and less often");
}

#[test]
fn a_network_that_was_down_is_not_taken_for_a_narrow_one_for_long() {
    let nothing = Weather { lost: 100, ..Weather::default() };
    for (first, down_ms) in [(true, 100), (false, 3_000)] {
        let (mut world, mut libraries) = world([true; 2]);
        if !first {
            carry(&mut world, &mut libraries, &[LEN]);
        }
        // Down as soon as it is asked for.
        libraries.plan(&[LEN]);
        let long = world.long;
        while world.long == long {
            libraries.play(&mut world);
            world.step(world.now + MS);
        }
        world.weather = nothing;
        world.pass(down_ms * MS);
        world.weather = Weather::default();
        carry(&mut world, &mut libraries, &[]);
        world.pass(WIDE_AGAIN_NS.0);
        let (long, replies) = carry(&mut world, &mut libraries, &[LEN]);
        assert_eq!(long, replies, "{first}");
    }
}

#[test]
fn a_board_whose_network_is_another_one_has_learnt_nothing_of_it() {
    let (mut world, mut libraries) = world([true; 2]);
    world.narrow = true;
    carry(&mut world, &mut libraries, &[LEN]);
    world.narrow = false;
    assert_eq!(carry(&mut world, &mut libraries, &[LEN]).0, 0);
    world.widen(&[true; 2]);
    assert!(carry(&mut world, &mut libraries, &[LEN]).0 > 0);
}

#[test]
fn one_frame_that_is_all_that_is_missing_tells_nothing_of_two() {
    let (mut script, _) = Script::connected_wide();
    // Nine frames: the last one alone.
    let pull = pulling(&mut script, 8 * FRAGMENT_LEN + 100);
    let bytes = [0xbd; WIDE_LEN];
    for frame in [0, 2, 4, 6] {
        script.say(&Packet::PullReply(reply(pull, frame, &bytes))).unwrap();
    }
    script.pass(10_000 * MS);
    let sent = script.sent();
    assert!(packets(&sent).len() > WIDE_TRIES_MAX.1 as usize, "it was asked for again");
    script.say(&Packet::PullReply(reply(pull, 8, &bytes[..100]))).unwrap();
    script.sent();
    script.told();
    assert!(next_pulling(&mut script, LEN, 2).wide);
}

#[test]
fn what_is_lost_of_two_in_one_comes_again() {
    for seed in 0..20 {
        let (mut world, mut libraries) = (World::new(seed, 2), Libraries::default());
        world.widen(&[true; 2]);
        world.weather = Weather { lost: 5, doubled: 5, late: 10, damaged: 1 };
        libraries.open(&mut world, PLACES);
        let (long, replies) = carry(&mut world, &mut libraries, &[LEN; 4]);
        assert!(long > replies / 2, "{long} of {replies}");
    }
}

#[test]
fn a_network_that_changes_is_found_out() {
    let (mut world, mut libraries) = world([true; 2]);
    assert!(carry(&mut world, &mut libraries, &[LEN]).0 > 0);
    world.narrow = true;
    carry(&mut world, &mut libraries, &[LEN]);
    assert_eq!(carry(&mut world, &mut libraries, &[LEN]).0, 0);
}

/// Something is offered to us, and we pull it: the pull.
fn pulling(script: &mut Script, len: usize) -> Pull {
    next_pulling(script, len, 1)
}

/// The same, by the message with this number.
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
    script.say(&Packet::Rendezvous(offer)).unwrap();
    let told = script.told();
    let [common::Told::Event(Event::Offered { handle, .. })] = told[..] else { panic!("{told:?}") };
    let region = script.board.region_add(OURS, len as u64).unwrap();
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
fn hostile_two_in_one_that_nobody_takes_write_nothing() {
    let (mut script, _) = Script::connected();
    let pull = pulling(&mut script, LEN);
    assert!(!pull.wide);
    let two = Packet::PullReply(reply(pull, 0, &[0xbd; WIDE_LEN]));
    assert_eq!(script.say(&two), Err(Dropped::Number));
    assert_eq!(filled(&script), 0);
}

#[test]
fn hostile_two_in_one_lie_in_one_block_and_are_whole() {
    let (mut script, _) = Script::connected_wide();
    let pull = pulling(&mut script, LEN);
    assert!(pull.wide);
    let bytes = [0xbd; WIDE_LEN];
    // Of two blocks; and neither one nor two.
    for (frame, len) in [(7, WIDE_LEN), (0, WIDE_LEN - 1), (0, FRAGMENT_LEN + 1)] {
        let two = Packet::PullReply(reply(pull, frame, &bytes[..len]));
        assert_eq!(script.say(&two), Err(Dropped::Number), "{frame}: {len}");
    }
    assert_eq!(filled(&script), 0);
    // One of them may have come; both did not.
    for (frame, filled_then) in [(1, 2), (0, 3), (3, 5)] {
        let two = Packet::PullReply(reply(pull, frame, &bytes));
        assert_eq!(script.say(&two), Ok(()), "{frame}");
        assert_eq!(filled(&script), filled_then * FRAGMENT_LEN, "{frame}");
        assert_eq!(script.say(&two), Err(Dropped::Number), "it is there");
    }
}

#[test]
fn hostile_wishes_for_two_in_one_get_what_the_network_carries() {
    for (connected, longest) in
        [(Script::connected(), FRAGMENT_LEN), (Script::connected_wide(), WIDE_LEN)]
    {
        let ((mut script, peer), bytes) = (connected, 40_000);
        let region = RegionId(script.board.region_add(OURS, bytes).unwrap().0);
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
        assert_eq!(script.say(&Packet::Pull(pull)), Ok(()));
        let sent = script.sent();
        assert_eq!(replies(&sent), each(0, 32_768, longest));
        // An odd number of frames, and the last is short.
        let tail = Pull { frame_index: 7, block_len: 40_000 - 7 * 4096, ..pull };
        assert_eq!(script.say(&Packet::Pull(tail)), Ok(()));
        assert_eq!(replies(&script.sent()), each(7 * 4096, 40_000, longest));
    }
}

/// First frame, offset and length of each reply.
fn replies(sent: &[Vec<u8>]) -> Vec<(u8, u32, usize)> {
    let one = |packet: &Packet<'_>| match packet {
        Packet::PullReply(reply) => (reply.frame_sequence, reply.offset, reply.data.len()),
        other => panic!("{other:?}"),
    };
    packets(sent).iter().map(one).collect()
}

/// The same of replies from one byte to another, so long.
fn each(from: usize, to: usize, longest: usize) -> Vec<(u8, u32, usize)> {
    let one = |at: usize| ((at / FRAGMENT_LEN) as u8, at as u32, longest.min(to - at));
    (from..to).step_by(longest).map(one).collect()
}
