//! Traces of the connections between adapters.

use causeway_model::commands::trace;
use causeway_model::{TraceQuery, TraceView};

use crate::rig::{Rig, Stream, name, options};

fn trace(rig: &Rig, from: u8, to: u8) -> TraceView {
    let query = TraceQuery::new(&trace::Verbs { from: name(from), to: name(to) });
    rig.shard.trace(&query).unwrap().unwrap()
}

/// Checks that a step of a trace contains a text.
#[track_caller]
fn says(trace: &TraceView, text: &str) {
    assert!(trace.steps.iter().any(|step| step.contains(text)), "{text:?} is not in {trace:#?}");
}

#[test]
fn trace_names_connected_queue_pairs_of_both_adapters() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, options(1)), rig.start(2, options(2)));
    let unconnected = trace(&rig, 2, 1);
    assert_eq!(unconnected.verdict, "possible");
    says(&unconnected, "no connected queue pair of p2 names p1");
    let stream = Stream::new(&mut rig, &mut guest, &mut to);
    let (own, peer) = (stream.from.number, stream.to.number);
    let connected = trace(&rig, 2, 1);
    assert_eq!(connected.verdict, "connected");
    assert_eq!(connected.to, [format!("p1 queue pair {peer}")]);
    says(&connected, "p2 and p1 are adapters of group red");
    says(
        &connected,
        &format!("queue pair {own} of p2 (RC, ready to send) names queue pair {peer}"),
    );
    says(&connected, "names it in return and is ready to send: connected");
    says(&connected, "its address is 02:43:57:00:00:01");
}

#[test]
fn trace_explains_a_queue_pair_that_is_gone() {
    let mut rig = Rig::new();
    let (mut to, mut guest) = (rig.start(1, options(1)), rig.start(2, options(2)));
    let mut stream = Stream::new(&mut rig, &mut guest, &mut to);
    let opcode = causeway_wire::mlx5::command::Opcode::DestroyQueuePair;
    let number = stream.to.number;
    to.with(&mut rig, |driver, bar| driver.simple(bar, opcode, number));
    stream.post_write(&guest, 64);
    for _ in 0..100 {
        rig.turn();
    }
    let gone = trace(&rig, 2, 1);
    assert_eq!(gone.verdict, "possible");
    says(&gone, "which does not exist; 1 requests found no responder, the last because the");
    says(&gone, "a request waits for the responder");
    let back = trace(&rig, 1, 2);
    says(&back, "of p2 (RC, ready to send) names queue pair");
}

#[test]
fn trace_refuses_adapters_without_driver_and_outside_the_group() {
    let mut rig = Rig::new();
    rig.start(2, options(2));
    rig.add(3, options(3));
    let unstarted = trace(&rig, 2, 3);
    assert_eq!(unstarted.verdict, "refused");
    says(&unstarted, "p3 has no driver");
    let outside = trace(&rig, 2, 9);
    assert_eq!(outside.verdict, "refused");
    says(&outside, "p9 is no adapter of group red, the group of p2");
    let query = TraceQuery::new(&trace::Verbs { from: name(9), to: name(2) });
    let error = rig.shard.trace(&query).unwrap().unwrap_err();
    assert!(error.to_string().contains("port p9 is no adapter"), "{error}");
}
