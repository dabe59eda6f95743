//! The words of an idle function that change before it has work.

use causeway_memory::WordWatch;
use causeway_mlx5::poll;
use causeway_verbs::Budget;
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::SendOpcode;

use crate::driver::{Guest, Link, VIRTUAL, World, data};

fn watch(world: &mut World, guest: &Guest) -> Option<WordWatch> {
    world.function(guest).watch()
}

#[test]
fn watch_ends_with_each_kind_of_work() {
    let Link { mut world, a, mut qp_a, mut cq_a, mut qp_b, b, key_a, key_b, .. } =
        Link::new(Service::ReliableConnection);
    world.run();
    let idle = watch(&mut world, &a).unwrap();
    a.post(&mut qp_a, (SendOpcode::Nop, 0), |entry| entry);
    assert!(idle.has_changed(), "a post");
    assert!(watch(&mut world, &a).is_none(), "the post waits");
    world.run();
    // The first completion of a queue is reported without an arm word.
    a.poll_cq(&mut cq_a).unwrap();
    a.post(&mut qp_a, (SendOpcode::Nop, 0), |entry| entry);
    world.run();
    for sequence in 1..3 {
        let idle = watch(&mut world, &a).unwrap();
        assert!(!idle.has_changed(), "the completion is not reported, and the queue not armed");
        a.arm(&cq_a, sequence, false);
        assert!(idle.has_changed(), "an arm word");
        assert!(watch(&mut world, &a).is_none(), "an event is due");
        world.run();
        a.poll_cq(&mut cq_a).unwrap();
        a.post(&mut qp_a, (SendOpcode::Nop, 0), |entry| entry);
        world.run();
    }
    let idle = watch(&mut world, &a).unwrap();
    a.poll_cq(&mut cq_a).unwrap();
    assert!(idle.has_changed(), "the driver took the last completion");
    world.run();
    assert!(watch(&mut world, &a).is_some());
    // A request waits for a receive work request of its responder.
    let segment = data(key_a, VIRTUAL, 8);
    a.post(&mut qp_a, (SendOpcode::Send, 0), |entry| entry.data(&segment));
    world.run();
    assert!(watch(&mut world, &a).is_none(), "a request waits");
    assert!(watch(&mut world, &b).is_some());
    b.post_receive(&mut qp_b, &[data(key_b, VIRTUAL, 8)]);
    world.run();
    assert!(watch(&mut world, &a).is_some());
    // A queue pair in the error state flushes receive work requests.
    a.simple(&mut world, Opcode::ToError, qp_a.number).unwrap();
    world.run();
    let idle = watch(&mut world, &a).unwrap();
    a.post_receive(&mut qp_a, &[segment]);
    assert!(idle.has_changed(), "a receive work request of a failed queue pair");
    assert!(watch(&mut world, &a).is_none());
}

#[test]
fn watch_is_refused_while_a_request_waits_and_not_after_its_queue_pair_is_gone() {
    for opcode in [Opcode::ToReset, Opcode::DestroyQueuePair] {
        let Link { mut world, a, mut qp_a, key_a, .. } = Link::new(Service::ReliableConnection);
        let segment = data(key_a, VIRTUAL, 8);
        a.post(&mut qp_a, (SendOpcode::Send, 0), |entry| entry.data(&segment));
        world.run();
        assert!(world.function(&a).has_waiting_work());
        a.simple(&mut world, opcode, qp_a.number).unwrap();
        assert!(!world.function(&a).has_waiting_work(), "{opcode:?}");
        poll(&mut world.subnet, a.adapter, world.now, &mut Budget::new(9, 9));
        assert!(!world.function(&a).has_waiting_work(), "{opcode:?}");
    }
}
