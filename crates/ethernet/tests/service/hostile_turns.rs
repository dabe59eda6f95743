//! The service rate of a port whose frames all break a rule, turn by turn.

use std::sync::mpsc::channel;

use crate::common::{PATIENCE, mac, net, port_spec};
use causeway_attach::native::{NET_HEADER_BYTES, NetOptions, NetPort};
use causeway_ethernet::limits::PENALTY_TURNS;
use causeway_fabric::{Handle, ManualFabric, PollConfig};
use causeway_model::PollPolicy;
use causeway_model::{Answer, Command};

/// Attaches a port to a fabric that this thread turns.
fn attach(turned: &mut ManualFabric, handle: &Handle, n: u8) -> NetPort {
    let (give, port) = channel();
    let handle = handle.clone();
    let name = format!("hostile-turns-{}-{n}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let helper = std::thread::spawn(move || {
        let spec = port_spec(&format!("p{n}"), "red", &socket, net(n));
        handle.call(Command::PortAdd(spec)).unwrap();
        give.send(NetPort::attach(&socket, NetOptions::default()).unwrap()).unwrap();
    });
    let since = std::time::Instant::now();
    let port = loop {
        turned.turn().unwrap();
        match port.try_recv() {
            Ok(port) => break port,
            Err(_) => assert!(since.elapsed() < PATIENCE),
        }
    };
    helper.join().unwrap();
    port
}

fn ask<R: Send + 'static>(
    turned: &mut ManualFabric,
    ask: impl FnOnce() -> R + Send + 'static,
) -> R {
    let helper = std::thread::spawn(ask);
    while !helper.is_finished() {
        turned.turn().unwrap();
    }
    helper.join().unwrap()
}

fn forged(port: &mut NetPort, count: usize) {
    let frame = crate::common::plain(9, mac(2), &[7; 46]);
    for _ in 0..count {
        assert!(port.queue(0, &[0; NET_HEADER_BYTES], &frame).unwrap());
    }
    port.flush(0).unwrap();
}

#[test]
fn hostile_floods_of_forged_frames_are_penalised() {
    // Polled, so that each turn serves each queue once.
    let spin_ns = 60_000_000_000;
    let poll_config =
        PollConfig { policy: PollPolicy::VmmDriven, spin_ns, ..PollConfig::default() };
    let mut turned = ManualFabric::new(&[causeway_ethernet::SERVICE], poll_config).unwrap();
    let handle = turned.handle();
    let group = handle.clone();
    ask(&mut turned, move || {
        let name: causeway_model::Name = "red".parse().unwrap();
        group.call(Command::GroupAdd(name.into())).unwrap();
    });
    let mut flooder = attach(&mut turned, &handle, 1);
    let mut honest = attach(&mut turned, &handle, 2);
    let mut room = Vec::new();
    // Used by the daemon: popped and dropped.
    let settle = |turned: &mut ManualFabric, port: &mut NetPort| {
        let mut turns = 0;
        while !port.is_idle(0).unwrap() {
            turned.turn().unwrap();
            turns += 1;
            assert!(turns < 10_000);
        }
        turns
    };
    forged(&mut flooder, 8);
    assert!(settle(&mut turned, &mut flooder) <= 4, "no penalty before the first violation");
    forged(&mut flooder, 8);
    let turns = settle(&mut turned, &mut flooder);
    assert!(turns > usize::from(PENALTY_TURNS) / 2, "only {turns} turns later");
    // With one valid frame among them, the port is served like others.
    let right = crate::common::plain(1, mac(2), &[7; 46]);
    forged(&mut flooder, 4);
    assert!(flooder.queue(0, &[0; NET_HEADER_BYTES], &right).unwrap());
    flooder.flush(0).unwrap();
    settle(&mut turned, &mut flooder);
    assert!(honest.receive(0, &mut room).unwrap().is_some());
    forged(&mut flooder, 4);
    assert!(settle(&mut turned, &mut flooder) <= 4);
    let view = ask(&mut turned, move || handle.call(Command::PortShow("p1".parse().unwrap())));
    let Ok(Answer::Port(view)) = view else { panic!("{view:?}") };
    assert_eq!(view.counters["drop_spoofed_source_total"], 24);
}
