//! Limits on the resources that peers occupy by any sends and without receiving.

use super::*;
use crate::limits::{MULTI_BODIES_MAX, SERVED_ALL_MAX, SERVED_PER_PEER_MIN};

/// Returns the notice of a long message without a tag.
fn notice(name: u64, len: u64) -> Vec<u8> {
    let mut head = 0_u64.to_le_bytes().to_vec();
    head.extend_from_slice(&(NOTICE | name << 32 | len).to_le_bytes());
    head
}

fn receive_many(side: &mut TestEndpoint, context: usize, memory: &mut [u8]) {
    let report = report(FI_MSG | FI_RECV, 0, context);
    let wanted = ReceiveSpec { from: FI_ADDR_UNSPEC, ignore: 0, report };
    let payload = payload_of(memory);
    side.with(|rdm, env| rdm.receive_many(env, wanted, payload)).unwrap();
}

#[test]
fn notices_of_bytes_that_never_come_take_a_bounded_part() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    let mut many = vec![1_u8; 1000];
    receive_many(&mut side, 3, &mut many);
    // Notices of empty messages never fill the buffer.
    for name in 0..4 * MULTI_BODIES_MAX as u64 {
        hostile.send(PLAIN, notice(name, 0));
        if name % 16 == 0 {
            side.poll();
            hostile.poll();
        }
    }
    until(|| {
        side.poll();
        hostile.poll();
        side.operations() == MULTI_BODIES_MAX + 1
    });
    for _ in 0..200 {
        side.poll();
        hostile.poll();
    }
    assert_eq!(side.operations(), MULTI_BODIES_MAX + 1, "they, and the buffer");
    assert_exchange(&mut friend, &mut side);
    // Some of the messages arrive: as many further notices are accepted.
    for name in 0..10 {
        hostile.send(BODY | name, Vec::new());
    }
    until(|| {
        side.poll();
        hostile.poll();
        side.done.len() == 10 && side.operations() == MULTI_BODIES_MAX + 1
    });
    assert!(side.done.drain(..).all(|done| done.report.context == 3 && done.failure.is_none()));
    // The peer closes and its messages fail; the buffer remains for others.
    hostile.close();
    until(|| {
        side.poll();
        side.operations() == 1
    });
    side.done.clear();
    assert_eq!(side.rdm.cancel(3), Ok(()));
    assert_eq!(side.operations(), 0);
    assert_exchange(&mut friend, &mut side);
}

#[test]
fn hostile_peer_is_throttled_and_resumes_in_order() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let mut memory = vec![0_u8; 16];
    let mut many = vec![1_u8; 1 << 16];
    side.register(7, &mut memory, FI_REMOTE_WRITE);
    receive_many(&mut side, 3, &mut many);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    side.rdm.is_cq_full = true;
    for turn in 0..20_u8 {
        let mut bytes = control(ControlKind::Write, turn.into(), 1).emit(1);
        bytes.push(turn);
        hostile.send(CONTROL, bytes);
        hostile.send(PLAIN, [vec![0; 16], vec![turn; 8]].concat());
    }
    let mut into = [0_u8; 8];
    // A message had its receive already; the others wait.
    let held = |side: &TestEndpoint| {
        let taken = side.done.iter().filter(|done| done.report.context == 3).count();
        (taken, side.rdm.endpoint.library.unexpected())
    };
    until(|| {
        side.poll();
        hostile.poll();
        held(&side) == (1, 39)
    });
    for _ in 0..100 {
        side.poll();
        hostile.poll();
    }
    assert_eq!(held(&side), (1, 39), "after any number of polls");
    assert_eq!(memory[0], 0);
    // A receive of the application is served nevertheless.
    side.receive(FI_ADDR_UNSPEC, 4, 5, &mut into);
    hostile.send(4, [vec![0; 16], vec![9; 8]].concat());
    until(|| {
        side.poll();
        hostile.poll();
        into == [9; 8]
    });
    assert_exchange(&mut friend, &mut side);
    side.rdm.is_cq_full = false;
    side.done.clear();
    until(|| {
        side.poll();
        hostile.poll();
        memory[0] == 19 && side.done.iter().filter(|done| done.report.context == 3).count() == 19
    });
    for (turn, bytes) in (0_u8..20).zip(many.chunks(16)) {
        assert_eq!(bytes[..8], [turn; 8]);
    }
}

#[test]
fn hostile_initiators_leave_room_for_others() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let mut memory = vec![3_u8; 1 << 20];
    side.register(7, &mut memory, FI_REMOTE_READ | FI_REMOTE_WRITE);
    let count = SERVED_ALL_MAX / SERVED_PER_PEER_MAX as usize + 4;
    let mut hostile_address: Vec<HostileEndpoint> =
        (0..count).map(|_| HostileEndpoint::new(&host, &mut side)).collect();
    let mut honest = HostileEndpoint::new(&host, &mut side);
    // Each peer stays within its own limit, with large reads, or with writes that it never sends.
    for turn in 0..SERVED_PER_PEER_MAX - 1 {
        let kind = if turn % 2 == 0 { ControlKind::Read } else { ControlKind::WriteLong };
        for hostile in &mut hostile_address {
            hostile.send(CONTROL, control(kind, turn, 1 << 20).emit(0));
            hostile.endpoint.library.progress(&mut hostile.endpoint.paths);
        }
        side.poll();
    }
    let turn = |side: &mut TestEndpoint, hostile_address: &mut [HostileEndpoint]| {
        side.poll();
        for hostile in hostile_address {
            hostile.endpoint.step();
        }
    };
    for _ in 0..1000 {
        turn(&mut side, &mut hostile_address);
    }
    let (all, least) = (side.rdm.served.all(), count * SERVED_PER_PEER_MIN as usize);
    assert!(all + SERVED_PER_PEER_MAX as usize > SERVED_ALL_MAX, "{all}");
    assert!(all <= SERVED_ALL_MAX + least && side.operations() <= all, "{all}");
    assert_exchange(&mut friend, &mut side);
    // As many requests at a time as a correct initiator has.
    for turn in 0..CALLS_PER_TARGET_MAX {
        let mut bytes = control(ControlKind::Write, turn, 4).emit(4);
        bytes.extend_from_slice(&turn.to_le_bytes());
        honest.send(CONTROL, bytes);
    }
    until(|| {
        side.poll();
        honest.poll();
        memory[..4] == (CALLS_PER_TARGET_MAX - 1).to_le_bytes()
    });
    hostile_address.into_iter().chain([honest]).for_each(HostileEndpoint::close);
    until(|| {
        side.poll();
        side.operations() == 0
    });
    assert!(side.rdm.served.is_empty());
    assert_exchange(&mut friend, &mut side);
}
