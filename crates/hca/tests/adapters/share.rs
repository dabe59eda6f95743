//! Rates and weights of ports.

use causeway_model::port::HcaSpec;
use causeway_wire::mlx5::completion_queue::{CompletionQueueContext, MODIFY_COUNT, MODIFY_PERIOD};

use crate::rig::{BUFFER, Rig, Stream, TURN_NS, options};

/// Turns of a measurement: 0.2 s.
const TURNS: u64 = 4000;

#[test]
fn hca_port_keeps_its_rate_and_leaves_others_alone() {
    let mut rig = Rig::new();
    let mut to = rig.start(1, options(1));
    let slow = HcaSpec { byte_rate_max: Some(200_000_000), ..options(2) };
    let mut slow_guest = rig.start(2, slow);
    let mut fast_guest = rig.start(3, options(3));
    let mut slow = Stream::new(&mut rig, &mut slow_guest, &mut to);
    let mut fast = Stream::new(&mut rig, &mut fast_guest, &mut to);
    for _ in 0..TURNS {
        slow.fill(&slow_guest, 20, 16 << 10);
        fast.fill(&fast_guest, 20, BUFFER as u32);
        rig.turn();
    }
    let seconds = (TURNS * TURN_NS) as f64 / 1e9;
    let rate = (slow.done * (16 << 10)) as f64 / seconds;
    assert!((190e6..210e6).contains(&rate), "{rate}");
    let rate = (fast.done * BUFFER) as f64 / seconds;
    assert!(rate > 2e9, "{rate}");
    assert!(rig.counter(2, "rate_pauses_total") > 10);
    assert_eq!(rig.counter(3, "rate_pauses_total"), 0);
}

#[test]
fn hca_port_keeps_its_rate_of_messages() {
    let mut rig = Rig::new();
    let mut to = rig.start(1, options(1));
    let mut guest = rig.start(2, HcaSpec { message_rate_max: Some(50_000), ..options(2) });
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    for _ in 0..TURNS {
        stream.fill(&guest, 30, 64);
        rig.turn();
    }
    assert!((9_500..10_500).contains(&stream.done), "{} in 0.2 s", stream.done);
    // Work waits in the guest: nothing was lost.
    for _ in 0..100 {
        rig.turn();
    }
    stream.fill(&guest, 0, 64);
    assert_eq!(rig.counter(2, "requests_total"), stream.done);
}

#[test]
fn hca_weights_divide_the_time_of_two_busy_ports() {
    let mut rig = Rig::new();
    let mut to = rig.start(1, options(1));
    let mut light_guest = rig.start(2, options(2));
    let mut heavy_guest = rig.start(3, HcaSpec { weight: 3, ..options(3) });
    let mut light = Stream::new(&mut rig, &mut light_guest, &mut to);
    let mut heavy = Stream::new(&mut rig, &mut heavy_guest, &mut to);
    for _ in 0..TURNS / 4 {
        light.fill(&light_guest, 30, BUFFER as u32);
        heavy.fill(&heavy_guest, 30, BUFFER as u32);
        rig.turn();
    }
    let ratio = heavy.done as f64 / light.done as f64;
    assert!((2.8..3.2).contains(&ratio), "{ratio}: {} and {}", heavy.done, light.done);
}

#[test]
fn hca_flood_of_one_port_delays_another_by_less_than_a_turn() {
    let mut rig = Rig::new();
    let mut to = rig.start(1, options(1));
    let mut flood_guest = rig.start(2, HcaSpec { weight: 10, ..options(2) });
    let mut quiet_guest = rig.start(3, options(3));
    let mut flood = Stream::new(&mut rig, &mut flood_guest, &mut to);
    let mut quiet = Stream::new(&mut rig, &mut quiet_guest, &mut to);
    for turn in 0..TURNS / 8 {
        flood.fill(&flood_guest, 30, BUFFER as u32);
        quiet.post_write(&quiet_guest, 64);
        rig.turn();
        assert_eq!(quiet.reap(&quiet_guest), 1, "turn {turn}");
        rig.turn_again();
    }
    assert!(flood.done > TURNS / 8, "{}", flood.done);
}

/// Moderation of an event for more than a turn, in microseconds.
const PERIOD_US: u16 = 70;

#[test]
fn hca_deadlines_of_a_busy_port_give_it_no_further_calls() {
    let [with, without] = [true, false].map(share_with_deadlines);
    let gain = with / without;
    assert!((0.985..1.015).contains(&gain), "{with} with deadlines, {without} without");
}

/// Returns the work of a port, relative to that of a port of three times its weight, while both are
/// busy. The first port has a deadline in each second turn if its driver arms.
fn share_with_deadlines(arms: bool) -> f64 {
    let mut rig = Rig::new();
    let mut due_guest = rig.start(2, options(2));
    let mut other_guest = rig.start(3, HcaSpec { weight: 3, ..options(3) });
    let mut due = Stream::looped(&mut rig, &mut due_guest);
    let mut other = Stream::looped(&mut rig, &mut other_guest);
    let context =
        CompletionQueueContext { period: PERIOD_US, max_count: u16::MAX, ..Default::default() };
    due_guest.with(&mut rig, |driver, bar| {
        let change = (due.cq.number, 0, MODIFY_PERIOD | MODIFY_COUNT);
        driver.modify_cq(bar, change, (&context, &[]))
    });
    let mut events = due_guest.driver.events();
    let mut reported = 0;
    // Both ports are watched. The port that is woken first is served first from then on.
    (0..400).for_each(|_| rig.turn());
    while due.done < 100 {
        due.fill(&due_guest, 30, BUFFER as u32);
        rig.turn();
    }
    (due.done, other.done) = (0, 0);
    for turn in 0..TURNS / 2 {
        due.fill(&due_guest, 30, BUFFER as u32);
        other.fill(&other_guest, 30, BUFFER as u32);
        if arms {
            due_guest.driver.arm(&due.cq, turn as u32, false).unwrap();
        }
        rig.turn();
        reported += due_guest.count_events(&mut events) as u64;
    }
    assert_eq!(reported > TURNS / 16, arms, "{reported} events");
    due.done as f64 / other.done as f64
}
