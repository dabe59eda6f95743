//! Kills causewayd at random moments while queue pairs of two adapters exchange messages. Each exchange
//! goes on after each kill, in order and without a loss, whether its program polls or waits for
//! interrupts. `CAUSEWAY_KILLS` is the number of kills.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::daemon_process::{DaemonProcess, config};
use crate::common::{Dir, send};
use causeway_mlx5_driver::{CompletionRing, Driver, EventRing, Post, QueuePair, VfioBar};
use causeway_wire::mlx5::completion_queue::{CompletionEntry, CompletionOpcode, Entry};
use causeway_wire::mlx5::event_queue::Event;
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const CAUSEWAYD: &str = env!("CARGO_BIN_EXE_causewayd");
/// Kills, unless the environment has another number.
const KILLS: u64 = 20;
/// Longest time in which an exchange may make no progress.
const PATIENCE: Duration = Duration::from_secs(30);
const MEMORY: u64 = 16 << 20;
/// Address of registered memory in work requests.
const START: u64 = 0x7f00_0000_0000;
/// Length of a part of the registered memory.
const PART: u64 = 64 << 10;
// Parts: sent messages, received messages, source of writes, their destination, result of reads.
const SENT: u64 = 0;
const RECEIVED: u64 = PART;
const SOURCE: u64 = 2 * PART;
const WRITTEN: u64 = 3 * PART;
const READ: u64 = 4 * PART;
/// Receive work requests that are posted.
const RECEIVES: u64 = 8;
/// Length of a message, in bytes.
const MESSAGE: u64 = 4096;
/// Interrupt vector of completions.
const COMPLETIONS: usize = 1;

/// A guest: a driver with a queue pair for messages and another for writes and reads.
struct Guest {
    bar: VfioBar,
    driver: Driver,
    messages: (CompletionRing, QueuePair),
    writes: (CompletionRing, QueuePair),
    buffer: u64,
    key: u32,
}

impl Guest {
    fn new(dir: &Dir, n: usize) -> Self {
        let socket = dir.file(&format!("hca-{n}.sock"));
        let (mut bar, mut driver) = VfioBar::start(&socket, MEMORY).unwrap();
        let mut pair = || {
            let queue = driver.create_cq(&mut bar, 6).unwrap();
            let context = driver.qp_context(Service::ReliableConnection, queue.number).unwrap();
            let context = QueuePairContext { log_send_size: 6, ..context };
            (queue, driver.create_pair(&mut bar, context).unwrap())
        };
        let (messages, writes) = (pair(), pair());
        let buffer = driver.allocate(5 * PART).unwrap();
        let key = driver.register(&mut bar, START, buffer, 5 * PART).unwrap();
        Self { bar, driver, messages, writes, buffer, key }
    }

    fn connect(&mut self, peer: usize, numbers: [u32; 2]) {
        for (pair, number) in [&self.messages.1, &self.writes.1].into_iter().zip(numbers) {
            self.driver.connect(&mut self.bar, pair, mac(peer), number).unwrap();
        }
    }

    fn numbers(&self) -> [u32; 2] {
        [self.messages.1.number, self.writes.1.number]
    }
}

fn mac(n: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, n as u8]
}

/// Returns the completion of a request that must succeed.
fn success(entry: Entry) -> CompletionEntry {
    match entry {
        Entry::Success(entry) => entry,
        Entry::Error(error) => panic!("a request failed: {error:?}"),
    }
}

/// The memory of a guest and its key.
struct Memory<'a> {
    driver: &'a Driver,
    buffer: u64,
    key: u32,
}

impl Memory<'_> {
    /// Returns the segment of `len` bytes at an offset.
    fn at(&self, offset: u64, len: u64) -> DataSegment {
        DataSegment { raw_len: len as u32, key: self.key, address: START + offset }
    }

    fn store(&self, offset: u64, value: u64) {
        self.driver.memory().write(self.buffer + offset, &value.to_ne_bytes()).unwrap();
    }

    fn load(&self, offset: u64) -> u64 {
        u64::from_ne_bytes(self.driver.memory().read_array(self.buffer + offset).unwrap())
    }
}

