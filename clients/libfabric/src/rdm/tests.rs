//! Endpoints of one process, over a board of its own; and one that knows the key and keeps to no
//! rule.

#[path = "../../tests/provider/common.rs"]
#[allow(dead_code, reason = "the tests of the whole use the rest")]
mod common;
mod greedy;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use causeway_endpoint::board::Conversation;
use causeway_message::library::RequestId;
use causeway_message::status::Status;

use super::control::{Kind, Question};
use super::operation::Task;
use super::*;
use crate::abi::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_ECONNREFUSED, FI_EINVAL, FI_EIO, FI_EKEYREJECTED, FI_ETRUNC,
    FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_TAGGED,
};
use crate::limits::{CALLS_OF_ONE_MAX, SERVED_MAX};
use common::Host;

fn open<B: causeway_message::library::Buffer>(host: &Host) -> Endpoint<B> {
    let stream = UnixStream::connect(host.dir.0.join("a")).unwrap();
    Endpoint::open_over(Conversation::over(stream, 0).unwrap(), ENDPOINT_ANY, Rdm::OPENING).unwrap()
}

/// An endpoint of ours with what a domain has.
struct Side {
    rdm: Rdm,
    book: Book,
    regions: Regions,
    done: Vec<Done>,
}

impl Side {
    fn new(host: &Host) -> Self {
        let rdm = Rdm::new(open(host));
        Self { rdm, book: Book::default(), regions: Regions::default(), done: Vec::new() }
    }

    fn with<R>(&mut self, run: impl FnOnce(&mut Rdm, Env<'_>) -> R) -> R {
        run(&mut self.rdm, Env { book: &self.book, regions: &self.regions })
    }

    fn go_on(&mut self) {
        // As a queue is read.
        match self.with(|rdm, env| rdm.receive_straight(env)) {
            Ok((done, _)) => {
                assert!(done.fault.is_none(), "what failed is told as such: {done:?}");
                self.done.push(done);
            }
            Err(Missed::Nothing) => {}
            Err(_) => drop(self.with(|rdm, env| rdm.progress(env))),
        }
        let told = self.rdm.done.drain(..).filter(|done| !done.report.quiet);
        self.done.extend(told);
    }

    fn knows(&mut self, name: Name) -> u64 {
        self.book.insert(name).unwrap()
    }

    fn receive(&mut self, from: u64, tag: u64, context: usize, into: &mut [u8]) {
        let place = lent(into);
        let wanted = Wanted { from, ignore: 0, report: report(FI_TAGGED | FI_RECV, tag, context) };
        self.with(|rdm, env| rdm.receive(env, wanted, place)).unwrap();
    }

    fn send(&mut self, to: u64, tag: u64, bytes: &[u8]) -> Result<(), Errno> {
        // SAFETY: what is sent is only read, and each test keeps it until the engine has it.
        let place = Place::One(unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) });
        let report = report(FI_TAGGED | FI_SEND, tag, 1);
        let message = Message { to, report, place, data: None, inject: true, delivered: false };
        self.with(|rdm, env| rdm.send(env, message))
    }

    /// Operations of all kinds but those that are free.
    fn operations(&self) -> usize {
        self.rdm.operations()
    }

    fn registers(&mut self, key: u64, memory: &mut [u8], access: u64) {
        let region = Region::new(Box::new([span(memory)]), access, 0);
        self.regions.insert(key, region).unwrap();
    }
}

/// A piece of a test's memory, which the test keeps longer than the operations on it, and looks at
/// between calls.
fn span(memory: &mut [u8]) -> Span {
    // SAFETY: as above.
    unsafe { Span::new(memory.as_mut_ptr(), memory.len()) }
}

fn lent(memory: &mut [u8]) -> Place {
    Place::One(span(memory))
}

fn report(flags: u64, tag: u64, context: usize) -> Report {
    Report { context, flags, tag, ..Report::default() }
}

/// Who keeps to no rule.
struct Foe {
    endpoint: Endpoint<Place>,
    to: Partner,
}

impl Foe {
    fn new(host: &Host, of: &mut Side) -> Self {
        let mut endpoint: Endpoint<Place> = open(host);
        let address = of.rdm.name().source.address;
        let way = &mut endpoint.way;
        let connect = endpoint.library.iconnect(way, address, KEY, 0, 0, None).unwrap();
        let mut to = None;
        until(|| {
            of.go_on();
            endpoint.step();
            endpoint.look();
            if let Ok(Some(ended)) = endpoint.library.test(connect) {
                assert_eq!(ended.status, Status::Success);
                to = ended.partner;
            }
            to.is_some()
        });
        Self { endpoint, to: to.unwrap() }
    }

