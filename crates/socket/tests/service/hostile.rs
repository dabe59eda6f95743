//! Guests that violate the protocol lose a connection or their port; other guests are not affected.

use crate::common::*;
use causeway_attach::native::VsockOptions;
use causeway_attach::vhost_user::{FrontendReq, message::RingEvent};
use causeway_model::PortState;
use causeway_wire::vsock::{Op, SHUTDOWN_SEND, Type};

#[test]
fn hostile_source_cid_forged() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port("red", 3);
    send(&mut a, &packet((14, 1), (15, 1), Op::Reset, 0), &[]);
    let fault = rig.wait_fault("red", 3);
    assert!(fault.contains("CID 14 is forged") && fault.contains('3'), "{fault}");
    others.go_on();
}

#[test]
fn hostile_packets_with_wrong_lengths() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port("red", 3);
    let mut lie = packet((3, 1), (15, 1), Op::Data, 1000);
    lie.len = u32::MAX;
    send(&mut a, &lie, b"few");
    assert!(rig.wait_fault("red", 3).contains("announces 4294967295 bytes"));
    others.go_on();
}

#[test]
fn hostile_credit_overrun_resets_the_connection() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    let mut request = packet((3, 1), (4, 2), Op::Request, 0);
    request.buf_alloc = 100;
    send(&mut a, &request, &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    let response = packet((4, 2), (3, 1), Op::Response, 0);
    send(&mut b, &response, &[]);
    assert_eq!(next_op(&mut a), Op::Response);
    // B sends one byte more than A has room for.
    send(&mut b, &packet((4, 2), (3, 1), Op::Data, 101), &[7; 101]);
    assert_eq!(next_op(&mut b), Op::Reset);
    assert_eq!(next_op(&mut a), Op::Reset);
    let note = rig.wait_note("red", 4);
    assert!(note.contains("101 bytes sent with credit for 100"), "{note}");
    others.go_on();
}

#[test]
fn hostile_credit_claims_reset_the_connection() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    for (first, second, word) in [(1, None, "claims more"), (0, Some(u32::MAX), "went back")] {
        let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
        open(&mut a, &mut b, 1, 2);
        for claim in [Some(first), second].into_iter().flatten() {
            let mut update = packet((4, 2), (3, 1), Op::CreditUpdate, 0);
            update.fwd_cnt = claim;
            send(&mut b, &update, &[]);
        }
        let note = rig.wait_note("red", 4);
        assert!(note.contains(word), "{note}");
        wait(|| next_op(&mut a) == Op::Reset, || "no reset".into());
        for cid in [3, 4] {
            let name = format!("red-{cid}").parse().unwrap();
            rig.handle.call(causeway_model::Command::PortDel(name)).unwrap();
        }
    }
    others.go_on();
}

