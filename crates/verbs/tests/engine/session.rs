//! Sessions of queue pairs with the service of their adapter.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use causeway_verbs::limits::{LENDS_PER_REGION_MAX, SERVICE_QPN, SESSION_MESSAGE_BYTES};
use causeway_verbs::region::{RegionError, RegionMemory, key_of};
use causeway_verbs::session::*;
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

/// What a session was given, and gives.
#[derive(Debug, Default)]
struct Seen {
    received: Vec<(Vec<u8>, Option<u32>)>,
    room: usize,
    answers: VecDeque<u8>,
    begun: usize,
    open: usize,
    may_begin: bool,
    has_ended: bool,
}

#[derive(Debug, Clone)]
struct Service(Arc<Mutex<Seen>>);

#[derive(Debug)]
struct Sink(Arc<Mutex<Seen>>);

impl SessionService for Service {
    fn begin(&mut self, _: u32) -> Option<Box<dyn Session>> {
        let mut seen = self.0.lock().unwrap();
        if !seen.may_begin {
            return None;
        }
        seen.begun += 1;
        seen.open += 1;
        Some(Box::new(Sink(self.0.clone())))
    }
}

impl Session for Sink {
    fn receive(
        &mut self,
        message: &[u8],
        immediate: Option<u32>,
        _: &mut SessionMemory<'_>,
    ) -> Delivery {
        let mut seen = self.0.lock().unwrap();
        if message == b"refuse" {
            return Delivery::Refused;
        }
        if seen.received.len() >= seen.room {
            return Delivery::Full;
        }
        seen.received.push((message.to_vec(), immediate));
        Delivery::Taken
    }

    fn next(&mut self) -> Option<[u8; SESSION_MESSAGE_BYTES]> {
        self.0.lock().unwrap().answers.front().map(|byte| [*byte; SESSION_MESSAGE_BYTES])
    }

    fn sent(&mut self) {
        self.0.lock().unwrap().answers.pop_front();
    }

    fn has_ended(&self) -> bool {
        self.0.lock().unwrap().has_ended
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.lock().unwrap().open -= 1;
    }
}

/// Returns a guest with a service.
fn world() -> (World, Arc<Mutex<Seen>>) {
    let mut world = World::new(2);
    let seen = Arc::new(Mutex::new(Seen { room: 99, may_begin: true, ..Seen::default() }));
    let service = Box::new(Service(seen.clone()));
    world.subnet.set_session_service(world.ids[0], Some(service));
    (world, seen)
}

/// Returns a queue pair of guest 0 that is connected to the service.
fn connected(world: &mut World) -> End {
    let end = world.create(0, Kind::Rc, World::attributes());
    world.ready(end, Some((0, SERVICE_QPN)));
    end
}

fn answer(world: &mut World) -> bool {
    world.subnet.answer_sessions(world.ids[0], &mut Budget::new(100, 1 << 20))
}

#[test]
fn session_takes_sends_with_and_without_immediate_data_in_order() {
    let (mut world, seen) = world();
    let end = connected(&mut world);
    let bytes = world.fill(0, 3);
    world.post(end, Operation::Send, vec![world.segment(0, 10, 100), world.segment(0, 500, 60)]);
    world.post(end, Operation::SendImmediate(7), vec![]);
    let inline = SendWork {
        operation: Operation::Send,
        inline: b"inline".to_vec(),
        is_inline: true,
        segments: vec![world.segment(0, 0, 4)],
        is_signaled: true,
        ..SendWork::default()
    };
    world.post_work(end, inline);
    assert_eq!(world.run(end), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success; 3]);
    let seen = seen.lock().unwrap();
    let first = [&bytes[10..110], &bytes[500..560]].concat();
    let third = [b"inline", &bytes[..4]].concat();
    assert_eq!(seen.received, [(first, None), (vec![], Some(7)), (third, None)]);
    assert_eq!((seen.begun, seen.open), (1, 1), "one session, from the first message on");
    assert_eq!(world.subnet.adapter(world.ids[0]).unwrap().session_count(), 1);
}

#[test]
fn session_refuses_other_operations_and_long_messages() {
    for case in 0..6 {
        let (mut world, seen) = world();
        let end = connected(&mut world);
        let remote = world.remote(0, 0);
        let segments = vec![world.segment(0, 0, 8)];
        world.write(0, 100, b"refuse");
        let (operation, segments, status) = match case {
            0 => (Operation::Write(remote), segments, Status::RemoteInvalidRequest),
            1 => (Operation::Read(remote), segments, Status::RemoteInvalidRequest),
            2 => (Operation::FetchAdd { remote, add: 1 }, segments, Status::RemoteInvalidRequest),
            3 => {
                let long = vec![world.segment(0, 0, 161)];
                (Operation::Send, long, Status::RemoteInvalidRequest)
            }
            4 => {
                let refused = vec![world.segment(0, 100, 6)];
                (Operation::Send, refused, Status::RemoteInvalidRequest)
            }
            _ => {
                let foreign = vec![Segment { key: 0x99, address: BASE, len: 8 }];
                (Operation::Send, foreign, Status::LocalProtection)
            }
        };
        world.post(end, Operation::Send, vec![]);
        world.post(end, operation, segments);
        world.run(end);
        assert_eq!(world.statuses(0), [Status::Success, status], "case {case}");
        assert_eq!(world.state(end), State::Error);
        assert_eq!(seen.lock().unwrap().open, 0, "the session ended (case {case})");
    }
}