    fn name(&self) -> Name {
        Name { source: self.endpoint.library.source_of(Partner::SELF).unwrap(), service: 0 }
    }

    fn says(&mut self, info: u64, bytes: Vec<u8>) -> RequestId {
        let Endpoint { library, way, .. } = &mut self.endpoint;
        library.isend(way, self.to, info, 0, Place::Owned(bytes.into())).unwrap()
    }

    /// Wants a message of at most so many bytes.
    fn receives(&mut self, info: u64, into: &mut [u8]) -> RequestId {
        let Endpoint { library, way, .. } = &mut self.endpoint;
        let place = lent(into);
        library.irecv(way, info, u64::MAX, 0, place).unwrap()
    }

    /// Waits for it.
    fn waits(&mut self, of: &mut Side, request: RequestId) {
        until(|| {
            of.go_on();
            self.endpoint.step();
            self.endpoint.look();
            self.endpoint.library.test(request).is_ok_and(|ended| ended.is_some())
        });
    }

    /// Lets it go on, without it taking any more than is told to it.
    fn go_on(&mut self) {
        self.endpoint.step();
        while let Ok(Some(_)) = self.endpoint.library.test_any(0, 0) {}
    }

    fn closed(mut self) {
        self.endpoint.way.end();
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(10), "it does not come to that");
        std::thread::yield_now();
    }
}

fn question(kind: Kind, name: u32, len: u64) -> Question {
    Question { kind, datatype: 0, operation: 0, name, key: 7, address: 0, len, data: None }
}

/// Numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll(256) as u8).collect()
    }
}

/// Two of ours still understand each other.
fn fine(one: &mut Side, other: &mut Side) {
    let to = one.knows(other.rdm.name());
    let mut into = vec![0; 20_000];
    other.receive(FI_ADDR_UNSPEC, 0xf1e, 99, &mut into);
    let bytes = Dice(5).bytes(20_000);
    one.send(to, 0xf1e, &bytes).unwrap();
    until(|| {
        one.go_on();
        other.go_on();
        other.done.iter().any(|done| done.report.context == 99 && done.fault.is_none())
    });
    assert!(into == bytes);
    other.done.clear();
}

#[test]
fn questions_that_are_none_are_thrown_away_and_wrong_ones_change_nothing() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (Side::new(&host), Side::new(&host));
    let mut memory = vec![3_u8; 300];
    side.registers(7, &mut memory[100..200], FI_REMOTE_READ | FI_REMOTE_WRITE);
    let mut foe = Foe::new(&host, &mut side);
    let mut dice = Dice(1);
    for turn in 0..4000_u64 {
        let mut bytes = dice.bytes(dice.0 as usize % 90);
        if turn % 3 > 0 && bytes.len() > 40 {
            // Nearly right: a kind that there is, the right key, addresses that are nearly within.
            bytes[0] = 1 + (turn % 6) as u8;
            bytes[3] = 0;
            bytes[8..16].copy_from_slice(&7_u64.to_le_bytes());
            let address = [101, 120, u64::MAX - 3, 1 << 40][turn as usize % 4];
            bytes[16..24].copy_from_slice(&address.to_le_bytes());
            bytes[24..32]
                .copy_from_slice(&[1, 30, u64::MAX, 1 << 32][dice.roll(4) as usize].to_le_bytes());
        }
        foe.says(CONTROL | dice.roll(2), bytes);
        side.go_on();
        foe.go_on();
    }
    assert!(memory.iter().all(|byte| *byte == 3), "nothing was within");
    assert!(side.operations() <= SERVED_MAX as usize + 1);
    fine(&mut friend, &mut side);
    // And what is within is done.
    let mut bytes = question(Kind::Write, 1, 4).emit(4);
    bytes.extend_from_slice(&[9; 4]);
    foe.says(CONTROL, bytes);
    until(|| {
        side.go_on();
        foe.go_on();
        memory[100..104] == [9; 4]
    });
    assert!(memory[..100].iter().chain(&memory[104..]).all(|byte| *byte == 3));
}

