//! Completion queues: resize and moderation.

use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::{Opcode, Status};
use causeway_wire::mlx5::completion_queue::{
    CompletionQueueContext, ENTRY_SIZE_128, MODIFY_COUNT, MODIFY_PERIOD,
};
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::SendOpcode;

use crate::driver::{Completions, Guest, Pair, World, success};

/// A queue pair that completes work requests without effect to a queue of 2^3 entries.
struct Source {
    world: World,
    guest: Guest,
    cq: Completions,
    pair: Pair,
    /// Work requests that were posted.
    posted: u16,
    /// Work requests whose completions were taken.
    taken: u16,
}

impl Source {
    fn new() -> Self {
        let mut world = World::new();
        let mut guest = world.start(1);
        let cq = guest.create_cq(&mut world, 3);
        let context = guest.qp_context(Service::ReliableConnection, cq.number);
        let pair = guest.create_pair(&mut world, context);
        guest.connect(&mut world, &pair, guest.mac, pair.number);
        Self { world, guest, cq, pair, posted: 0, taken: 0 }
    }

    /// Completes work requests at the present time.
    fn complete(&mut self, count: u16) {
        for _ in 0..count {
            self.guest.post(&mut self.pair, (SendOpcode::Nop, 0), |entry| entry);
            self.posted += 1;
        }
        self.poll();
    }

    fn poll(&mut self) {
        let mut budget = Budget::new(1000, 1 << 20);
        poll(&mut self.world.subnet, self.guest.adapter, self.world.now, &mut budget);
    }

    /// Takes completions, which must be in order.
    fn take(&mut self, count: u16) {
        for _ in 0..count {
            let entry = success(self.guest.poll_cq(&mut self.cq));
            assert_eq!(entry.counter, self.taken);
            self.taken += 1;
        }
    }

    fn resize(&mut self, log: u8) -> Result<(), Status> {
        self.guest.resize_cq(&mut self.world, &mut self.cq, log)
    }

    fn moderate(&mut self, period: u16, max_count: u16) {
        let context = CompletionQueueContext { period, max_count, ..Default::default() };
        let change = (self.cq.number, 0, MODIFY_PERIOD | MODIFY_COUNT);
        self.guest.modify_cq(&mut self.world, change, (context, &[])).unwrap();
    }

    /// Returns the number of completion events since the last call.
    fn events(&mut self) -> usize {
        let mut ring = self.guest.events;
        let events = self.guest.take_events(&mut ring);
        self.guest.events = ring;
        let expected = Event::Completion { completion_queue: self.cq.number };
        assert!(events.iter().all(|event| *event == expected), "{events:?}");
        events.len()
    }

    /// Arms the queue, behind the completions that were taken.
    fn arm(&mut self, sequence: u32) {
        self.guest.arm(&self.cq, sequence, false);
    }
}

#[test]
fn mlx5_resize_keeps_completions_in_order() {
    let mut source = Source::new();
    source.complete(5);
    source.take(2);
    source.resize(5).unwrap();
    source.complete(15);
    source.take(10);
    source.resize(4).unwrap();
    source.complete(8);
    source.take(16);
    assert!(source.guest.poll_cq(&mut source.cq).is_none());
}

#[test]
fn mlx5_resize_at_any_position_keeps_completions_in_order() {
    let mut source = Source::new();
    let mut random = 7_u32;
    for _ in 0..2000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (choice, amount) = (random >> 30, (random >> 20 & 7) as u16);
        let waiting = source.posted - source.taken;
        match choice {
            0 => source.complete(amount.min(7_u16.saturating_sub(waiting))),
            1 | 2 => source.take(amount.min(waiting)),
            _ => {
                // Each new ring takes memory that the driver of the test never frees.
                if source.posted < 400 {
                    source.resize(3 + (amount % 3) as u8).unwrap();
                }
            }
        }
    }
    source.take(source.posted - source.taken);
    assert!(source.posted > 400);
}

#[test]
fn mlx5_resize_without_room_changes_nothing() {
    let mut source = Source::new();
    source.complete(6);
    assert_eq!(source.resize(2), Err(Status::BadOutstandingSize));
    source.complete(2);
    assert_eq!(source.resize(6), Err(Status::BadOutstandingSize), "no room for the last entry");
    source.take(4);
    source.resize(2).unwrap();
    source.take(4);
    source.complete(4);
    source.take(4);
}

