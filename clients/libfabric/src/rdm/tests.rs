//! Endpoints of this process on a NIC of a daemon of its own, and a hostile endpoint that knows the
//! key.

#[path = "../../tests/provider/common.rs"]
#[allow(dead_code, reason = "the tests of the whole use the rest")]
mod common;
mod limits;

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use causeway_endpoint::nic::Conversation;
use causeway_message::library::RequestId;
use causeway_message::status::Status;

use super::control::{ControlKind, ControlRequest};
use super::operation::Task;
use super::wire::{BODY, CONTROL, NOTICE, PLAIN, REPLY};
use super::*;
use crate::abi::{
    FI_ADDR_UNSPEC, FI_EAGAIN, FI_ECONNREFUSED, FI_EINVAL, FI_EIO, FI_EKEYREJECTED, FI_ETRUNC,
    FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_TAGGED,
};
use crate::errno::Errno;
use crate::limits::{CALLS_PER_TARGET_MAX, SERVED_PER_PEER_MAX};
use common::Host;

fn open<B: causeway_message::library::Buffer>(host: &Host) -> Endpoint<B> {
    let stream = UnixStream::connect(host.dir.0.join("a")).unwrap();
    Endpoint::open_over(Conversation::over(stream, 0).unwrap(), ENDPOINT_ANY, Rdm::OPENING).unwrap()
}

/// An endpoint with the tables of a domain.
struct TestEndpoint {
    rdm: Rdm,
    vector: AddressVector,
    regions: RegionTable,
    done: Vec<OpCompletion>,
}

impl TestEndpoint {
    fn new(host: &Host) -> Self {
        let rdm = Rdm::new(open(host));
        Self {
            rdm,
            vector: AddressVector::default(),
            regions: RegionTable::default(),
            done: Vec::new(),
        }
    }

