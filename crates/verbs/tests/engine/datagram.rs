use causeway_verbs::limits::*;
use causeway_verbs::multicast::MulticastError;
use causeway_verbs::region::{RegionMemory, Rights};
use causeway_verbs::work::*;
use causeway_verbs::*;

use crate::testing::*;

/// Returns a datagram queue pair that is ready to send.
fn datagram(world: &mut World, guest: usize, kind: Kind) -> End {
    let end = world.create(guest, kind, World::attributes());
    world.ready(end, None);
    end
}

fn to(end: End) -> AddressVector {
    let (queue_pair, queue_key) = (end.1, QUEUE_KEY);
    AddressVector { mac: mac(end.0), queue_pair, queue_key, ..AddressVector::default() }
}

fn send(world: &mut World, from: End, destination: AddressVector, len: u32) {
    let segments = vec![world.segment(from.0, 0, len)];
    let (operation, destination) = (Operation::Send, Some(destination));
    let is_signaled = true;
    let work = SendWork { operation, segments, destination, is_signaled, ..SendWork::default() };
    world.post_work(from, work);
    world.run(from);
}

#[test]
fn verbs_datagram_has_a_network_header_and_its_source() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    let bytes = world.fill(0, 2);
    let segments = vec![world.segment(1, 0, 30), world.segment(1, 100, 2000)];
    world.post_receive(right, segments);
    send(&mut world, left, to(right), 1024);
    assert_eq!(world.statuses(0), [Status::Success]);
    let (_, entry) = world.lists(1).completions[0];
    let (data, network) = (ReceivedData::Plain, Some(NetworkHeader::Ipv6));
    assert_eq!(entry.kind, CompletionKind::Receive { data, source: left.1, network, shared: None });
    assert_eq!(entry.bytes, 1064);
    assert_eq!(world.read(1, 0, 5), [0, 0, 4, 0, 0xaa]);
    assert_eq!(world.read(1, 110, 1024), bytes[..1024]);
}

#[test]
fn verbs_datagram_has_inline_payload_before_that_of_memory() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    let bytes = world.fill(0, 2);
    world.post_receive(right, vec![world.segment(1, 0, 2000)]);
    let (inline, is_inline) = (b"header".to_vec(), true);
    let segments = vec![world.segment(0, 10, 50)];
    let destination = Some(to(right));
    let work = SendWork { segments, inline, is_inline, destination, ..SendWork::default() };
    world.post_work(left, SendWork { operation: Operation::Send, ..work });
    world.run(left);
    assert_eq!(world.completions(1)[0].1, 40 + 56);
    assert_eq!(world.read(1, 40, 6), b"header");
    assert_eq!(world.read(1, 46, 50), bytes[10..60]);
}

#[test]
fn verbs_datagram_loopback_to_the_same_queue_pair() {
    let mut world = World::new(1);
    let own = datagram(&mut world, 0, Kind::Ud);
    world.post_receive(own, vec![world.segment(0, 5000, 200)]);
    send(&mut world, own, to(own), 100);
    let lists: Vec<(Status, u32)> = world.completions(0).iter().map(|c| (c.0, c.1)).collect();
    assert_eq!(lists, [(Status::Success, 140), (Status::Success, 100)]);
}

#[test]
fn verbs_datagram_is_dropped_without_a_receiver() {
    let mut world = World::new(3);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    let (connected, _) = world.connect((1, 2), Kind::Rc);
    let idle = world.create(1, Kind::Ud, World::attributes());
    let good = to(right);
    let wrong = [
        good, // No receive work request yet.
        AddressVector { queue_key: 7, ..good },
        AddressVector { queue_pair: connected.1, ..good },
        AddressVector { queue_pair: idle.1, ..good },
        AddressVector { queue_pair: 0x00ff_fff0, ..good },
        AddressVector { queue_pair: 0, ..good },
        AddressVector { queue_pair: 1, ..good },
        AddressVector { mac: [9; 6], ..good },
    ];
    for (n, destination) in wrong.into_iter().enumerate() {
        if n == 1 {
            world.post_receive(right, vec![world.segment(1, 0, 500)]);
            world.post_receive(connected, vec![world.segment(1, 0, 500)]);
            world.post_receive(idle, vec![world.segment(1, 0, 500)]);
        }
        send(&mut world, left, destination, 10);
    }
    assert_eq!(world.statuses(0), [Status::Success; 8]);
    assert!(world.statuses(1).is_empty());
    assert_eq!(world.adapter(1).counters().dropped, 7);
    assert_eq!(world.adapter(0).counters().unroutable, 1);
    let refusal = |world: &mut World| world.adapter(0).queue_pair(left.1).unwrap().refusal();
    assert!(refusal(&mut world).is_some(), "the last datagram reached no adapter");
    send(&mut world, left, good, 10);
    assert_eq!(refusal(&mut world), None, "the reason is that of the last datagram");
}

