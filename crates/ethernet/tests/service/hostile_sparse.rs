//! Memory files that cost the daemon: sparse files that the daemon would fill, and files that lose
//! pages while they are in use.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use causeway_attach::native::{Client, NetOptions, NetPort};
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses};
use causeway_memory::{Map, Mapping, Region, Span};
use causeway_model::PortSpec;
use causeway_model::{Command, PortState};
use causeway_ring::Notifier;
use causeway_ring::driver::Driver;
use causeway_testing::frontend::{RECEIVE, TRANSMIT};
use causeway_wire::virtio::{VIRTIO_F_VERSION_1, mask};
use causeway_wire::virtio_net::Header;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

const MIB: u64 = 1 << 20;
/// The file: rings first, then frame data.
const FILE: u64 = 4096 * MIB;
const SENT_FROM: u64 = 16 * MIB;
const FRAME_BYTES: u32 = 1400;

fn add(rig: &Rig, name: &str, n: u8, memory_max: u32) {
    let spec = port_spec(name, "red", &rig.path(name), net(n));
    let spec = PortSpec { memory_max: Some(memory_max), ..spec };
    rig.handle.call(Command::PortAdd(spec)).unwrap();
    rig.try_add(TAKER, "red", net(9)).unwrap();
}

/// The port that the frames are sent to.
const TAKER: &str = "taker";

fn sparse() -> File {
    let file = File::from(memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(FILE).unwrap();
    file
}

/// Sends frames that each lie on a page of their own in `file`, until the port closes or `most`
/// bytes were touched. Returns the bytes.
fn send_pages(rig: &Rig, name: &str, file: &File, most: u64) -> u64 {
    let mapping = std::sync::Arc::new(Mapping::new(file.as_fd(), 0, MIB).unwrap());
    let map = Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap();
    let mut client = Client::connect(&rig.path(name)).unwrap();
    client.set_features(mask(VIRTIO_F_VERSION_1)).unwrap();
    let region = RegionSpec { guest: 0, len: FILE, user: 0, offset: 0 };
    client.grant(&region, file.as_fd()).unwrap();
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut transmit = Driver::new(TRANSMIT, false, false, &map).unwrap();
    let mut start = |index, layout: causeway_ring::driver::Layout| {
        let (desc, avail, used) = (layout.desc().0, layout.avail().0, layout.used().0);
        let at =
            RingAddresses { index, flags: 0, descriptors: desc, used, available: avail, log: 0 };
        let kick = event();
        client.start_queue(layout.size, 0, &at, kick.as_fd(), event().as_fd()).unwrap();
        Notifier::new(kick).unwrap()
    };
    let _receive = start(0, RECEIVE);
    let kick = start(1, TRANSMIT);
    let frame = [&[0; 12][..], &plain(3, mac(9), &[])[..]].concat();
    let header = 0x8_0000;
    map.write(header, &frame).unwrap();
    let open = || rig.view(name).state == PortState::Running;
    wait(open, || format!("{:?}", rig.view(name)));
    // The daemon reads only the head of a frame without receivers.
    let mut taker = NetPort::attach(&rig.path(TAKER), NetOptions::default()).unwrap();
    rig.wait_running(&[TAKER]);
    let mut from = 0;
    while from < most && open() {
        for _ in 0..32 {
            let head = Span { addr: header, len: frame.len() as u32 };
            let page = Span { addr: SENT_FROM + from, len: FRAME_BYTES };
            transmit.add(&map, &[head, page], &[]).unwrap();
            from += 4096;
        }
        transmit.publish().unwrap();
        kick.notify().unwrap();
        wait(
            || {
                transmit.take_all().unwrap();
                taker.discard_all(0).unwrap();
                transmit.outstanding() == 0 || !open()
            },
            || "nothing is taken".into(),
        );
    }
    drop(taker);
    wait(|| rig.view(TAKER).state == PortState::Listening, || format!("{:?}", rig.view(TAKER)));
    from
}

#[test]
fn hostile_sparse_memory_closes_its_port() {
    let rig = Rig::new();
    let mut victim = rig.port("victim", net(1), ALL);
    let mut other = rig.port("other", net(2), ALL);
    add(&rig, "bad", 3, 8);
    let sent = send_pages(&rig, "bad", &sparse(), 2048 * MIB);
    let view = rig.view("bad");
    assert_eq!(view.state, PortState::Faulted, "{} MiB were sent", sent / MIB);
    let fault = view.fault.unwrap();
    assert!(fault.contains("more than memory_max (8 MiB)"), "{fault}");
    assert!(Client::connect(&rig.path("bad")).is_err(), "the port is barred");
    let frame = plain(1, mac(2), b"we go on");
    send(&mut victim, &Header::default(), &frame);
    assert_eq!(receive(&mut other).1, frame);
}

#[test]
fn memory_touched_first_by_the_guest_is_not_charged() {
    let rig = Rig::new();
    add(&rig, "good", 3, 8);
    let file = sparse();
    fallocate(&file, FallocateFlags::empty(), SENT_FROM, 64 * MIB).unwrap();
    assert_eq!(send_pages(&rig, "good", &file, 64 * MIB), 64 * MIB);
    assert_eq!(rig.view("good").faults_total, 0);
}

/// Punches holes into the frame data of the file, repeatedly, until `over` is set.
fn punch(file: &File, most: u64, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        fallocate(file, FallocateFlags::empty(), SENT_FROM, most).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, SENT_FROM, most).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn hostile_holes_punched_under_the_daemon_close_the_port_that_they_stall() {
    const MOST: u64 = 128 * MIB;
    let rig = Rig::new();
    let mut victim = rig.port("victim", net(1), ALL);
    let mut other = rig.port("other", net(2), ALL);
    add(&rig, "bad", 3, 1 << 20);
    let over = AtomicBool::new(false);
    let file = sparse();
    std::thread::scope(|scope| {
        scope.spawn(|| punch(&file, MOST, &over));
        let since = std::time::Instant::now();
        while rig.view("bad").state != PortState::Faulted && since.elapsed() < PATIENCE {
            send_pages(&rig, "bad", &file, MOST);
        }
        over.store(true, Ordering::Relaxed);
    });
    let fault = rig.view("bad").fault.expect("the dispatcher stalls");
    assert!(fault.contains("holes were punched into its memory"), "{fault}");
    assert!(Client::connect(&rig.path("bad")).is_err(), "the port is barred");
    let frame = plain(1, mac(2), b"we go on");
    send(&mut victim, &Header::default(), &frame);
    assert_eq!(receive(&mut other).1, frame);
    for good in ["victim", "other", TAKER] {
        assert_eq!(rig.view(good).faults_total, 0, "{good}");
    }
}

#[test]
fn memory_returned_unused_is_not_charged() {
    let rig = Rig::new();
    add(&rig, "good", 3, 1 << 20);
    let file = sparse();
    let balloon = 1024 * MIB;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::empty(), balloon, 64 * MIB).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..64 {
                fallocate(&file, flags, balloon + at * MIB, MIB).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        assert_eq!(send_pages(&rig, "good", &file, 32 * MIB), 32 * MIB);
    });
    assert_eq!(rig.view("good").faults_total, 0);
}