/// A completion queue whose driver sleeps until an interrupt.
struct Events<'a> {
    driver: &'a Driver,
    queue: CompletionRing,
    ring: EventRing,
    vector: BorrowedFd<'a>,
    /// Events of the queue; part of its arm word, as in the drivers of Linux.
    count: u32,
}

impl Events<'_> {
    /// Returns the next completion; `None` at the end of the test.
    fn next(&mut self, is_over: &AtomicBool) -> Option<CompletionEntry> {
        while !is_over.load(Ordering::Relaxed) {
            if let Some(entry) = self.driver.poll_cq(&mut self.queue).unwrap() {
                return Some(success(entry));
            }
            self.driver.arm(&self.queue, self.count, false).unwrap();
            if let Some(entry) = self.driver.poll_cq(&mut self.queue).unwrap() {
                return Some(success(entry));
            }
            self.sleep(is_over);
        }
        None
    }

    /// Sleeps until the queue has an event.
    fn sleep(&mut self, is_over: &AtomicBool) {
        let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while !is_over.load(Ordering::Relaxed) {
            let mut vector = [PollFd::from_borrowed_fd(self.vector, PollFlags::IN)];
            if poll(&mut vector, Some(&pause)).unwrap() == 0 {
                continue;
            }
            rustix::io::read(self.vector, &mut [0_u8; 8]).unwrap();
            let mut has_event = false;
            while let Some(event) = self.driver.take_event(&mut self.ring).unwrap() {
                let own = Event::Completion { completion_queue: self.queue.number };
                if event == own {
                    has_event = true;
                    self.count += 1;
                }
            }
            if has_event {
                return;
            }
        }
    }
}

/// Sends a number, and the next one after each answer. Each side sleeps until its completions come.
fn exchange(
    memory: &Memory<'_>,
    (mut events, pair): (Events<'_>, &mut QueuePair),
    is_first: bool,
    (progress, is_over): (&AtomicU64, &AtomicBool),
) {
    let driver = memory.driver;
    let post_receive = |pair: &mut QueuePair, number: u64| {
        let place = RECEIVED + number % RECEIVES * MESSAGE;
        driver.post_receive(pair, &[memory.at(place, MESSAGE)]).unwrap();
    };
    let post_send = |pair: &mut QueuePair, number: u64| {
        memory.store(SENT, number);
        let from = memory.at(SENT, MESSAGE);
        driver.post(pair, Post::new(SendOpcode::Send), |entry| entry.data(&from)).unwrap();
    };
    (0..RECEIVES).for_each(|number| post_receive(pair, number));
    let (mut sent, mut ended, mut received) = (0, 0, 0);
    loop {
        // The first side is a message ahead of the answers.
        if ended == sent && sent < received + u64::from(is_first) {
            post_send(pair, sent);
            sent += 1;
        }
        let Some(entry) = events.next(is_over) else { return };
        if entry.opcode == CompletionOpcode::Request.raw() {
            ended += 1;
            assert!(ended <= sent, "a send has two completions");
            continue;
        }
        let found = memory.load(RECEIVED + received % RECEIVES * MESSAGE);
        assert_eq!(found, received, "a message is lost, or was received twice");
        post_receive(pair, received + RECEIVES);
        received += 1;
        progress.store(received, Ordering::Relaxed);
    }
}

/// Writes messages of several lengths to the peer and reads them back, and polls for completions.
fn write_and_read(
    memory: &Memory<'_>,
    peer_key: u32,
    (mut queue, pair): (CompletionRing, &mut QueuePair),
    (progress, is_over): (&AtomicU64, &AtomicBool),
) {
    let driver = memory.driver;
    let to = RemoteAddressSegment { address: START + WRITTEN, key: peer_key };
    for round in 1.. {
        let len = if round % 16 == 0 { PART } else { 8 + round * 97 % MESSAGE };
        memory.store(SOURCE, round);
        let count = 1 + round % 5;
        for _ in 0..count {
            let from = memory.at(SOURCE, len);
            let post = Post::new(SendOpcode::Write);
            driver.post(pair, post, |entry| entry.remote(&to).data(&from)).unwrap();
        }
        let result = memory.at(READ, len);
        let post = Post::new(SendOpcode::Read);
        driver.post(pair, post, |entry| entry.remote(&to).data(&result)).unwrap();
        for _ in 0..=count {
            let entry = loop {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                match driver.poll_cq(&mut queue).unwrap() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            success(entry);
        }
        assert_eq!(memory.load(READ), round, "content of a write");
        progress.store(round, Ordering::Relaxed);
    }
}

/// Ends the exchanges, also if the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The exchanges, as the thread that kills causewayd sees them.
struct Watch<'a> {
    dir: &'a Dir,
    progress: &'a [AtomicU64; 4],
    seed: u64,
}

impl Watch<'_> {
    /// Returns a random number below `end`.
    fn random(&mut self, end: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 20) % end
    }

    fn sleep_up_to_us(&mut self, end: u64) {
        thread::sleep(Duration::from_micros(self.random(end)));
    }

    /// Waits until each exchange has made `count` steps. Returns the longest time of a step.
    fn await_progress(&self, count: u64, place: &str) -> Duration {
        let load = || self.progress.each_ref().map(|one| one.load(Ordering::Relaxed));
        let (first, since) = (load(), Instant::now());
        while load().iter().zip(first).any(|(now, first)| *now < first + count) {
            if since.elapsed() > PATIENCE {
                let control = self.dir.file("control.sock");
                let views =
                    [0, 1].map(|n| send(&control, "GET", &format!("/v1/hcas/hca-{n}"), "").1);
                panic!("{place}: an exchange stopped: {first:?} {:?}\n{views:#?}", load());
            }
            thread::sleep(Duration::from_micros(200));
        }
        since.elapsed()
    }
}

