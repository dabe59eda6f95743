//! Queue pairs that reset, fail and disappear during messages.

use std::collections::HashMap;

use causeway_verbs::work::*;
use causeway_verbs::*;
use proptest::prelude::*;

use crate::testing::*;

/// A step: its kind, a connection, the side of the connection, and a number.
type Random = (u8, usize, bool, u32);

/// Executes a step on connections of guests 0 to 2.
fn step(world: &mut World, ends: &mut [(End, End)], (kind, pair, side, number): Random) {
    let (left, right) = ends[pair % ends.len()];
    let (from, to) = if side { (left, right) } else { (right, left) };
    match kind {
        0..=2 => {
            let segments = vec![world.segment(to.0, 0, number)];
            world.post_receive(to, segments);
        }
        3..=5 => {
            let segments = vec![world.segment(from.0, 1000, number)];
            world.post(from, Operation::Send, segments);
        }
        6 => {
            let remote = world.remote(to.0, 5000);
            let segments = vec![world.segment(from.0, 1000, number)];
            world.post(from, Operation::WriteImmediate(remote, number), segments);
        }
        7..=11 => drop(world.run_with(from, &mut Budget::new(number % 5, u64::from(number)))),
        12 => world.run_due(from.0),
        13 => world.now += u64::from(number) << 12,
        14 => world.modify(from, State::Error, &Change::default()),
        15 => reset(world, from, to),
        16 => {
            world.subnet.destroy_queue_pair(world.ids[from.0], from.1).unwrap();
            world.lists(from.0).sends.remove(&from.1);
            let kind = world.adapter(to.0).queue_pair(to.1).unwrap().kind();
            let new = world.create(from.0, kind, attributes());
            let place = if side { &mut ends[pair % 3].0 } else { &mut ends[pair % 3].1 };
            *place = new;
            reset(world, to, new);
            world.ready(new, Some(to));
        }
        _ => {
            let id = world.ids[from.0];
            if let Some(number) = world.subnet.next_due(id, world.now) {
                world.run((from.0, number));
            }
        }
    }
}

/// Resets a queue pair and connects it with another.
fn reset(world: &mut World, end: End, peer: End) {
    world.modify(end, State::Reset, &Change::default());
    world.lists(end.0).sends.remove(&end.1);
    world.lists(end.0).receives.remove(&ReceiveQueue::Own(end.1));
    world.ready(end, Some(peer));
}

fn attributes() -> Attributes {
    Attributes { rnr_retry: 2, min_rnr_timer: 20, timeout: 10, ..World::attributes() }
}

proptest! {
    #[test]
    fn verbs_work_requests_complete_in_order_and_at_most_once(
        steps in prop::collection::vec((0_u8..18, 0_usize..3, any::<bool>(), 0_u32..200_000), 1..150)
    ) {
        let mut world = World::new(3);
        let mut ends = vec![
            world.connect_with((0, 1), Kind::Rc, attributes()),
            world.connect_with((1, 2), Kind::Uc, attributes()),
            world.connect_with((2, 2), Kind::Rc, attributes()),
        ];
        for random in steps {
            step(&mut world, &mut ends, random);
        }
        world.now += 1 << 40;
        for guest in 0..3 {
            let numbers: Vec<u32> = world.adapter(guest).queue_pairs().map(|(n, _)| n).collect();
            for number in numbers {
                world.modify((guest, number), State::Error, &Change::default());
            }
        }
        for guest in 0..3 {
            world.run_due(guest);
            let mut last: HashMap<(u32, bool), u16> = HashMap::new();
            for (_, entry) in std::mem::take(&mut world.lists(guest).completions) {
                let key = (entry.queue_pair, entry.kind == CompletionKind::Send);
                let before = last.insert(key, entry.token.index).unwrap_or(0);
                prop_assert!(before < entry.token.index, "{:?} after {}", entry, before);
            }
            let lists = world.lists(guest);
            prop_assert!(lists.sends.values().all(|list| list.is_empty()));
            let alive: Vec<u32> = world.adapter(guest).queue_pairs().map(|(n, _)| n).collect();
            for number in alive {
                let queue = ReceiveQueue::Own(number);
                prop_assert_eq!(world.lists(guest).posted(queue), 0);
            }
            prop_assert_eq!(world.subnet.deadline(world.ids[guest]), None);
        }
    }
}