#[test]
fn mlx5_resize_makes_no_event_and_loses_none() {
    let mut source = Source::new();
    source.complete(1);
    assert_eq!(source.events(), 1);
    source.take(1);
    source.arm(1);
    source.resize(4).unwrap();
    source.poll();
    assert_eq!(source.events(), 0);
    source.complete(1);
    assert_eq!(source.events(), 1);
    source.take(1);
    source.resize(5).unwrap();
    source.arm(2);
    source.complete(1);
    assert_eq!(source.events(), 1);
    // The driver has taken all but the entry of the resize, which its record does not show.
    source.take(1);
    source.arm(3);
    source.resize(4).unwrap();
    source.poll();
    assert_eq!(source.events(), 0);
    assert!(source.guest.poll_cq(&mut source.cq).is_none());
}

#[test]
fn mlx5_resize_is_checked() {
    let mut source = Source::new();
    let (mut context, pages) = source.guest.cq_context(4);
    let number = source.cq.number;
    let mut change = |modifier, context, pages: &[u64]| {
        source.guest.modify_cq(&mut source.world, (number, modifier, 7), (context, pages))
    };
    assert_eq!(change(1, context, &[]), Err(Status::BadParameter), "no pages");
    assert_eq!(change(2, context, &pages), Err(Status::BadOperation));
    context.log_size = 21;
    assert_eq!(change(1, context, &pages), Err(Status::BadParameter));
    (context.log_size, context.entry_size) = (4, ENTRY_SIZE_128);
    assert_eq!(change(1, context, &pages), Err(Status::BadParameter), "length of entries");
    let opcode = Opcode::DestroyCompletionQueue;
    let busy = source.guest.simple(&mut source.world, opcode, number);
    assert_eq!(busy, Err(Status::BadResourceState));
    source.complete(2);
    source.take(2);
}

#[test]
fn mlx5_moderation_delays_events_until_the_period_ends() {
    let mut source = Source::new();
    source.moderate(100, 8);
    source.world.now = 1_000_000;
    source.complete(1);
    assert_eq!(source.events(), 1, "the first completion after a pause");
    source.take(1);
    source.arm(1);
    source.world.now += 30_000;
    source.complete(1);
    assert_eq!(source.events(), 0);
    let function = source.world.function(&source.guest);
    assert_eq!(function.deadline_ns(), Some(1_100_000));
    assert!(function.is_active());
    source.world.now = 1_099_999;
    source.poll();
    assert_eq!(source.events(), 0);
    source.world.now = 1_100_000;
    source.poll();
    assert_eq!(source.events(), 1);
    let function = source.world.function(&source.guest);
    assert_eq!((function.deadline_ns(), function.take_completed()), (None, true));
    source.poll();
    assert_eq!(source.events(), 0);
}

#[test]
fn mlx5_moderation_reports_when_the_count_is_reached() {
    let mut source = Source::new();
    source.moderate(4095, 3);
    source.complete(1);
    assert_eq!(source.events(), 1);
    source.take(1);
    source.arm(1);
    source.complete(2);
    assert_eq!(source.events(), 0);
    source.complete(1);
    assert_eq!(source.events(), 1);
}

#[test]
fn mlx5_moderation_needs_count_and_period() {
    for (period, count) in [(0, 9), (4095, 0)] {
        let mut source = Source::new();
        source.moderate(period, count);
        for sequence in 1..4 {
            source.complete(1);
            assert_eq!(source.events(), 1, "period {period}, count {count}");
            source.take(1);
            source.arm(sequence);
        }
    }
}

#[test]
fn mlx5_moderation_that_ends_reports_the_delayed_event() {
    let mut source = Source::new();
    source.moderate(4095, 8);
    source.complete(1);
    source.take(1);
    source.arm(1);
    source.complete(1);
    assert_eq!(source.events(), 1);
    source.moderate(0, 0);
    source.poll();
    assert_eq!(source.events(), 1);
    assert_eq!(source.world.function(&source.guest).deadline_ns(), None);
}

#[test]
fn mlx5_moderation_of_a_destroyed_queue_ends() {
    let mut source = Source::new();
    source.moderate(4095, 8);
    source.complete(1);
    source.take(1);
    source.arm(1);
    source.complete(1);
    assert!(source.world.function(&source.guest).deadline_ns().is_some());
    let mut destroy = |opcode, number| {
        source.guest.simple(&mut source.world, opcode, number).unwrap();
    };
    destroy(Opcode::DestroyQueuePair, source.pair.number);
    destroy(Opcode::DestroyCompletionQueue, source.cq.number);
    assert_eq!(source.world.function(&source.guest).deadline_ns(), None);
}