#[test]
fn verbs_datagram_longer_than_the_mtu_fails_the_send_queue() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    send(&mut world, left, to(right), 1025);
    assert_eq!(world.statuses(0), [Status::LocalLength]);
    assert_eq!(world.state(left), State::SendQueueError);
    world.post(left, Operation::Nop, vec![]);
    world.run(left);
    assert_eq!(world.statuses(0), [Status::Flushed]);
    world.modify(left, State::ReadyToSend, &Change::default());
    world.post_receive(right, vec![world.segment(1, 0, 2000)]);
    send(&mut world, left, to(right), 1024);
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.statuses(1), [Status::Success]);
}

#[test]
fn verbs_datagram_without_destination_or_with_another_operation_fails() {
    for operation in [Operation::Send, Operation::Write(RemoteAddress::default())] {
        let mut world = World::new(1);
        let left = datagram(&mut world, 0, Kind::Ud);
        let destination = matches!(operation, Operation::Write(_)).then(|| to(left));
        world.post_work(left, SendWork { operation, destination, ..SendWork::default() });
        world.run(left);
        assert_eq!(world.statuses(0), [Status::LocalQueuePairOperation]);
    }
}

#[test]
fn verbs_datagram_receiver_with_a_short_buffer_continues() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    world.post_receive(right, vec![world.segment(1, 0, 139)]);
    world.post_receive(right, vec![world.segment(1, 0, 140)]);
    send(&mut world, left, to(right), 100);
    send(&mut world, left, to(right), 100);
    assert_eq!(world.statuses(1), [Status::LocalLength, Status::Success]);
    assert_eq!(world.state(right), State::ReadyToSend);
}

#[test]
fn verbs_datagram_receiver_without_memory_fails_alone() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    let key = world.register(1, RegionMemory::Whole, 0, Rights::LOCAL_READ);
    world.post_receive(right, vec![Segment { key, address: BASE, len: 500 }]);
    send(&mut world, left, to(right), 100);
    assert_eq!(world.statuses(0), [Status::Success]);
    assert_eq!(world.statuses(1), [Status::LocalProtection]);
    assert_eq!(world.state(right), State::Error);
}

#[test]
fn verbs_datagram_without_granted_payload_uses_no_receive() {
    let mut world = World::new(2);
    let (left, right) = (datagram(&mut world, 0, Kind::Ud), datagram(&mut world, 1, Kind::Ud));
    world.post_receive(right, vec![world.segment(1, 0, 500)]);
    let segments = vec![world.segment(0, BYTES - 4, 8)];
    let (operation, destination) = (Operation::Send, Some(to(right)));
    world.post_work(left, SendWork { operation, segments, destination, ..SendWork::default() });
    world.run(left);
    assert_eq!(world.statuses(0), [Status::LocalProtection]);
    assert!(world.statuses(1).is_empty());
    assert_eq!(world.lists(1).posted(ReceiveQueue::Own(right.1)), 1);
}

#[test]
fn verbs_general_service_interface_has_number_one_and_its_own_key() {
    let mut world = World::new(2);
    let attributes = Attributes { queue_key: GENERAL_SERVICE_QUEUE_KEY, ..World::attributes() };
    let general: Vec<End> = (0..2)
        .map(|guest| {
            let end = world.create(guest, Kind::Gsi, attributes);
            world.ready(end, None);
            end
        })
        .collect();
    let user = datagram(&mut world, 0, Kind::Ud);
    for n in 0..3 {
        world.post_receive(general[1], vec![world.segment(1, n * 1000, 500)]);
    }
    let queue_key = GENERAL_SERVICE_QUEUE_KEY;
    let destination = AddressVector { queue_pair: 1, queue_key, ..to(general[1]) };
    send(&mut world, general[0], destination, 256);
    // The high bit selects the key of the user's own queue pair.
    send(&mut world, user, destination, 256);
    send(&mut world, general[0], AddressVector { queue_pair: general[1].1, ..destination }, 256);
    assert_eq!(world.lists(1).completions.len(), 1);
    let CompletionKind::Receive { source, .. } = world.lists(1).completions[0].1.kind else {
        panic!("no receive completion")
    };
    assert_eq!(source, 1);
    let newest = world.create(1, Kind::Gsi, attributes);
    world.ready(newest, None);
    world.subnet.destroy_queue_pair(world.ids[1], newest.1).unwrap();
    send(&mut world, general[0], destination, 256);
    assert_eq!(world.lists(1).completions.len(), 2, "the older queue pair receives again");
    world.subnet.destroy_queue_pair(world.ids[1], general[1].1).unwrap();
    send(&mut world, general[0], destination, 256);
    assert_eq!(world.adapter(1).counters().dropped, 3);
}