#[test]
fn who_asks_for_much_and_takes_nothing_has_a_bounded_part() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (Side::new(&host), Side::new(&host));
    let mut memory = vec![3_u8; 1 << 20];
    side.registers(7, &mut memory, FI_REMOTE_READ | FI_REMOTE_WRITE);
    let mut foe = Foe::new(&host, &mut side);
    for turn in 0..3 * SERVED_MAX {
        let kind = if turn % 2 == 0 { Kind::Read } else { Kind::WriteLong };
        foe.says(CONTROL, question(kind, turn, 1 << 20).emit(0));
        if turn % 16 == 0 {
            side.go_on();
            foe.endpoint.library.progress(&mut foe.endpoint.way);
        }
    }
    for _ in 0..2000 {
        side.go_on();
        foe.go_on();
    }
    let has = side.operations();
    assert!(has > 100 && has <= SERVED_MAX as usize, "{has}");
    fine(&mut friend, &mut side);
    // Its memory is taken back while all that is under way.
    side.rdm.release(7);
    side.regions.remove(7);
    drop(memory);
    foe.closed();
    until(|| {
        side.go_on();
        side.operations() == 0
    });
    assert!(side.rdm.served.iter().all(|going_on| *going_on == 0));
    fine(&mut friend, &mut side);
}

#[test]
fn hostile_replies_before_the_bytes_were_taken_leave_nothing_of_what_lies_there_later() {
    let host = Host::new(&["a"]);
    let mut side = Side::new(&host);
    let mut foe = Foe::new(&host, &mut side);
    let foes = side.knows(foe.name());
    for (context, code) in [(1, 0), (2, 22)] {
        let mut asked = [0; 100];
        let question = foe.receives(CONTROL, &mut asked);
        let mut bytes = vec![7_u8; 1 << 20];
        let place = lent(&mut bytes);
        let remote = Remote { to: foes, key: 7, address: 0 };
        let report = report(0, 0, context);
        side.with(|rdm, env| rdm.write(env, remote, report, place, None)).unwrap();
        foe.waits(&mut side, question);
        let (asked, _) = Question::parse(&asked).expect("a question");
        let mut head = 0_u64.to_le_bytes().to_vec();
        head[..4].copy_from_slice(&u32::to_le_bytes(code));
        head.resize(16, 0);
        foe.says(REPLY | u64::from(asked.name), head);
        until(|| {
            side.go_on();
            foe.endpoint.step();
            !side.done.is_empty()
        });
        assert_eq!(side.done.remove(0).fault.is_none(), code == 0);
        // It is the application's again, which writes secrets there.
        bytes.fill(9);
        let mut taken = vec![0; 1 << 20];
        let body = foe.receives(BODY | u64::from(asked.name), &mut taken);
        foe.waits(&mut side, body);
        assert!(taken.iter().all(|byte| [0, 7].contains(byte)), "{:?}", taken.first());
    }
    assert_eq!(side.operations(), 0);
}

#[test]
fn heads_that_lie_and_bytes_that_never_come_end_a_receive_with_an_error() {
    let host = Host::new(&["a"]);
    let mut side = Side::new(&host);
    let mut foe = Foe::new(&host, &mut side);
    let mut into = vec![1_u8; 5000];
    let next = |side: &mut Side, foe: &mut Foe| {
        until(|| {
            side.go_on();
            foe.go_on();
            !side.done.is_empty()
        });
        side.done.remove(0)
    };
    // No head.
    for len in [0, 1, 15] {
        side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
        foe.says(1, vec![0xff; len]);
        let done = next(&mut side, &mut foe);
        assert_eq!(done.fault.unwrap().err, FI_EIO, "{len} {done:?}");
    }
    // More or less comes than was told.
    let notice = |name: u64, len: u64| {
        let mut head = 0_u64.to_le_bytes().to_vec();
        head.extend_from_slice(&(send::NOTICE | name << 32 | len).to_le_bytes());
        head
    };
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    foe.says(1, notice(5, 0xffff_ffff));
    foe.says(BODY | 5, vec![8; 1000]);
    let done = next(&mut side, &mut foe);
    assert!(done.fault.is_none() && done.len == 1000 && into[..1000] == [8; 1000], "{done:?}");
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    foe.says(1, notice(6, 10));
    foe.says(BODY | 6, vec![9; 100_000]);
    let done = next(&mut side, &mut foe);
    assert!(done.len <= 5000 && done.fault.is_none_or(|fault| fault.err == FI_ETRUNC), "{done:?}");
    // Nothing comes; in a buffer for many messages neither. And whom alone one is from is gone.
    let foes = side.knows(foe.name());
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    foe.says(1, notice(7, 100));
    let mut many = vec![1_u8; 1000];
    let wanted =
        |from, context| Wanted { from, ignore: 0, report: report(FI_MSG | FI_RECV, 0, context) };
    let place = lent(&mut many);
    side.with(|rdm, env| rdm.receive_many(env, wanted(foes, 3), place)).unwrap();
    foe.says(PLAIN, notice(8, 900));
    foe.says(PLAIN, notice(8, 90));
    for _ in 0..200 {
        side.go_on();
        foe.go_on();
    }
    assert!(side.done.is_empty(), "{:?}", side.done);
    foe.closed();
    until(|| {
        side.go_on();
        side.operations() == 0
    });
    let errors = |context| {
        side.done
            .iter()
            .filter(|done| done.report.context == context && done.fault.is_some())
            .count()
    };
    assert_eq!(errors(2), 1, "{:?}", side.done);
    assert!((1..=2).contains(&errors(3)), "{:?}", side.done);
    let released =
        |done: &&Done| done.report.context == 3 && done.report.flags & FI_MULTI_RECV != 0;
    assert!(side.done.iter().filter(released).count() <= 1, "{:?}", side.done);
}

