//! Guests that continue over restarts of the shard: adapters are restored one after another.

use causeway_mlx5_driver::Post;
use causeway_wire::mlx5::completion_queue::{Entry, Syndrome};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::SendOpcode;
use causeway_wire::session::SERVICE_QPN;

use crate::record::on_tmpfs;
use crate::rig::{Guest, Rig, Stream, TURN_NS, options};

const SECOND_NS: u64 = 1_000_000_000;

/// Serves turns for `ns` nanoseconds of the rig's clock, with a pause between two turns.
fn pass(rig: &mut Rig, ns: u64) {
    let end = rig.now + ns;
    while rig.now < end {
        rig.turn();
        rig.now += (ns / 100).saturating_sub(TURN_NS);
    }
}

/// Serves turns until the stream has `count` completions more. Returns whether it has.
fn reap(rig: &mut Rig, stream: &mut Stream, guest: &Guest, count: u64) -> bool {
    let wanted = stream.done + count;
    for _ in 0..1000 {
        rig.turn();
        stream.reap(guest);
        if stream.done >= wanted {
            return true;
        }
    }
    false
}

/// The retries of the driver's queue pairs take 0.54 s.
#[test]
fn restart_requests_wait_for_an_adapter_that_is_restored_later() {
    let test = "restart::restart_requests_wait_for_an_adapter_that_is_restored_later";
    on_tmpfs(test, |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, options(1)), rig.start(2, options(2)));
        let mut streams =
            [Stream::new(&mut rig, &mut a, &mut b), Stream::new(&mut rig, &mut a, &mut b)];
        for (round, is_added) in [false, true, false].into_iter().enumerate() {
            drop(rig);
            streams[0].post_write(&a, 64);
            streams[1].post_receive(&b);
            streams[1].post_send(&a, 64);
            rig = Rig::held(dir);
            if is_added {
                rig.add(2, options(2));
            }
            rig.resume(1, options(1), &a);
            pass(&mut rig, 20 * SECOND_NS);
            assert!(streams.iter_mut().all(|stream| stream.reap(&a) == 0), "round {round}");
            if is_added {
                rig.reconnect(2, &b);
            } else {
                rig.resume(2, options(2), &b);
            }
            for stream in &mut streams {
                assert!(reap(&mut rig, stream, &a, 1), "round {round}: no completion");
            }
        }
    });
}

#[test]
fn restart_request_to_an_adapter_that_never_comes_back_fails() {
    on_tmpfs("restart::restart_request_to_an_adapter_that_never_comes_back_fails", |dir| {
        let mut rig = Rig::held(dir);
        let (mut a, mut b) = (rig.start(1, options(1)), rig.start(2, options(2)));
        let mut stream = Stream::new(&mut rig, &mut a, &mut b);
        drop(rig);
        stream.post_write(&a, 64);
        rig = Rig::held(dir);
        rig.resume(1, options(1), &a);
        pass(&mut rig, 59 * SECOND_NS);
        assert_eq!(stream.take_failures(&a), 0);
        pass(&mut rig, 2 * SECOND_NS);
        assert_eq!(stream.take_failures(&a), 1);
    });
}

#[test]
fn restart_ends_the_session_of_a_queue_pair_with_the_service_of_its_adapter() {
    let test = "restart::restart_ends_the_session_of_a_queue_pair_with_the_service_of_its_adapter";
    on_tmpfs(test, |dir| {
        let mut rig = Rig::held(dir);
        let mut a = rig.start(1, options(1));
        let mac = a.mac;
        let (mut pair, mut cq) = a.with(&mut rig, |driver, bar| {
            let cq = driver.create_cq(bar, 4)?;
            let context = driver.qp_context(Service::ReliableConnection, cq.number)?;
            let pair = driver.create_pair(bar, context)?;
            driver.connect(bar, &pair, mac, SERVICE_QPN)?;
            Ok((pair, cq))
        });
        drop(rig);
        rig = Rig::held(dir);
        rig.resume(1, options(1), &a);
        a.driver.post(&mut pair, Post::new(SendOpcode::Send), |entry| entry).unwrap();
        let entry = (0..1000).find_map(|_| {
            rig.turn();
            a.driver.poll_cq(&mut cq).unwrap()
        });
        let Some(Entry::Error(entry)) = entry else { panic!("{entry:?}") };
        assert_eq!(entry.syndrome, Syndrome::Flushed.raw());
    });
}