#[test]
fn verbs_datagrams_to_general_service_interfaces_have_a_rate() {
    let mut world = World::new(3);
    let attributes = Attributes { queue_key: GENERAL_SERVICE_QUEUE_KEY, ..World::attributes() };
    let ends: Vec<End> = (0..3).map(|guest| world.create(guest, Kind::Gsi, attributes)).collect();
    ends.iter().for_each(|end| world.ready(*end, None));
    let (flood, general, other) = (ends[0], ends[1], ends[2]);
    let queue_key = GENERAL_SERVICE_QUEUE_KEY;
    let destination = AddressVector { queue_pair: 1, queue_key, ..to(general) };
    for _ in 0..1100 {
        world.post_receive(general, vec![world.segment(1, 0, 500)]);
    }
    let received = |world: &mut World| world.statuses(1).len() as u64;
    (0..GENERAL_BURST + 100).for_each(|_| send(&mut world, flood, destination, 1));
    assert_eq!((received(&mut world), world.statuses(0).len()), (GENERAL_BURST, 612));
    assert_eq!(world.adapter(0).counters().throttled, 100);
    send(&mut world, other, destination, 1);
    assert_eq!(received(&mut world), 1);
    world.now += 2 * GENERAL_INTERVAL_NS;
    (0..5).for_each(|_| send(&mut world, flood, destination, 1));
    assert_eq!(received(&mut world), 2);
}

#[test]
fn verbs_multicast_reaches_each_member_once() {
    let mut world = World::new(3);
    let ends: Vec<End> = (0..3).map(|guest| datagram(&mut world, guest, Kind::Ud)).collect();
    let gid = [0xff; 16];
    for end in &ends {
        world.post_receive(*end, vec![world.segment(end.0, 0, 200)]);
        for _ in 0..2 {
            world.subnet.attach_multicast(world.ids[end.0], end.1, gid).unwrap();
        }
    }
    let queue_pair = MULTICAST_QPN;
    let destination = AddressVector { gid, queue_pair, ..to(ends[1]) };
    send(&mut world, ends[0], destination, 100);
    assert_eq!(world.statuses(0), [Status::Success; 2]);
    assert_eq!(
        (world.statuses(1), world.statuses(2)),
        (vec![Status::Success], vec![Status::Success])
    );

    world.subnet.detach_multicast(world.ids[1], ends[1].1, gid).unwrap();
    let again = world.subnet.detach_multicast(world.ids[1], ends[1].1, gid);
    assert_eq!(again, Err(MulticastError::NotAttached));
    world.subnet.destroy_queue_pair(world.ids[2], ends[2].1).unwrap();
    send(&mut world, ends[0], destination, 100);
    assert_eq!(world.adapter(0).counters().dropped, 1);
    assert_eq!(world.adapter(1).counters().dropped + world.adapter(2).counters().dropped, 0);
}

#[test]
fn verbs_multicast_of_a_sender_that_blocks_its_own_reaches_others_only() {
    let mut world = World::new(1);
    let attributes = Attributes { blocks_own_multicast: true, ..World::attributes() };
    let own = world.create(0, Kind::Ud, attributes);
    world.ready(own, None);
    let other = datagram(&mut world, 0, Kind::Ud);
    let gid = [0xff; 16];
    for end in [own, other] {
        world.post_receive(end, vec![world.segment(0, 0, 200)]);
        world.subnet.attach_multicast(world.ids[0], end.1, gid).unwrap();
    }
    let destination = AddressVector { gid, queue_pair: MULTICAST_QPN, ..to(other) };
    send(&mut world, own, destination, 100);
    let received = std::mem::take(&mut world.lists(0).completions).into_iter();
    let received = received.filter(|(_, entry)| entry.kind != CompletionKind::Send);
    assert_eq!(received.map(|(_, entry)| entry.queue_pair).collect::<Vec<_>>(), [other.1]);
}