#[test]
fn nonsense_of_all_kinds_leaves_an_endpoint_as_it_was() {
    let host = Host::new(&["a"]);
    let mut friend = Side::new(&host);
    for seed in 0..40 {
        let mut side = Side::new(&host);
        let mut foe = Foe::new(&host, &mut side);
        let foes = side.knows(foe.name());
        let mut dice = Dice(seed);
        let mut memory = vec![5_u8; 70_000];
        let mut into = vec![0_u8; 70_000];
        side.registers(7, &mut memory[1000..60_000], FI_REMOTE_READ | FI_REMOTE_WRITE);
        for context in 10..300 {
            let from = if dice.roll(2) == 0 { foes } else { FI_ADDR_UNSPEC };
            let len = dice.roll(20_000) as usize;
            match dice.roll(8) {
                0 | 1 => side.receive(from, dice.roll(3), context, &mut into[..len]),
                2 => {
                    let place = lent(&mut into[..len]);
                    let report = report(FI_MSG | FI_RECV, 0, context);
                    let wanted = Wanted { from, ignore: 0, report };
                    let _ = side.with(|rdm, env| rdm.receive_many(env, wanted, place));
                }
                3 => {
                    let report = report(FI_TAGGED | FI_RECV, dice.roll(3), context);
                    let wanted = Wanted { from, ignore: dice.roll(2), report };
                    let how = (dice.roll(2) == 0, dice.roll(4) == 0);
                    side.with(|rdm, env| rdm.peek(env, wanted, how)).unwrap();
                    let place = lent(&mut into[..len]);
                    let _ = side.with(|rdm, env| rdm.receive_claimed(env, report, place));
                }
                4 => drop(side.rdm.cancel(10 + dice.roll(300) as usize)),
                5 => drop(side.send(foes, 1, &into[..len.min(4096)])),
                6 => {
                    let remote = Remote { to: foes, key: 1, address: 0 };
                    let report = report(0, 0, context);
                    let place = lent(&mut into[..len]);
                    side.with(|rdm, env| rdm.write(env, remote, report, place, Some(1))).unwrap();
                }
                _ => {
                    let remote = Remote { to: foes, key: 1, address: 0 };
                    let report = report(0, 0, context);
                    let place = lent(&mut into[..len]);
                    side.with(|rdm, env| rdm.read(env, remote, report, place)).unwrap();
                }
            }
            for _ in 0..dice.roll(6) {
                let len = [0, 15, 16, 17, 40, 60, 5000, 40_000][dice.roll(8) as usize];
                let mut bytes = dice.bytes(len.min(64));
                bytes.resize(len, 0);
                // What it can guess: names of operations, kinds, the key.
                let name = dice.roll(20) | dice.roll(4) << 20;
                let info = match dice.roll(5) {
                    0 => dice.roll(3),
                    1 => PLAIN,
                    2 => CONTROL,
                    3 => BODY | name,
                    _ => REPLY | name,
                };
                if len >= 40 && info == CONTROL {
                    let mut asked = question(Kind::Read, name as u32, dice.roll(80_000));
                    asked.address = dice.roll(70_000);
                    bytes[..40].copy_from_slice(&asked.emit(0));
                    bytes[0] = 1 + dice.roll(6) as u8;
                    bytes[1..3].copy_from_slice(&[dice.roll(11) as u8, dice.roll(20) as u8]);
                } else if len >= 16 && dice.roll(2) == 0 {
                    let word = send::NOTICE | name << 32 | dice.roll(50_000);
                    bytes[8..16].copy_from_slice(&word.to_le_bytes());
                }
                foe.says(info, bytes);
            }
            if dice.roll(3) == 0 {
                side.go_on();
                foe.go_on();
            }
        }
        for _ in 0..50 {
            side.go_on();
            foe.go_on();
        }
        side.rdm.release(7);
        foe.closed();
        // What waits for it fails; what waits for anybody is taken back.
        until(|| {
            side.go_on();
            for context in 10..300 {
                let _ = side.rdm.cancel(context);
            }
            side.operations() == 0
        });
        assert_eq!((side.rdm.calls, side.rdm.sending), (0, 0));
        assert!(memory[..1000].iter().chain(&memory[60_000..]).all(|byte| *byte == 5), "{seed}");
        side.done.clear();
        fine(&mut friend, &mut side);
    }
}