#[test]
fn hostile_operations_out_of_phase_reset_the_connection() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    // Data before the response.
    send(&mut a, &packet((3, 1), (4, 2), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    send(&mut a, &packet((3, 1), (4, 2), Op::Data, 4), b"soon");
    assert_eq!(next_op(&mut a), Op::Reset);
    assert_eq!(next_op(&mut b), Op::Reset);
    // The caller answers its own request.
    send(&mut a, &packet((3, 2), (4, 2), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    send(&mut a, &packet((3, 2), (4, 2), Op::Response, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    assert_eq!(next_op(&mut b), Op::Reset);
    // The callee connects from the addresses of a connection that it has not answered.
    send(&mut a, &packet((3, 3), (4, 2), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut b), Op::Request);
    send(&mut b, &packet((4, 2), (3, 3), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    assert_eq!(next_op(&mut b), Op::Reset);
    // Data after a shutdown of that direction.
    open(&mut a, &mut b, 4, 2);
    let mut shutdown = packet((3, 4), (4, 2), Op::Shutdown, 0);
    shutdown.flags = SHUTDOWN_SEND;
    send(&mut a, &shutdown, &[]);
    assert_eq!(next_op(&mut b), Op::Shutdown);
    send(&mut a, &packet((3, 4), (4, 2), Op::Data, 1), b"x");
    assert_eq!(next_op(&mut b), Op::Reset);
    // Another socket type on an open connection.
    assert_eq!(next_op(&mut a), Op::Reset);
    open(&mut a, &mut b, 5, 2);
    let mut other = packet((3, 5), (4, 2), Op::Data, 1);
    other.kind = Type::Seqpacket.raw();
    send(&mut a, &other, b"x");
    assert_eq!(next_op(&mut b), Op::Reset);
    assert_eq!(rig.counter("red", 3, "reset_breach_total"), 4);
    assert_eq!(rig.counter("red", 4, "reset_breach_total"), 1);
    assert_eq!(rig.view("red", 3).state, PortState::Running);
    others.go_on();
}

#[test]
fn hostile_unknown_operations_types_and_peers_are_answered_with_resets() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port("red", 3);
    for raw in [0, 8, 65535] {
        let mut odd = packet((3, 1), (15, 1), Op::Data, 0);
        odd.op = raw;
        send(&mut a, &odd, &[]);
        assert_eq!(next_op(&mut a), Op::Reset);
    }
    let mut odd = packet((3, 1), (15, 1), Op::Request, 0);
    odd.kind = 9;
    send(&mut a, &odd, &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    let mut far = packet((3, 1), (15, 1), Op::Request, 0);
    far.dst_cid = u64::MAX - 1;
    send(&mut a, &far, &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    // A response and data without a request.
    for op in [Op::Response, Op::Data, Op::Shutdown, Op::CreditUpdate] {
        send(&mut a, &packet((3, 1), (15, 1), op, 0), &[]);
        assert_eq!(next_op(&mut a), Op::Reset);
    }
    // A reset without a connection has no answer.
    send(&mut a, &packet((3, 1), (15, 1), Op::Reset, 0), &[]);
    send(&mut a, &packet((3, 1), (99, 1), Op::Request, 0), &[]);
    assert_eq!(next_op(&mut a), Op::Reset);
    others.go_on();
}

#[test]
fn hostile_flood_of_strays_waits_for_its_own_receive_ring() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port_with("red", 3, VsockOptions { ring_size: 16, ..VsockOptions::default() });
    let stray = packet((3, 1), (99, 1), Op::Data, 0);
    // The guest never receives its resets, so its own transmit ring stops at a bound.
    let mut sent = 0_u64;
    let mut quiet = 0;
    while quiet < 100 {
        if a.queue(&stray, &[]).unwrap() {
            a.flush().unwrap();
            sent += 1;
            quiet = 0;
        } else {
            std::thread::sleep(std::time::Duration::from_millis(1));
            quiet += 1;
        }
        assert!(sent < 100_000, "the flood is taken without end");
    }
    others.go_on();
    // Once the guest receives, all resets are there and its ring runs again.
    let mut resets = 0;
    while resets < sent {
        assert_eq!(next_op(&mut a), Op::Reset);
        resets += 1;
    }
}

/// Connections that are opened and broken at once, by a guest that receives none of its resets.
#[test]
fn hostile_flood_of_breaches_waits_for_its_own_receive_ring() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port_with("red", 3, VsockOptions { ring_size: 16, ..VsockOptions::default() });
    let _b = rig.port("red", 4);
    let (mut sent, mut quiet) = (0_u64, 0);
    while quiet < 100 {
        // The second packet of a pair answers the guest's own request, which is a violation.
        let op = if sent.is_multiple_of(2) { Op::Request } else { Op::Response };
        let port = u32::try_from(sent / 2 % 1000).unwrap();
        if a.queue(&packet((3, 1 + port), (4, 1), op, 0), &[]).unwrap() {
            a.flush().unwrap();
            (sent, quiet) = (sent + 1, 0);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(1));
            quiet += 1;
        }
        assert!(sent < 20_000, "the flood is taken without end");
    }
    others.go_on();
}

#[test]
fn hostile_flood_of_connects_stays_in_its_quota() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let (mut a, mut b) = (rig.port("red", 3), rig.port("red", 4));
    let mut room = Vec::new();
    let mut refused = 0;
    for port in 0..17_000 {
        let request = packet((3, port), (4, 2), Op::Request, 0);
        wait(
            || {
                while b.receive(&mut room).unwrap().is_some() {}
                while let Some(header) = a.receive(&mut room).unwrap() {
                    assert_eq!(header.operation(), Some(Op::Reset));
                    refused += 1;
                }
                b.flush().unwrap();
                a.queue(&request, &[]).unwrap()
            },
            || "A's ring stays full".into(),
        );
        a.flush().unwrap();
    }
    let limit = causeway_socket::limits::CONNECTIONS_PER_PORT_MAX as u64;
    wait(|| rig.counter("red", 3, "reject_limit_total") == 17_000 - limit, || "quota".into());
    assert_eq!(rig.counter("red", 3, "connections"), limit);
    others.go_on();
    drop(a);
    rig.wait_for("red", 4, |v| v.counters["connections"] == 0);
    let _ = refused;
}

#[test]
fn hostile_reset_storm_while_data_waits_leaks_nothing() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port("red", 3);
    let mut b = rig.port_with("red", 4, VsockOptions { ring_size: 16, ..VsockOptions::default() });
    for round in 0..200_u32 {
        open(&mut a, &mut b, round, 2);
        for _ in 0..3 {
            send(&mut a, &packet((3, round), (4, 2), Op::Data, 50_000), &pattern(round, 50_000));
        }
        send(&mut a, &packet((3, round), (4, 2), Op::Reset, 0), &[]);
        while next_op(&mut b) != Op::Reset {}
    }
    wait(|| a.is_idle().unwrap(), || "descriptors are missing".into());
    assert_eq!(rig.counter("red", 3, "connections"), 0);
    assert_eq!(rig.counter("red", 4, "connections"), 0);
    others.go_on();
}

#[test]
fn hostile_queue_without_a_doorbell_is_named() {
    let rig = Rig::new();
    let mut others = Bystanders::new(&rig);
    let mut a = rig.port("red", 3);
    let polled = RingEvent::emit(1, false);
    // The backend hangs up; an error before that does not matter.
    let _ = a.frontend().client().tell(FrontendReq::SET_VRING_KICK, &polled, &[]);
    let fault = rig.wait_fault("red", 3);
    assert!(fault.contains("queue 1") && fault.contains("doorbell"), "{fault}");
    others.go_on();
}
