//! What others make us keep is bounded, whatever they send and however little they take.

use super::*;
use crate::limits::{PARTS_MAX, SERVED_ALL_MAX, SERVED_OF_ONE_MIN};

/// A message without a tag that tells of a long one.
fn notice(name: u64, len: u64) -> Vec<u8> {
    let mut head = 0_u64.to_le_bytes().to_vec();
    head.extend_from_slice(&(send::NOTICE | name << 32 | len).to_le_bytes());
    head
}

fn receives_many(side: &mut Side, context: usize, memory: &mut [u8]) {
    let report = report(FI_MSG | FI_RECV, 0, context);
    let wanted = Wanted { from: FI_ADDR_UNSPEC, ignore: 0, report };
    let place = lent(memory);
    side.with(|rdm, env| rdm.receive_many(env, wanted, place)).unwrap();
}

#[test]
fn notices_of_bytes_that_never_come_take_a_bounded_part() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (Side::new(&host), Side::new(&host));
    let mut foe = Foe::new(&host, &mut side);
    let mut many = vec![1_u8; 1000];
    receives_many(&mut side, 3, &mut many);
    // Of no bytes: the buffer is never full of them.
    for name in 0..4 * PARTS_MAX as u64 {
        foe.says(PLAIN, notice(name, 0));
        if name % 16 == 0 {
            side.go_on();
            foe.go_on();
        }
    }
    until(|| {
        side.go_on();
        foe.go_on();
        side.operations() == PARTS_MAX + 1
    });
    for _ in 0..200 {
        side.go_on();
        foe.go_on();
    }
    assert_eq!(side.operations(), PARTS_MAX + 1, "they, and the buffer");
    fine(&mut friend, &mut side);
    // The first of the bytes come: as many more notices are taken.
    for name in 0..10 {
        foe.says(BODY | name, Vec::new());
    }
    until(|| {
        side.go_on();
        foe.go_on();
        side.done.len() == 10 && side.operations() == PARTS_MAX + 1
    });
    assert!(side.done.drain(..).all(|done| done.report.context == 3 && done.fault.is_none()));
    // It is gone, and with it what it told of; the buffer is for others.
    foe.closed();
    until(|| {
        side.go_on();
        side.operations() == 1
    });
    side.done.clear();
    assert_eq!(side.rdm.cancel(3), Ok(()));
    assert_eq!(side.operations(), 0);
    fine(&mut friend, &mut side);
}

#[test]
fn who_is_held_back_waits_at_its_own_place_and_goes_on_where_it_was() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (Side::new(&host), Side::new(&host));
    let mut memory = vec![0_u8; 16];
    let mut many = vec![1_u8; 1 << 16];
    side.registers(7, &mut memory, FI_REMOTE_WRITE);
    receives_many(&mut side, 3, &mut many);
    let mut foe = Foe::new(&host, &mut side);
    side.rdm.held = true;
    for turn in 0..20_u8 {
        let mut bytes = question(Kind::Write, turn.into(), 1).emit(1);
        bytes.push(turn);
        foe.says(CONTROL, bytes);
        foe.says(PLAIN, [vec![0; 16], vec![turn; 8]].concat());
    }
    let mut into = [0_u8; 8];
    // One message had its receive already; the others wait.
    let held = |side: &Side| {
        let taken = side.done.iter().filter(|done| done.report.context == 3).count();
        (taken, side.rdm.endpoint.library.unexpected())
    };
    until(|| {
        side.go_on();
        foe.go_on();
        held(&side) == (1, 39)
    });
    for _ in 0..100 {
        side.go_on();
        foe.go_on();
    }
    assert_eq!(held(&side), (1, 39), "however often one looks");
    assert_eq!(memory[0], 0);
    // What the application asked for comes all the same.
    side.receive(FI_ADDR_UNSPEC, 4, 5, &mut into);
    foe.says(4, [vec![0; 16], vec![9; 8]].concat());
    until(|| {
        side.go_on();
        foe.go_on();
        into == [9; 8]
    });
    fine(&mut friend, &mut side);
    side.rdm.held = false;
    side.done.clear();
    until(|| {
        side.go_on();
        foe.go_on();
        memory[0] == 19 && side.done.iter().filter(|done| done.report.context == 3).count() == 19
    });
    for (turn, bytes) in (0_u8..20).zip(many.chunks(16)) {
        assert_eq!(bytes[..8], [turn; 8]);
    }
}

#[test]
fn many_who_ask_for_much_and_take_nothing_leave_room_for_others() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (Side::new(&host), Side::new(&host));
    let mut memory = vec![3_u8; 1 << 20];
    side.registers(7, &mut memory, FI_REMOTE_READ | FI_REMOTE_WRITE);
    let count = SERVED_ALL_MAX / SERVED_MAX as usize + 4;
    let mut foes: Vec<Foe> = (0..count).map(|_| Foe::new(&host, &mut side)).collect();
    let mut honest = Foe::new(&host, &mut side);
    // Each asks for no more than it may: to read much, or to write what it never sends.
    for turn in 0..SERVED_MAX - 1 {
        let kind = if turn % 2 == 0 { Kind::Read } else { Kind::WriteLong };
        for foe in &mut foes {
            foe.says(CONTROL, question(kind, turn, 1 << 20).emit(0));
            foe.endpoint.library.progress(&mut foe.endpoint.way);
        }
        side.go_on();
    }
    let turn = |side: &mut Side, foes: &mut [Foe]| {
        side.go_on();
        for foe in foes {
            foe.endpoint.step();
        }
    };
    for _ in 0..1000 {
        turn(&mut side, &mut foes);
    }
    let (all, least) = (side.rdm.served_all, count * SERVED_OF_ONE_MIN as usize);
    assert!(all + SERVED_MAX as usize > SERVED_ALL_MAX, "{all}");
    assert!(all <= SERVED_ALL_MAX + least && side.operations() <= all, "{all}");
    fine(&mut friend, &mut side);
    // As many at a time as one asks for who keeps to the rules.
    for turn in 0..CALLS_OF_ONE_MAX {
        let mut bytes = question(Kind::Write, turn, 4).emit(4);
        bytes.extend_from_slice(&turn.to_le_bytes());
        honest.says(CONTROL, bytes);
    }
    until(|| {
        side.go_on();
        honest.go_on();
        memory[..4] == (CALLS_OF_ONE_MAX - 1).to_le_bytes()
    });
    foes.into_iter().chain([honest]).for_each(Foe::closed);
    until(|| {
        side.go_on();
        side.operations() == 0
    });
    assert_eq!(side.rdm.served_all, 0);
    fine(&mut friend, &mut side);
}