#[test]
fn session_is_refused_without_a_service_and_by_it() {
    let mut bare = World::new(1);
    let end = connected(&mut bare);
    bare.post(end, Operation::Send, vec![]);
    bare.run(end);
    assert_eq!(bare.statuses(0), [Status::RemoteInvalidRequest]);
    let (mut world, seen) = world();
    seen.lock().unwrap().may_begin = false;
    let end = connected(&mut world);
    world.post(end, Operation::Send, vec![]);
    world.run(end);
    assert_eq!(world.statuses(0), [Status::RemoteInvalidRequest]);
}

#[test]
fn session_number_at_another_adapter_has_no_responder() {
    let (mut world, seen) = world();
    let end = world.create(1, Kind::Rc, World::attributes());
    world.ready(end, Some((0, SERVICE_QPN)));
    world.post(end, Operation::Send, vec![]);
    assert!(matches!(world.run(end), Progress::Waiting { .. }));
    assert_eq!(seen.lock().unwrap().begun, 0);
}

#[test]
fn session_without_room_makes_the_request_wait() {
    let (mut world, seen) = world();
    seen.lock().unwrap().room = 1;
    let end = connected(&mut world);
    for _ in 0..3 {
        world.post(end, Operation::Send, vec![world.segment(0, 0, 4)]);
    }
    assert_eq!(world.run(end), Progress::Waiting { until_ns: None });
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.run(end), Progress::Waiting { until_ns: None });
    seen.lock().unwrap().room = 9;
    assert_eq!(world.run(end), Progress::Idle);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
    assert_eq!(seen.lock().unwrap().received.len(), 3);
    assert_eq!(world.adapter(0).waiting_requests().0, 0);
}

#[test]
fn session_messages_wait_for_receive_work_requests() {
    let (mut world, seen) = world();
    let end = connected(&mut world);
    world.post(end, Operation::Send, vec![]);
    world.run(end);
    world.completions(0);
    assert!(!answer(&mut world), "there is no message");
    seen.lock().unwrap().answers = [5, 6, 7].into();
    assert!(answer(&mut world), "no receive work request is posted");
    let first = world.post_receive(end, vec![world.segment(0, 0, 100), world.segment(0, 300, 60)]);
    let second = world.post_receive(end, vec![world.segment(0, 1000, 400)]);
    assert!(answer(&mut world), "the third waits");
    let received = world.completions(0);
    assert_eq!(received, [(Status::Success, 160, first), (Status::Success, 160, second)]);
    assert_eq!(world.read(0, 0, 100), [5; 100]);
    assert_eq!(world.read(0, 300, 60), [5; 60]);
    assert_eq!(world.read(0, 1000, 160), [6; 160]);
    assert_eq!(seen.lock().unwrap().answers.len(), 1);
    world.post_receive(end, vec![world.segment(0, 0, 159)]);
    answer(&mut world);
    assert_eq!(world.statuses(0), [Status::LocalLength], "too short");
    assert_eq!((world.state(end), seen.lock().unwrap().open), (State::Error, 0));
}

#[test]
fn session_ends_before_its_queue_pair_leaves_its_state() {
    let reset = |world: &mut World, end: End| world.modify(end, State::Reset, &Change::default());
    let fail = |world: &mut World, end: End| world.modify(end, State::Error, &Change::default());
    let destroy = |world: &mut World, end: End| {
        world.subnet.destroy_queue_pair(world.ids[0], end.1).unwrap();
    };
    let clear = |world: &mut World, _: End| drop(world.subnet.clear(world.ids[0]));
    let remove = |world: &mut World, _: End| drop(world.subnet.remove(world.ids[0]));
    let unset = |world: &mut World, _: End| world.subnet.set_session_service(world.ids[0], None);
    let peer = |world: &mut World, end: End| {
        let peer = Some(Peer { mac: mac(0), queue_pair: 3, gid: [0; 16] });
        world.modify(end, State::ReadyToSend, &Change { peer, ..Change::default() });
    };
    let cases: [fn(&mut World, End); 7] = [reset, fail, destroy, clear, remove, unset, peer];
    for (number, end_session) in cases.into_iter().enumerate() {
        let (mut world, seen) = world();
        let end = connected(&mut world);
        world.post(end, Operation::Send, vec![]);
        world.run(end);
        assert_eq!(seen.lock().unwrap().open, 1);
        end_session(&mut world, end);
        assert_eq!(seen.lock().unwrap().open, 0, "case {number}");
    }
}

