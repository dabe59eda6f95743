use causeway_verbs::work::Operation;
use causeway_verbs::*;
use proptest::prelude::*;

use crate::testing::*;

#[test]
fn verbs_states_have_the_transitions_of_the_specification() {
    use State::*;
    let normal = [
        (Reset, Init),
        (Init, Init),
        (Init, ReadyToReceive),
        (ReadyToReceive, ReadyToSend),
        (ReadyToSend, ReadyToSend),
        (ReadyToSend, Drained),
        (Drained, Drained),
        (Drained, ReadyToSend),
        (SendQueueError, ReadyToSend),
    ];
    for kind in [Kind::Rc, Kind::Uc, Kind::Ud, Kind::Gsi, Kind::Registration] {
        for from in State::ALL {
            for to in State::ALL {
                let is_reliable_error = from == SendQueueError && kind == Kind::Rc;
                let expected = matches!(to, Reset | Error)
                    || normal.contains(&(from, to)) && !is_reliable_error;
                assert_eq!(from.may_become(to, kind), expected, "{kind:?} {from:?} {to:?}");
            }
        }
    }
}

#[test]
fn verbs_connected_queue_pair_needs_a_peer_to_receive() {
    let mut world = World::new(1);
    let (own, id) = (world.create(0, Kind::Rc, World::attributes()), world.ids[0]);
    world.modify(own, State::Init, &Change::default());
    let refused = world.subnet.modify(id, own.1, State::ReadyToReceive, &Change::default());
    assert_eq!(refused, Err(QueuePairError::Attribute("peer")));
    assert_eq!(world.state(own), State::Init);
}

#[test]
fn verbs_attributes_out_of_range_change_nothing() {
    let mut world = World::new(1);
    let (own, id) = (world.create(0, Kind::Ud, World::attributes()), world.ids[0]);
    let wrong = [
        Change { mtu: Some(0), ..Change::default() },
        Change { retry_count: Some(8), ..Change::default() },
        Change { timeout: Some(32), ..Change::default() },
        Change { send_psn: Some(1 << 24), ..Change::default() },
    ];
    for change in wrong {
        let refused = world.subnet.modify(id, own.1, State::Init, &change);
        assert!(matches!(refused, Err(QueuePairError::Attribute(_))));
        assert_eq!(world.state(own), State::Reset);
    }
    let change = Change { queue_key: Some(77), ..Change::default() };
    world.modify(own, State::Init, &change);
    assert_eq!(world.adapter(0).queue_pair(own.1).unwrap().attributes().queue_key, 77);
}

#[test]
fn verbs_tables_are_limited_and_numbers_are_stale_after_removal() {
    let mut world = World::new(2);
    let limits = AdapterConfig { queue_pairs: 2, ..AdapterConfig::new([8; 6]) };
    let lists = world.subnet.remove(world.ids[1]).unwrap();
    let id = world.subnet.add(&limits, lists).unwrap();
    assert_ne!(id, world.ids[1]);
    assert!(world.subnet.adapter(world.ids[1]).is_none());
    let create =
        |world: &mut World| world.subnet.create_queue_pair(id, Kind::Rc, World::attributes());
    let first = create(&mut world).unwrap();
    create(&mut world).unwrap();
    assert_eq!(create(&mut world), Err(QueuePairError::Limit));
    world.subnet.destroy_queue_pair(id, first).unwrap();
    assert_eq!(world.subnet.destroy_queue_pair(id, first), Err(QueuePairError::NoQueuePair));
    assert_ne!(create(&mut world).unwrap(), first);
    let stale = world.subnet.destroy_queue_pair(world.ids[1], first);
    assert!(stale.is_err());
    drop(world.subnet.clear(id));
    assert_eq!(world.subnet.adapter(id).unwrap().queue_pairs().count(), 0);
}

#[test]
fn verbs_adapter_addresses_are_unique() {
    let mut world = World::new(2);
    let lists = world.subnet.remove(world.ids[1]).unwrap();
    let taken = world.subnet.add(&AdapterConfig::new(mac(0)), lists);
    assert_eq!(taken, Err(AddError::AddressInUse));
}

proptest! {
    #[test]
    fn verbs_random_transitions_never_send_outside_ready_to_send(
        steps in prop::collection::vec((0_usize..7, any::<bool>()), 0..40)
    ) {
        let mut world = World::new(1);
        let own = world.create(0, Kind::Uc, World::attributes());
        let peer = Some(Peer { mac: mac(0), queue_pair: own.1, gid: [0; 16] });
        let change = Change { peer, ..Change::default() };
        let mut state = State::Reset;
        for (to, post) in steps {
            let to = State::ALL[to];
            let done = world.subnet.modify(world.ids[0], own.1, to, &change);
            prop_assert_eq!(done.is_ok(), state.may_become(to, Kind::Uc));
            if done.is_ok() {
                state = to;
            }
            prop_assert_eq!(world.state(own), state);
            if post {
                world.post(own, Operation::Nop, vec![]);
                world.run(own);
                world.run_due(0);
                let succeeded = world.statuses(0).contains(&work::Status::Success);
                prop_assert!(!succeeded || state == State::ReadyToSend);
            }
        }
    }
}