    fn with<R>(&mut self, run: impl FnOnce(&mut Rdm, DomainEnv<'_>) -> R) -> R {
        run(&mut self.rdm, DomainEnv { vector: &self.vector, regions: &self.regions })
    }

    fn poll(&mut self) {
        // Polls as a read of a queue does.
        match self.with(|rdm, env| rdm.receive_fast(env)) {
            Ok((done, _)) => {
                assert!(done.failure.is_none(), "a failure takes the slow path: {done:?}");
                self.done.push(done);
            }
            Err(FastMiss::Nothing) => {}
            Err(_) => drop(self.with(|rdm, env| rdm.progress(env))),
        }
        let meta = self.rdm.completions.drain(..).filter(|done| !done.report.quiet);
        self.done.extend(meta);
    }

    fn insert(&mut self, name: EndpointName) -> u64 {
        self.vector.insert(name).unwrap()
    }

    fn receive(&mut self, from: u64, tag: u64, context: usize, into: &mut [u8]) {
        let payload = payload_of(into);
        let wanted =
            ReceiveSpec { from, ignore: 0, report: report(FI_TAGGED | FI_RECV, tag, context) };
        self.with(|rdm, env| rdm.receive(env, wanted, payload)).unwrap();
    }

    fn send(&mut self, to: u64, tag: u64, bytes: &[u8]) -> Result<(), Errno> {
        // SAFETY: the memory is only read, and each test keeps it until the engine has the bytes.
        let payload = Payload::One(unsafe { AppSpan::new(bytes.as_ptr().cast_mut(), bytes.len()) });
        let report = report(FI_TAGGED | FI_SEND, tag, 1);
        let message = Message { to, report, payload, data: None, inject: true, delivered: false };
        self.with(|rdm, env| rdm.send(env, message))
    }

    /// Returns the number of operations in progress.
    fn operations(&self) -> usize {
        self.rdm.operations()
    }

    fn register(&mut self, key: u64, memory: &mut [u8], access: u64) {
        let region = RegisteredRegion::new(Box::new([span(memory)]), access, 0);
        self.regions.insert(key, region).unwrap();
    }
}

/// Returns a piece of a test's memory, which the test keeps longer than the operations on it and
/// accesses between calls only.
fn span(memory: &mut [u8]) -> AppSpan {
    // SAFETY: as above.
    unsafe { AppSpan::new(memory.as_mut_ptr(), memory.len()) }
}

fn payload_of(memory: &mut [u8]) -> Payload {
    Payload::One(span(memory))
}

fn report(flags: u64, tag: u64, context: usize) -> ReportTemplate {
    ReportTemplate { context, flags, tag, ..ReportTemplate::default() }
}

/// A hostile endpoint.
struct HostileEndpoint {
    endpoint: Endpoint<Payload>,
    to: Partner,
}

impl HostileEndpoint {
    fn new(host: &Host, of: &mut TestEndpoint) -> Self {
        let mut endpoint: Endpoint<Payload> = open(host);
        let address = of.rdm.name().source.address;
        let way = &mut endpoint.paths;
        let connect = endpoint.library.iconnect(way, address, KEY, 0, 0, None).unwrap();
        let mut to = None;
        until(|| {
            of.poll();
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

    fn name(&self) -> EndpointName {
        EndpointName { source: self.endpoint.library.source_of(Partner::SELF).unwrap(), service: 0 }
    }

    fn send(&mut self, info: u64, bytes: Vec<u8>) -> RequestId {
        let Endpoint { library, paths: way, .. } = &mut self.endpoint;
        library.isend(way, self.to, info, 0, Payload::Owned(bytes.into())).unwrap()
    }

    /// Posts a receive of at most the length of `into`.
    fn receive(&mut self, info: u64, into: &mut [u8]) -> RequestId {
        let Endpoint { library, paths: way, .. } = &mut self.endpoint;
        let payload = payload_of(into);
        library.irecv(way, info, u64::MAX, 0, payload).unwrap()
    }

    /// Polls until the request has ended.
    fn wait(&mut self, of: &mut TestEndpoint, request: RequestId) {
        until(|| {
            of.poll();
            self.endpoint.step();
            self.endpoint.look();
            self.endpoint.library.test(request).is_ok_and(|ended| ended.is_some())
        });
    }

    /// Polls without taking further messages.
    fn poll(&mut self) {
        self.endpoint.step();
        while let Ok(Some(_)) = self.endpoint.library.test_any(0, 0) {}
    }

    fn close(mut self) {
        self.endpoint.paths.end();
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(10), "the condition does not hold in time");
        std::thread::yield_now();
    }
}

fn control(kind: ControlKind, name: u32, len: u64) -> ControlRequest {
    ControlRequest { kind, datatype: 0, operation: 0, name, key: 7, address: 0, len, data: None }
}

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Checks that two correct endpoints still exchange messages.
fn assert_exchange(one: &mut TestEndpoint, other: &mut TestEndpoint) {
    let to = one.insert(other.rdm.name());
    let mut into = vec![0; 20_000];
    other.receive(FI_ADDR_UNSPEC, 0xf1e, 99, &mut into);
    let bytes = Random(5).bytes(20_000);
    one.send(to, 0xf1e, &bytes).unwrap();
    until(|| {
        one.poll();
        other.poll();
        other.done.iter().any(|done| done.report.context == 99 && done.failure.is_none())
    });
    assert!(into == bytes);
    other.done.clear();
}

#[test]
fn hostile_control_requests_change_no_memory() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let mut memory = vec![3_u8; 300];
    side.register(7, &mut memory[100..200], FI_REMOTE_READ | FI_REMOTE_WRITE);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    let mut random = Random(1);
    for turn in 0..4000_u64 {
        let mut bytes = random.bytes(random.0 as usize % 90);
        if turn % 3 > 0 && bytes.len() > 40 {
            // Nearly valid: an existing kind, the right key, addresses near the region.
            bytes[0] = 1 + (turn % 6) as u8;
            bytes[3] = 0;
            bytes[8..16].copy_from_slice(&7_u64.to_le_bytes());
            let address = [101, 120, u64::MAX - 3, 1 << 40][turn as usize % 4];
            bytes[16..24].copy_from_slice(&address.to_le_bytes());
            bytes[24..32].copy_from_slice(
                &[1, 30, u64::MAX, 1 << 32][random.below(4) as usize].to_le_bytes(),
            );
        }
        hostile.send(CONTROL | random.below(2), bytes);
        side.poll();
        hostile.poll();
    }
    assert!(memory.iter().all(|byte| *byte == 3), "nothing was within");
    assert!(side.operations() <= SERVED_PER_PEER_MAX as usize + 1);
    assert_exchange(&mut friend, &mut side);
    // A valid request is served.
    let mut bytes = control(ControlKind::Write, 1, 4).emit(4);
    bytes.extend_from_slice(&[9; 4]);
    hostile.send(CONTROL, bytes);
    until(|| {
        side.poll();
        hostile.poll();
        memory[100..104] == [9; 4]
    });
    assert!(memory[..100].iter().chain(&memory[104..]).all(|byte| *byte == 3));
}

#[test]
fn hostile_initiators_occupy_a_bounded_part() {
    let host = Host::new(&["a"]);
    let (mut side, mut friend) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let mut memory = vec![3_u8; 1 << 20];
    side.register(7, &mut memory, FI_REMOTE_READ | FI_REMOTE_WRITE);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    for turn in 0..3 * SERVED_PER_PEER_MAX {
        let kind = if turn % 2 == 0 { ControlKind::Read } else { ControlKind::WriteLong };
        hostile.send(CONTROL, control(kind, turn, 1 << 20).emit(0));
        if turn % 16 == 0 {
            side.poll();
            hostile.endpoint.library.progress(&mut hostile.endpoint.paths);
        }
    }
    for _ in 0..2000 {
        side.poll();
        hostile.poll();
    }
    let has = side.operations();
    assert!(has > 100 && has <= SERVED_PER_PEER_MAX as usize, "{has}");
    assert_exchange(&mut friend, &mut side);
    // The memory is deregistered while operations are in progress.
    side.rdm.release(7);
    side.regions.remove(7);
    drop(memory);
    hostile.close();
    until(|| {
        side.poll();
        side.operations() == 0
    });
    assert!(side.rdm.served.is_empty());
    assert_exchange(&mut friend, &mut side);
}

#[test]
fn hostile_replies_before_the_bytes_were_taken_leave_nothing_of_what_lies_there_later() {
    let host = Host::new(&["a"]);
    let mut side = TestEndpoint::new(&host);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    let hostile_address = side.insert(hostile.name());
    for (context, code) in [(1, 0), (2, 22)] {
        let mut asked = [0; 100];
        let control = hostile.receive(CONTROL, &mut asked);
        let mut bytes = vec![7_u8; 1 << 20];
        let payload = payload_of(&mut bytes);
        let remote = RemoteMemory { to: hostile_address, key: 7, address: 0 };
        let report = report(0, 0, context);
        side.with(|rdm, env| rdm.write(env, remote, report, payload, None)).unwrap();
        hostile.wait(&mut side, control);
        let (asked, _) = ControlRequest::parse(&asked).expect("a control request");
        let mut head = 0_u64.to_le_bytes().to_vec();
        head[..4].copy_from_slice(&u32::to_le_bytes(code));
        head.resize(16, 0);
        hostile.send(REPLY | u64::from(asked.name), head);
        until(|| {
            side.poll();
            hostile.endpoint.step();
            !side.done.is_empty()
        });
        assert_eq!(side.done.remove(0).failure.is_none(), code == 0);
        // The application may use the buffer again, and writes secrets to it.
        bytes.fill(9);
        let mut taken = vec![0; 1 << 20];
        let body = hostile.receive(BODY | u64::from(asked.name), &mut taken);
        hostile.wait(&mut side, body);
        assert!(taken.iter().all(|byte| [0, 7].contains(byte)), "{:?}", taken.first());
    }
    assert_eq!(side.operations(), 0);
}

/// Returns the first bytes of a message that announces `len` bytes under a name.
fn notice(name: u64, len: u64) -> Vec<u8> {
    let mut head = 0_u64.to_le_bytes().to_vec();
    head.extend_from_slice(&(NOTICE | name << 32 | len).to_le_bytes());
    head
}

#[test]
fn hostile_heads_fail_the_receive() {
    let host = Host::new(&["a"]);
    let mut side = TestEndpoint::new(&host);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    let mut into = vec![1_u8; 5000];
    let next = |side: &mut TestEndpoint, hostile: &mut HostileEndpoint| {
        until(|| {
            side.poll();
            hostile.poll();
            !side.done.is_empty()
        });
        side.done.remove(0)
    };
    // Without a head.
    for len in [0, 1, 15] {
        side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
        hostile.send(1, vec![0xff; len]);
        let done = next(&mut side, &mut hostile);
        assert_eq!(done.failure.unwrap().err, FI_EIO, "{len} {done:?}");
    }
    // The length differs from the notice.
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    hostile.send(1, notice(5, 0xffff_ffff));
    hostile.send(BODY | 5, vec![8; 1000]);
    let done = next(&mut side, &mut hostile);
    assert!(done.failure.is_none() && done.len == 1000 && into[..1000] == [8; 1000], "{done:?}");
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    hostile.send(1, notice(6, 10));
    hostile.send(BODY | 6, vec![9; 100_000]);
    let done = next(&mut side, &mut hostile);
    assert!(
        done.len <= 5000 && done.failure.is_none_or(|failure| failure.err == FI_ETRUNC),
        "{done:?}"
    );
}

#[test]
fn hostile_missing_bytes_fail_the_receive() {
    let host = Host::new(&["a"]);
    let mut side = TestEndpoint::new(&host);
    let mut hostile = HostileEndpoint::new(&host, &mut side);
    let mut into = vec![1_u8; 5000];
    // No bytes arrive, in a multi-receive buffer neither; and the only sender of a buffer closes.
    let hostile_address = side.insert(hostile.name());
    side.receive(FI_ADDR_UNSPEC, 1, 2, &mut into);
    hostile.send(1, notice(7, 100));
    let mut many = vec![1_u8; 1000];
    let wanted = |from, context| ReceiveSpec {
        from,
        ignore: 0,
        report: report(FI_MSG | FI_RECV, 0, context),
    };
    let payload = payload_of(&mut many);
    side.with(|rdm, env| rdm.receive_many(env, wanted(hostile_address, 3), payload)).unwrap();
    hostile.send(PLAIN, notice(8, 900));
    hostile.send(PLAIN, notice(8, 90));
    for _ in 0..200 {
        side.poll();
        hostile.poll();
    }
    assert!(side.done.is_empty(), "{:?}", side.done);
    hostile.close();
    until(|| {
        side.poll();
        side.operations() == 0
    });
    let errors = |context| {
        side.done
            .iter()
            .filter(|done| done.report.context == context && done.failure.is_some())
            .count()
    };
    assert_eq!(errors(2), 1, "{:?}", side.done);
    assert!((1..=2).contains(&errors(3)), "{:?}", side.done);
    let released =
        |done: &&OpCompletion| done.report.context == 3 && done.report.flags & FI_MULTI_RECV != 0;
    assert!(side.done.iter().filter(released).count() <= 1, "{:?}", side.done);
}

/// Starts an operation of a random kind that involves the endpoint `to`, with a buffer in `into`.
fn start_random(
    side: &mut TestEndpoint,
    random: &mut Random,
    to: u64,
    context: usize,
    into: &mut [u8],
) {
    let from = if random.below(2) == 0 { to } else { FI_ADDR_UNSPEC };
    let into = &mut into[..random.below(20_000) as usize];
    let remote = RemoteMemory { to, key: 1, address: 0 };
    match random.below(8) {
        0 | 1 => side.receive(from, random.below(3), context, into),
        2 => {
            let report = report(FI_MSG | FI_RECV, 0, context);
            let wanted = ReceiveSpec { from, ignore: 0, report };
            let _ = side.with(|rdm, env| rdm.receive_many(env, wanted, payload_of(into)));
        }
        3 => {
            let report = report(FI_TAGGED | FI_RECV, random.below(3), context);
            let wanted = ReceiveSpec { from, ignore: random.below(2), report };
            let how = (random.below(2) == 0, random.below(4) == 0);
            side.with(|rdm, env| rdm.peek(env, wanted, how)).unwrap();
            let _ = side.with(|rdm, env| rdm.receive_claimed(env, report, payload_of(into)));
        }
        4 => drop(side.rdm.cancel(10 + random.below(300) as usize)),
        5 => drop(side.send(to, 1, &into[..into.len().min(4096)])),
        6 => {
            let (report, payload) = (report(0, 0, context), payload_of(into));
            side.with(|rdm, env| rdm.write(env, remote, report, payload, Some(1))).unwrap();
        }
        _ => {
            let (report, payload) = (report(0, 0, context), payload_of(into));
            side.with(|rdm, env| rdm.read(env, remote, report, payload)).unwrap();
        }
    }
}

/// Returns a message of values that a peer can guess: names of operations, kinds, the key.
fn random_message(random: &mut Random) -> (u64, Vec<u8>) {
    let len = [0, 15, 16, 17, 40, 60, 5000, 40_000][random.below(8) as usize];
    let mut bytes = random.bytes(len.min(64));
    bytes.resize(len, 0);
    let name = random.below(20) | random.below(4) << 20;
    let info = match random.below(5) {
        0 => random.below(3),
        1 => PLAIN,
        2 => CONTROL,
        3 => BODY | name,
        _ => REPLY | name,
    };
    if len >= 40 && info == CONTROL {
        let mut request = control(ControlKind::Read, name as u32, random.below(80_000));
        request.address = random.below(70_000);
        bytes[..40].copy_from_slice(&request.emit(0));
        bytes[0] = 1 + random.below(6) as u8;
        bytes[1..3].copy_from_slice(&[random.below(11) as u8, random.below(20) as u8]);
    } else if len >= 16 && random.below(2) == 0 {
        let word = NOTICE | name << 32 | random.below(50_000);
        bytes[8..16].copy_from_slice(&word.to_le_bytes());
    }
    (info, bytes)
}

#[test]
fn hostile_messages_of_all_kinds_leave_the_endpoint_intact() {
    let host = Host::new(&["a"]);
    let mut friend = TestEndpoint::new(&host);
    for seed in 0..40 {
        let mut side = TestEndpoint::new(&host);
        let mut hostile = HostileEndpoint::new(&host, &mut side);
        let hostile_address = side.insert(hostile.name());
        let mut random = Random(seed);
        let mut memory = vec![5_u8; 70_000];
        let mut into = vec![0_u8; 70_000];
        side.register(7, &mut memory[1000..60_000], FI_REMOTE_READ | FI_REMOTE_WRITE);
        for context in 10..300 {
            start_random(&mut side, &mut random, hostile_address, context, &mut into);
            for _ in 0..random.below(6) {
                let (info, bytes) = random_message(&mut random);
                hostile.send(info, bytes);
            }
            if random.below(3) == 0 {
                side.poll();
                hostile.poll();
            }
        }
        for _ in 0..50 {
            side.poll();
            hostile.poll();
        }
        side.rdm.release(7);
        hostile.close();
        // Receives from the peer fail; receives from any sender are cancelled.
        until(|| {
            side.poll();
            for context in 10..300 {
                let _ = side.rdm.cancel(context);
            }
            side.operations() == 0
        });
        assert_eq!((side.rdm.calls, side.rdm.sending), (0, 0));
        assert!(memory[..1000].iter().chain(&memory[60_000..]).all(|byte| *byte == 5), "{seed}");
        side.done.clear();
        assert_exchange(&mut friend, &mut side);
    }
}

#[test]
fn calls_are_bounded_and_fail_without_a_target() {
    let host = Host::new(&["a"]);
    let (mut side, mut gone) = (TestEndpoint::new(&host), TestEndpoint::new(&host));
    let to = side.insert(gone.rdm.name());
    gone.rdm.finish();
    let mut begun = 0;
    let errno = loop {
        let remote = RemoteMemory { to, key: 1, address: 0 };
        let report = report(0, 0, 5);
        let payload = Payload::EMPTY;
        match side.with(|rdm, env| rdm.read(env, remote, report, payload)) {
            Ok(()) => begun += 1,
            Err(Errno(err)) => break err,
        }
    };
    assert_eq!((begun, errno), (CALLS_PER_TARGET_MAX, FI_EAGAIN));
    until(|| {
        side.poll();
        side.operations() == 0
    });
    let refused = side.done.iter().filter(|done| done.failure.unwrap().err == FI_ECONNREFUSED);
    assert_eq!(refused.count(), CALLS_PER_TARGET_MAX as usize);
    assert_eq!(side.rdm.calls, 0);
}

#[test]
fn operation_names_are_not_reused_with_the_slot() {
    let mut operations = Operations::new();
    let at = operations.add(Task::Internal).unwrap();
    let name = operations.name(at);
    assert_eq!(operations.named(name), Some(at));
    operations.end(at);
    assert_eq!(operations.add(Task::Internal), Some(at));
    assert_eq!(operations.named(name), None);
    assert!(operations.end(at).is_some() && operations.end(at).is_none());
}

#[test]
fn regions_are_accessed_within_bounds_across_pieces() {
    let (mut one, mut two) = ([1_u8; 10], [2_u8; 5]);
    let pieces = Box::new([span(&mut one), AppSpan::EMPTY, span(&mut two)]);
    let mut regions = RegionTable::default();
    let access = FI_REMOTE_READ;
    regions.insert(1, RegisteredRegion::new(pieces, access, 100)).unwrap();
    let find = |address, len| {
        // SAFETY: each payload is dropped before the next is found.
        unsafe { regions.find(1, address, len, access) }.map(|payload| payload.to_vec())
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
fn released_memory_reads_as_zeros_and_drops_writes() {
    let mut bytes = vec![7_u8; 10_000];
    let mut buffer = MessageBuffer::bare(payload_of(&mut bytes));
    buffer.release();
    let len = causeway_message::library::Buffer::len(&buffer);
    let mut seen = Vec::new();
    causeway_message::library::pieces(&buffer, 0, len, |piece| seen.extend_from_slice(piece));
    assert_eq!(seen, vec![0; 10_000]);
    causeway_message::library::fill(&mut buffer, 0, len, |_, into| into.len());
    assert!(bytes.iter().all(|byte| *byte == 7));
}
