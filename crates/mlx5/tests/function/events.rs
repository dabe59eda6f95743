//! Completion events: the arm rule, and asynchronous events.

use causeway_mlx5::limits::EVENT_WINDOW_NS;
use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::event_queue::{Event, EventType};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{Link, VIRTUAL, World, data, failure, success};

/// Sends a message of 8 bytes from a to b, which has a receive entry posted.
fn message(link: &mut Link) {
    let key = link.key_b;
    link.b.post_receive(&mut link.qp_b, &[data(key, VIRTUAL, 8)]);
    let segment = data(link.key_a, VIRTUAL, 8);
    link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&segment));
    link.run();
    link.a.poll_cq(&mut link.cq_a);
}

/// Returns the number of completion events of b since the last call.
fn events(link: &mut Link) -> usize {
    let mut ring = link.b.events;
    let events = link.b.take_events(&mut ring);
    link.b.events = ring;
    let expected = Event::Completion { completion_queue: link.cq_b.number };
    assert!(events.iter().all(|event| *event == expected), "{events:?}");
    events.len()
}

#[test]
fn mlx5_fresh_queue_counts_as_armed_once() {
    let mut link = Link::new(Service::ReliableConnection);
    message(&mut link);
    assert_eq!(events(&mut link), 1);
    message(&mut link);
    assert_eq!(events(&mut link), 0);
    let vectors: Vec<u16> = link.world.function(&link.b).take_interrupts().collect();
    assert!(vectors.contains(&1));
}

#[test]
fn mlx5_armed_queue_reports_the_next_completion_once() {
    let mut link = Link::new(Service::ReliableConnection);
    message(&mut link);
    events(&mut link);
    success(link.b.poll_cq(&mut link.cq_b));
    link.b.arm(&link.cq_b, 1, false);
    link.run();
    assert_eq!(events(&mut link), 0);
    message(&mut link);
    assert_eq!(events(&mut link), 1);
    message(&mut link);
    assert_eq!(events(&mut link), 0);
}

#[test]
fn mlx5_queue_armed_before_polling_reports_only_new_completions() {
    let mut link = Link::new(Service::ReliableConnection);
    message(&mut link);
    assert_eq!(events(&mut link), 1);
    // The driver arms first and polls later, as perftest does.
    link.b.arm(&link.cq_b, 1, false);
    link.run();
    assert_eq!(events(&mut link), 0);
    message(&mut link);
    assert_eq!(events(&mut link), 1);
}

#[test]
fn mlx5_queue_armed_behind_a_completion_reports_it() {
    let mut link = Link::new(Service::ReliableConnection);
    message(&mut link);
    events(&mut link);
    message(&mut link);
    assert_eq!(events(&mut link), 0);
    // The second completion was not reported; arming with the position before it reports it.
    success(link.b.poll_cq(&mut link.cq_b));
    link.b.arm(&link.cq_b, 1, false);
    link.run();
    assert_eq!(events(&mut link), 1);
}

#[test]
fn mlx5_solicited_arm_ignores_other_completions() {
    let mut link = Link::new(Service::ReliableConnection);
    message(&mut link);
    events(&mut link);
    success(link.b.poll_cq(&mut link.cq_b));
    link.b.arm(&link.cq_b, 1, true);
    // A send completion of b is not solicited.
    let segment = data(link.key_b, VIRTUAL, 8);
    let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_a };
    link.b.post(&mut link.qp_b, (SendOpcode::Write, 0), |e| e.remote(&to).data(&segment));
    link.run();
    assert_eq!(events(&mut link), 0);
    message(&mut link);
    assert_eq!(events(&mut link), 1);
}

#[test]
fn mlx5_completion_queue_without_room_breaks_and_reports_an_error() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 1);
    let context = guest.qp_context(Service::ReliableConnection, cq.number);
    let mut pair = guest.create_pair(&mut world, context);
    guest.connect(&mut world, &pair, guest.mac, pair.number);
    for _ in 0..3 {
        guest.post(&mut pair, (SendOpcode::Nop, 0), |entry| entry);
    }
    world.run();
    let mut ring = guest.async_events;
    let events = guest.take_events(&mut ring);
    assert!(
        events.iter().any(|event| matches!(
            event,
            Event::CompletionQueueError { completion_queue, .. } if *completion_queue == cq.number
        )),
        "{events:?}"
    );
    assert!(world.function(&guest).counters().overruns > 0);
}

#[test]
fn mlx5_malformed_entry_reports_a_fatal_queue_pair() {
    let mut link = Link::new(Service::ReliableConnection);
    // A length of zero would never end.
    let at = link.qp_a.ring + link.qp_a.context.send_offset();
    link.a.write(at, &[0; 64]);
    link.a.write(link.qp_a.record + 4, &1_u32.to_be_bytes());
    link.run();
    failure(link.a.poll_cq(&mut link.cq_a));
    let mut ring = link.a.async_events;
    let expected = Event::Queue {
        event_type: EventType::WorkQueueCatastrophic,
        queue_type: 0,
        number: link.qp_a.number,
    };
    assert_eq!(link.a.take_events(&mut ring), [expected]);
    assert!(link.world.function(&link.a).take_fault().is_some());
}

#[test]
fn mlx5_event_queue_refuses_more_completion_queues_than_it_reports() {
    let mut world = World::new();
    let mut guest = world.start(1);
    // The queue has 64 entries, of which 16 are kept.
    for _ in 0..48 {
        guest.create_cq(&mut world, 0);
    }
    let (context, pages) = guest.cq_context(0);
    let opcode = Opcode::CreateCompletionQueue;
    let result = guest.create(&mut world, opcode, (0x10, &context.to_bytes()), (0x110, &pages));
    assert_eq!(result, Err(Status::ExceededLimit));
}

#[test]
fn mlx5_events_of_many_queue_pairs_come_at_a_pace() {
    let mut world = World::new();
    let mut guest = world.start(1);
    let cq = guest.create_cq(&mut world, 6);
    let mut expected = Vec::new();
    for _ in 0..20 {
        let context = guest.qp_context(Service::ReliableConnection, cq.number);
        let pair = guest.create_pair(&mut world, context);
        guest.connect(&mut world, &pair, guest.mac, pair.number);
        // The counter jumps.
        guest.write(pair.record + 4, &1000_u32.to_be_bytes());
        expected.push(pair.number);
    }
    let mut ring = guest.async_events;
    let mut rounds = Vec::new();
    for round in 0..4 {
        for pass in 0..3 {
            let now = 1 + round * EVENT_WINDOW_NS + pass;
            poll(&mut world.subnet, guest.adapter, now, &mut Budget::new(1000, 1 << 20));
        }
        let events = guest.take_events(&mut ring).into_iter();
        let numbers: Vec<u32> = events
            .filter_map(|event| match event {
                Event::Queue { event_type: EventType::WorkQueueCatastrophic, number, .. } => {
                    Some(number)
                }
                _ => None,
            })
            .collect();
        // The driver's queue has 32 entries.
        assert!(numbers.len() <= 8, "{numbers:?}");
        rounds.extend(numbers);
    }
    rounds.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rounds, expected);
    assert_eq!(world.function(&guest).counters().lost_events, 0);
}
