//! Bystanders: pairs of native ports that exchange checked content continuously, and a port that
//! answers requests.

use causeway_attach::native::{NetOptions, NetPort, Sockets, VsockOptions, VsockPort};
use causeway_vm::Daemon;
use causeway_vm::daemon::Member;
use causeway_wire::vsock::Type;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Port on which the answering bystander accepts connections, and the pair's port.
const OPEN: u32 = 9000;
const PAIR: u32 = 9001;
/// Time limit of every wait of a bystander.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

/// Threads of the bystanders; they end when this value is dropped.
pub struct Bystanders {
    stop: Arc<AtomicBool>,
    /// Exchanges so far: frames, stream data.
    done: [Arc<AtomicU64>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Bystanders {
    /// Starts on the ports of three members: the first answers, the others are a pair.
    pub fn start(daemon: &Daemon, members: &[Member]) -> Self {
        let [echo, one, two] = members else { panic!("three members") };
        let net =
            |m: &Member| NetPort::attach(&daemon.net_socket(m), NetOptions::default()).unwrap();
        let sockets = |m: &Member| {
            let options = VsockOptions::default();
            Sockets::new(VsockPort::attach(&daemon.vsock_socket(m), options).unwrap())
        };
        let stop = Arc::new(AtomicBool::new(false));
        let done: [Arc<AtomicU64>; 2] = Default::default();
        let mut threads = Vec::new();
        let mut spawn = |mut turn: Box<dyn FnMut() + Send>| {
            let stop = Arc::clone(&stop);
            threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    turn();
                }
            }));
        };
        let (mut port, own) = (net(echo), address(echo));
        let own_ip = [10, 77, 0, echo.number];
        spawn(Box::new(move || answer(&mut port, own, own_ip)));
        let mut door = sockets(echo);
        door.listen(Type::Stream, OPEN);
        spawn(Box::new(move || drop(door.accept(Duration::from_millis(100)))));

        let (mut a, mut b, count) = (net(one), net(two), Arc::clone(&done[0]));
        let head = [&address(two)[..], &address(one), &[0x88, 0xb5]].concat();
        spawn(Box::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            exchange_frames(&mut a, &mut b, &head, number);
            thread::sleep(PAUSE);
        }));
        let (mut a, mut b, count) = (sockets(one), sockets(two), Arc::clone(&done[1]));
        b.listen(Type::Stream, PAIR);
        let cid = b.cid();
        let ids = thread::scope(|scope| {
            let accepted = scope.spawn(|| b.accept(PATIENCE).unwrap());
            (a.connect(Type::Stream, cid, PAIR, PATIENCE).unwrap(), accepted.join().unwrap())
        });
        spawn(Box::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            let sent = pattern(number, 3000);
            a.send(ids.0, &sent, PATIENCE).unwrap();
            let mut got = vec![0; sent.len()];
            b.receive(ids.1, &mut got, PATIENCE).unwrap();
            assert_eq!(got, sent, "stream data of exchange {number}");
            thread::sleep(PAUSE);
        }));
        Self { stop, done, threads }
    }

    /// Checks that both kinds of exchange progress, with every byte correct.
    ///
    /// # Errors
    /// When an exchange stalls.
    pub fn go_on(&self) -> Result<(), String> {
        let count = |n: usize| self.done[n].load(Ordering::Relaxed);
        let (start, before) = (Instant::now(), [count(0), count(1)]);
        loop {
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err("a bystander's exchange failed".into());
            }
            if count(0) > before[0] + 2 && count(1) > before[1] + 2 {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err("the bystanders' exchanges stall".into());
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a bystander's exchange failed");
        }
    }
}

fn address(member: &Member) -> [u8; 6] {
    [0x52, 0x54, 0, 0x77, 0, member.number]
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(31).wrapping_add(seed) >> 2) as u8).collect()
}

/// Sends a frame from `a` to `b` and waits for it; panics if another frame of `a` arrives.
fn exchange_frames(a: &mut NetPort, b: &mut NetPort, head: &[u8], number: u64) {
    let body = pattern(number, 60 + (number % 1400) as usize);
    let sent = [head, &number.to_le_bytes(), &body].concat();
    assert!(a.send(&sent).unwrap(), "no room to send");
    let (start, mut got) = (Instant::now(), Vec::new());
    loop {
        if b.receive(0, &mut got).unwrap().is_some() {
            // Other members may broadcast to the group; only `a` sends frames with this header.
            if got.get(..14) == Some(head) {
                assert_eq!(got, sent, "frame {number}");
                return;
            }
            assert_eq!(got[0] & 1, 1, "an unexpected unicast frame: {got:?}");
            continue;
        }
        assert!(start.elapsed() < PATIENCE, "frame {number} was lost");
        b.wait(Some(Duration::from_millis(50))).unwrap();
    }
}

/// Echoes frames, and answers ARP requests for this address.
fn answer(port: &mut NetPort, own: [u8; 6], ip: [u8; 4]) {
    let mut frame = Vec::new();
    if port.receive(0, &mut frame).unwrap().is_none() {
        port.wait(Some(Duration::from_millis(50))).unwrap();
        return;
    }
    if frame.len() < 42 {
        return;
    }
    let asker = frame[6..12].to_vec();
    if frame[12..14] == [8, 6] {
        if frame[38..42] != ip {
            return;
        }
        // An ARP reply: sender and target are exchanged.
        frame[21] = 2;
        let question: Vec<u8> = frame[22..32].to_vec();
        frame[22..28].copy_from_slice(&own);
        frame[28..32].copy_from_slice(&ip);
        frame[32..42].copy_from_slice(&question);
    } else if frame[..6] != own {
        return;
    }
    frame[..6].copy_from_slice(&asker);
    frame[6..12].copy_from_slice(&own);
    // A full ring drops the reply.
    let _ = port.send(&frame).unwrap();
}