#[test]
fn restart_queue_pairs_continue_after_kills_at_random_moments() {
    // Records need a memory file system.
    let path = Path::new("/dev/shm").join(format!("causeway-pairs-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let dir = Dir(path);
    let kills = std::env::var("CAUSEWAY_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let port = |n| {
        format!(
            "[[port]]\nname = \"hca-{n}\"\ngroup = \"blue\"\nkind = \"hca\"\n\
             mac = \"52:54:00:00:01:0{n}\"\n"
        )
    };
    let file = config(&dir, "needed", &format!("{}{}", port(0), port(1)));
    let mut life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
    let mut guests = [0, 1].map(|n| Guest::new(&dir, n));
    let numbers = guests.each_ref().map(Guest::numbers);
    guests[0].connect(1, numbers[1]);
    guests[1].connect(0, numbers[0]);
    let keys = guests.each_ref().map(|guest| guest.key);
    let (progress, is_over) = (<[AtomicU64; 4]>::default(), AtomicBool::new(false));
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for ((side, guest), progress) in guests.iter_mut().enumerate().zip(progress.chunks(2)) {
            let Guest { bar, driver, messages, writes, buffer, key } = guest;
            let (driver, vector) = (&*driver, bar.vector(COMPLETIONS).unwrap());
            let memory = || Memory { driver, buffer: *buffer, key: *key };
            let (own, other, peer_key, is_over) = (memory(), memory(), keys[1 - side], &is_over);
            let ring = driver.events();
            let events = Events { driver, queue: messages.0, ring, vector, count: 0 };
            scope.spawn(move || {
                exchange(&own, (events, &mut messages.1), side == 0, (&progress[0], is_over));
            });
            scope.spawn(move || {
                let queue = (writes.0, &mut writes.1);
                write_and_read(&other, peer_key, queue, (&progress[1], is_over));
            });
        }
        let mut watch = Watch { dir: &dir, progress: &progress, seed: 0x9e37_79b9_7f4a_7c15 };
        for kill in 0..kills {
            let count = 2 + watch.random(30);
            let time = watch.await_progress(count, &format!("after kill {kill}"));
            longest = longest.max(time);
            watch.sleep_up_to_us(5000);
            life.kill();
            if watch.random(2) == 0 {
                watch.sleep_up_to_us(50_000);
            }
            life = DaemonProcess::start(CAUSEWAYD, &file).ready(&dir);
        }
        watch.await_progress(10, "after the last kill");
    });
    let steps = progress.each_ref().map(|one| one.load(Ordering::Relaxed));
    println!("{kills} kills, steps {steps:?}, longest wait {longest:?}");
    drop(guests);
    life.release(&dir);
}