#[test]
fn verbs_multicast_resumes_over_small_budgets() {
    let mut world = World::new(2);
    let from = datagram(&mut world, 0, Kind::Ud);
    let gid = [0xff; 16];
    let members: Vec<End> = (0..16).map(|_| datagram(&mut world, 1, Kind::Ud)).collect();
    for member in &members {
        world.post_receive(*member, vec![world.segment(1, 0, 2000)]);
        world.subnet.attach_multicast(world.ids[1], member.1, gid).unwrap();
    }
    let segments = vec![world.segment(0, 0, 1000)];
    let destination = AddressVector { gid, queue_pair: MULTICAST_QPN, ..to(members[0]) };
    let (operation, destination) = (Operation::Send, Some(destination));
    world.post_work(from, SendWork { operation, segments, destination, ..SendWork::default() });
    let mut calls = 0;
    while world.run_with(from, &mut Budget::new(10, 3000)) == Progress::Yielded {
        calls += 1;
    }
    assert_eq!((calls, world.statuses(1)), (8, vec![Status::Success; 16]));
}

#[test]
fn verbs_multicast_deliveries_count_against_the_budget() {
    let mut world = World::new(2);
    let from = datagram(&mut world, 0, Kind::Ud);
    let gid = [0xff; 16];
    for _ in 0..16 {
        let member = datagram(&mut world, 1, Kind::Ud);
        world.post_receive(member, vec![world.segment(1, 0, 2000)]);
        world.subnet.attach_multicast(world.ids[1], member.1, gid).unwrap();
    }
    let segments = vec![world.segment(0, 0, 1)];
    let destination = Some(AddressVector { gid, queue_pair: MULTICAST_QPN, ..to(from) });
    let operation = Operation::Send;
    world.post_work(from, SendWork { operation, segments, destination, ..SendWork::default() });
    let mut budget = Budget::new(1, 1 << 20);
    assert_eq!(world.run_with(from, &mut budget), Progress::Yielded);
    assert_eq!(budget.bytes(), (1 << 20) - 16 * (DELIVERY_BYTES + 1));
}

#[test]
fn verbs_multicast_members_of_an_adapter_leave_room_for_others() {
    let mut world = World::new(2);
    let gid = [1; 16];
    let attach = |world: &mut World, guest: usize| {
        let end = datagram(world, guest, Kind::Ud);
        world.subnet.attach_multicast(world.ids[guest], end.1, gid)
    };
    for n in 0..300 {
        let expected = if n < 16 { Ok(()) } else { Err(MulticastError::Limit) };
        assert_eq!(attach(&mut world, 0), expected);
    }
    assert_eq!(attach(&mut world, 1), Ok(()));
}

#[test]
fn verbs_multicast_destroyed_queue_pair_leaves_its_groups_only() {
    let mut world = World::new(2);
    let ends: Vec<End> =
        [0, 0, 1].iter().map(|guest| datagram(&mut world, *guest, Kind::Ud)).collect();
    for end in &ends {
        for group in 0..3 {
            world.subnet.attach_multicast(world.ids[end.0], end.1, [group; 16]).unwrap();
        }
    }
    world.subnet.destroy_queue_pair(world.ids[0], ends[0].1).unwrap();
    for group in 0..3 {
        let attached: Vec<bool> = ends
            .iter()
            .map(|end| {
                let id = world.ids[end.0];
                world.subnet.detach_multicast(id, end.1, [group; 16]).is_ok()
            })
            .collect();
        assert_eq!(attached, [false, true, true]);
    }
}

#[test]
fn verbs_multicast_memberships_are_limited() {
    let mut world = World::new(1);
    let ends: Vec<End> =
        (0..=MULTICAST_MEMBERS_MAX).map(|_| datagram(&mut world, 0, Kind::Ud)).collect();
    let id = world.ids[0];
    for (n, end) in ends.iter().enumerate() {
        let attached = world.subnet.attach_multicast(id, end.1, [1; 16]);
        assert_eq!(attached.is_ok(), n < MULTICAST_MEMBERS_MAX);
    }
    let mut attached = MULTICAST_MEMBERS_MAX;
    for group in 0..MEMBERSHIPS_PER_ADAPTER_MAX as u128 {
        attached +=
            usize::from(world.subnet.attach_multicast(id, ends[0].1, group.to_be_bytes()).is_ok());
    }
    assert_eq!(attached, MEMBERSHIPS_PER_ADAPTER_MAX);
    drop(world.subnet.clear(id));
    let end = datagram(&mut world, 0, Kind::Ud);
    assert!(world.subnet.attach_multicast(id, end.1, [1; 16]).is_ok());
    let (connected, _) = world.connect((0, 0), Kind::Rc);
    let refused = world.subnet.attach_multicast(id, connected.1, [1; 16]);
    assert_eq!(refused, Err(MulticastError::NoQueuePair));
}