#[test]
fn session_that_its_service_ended_fails_the_queue_pair_after_the_last_message() {
    let (mut world, seen) = world();
    let end = connected(&mut world);
    world.post(end, Operation::Send, vec![]);
    world.run(end);
    seen.lock().unwrap().answers = [1].into();
    seen.lock().unwrap().has_ended = true;
    assert!(answer(&mut world), "the message waits");
    assert_eq!(world.state(end), State::ReadyToSend);
    world.post_receive(end, vec![world.segment(0, 0, 160)]);
    answer(&mut world);
    assert_eq!((world.state(end), seen.lock().unwrap().open), (State::Error, 0));
    assert_eq!(world.statuses(0), [Status::Success, Status::Success]);
}

#[test]
fn session_of_a_restored_queue_pair_is_in_the_error_state() {
    let (mut world, _) = world();
    let end = world.create(0, Kind::Rc, World::attributes());
    let peer = Some(Peer { mac: mac(0), queue_pair: SERVICE_QPN, gid: [0; 16] });
    let change = Change { peer, ..Change::default() };
    let resume = Resume { state: State::ReadyToSend, change, ..Resume::default() };
    world.subnet.resume(world.ids[0], end.1, resume).unwrap();
    assert_eq!(world.state(end), State::Error);
}

/// Counts its calls.
#[derive(Debug, Default)]
struct User(AtomicUsize);

impl Revocation for User {
    fn revoke(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn lent_memory_is_revoked_once_before_its_region_changes() {
    let pages = vec![BASE, BASE + 0x3000, BASE + 0x4000];
    let memory = || RegionMemory::Pages { shift: 12, pages: pages.clone(), capacity: 8 };
    let destroy = |world: &mut World, key: u32| {
        world.adapter(0).regions_mut().destroy(key >> 8).unwrap();
    };
    let invalidate = |world: &mut World, key: u32| {
        world.adapter(0).regions_mut().invalidate(key, DOMAIN, ALL).unwrap();
    };
    let update = |world: &mut World, key: u32| {
        let update = RegionUpdate { key, is_free: Some(true), ..RegionUpdate::default() };
        world.adapter(0).regions_mut().update(&update, &[], Some(DOMAIN)).unwrap();
    };
    let clear = |world: &mut World, _: u32| drop(world.subnet.clear(world.ids[0]));
    let cases: [fn(&mut World, u32); 4] = [destroy, invalidate, update, clear];
    for (number, change) in cases.into_iter().enumerate() {
        let mut world = World::new(1);
        let key = world.register(0, memory(), 0x7000, ALL);
        let (user, gone) = (Arc::new(User::default()), Arc::new(User::default()));
        let mut lend = |user: &Arc<User>, key: u32, len: u64, most: usize| {
            let weak: Weak<User> = Arc::downgrade(user);
            let mut spans = Vec::new();
            let regions = world.adapter(0).regions_mut();
            let lent = regions.lend(key, DOMAIN, (0x7000, len), ALL, (most, &mut spans), weak);
            lent.map(|()| spans.len())
        };
        assert_eq!(lend(&user, key, 0x3000, 9), Ok(2), "two pages are adjacent");
        let refused = lend(&gone, key, 0x3000, 2);
        assert!(matches!(refused, Err(RegionError::Limit(_))), "three pages are looked up");
        assert_eq!(lend(&gone, key, 0x1000, 9), Ok(1));
        assert!(matches!(lend(&gone, key, 0x3000, 1), Err(RegionError::Limit(_))));
        assert_eq!(lend(&gone, key, 0x3001, 9), Err(RegionError::Outside));
        assert_eq!(lend(&gone, key_of(key >> 8, 1), 0x1000, 9), Err(RegionError::NoKey));
        let more: Vec<_> = (2..LENDS_PER_REGION_MAX).map(|_| Arc::new(User::default())).collect();
        more.iter().for_each(|user| assert_eq!(lend(user, key, 0x1000, 9), Ok(1)));
        assert!(matches!(lend(&gone, key, 0x1000, 9), Err(RegionError::Limit(_))), "65 users");
        drop(gone);
        let last = Arc::new(User::default());
        assert_eq!(lend(&last, key, 0x1000, 9), Ok(1), "one is gone");
        change(&mut world, key);
        assert_eq!(user.0.load(Ordering::Relaxed), 1, "case {number}");
        drop(world.subnet.clear(world.ids[0]));
        assert_eq!(user.0.load(Ordering::Relaxed), 1, "once (case {number})");
    }
}
