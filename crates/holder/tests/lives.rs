//! A frontend outlives several causewayds without notice; chains in flight are processed once.

mod common;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use causeway_attach::native;
use causeway_attach::vhost_user::FrontendReq as R;
use causeway_holder::limits::PARTING_GRACE;
use common::{Held, LIMIT, Life, attach, background, send};

#[test]
fn chains_in_flight_are_given_again_once() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, mut life) = attach(&held.path("p"), life);
    let mut first = 0_u8;
    for round in 0..8 {
        send(&mut port, first..first + 5);
        let taken: HashMap<u8, u16> =
            std::iter::from_fn(|| life.pop()).map(|(head, frame)| (frame, head)).collect();
        assert_eq!(taken.len(), 5, "round {round}");
        // Out of order, and not all.
        life.push(&[taken[&(first + 3)], taken[&(first + 1)]]);
        drop(life);
        life = Life::new(&held, "p");
        life.until("the queue", |life| life.is_running());
        let again: Vec<(u16, u8)> = std::iter::from_fn(|| life.pop()).collect();
        let frames: Vec<u8> = again.iter().map(|(_, frame)| *frame).collect();
        assert_eq!(frames, [first, first + 2, first + 4], "round {round}");
        life.push(&again.iter().map(|(head, _)| *head).collect::<Vec<_>>());
        assert!(port.is_idle(0).unwrap(), "round {round}");
        first += 5;
    }
    assert!(!port.frontend().is_gone());
}

#[test]
fn holder_keeps_messages_while_causewayd_is_away() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    drop(life);
    send(&mut port, 0..20);
    std::thread::sleep(2 * PARTING_GRACE);
    assert!(!port.frontend().is_gone(), "let go of while causewayd was away");
    let mut life = Life::new(&held, "p");
    life.until("the queue", |life| life.is_running());
    let frames: Vec<u8> = std::iter::from_fn(|| life.pop()).map(|(_, frame)| frame).collect();
    assert_eq!(frames, Vec::from_iter(0..20));
}

#[test]
fn holder_repeats_an_unacknowledged_message() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    send(&mut port, 0..3);
    // No reader: the message is in progress when causewayd ends.
    let path = held.path("p");
    let asking = std::thread::spawn(move || {
        let base = port.frontend().client().stop_queue(1);
        (port, base)
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(life);
    let halt = background(Life::new(&held, "p"));
    let (port, base) = asking.join().unwrap();
    assert_eq!(base.unwrap(), 0, "no chain was taken");
    drop(port);
    let mut life = halt();
    life.until("the frontend's end", |life| life.is_free());
    let (_port, _life) = attach(&path, life);
}

#[test]
fn a_driver_that_begins_anew_gets_a_new_record() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, mut life) = attach(&held.path("p"), life);
    send(&mut port, 0..5);
    let heads: Vec<u16> = std::iter::from_fn(|| life.pop()).map(|(head, _)| head).collect();
    life.push(&heads);
    drop(port);
    life.until("the frontend's end", |life| life.is_free());
    // The same port, a fresh ring: the old inflight region must not count.
    let (mut port, mut life) = attach(&held.path("p"), life);
    send(&mut port, 9..10);
    assert_eq!(life.pop().map(|(_, frame)| frame), Some(9));
}

#[test]
fn a_driver_that_begins_anew_with_a_smaller_ring_gets_a_new_record() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    let halt = background(life);
    assert_eq!(port.frontend().client().stop_queue(1).unwrap(), 0, "nothing was taken");
    let mut tell = |request, index: u32, value: u32, fds: &[BorrowedFd<'_>]| {
        let words = [index.to_ne_bytes(), value.to_ne_bytes()].concat();
        port.frontend().client().tell(request, &words, fds).unwrap();
    };
    // It starts at the index where it stopped, zero, and yet it is another ring.
    tell(R::SET_VRING_NUM, 1, 8, &[]);
    tell(R::SET_VRING_BASE, 1, 0, &[]);
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    tell(R::SET_VRING_KICK, 1, 0, &[doorbell.as_fd()]);
    let mut life = halt();
    life.until("the queue's start", |life| life.is_running());
}

#[test]
fn holder_disconnects_a_frontend_that_causewayd_closes() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    // A protocol violation: the ring's size changes while it runs.
    let bad = [0_u32.to_ne_bytes(), 3_u32.to_ne_bytes()].concat();
    let halt = background(life);
    assert!(port.frontend().client().tell(R::SET_VRING_NUM, &bad, &[]).is_err());
    let since = std::time::Instant::now();
    while !port.frontend().is_gone() {
        assert!(since.elapsed() < LIMIT, "still held");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Another frontend can use the port.
    let (_port, _life) = attach(&held.path("p"), halt());
}

#[test]
fn ports_that_are_no_longer_configured_are_let_go() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    drop(life);
    let mut other = Life::new(&held, "q");
    assert!(!port.frontend().is_gone());
    other.control.synced().unwrap();
    assert!(port.frontend().is_gone(), "p was not added");
    assert!(!held.path("p").exists() && held.path("q").exists());
    other.control.delete("q").unwrap();
    assert!(!held.path("q").exists());
}

#[test]
fn a_device_that_changed_is_not_taken_up_again() {
    let held = Held::new();
    let life = Life::new(&held, "p");
    let (mut port, life) = attach(&held.path("p"), life);
    drop(life);
    let mut control = held.client();
    let changed = causeway_holder::protocol::HeldPort { device: "other".into(), ..held.port("p") };
    control.add(changed).unwrap();
    assert!(port.frontend().is_gone());
    assert!(held.path("p").exists(), "it listens for another");
}

#[test]
fn holder_accepts_frontends_before_causewayd() {
    let held = Held::new();
    drop(Life::new(&held, "p"));
    let path = held.path("p");
    let early = std::thread::spawn(move || native::Client::connect(&path).map(drop));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!early.is_finished(), "answered by nobody");
    let halt = background(Life::new(&held, "p"));
    early.join().unwrap().unwrap();
    halt();
}

#[test]
fn allowed_users_of_a_held_port_are_checked_by_the_holder() {
    let held = Held::new();
    let mut client = held.client();
    let own = rustix::process::getuid().as_raw();
    let port = |users: u32| causeway_holder::protocol::HeldPort {
        users: Some(vec![users]),
        ..held.port("p")
    };
    client.add(port(own + 1)).unwrap();
    for refused in 1..=2 {
        assert!(native::Client::connect(&held.path("p")).is_err());
        assert_eq!(client.refused_users("p").unwrap(), (refused, Some(own)));
    }
    // The list may change while the port is held.
    client.add(port(own)).unwrap();
    let mut frontend = std::os::unix::net::UnixStream::connect(held.path("p")).unwrap();
    frontend.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let open = std::io::Read::read(&mut frontend, &mut [0; 1]).unwrap_err();
    assert_eq!(open.kind(), std::io::ErrorKind::WouldBlock, "the frontend waits for causewayd");
    assert_eq!(client.refused_users("p").unwrap(), (2, Some(own)));
    assert!(client.refused_users("other").is_err());
}
