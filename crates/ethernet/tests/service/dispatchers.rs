//! Groups on several dispatchers: distributed, moved while frames flow, and polled by their rate.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Rig, mac, net, wait};
use causeway_attach::native::{NET_HEADER_BYTES, NetPort};
use causeway_model::PollMode;
use causeway_model::{Answer, Command, DispatcherView};

fn dispatchers(rig: &Rig) -> Vec<DispatcherView> {
    match rig.handle.call(Command::DispatcherList).unwrap() {
        Answer::Dispatchers(views) => views,
        other => panic!("{other:?}"),
    }
}

fn move_to(rig: &Rig, group: &str, dispatcher: usize) {
    let group = group.parse().unwrap();
    let command = Command::ShardMove { group, service: None, dispatcher };
    rig.handle.call(command).unwrap();
}

fn numbered(from: u8, to: u8, number: u64) -> Vec<u8> {
    let mut frame = [&mac(to)[..], &mac(from), &[0x88, 0xb5]].concat();
    frame.extend(number.to_le_bytes());
    frame.resize(60 + (number % 1400) as usize, number as u8);
    frame
}

/// Sends `count` numbered frames and receives them in order; `between` runs now and then.
fn flow(
    from: &mut NetPort,
    to: &mut NetPort,
    ids: (u8, u8),
    count: u64,
    mut between: impl FnMut(u64),
) {
    let (mut sent, mut got, mut room) = (0_u64, 0_u64, Vec::new());
    let since = Instant::now();
    while got < count {
        while sent < count && sent < got + 100 {
            if !from.queue(0, &[0; NET_HEADER_BYTES], &numbered(ids.0, ids.1, sent)).unwrap() {
                break;
            }
            sent += 1;
        }
        from.flush(0).unwrap();
        while to.receive(0, &mut room).unwrap().is_some() {
            assert_eq!(room, numbered(ids.0, ids.1, got), "frame {got}");
            got += 1;
            if got % 500 == 0 {
                between(got);
            }
        }
        assert!(since.elapsed() < PATIENCE, "{got} of {count} frames arrived");
    }
}

#[test]
fn groups_are_spread_over_the_dispatchers() {
    let rig = Rig::new();
    for (number, group) in [(1, "red"), (2, "blue"), (3, "red")] {
        rig.try_add(&format!("p{number}"), group, net(number)).unwrap();
    }
    let views = dispatchers(&rig);
    let served: Vec<usize> = views.iter().map(|d| d.shards.len()).collect();
    assert_eq!(served, [1, 1]);
    assert_eq!(rig.view("p1").dispatcher, rig.view("p3").dispatcher);
    assert_ne!(rig.view("p1").dispatcher, rig.view("p2").dispatcher);
}

#[test]
fn a_group_moves_between_dispatchers_while_frames_flow_and_none_is_lost() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), 0);
    let mut b = rig.port("b", net(2), 0);
    rig.wait_running(&["a", "b"]);
    let mut on = rig.view("a").dispatcher;
    flow(&mut a, &mut b, (1, 2), 20_000, |_| {
        on = 1 - on;
        move_to(&rig, "red", on);
        assert_eq!(rig.view("b").dispatcher, on);
    });
    let views = dispatchers(&rig);
    let moves: u64 = views.iter().flat_map(|d| &d.shards).map(|s| s.moves_total).sum();
    assert_eq!(moves, 40);
    // A sleeping group hears its doorbells on its new dispatcher.
    std::thread::sleep(Duration::from_millis(20));
    move_to(&rig, "red", 1 - on);
    flow(&mut b, &mut a, (2, 1), 10, |_| ());
}

#[test]
fn dispatcher_move_to_an_unknown_target_is_refused() {
    let rig = Rig::new();
    let command = |group: &str, service: Option<&str>, dispatcher| Command::ShardMove {
        group: group.parse().unwrap(),
        service: service.map(str::to_owned),
        dispatcher,
    };
    let refused = |command| rig.handle.call(command).unwrap_err().to_string();
    assert_eq!(refused(command("red", None, 2)), "dispatcher 2: expected 0 to 1");
    assert_eq!(refused(command("green", None, 0)), "group \"green\" does not exist");
    assert_eq!(refused(command("red", Some("ib"), 0)), "service \"ib\" does not exist");
    rig.handle.call(command("red", Some("net"), 1)).unwrap();
}

#[test]
fn queue_is_polled_while_busy_and_notified_while_idle() {
    let rig = Rig::new();
    let mut a = rig.port("a", net(1), 0);
    let mut b = rig.port("b", net(2), 0);
    rig.wait_running(&["a", "b"]);
    // Transmit queue of `a`, receive queue of `b`: each direction has a mode of its own.
    let modes = || [rig.view("a").queues[1].mode, rig.view("b").queues[0].mode];
    assert_eq!(modes(), [PollMode::GuestDriven; 2]);
    let mut seen = false;
    flow(&mut a, &mut b, (1, 2), 20_000, |_| seen |= modes() == [PollMode::VmmDriven; 2]);
    assert!(seen, "20,000 frames as fast as they go: {:?}", rig.view("a").queues);
    assert_eq!(
        rig.view("a").queues[0].mode,
        PollMode::GuestDriven,
        "no frame was sent in that direction"
    );
    wait(|| modes() == [PollMode::GuestDriven; 2], || format!("{:?}", rig.view("a").queues));
    let why = &rig.view("a").queues[1].mode_reason;
    assert!(why.contains("below 1000"), "{why}");
}