#[test]
fn calls_are_bounded_and_fail_when_nobody_is_there() {
    let host = Host::new(&["a"]);
    let (mut side, mut gone) = (Side::new(&host), Side::new(&host));
    let to = side.knows(gone.rdm.name());
    gone.rdm.finish();
    let mut begun = 0;
    let errno = loop {
        let remote = Remote { to, key: 1, address: 0 };
        let report = report(0, 0, 5);
        let place = Place::NOWHERE;
        match side.with(|rdm, env| rdm.read(env, remote, report, place)) {
            Ok(()) => begun += 1,
            Err(Errno(err)) => break err,
        }
    };
    assert_eq!((begun, errno), (CALLS_OF_ONE_MAX, FI_EAGAIN));
    until(|| {
        side.go_on();
        side.operations() == 0
    });
    let refused = side.done.iter().filter(|done| done.fault.unwrap().err == FI_ECONNREFUSED);
    assert_eq!(refused.count(), CALLS_OF_ONE_MAX as usize);
    assert_eq!(side.rdm.calls, 0);
}

#[test]
fn a_name_is_of_one_operation_and_not_of_the_next_in_its_place() {
    let mut operations = Operations::new();
    let at = operations.add(Task::Quiet).unwrap();
    let name = operations.name(at);
    assert_eq!(operations.named(name), Some(at));
    operations.end(at);
    assert_eq!(operations.add(Task::Quiet), Some(at));
    assert_eq!(operations.named(name), None);
    assert!(operations.end(at).is_some() && operations.end(at).is_none());
}

#[test]
fn regions_are_reached_within_their_bounds_across_their_pieces() {
    let (mut one, mut two) = ([1_u8; 10], [2_u8; 5]);
    let pieces = Box::new([span(&mut one), Span::EMPTY, span(&mut two)]);
    let mut regions = Regions::default();
    let access = FI_REMOTE_READ;
    regions.insert(1, Region::new(pieces, access, 100)).unwrap();
    let find = |address, len| {
        // SAFETY: each place is dropped before the next is found.
        unsafe { regions.find(1, address, len, access) }.map(|place| place.to_vec())
    };
    assert_eq!(find(100, 15).unwrap(), [vec![1; 10], vec![2; 5]].concat());
    assert_eq!(find(108, 4).unwrap(), [1, 1, 2, 2]);
    assert!(find(115, 0).unwrap().is_empty());
    for (address, len) in [(99, 1), (100, 16), (115, 1), (116, 0), (u64::MAX, 2), (0, u64::MAX)] {
        assert_eq!(find(address, len).unwrap_err(), Errno(FI_EINVAL), "{address} {len}");
    }
    // SAFETY: none is found.
    let other = |key, access| unsafe { regions.find(key, 100, 1, access) }.unwrap_err();
    assert_eq!(other(2, access), Errno(FI_EKEYREJECTED));
    assert_eq!(other(1, FI_REMOTE_WRITE), Errno(FI_EKEYREJECTED));
}

#[test]
fn memory_that_is_gone_reads_as_zeros_and_takes_nothing() {
    let mut bytes = vec![7_u8; 10_000];
    let mut parcel = Parcel::bare(lent(&mut bytes));
    parcel.lose();
    let len = causeway_message::library::Buffer::len(&parcel);
    let mut seen = Vec::new();
    causeway_message::library::pieces(&parcel, 0, len, |piece| seen.extend_from_slice(piece));
    assert_eq!(seen, vec![0; 10_000]);
    causeway_message::library::fill(&mut parcel, 0, len, |_, into| into.len());
    assert!(bytes.iter().all(|byte| *byte == 7));
}
