//! Batches of small messages complete in one pass. Prints the cost of a message, from the doorbell
//! record to both completions. To measure:
//! `CAUSEWAY_ROUNDS=20000 cargo test --release -p causeway-mlx5 --test function rate -- --nocapture`.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_memory::{Mapping, View, create};
use causeway_mlx5::{Record, poll};
use causeway_verbs::Budget;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{RemoteAddressSegment, SendOpcode};

use crate::driver::{Link, VIRTUAL, data};

/// Entries in flight.
const BATCH: u32 = 16;
/// Batches, unless CAUSEWAY_ROUNDS says otherwise.
const ROUNDS: u32 = 50;

/// Gives both functions records. Their objects have none, which does not change the time of messages.
fn record(link: &mut Link) {
    for guest in [&link.a, &link.b] {
        let function = link.world.function(guest);
        let len = Record::file_bytes(function.config());
        let file = create("record", len as u64).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, len as u64).unwrap());
        let view = View::new(mapping, 0, len).unwrap();
        function.set_record(Record::create(view, function.config()).unwrap());
    }
}

/// Runs batches that `post` posts, and returns the time of the function per message.
fn measure(is_recorded: bool, mut post: impl FnMut(&mut Link)) -> Duration {
    let mut link = Link::new(Service::ReliableConnection);
    if is_recorded {
        record(&mut link);
    }
    let mut spent = Duration::ZERO;
    let rounds = std::env::var("CAUSEWAY_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for _ in 0..rounds {
        for _ in 0..BATCH {
            post(&mut link);
        }
        let start = Instant::now();
        let mut budget = Budget::new(1000, 1 << 30);
        let moved = poll(&mut link.world.subnet, link.a.adapter, 0, &mut budget);
        poll(&mut link.world.subnet, link.b.adapter, 0, &mut budget);
        spent += start.elapsed();
        assert_eq!(moved, BATCH);
        while link.a.poll_cq(&mut link.cq_a).is_some() {}
        while link.b.poll_cq(&mut link.cq_b).is_some() {}
    }
    spent / (rounds * BATCH)
}

#[test]
fn mlx5_batches_of_small_messages_complete_in_one_pass() {
    for is_recorded in [false, true] {
        let write = measure(is_recorded, |link| {
            let to = RemoteAddressSegment { address: VIRTUAL, key: link.key_b };
            let from = data(link.key_a, VIRTUAL, 64);
            link.a.post(&mut link.qp_a, (SendOpcode::Write, 0), |e| e.remote(&to).data(&from));
        });
        let send = measure(is_recorded, |link| {
            link.b.post_receive(&mut link.qp_b, &[data(link.key_b, VIRTUAL, 64)]);
            let from = data(link.key_a, VIRTUAL, 64);
            link.a.post(&mut link.qp_a, (SendOpcode::Send, 0), |e| e.data(&from));
        });
        println!("write of 64 bytes: {write:?}, send: {send:?}, recorded: {is_recorded}");
    }
}
