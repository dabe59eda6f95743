//! Victims: threads that carry checked traffic during the attacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort, Sockets, VsockOptions, VsockPort};
use causeway_wire::vsock::Type;

use crate::{Daemon, PATIENCE, adapters, wait};

/// Three threads with two ports each, for frames, for streams, and for writes of adapters.
pub struct Victims {
    stop: Arc<AtomicBool>,
    rounds: [Arc<AtomicU64>; 3],
    threads: Vec<JoinHandle<()>>,
}

impl Victims {
    pub fn start(daemon: &Daemon) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds: [Arc<AtomicU64>; 3] = Default::default();
        let net = |name| NetPort::attach(&daemon.socket(name), NetOptions::default()).unwrap();
        let sockets = |name| {
            let port = VsockPort::attach(&daemon.socket(name), VsockOptions::default()).unwrap();
            Sockets::new(port)
        };
        let (mut a, mut b) = (net("one-net"), net("two-net"));
        let frames = move |round| exchange_frames(&mut a, &mut b, round);
        let (mut c, mut d) = (sockets("one-vsock"), sockets("two-vsock"));
        d.listen(Type::Stream, 1);
        let cid = d.cid();
        let (from, to) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| d.accept(PATIENCE).unwrap());
            (c.connect(Type::Stream, cid, 1, PATIENCE).unwrap(), accepted.join().unwrap())
        });
        let stream = move |round: u64| {
            let sent: Vec<u8> = (0..5000).map(|n| (n + round) as u8).collect();
            c.send(from, &sent, PATIENCE).unwrap();
            let mut got = vec![0; sent.len()];
            d.receive(to, &mut got, PATIENCE).unwrap();
            assert_eq!(got, sent, "stream data of round {round}");
        };
        let writes = adapters::writes(daemon);
        let turns: [Box<dyn FnMut(u64) + Send>; 3] =
            [Box::new(frames), Box::new(stream), Box::new(writes)];
        let spawn = |(mut turn, count): (Box<dyn FnMut(u64) + Send>, &Arc<AtomicU64>)| {
            let (stop, count) = (Arc::clone(&stop), Arc::clone(count));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    turn(count.fetch_add(1, Ordering::Relaxed));
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let threads = turns.into_iter().zip(&rounds).map(spawn).collect();
        Self { stop, rounds, threads }
    }

    /// Asserts that all threads make progress.
    pub fn assert_well(&self, after: &str) {
        let now = || self.rounds.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = now();
        wait(
            || {
                assert!(!self.threads.iter().any(JoinHandle::is_finished), "a loss by {after}");
                now().iter().zip(before).all(|(now, before)| *now > before + 2)
            },
            || format!("the others stand still after {after}"),
        );
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a victim lost something");
        }
    }
}

/// Exchanges sixteen frames, all of which must arrive in order.
fn exchange_frames(a: &mut NetPort, b: &mut NetPort, round: u64) {
    let head = [0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 0, 0x88, 0xb5];
    let frame = |n: u64| {
        let body = (0..50 + n * 80).map(|at| (at + round) as u8);
        let number = (round * 16 + n).to_le_bytes();
        head.iter().copied().chain(number).chain(body).collect::<Vec<u8>>()
    };
    for n in 0..16 {
        assert!(a.send(&frame(n)).unwrap(), "no room to send");
    }
    let (start, mut got) = (Instant::now(), Vec::new());
    for n in 0..16 {
        while b.receive(0, &mut got).unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "frame {n} of round {round} was lost");
            b.wait(Some(Duration::from_millis(50))).unwrap();
        }
        assert_eq!(got, frame(n), "frame {n} of round {round}");
    }
}
