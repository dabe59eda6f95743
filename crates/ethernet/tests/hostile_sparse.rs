//! A guest of which the daemon would allocate more memory than the operator allows.

mod common;

use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use causeway_attach::native::Client;
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses};
use causeway_fabric::control::{Command, PortState};
use causeway_fabric::spec::{PortKind, PortSpec};
use causeway_memory::{Map, Mapping, Region, Span};
use causeway_ring::Notifier;
use causeway_ring::driver::Driver;
use causeway_wire::virtio::{VIRTIO_F_VERSION_1, mask};
use common::raw::{RECEIVE, TRANSMIT};
use common::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const MIB: u64 = 1 << 20;
/// The file: rings in its first part, then what is sent.
const FILE: u64 = 4096 * MIB;
const SENT_FROM: u64 = 16 * MIB;
const FRAME_BYTES: u32 = 1400;

fn add(rig: &Rig, name: &str, n: u8) {
    let spec = PortSpec {
        name: name.parse().unwrap(),
        group: "red".parse().unwrap(),
        socket: rig.path(name),
        memory_max: Some(8),
        kind: PortKind::Net(net(n)),
    };
    rig.handle.call(Command::PortAdd(spec)).unwrap();
}

/// Sends frames each of which lies on a page of its own of a sparse file, until the port is closed
/// or `most` bytes were sent from; with `filled` the pages are there before. Returns the bytes.
fn send_pages(rig: &Rig, name: &str, most: u64, filled: bool) -> u64 {
    // Of a frame that nobody takes the daemon reads the head alone.
    let mut taker = rig.port("taker", net(9), 0);
    rig.wait_running(&["taker"]);
    let file = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE).unwrap();
    let file = std::fs::File::from(file);
    if filled {
        let pages = vec![0; usize::try_from(MIB).unwrap()];
        (0..most / MIB).for_each(|mib| file.write_all_at(&pages, SENT_FROM + mib * MIB).unwrap());
    }
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
    from
}

#[test]
fn hostile_sparse_memory_closes_the_port_that_makes_the_daemon_pay() {
    let rig = Rig::new();
    let mut victim = rig.port("victim", net(1), ALL);
    let mut other = rig.port("other", net(2), ALL);
    add(&rig, "bad", 3);
    let sent = send_pages(&rig, "bad", 2048 * MIB, false);
    let view = rig.view("bad");
    assert_eq!(view.state, PortState::Faulted, "{} MiB were sent", sent / MIB);
    let fault = view.fault.unwrap();
    assert!(fault.contains("more than memory_max (8 MiB)"), "{fault}");
    assert!(Client::connect(&rig.path("bad")).is_err(), "it would do it again at once");
    let frame = plain(1, mac(2), b"we go on");
    send(&mut victim, &causeway_wire::virtio_net::Header::default(), &frame);
    assert_eq!(receive(&mut other).1, frame);
}

#[test]
fn memory_that_the_guest_touched_first_counts_for_nothing() {
    let rig = Rig::new();
    add(&rig, "good", 3);
    assert_eq!(send_pages(&rig, "good", 64 * MIB, true), 64 * MIB);
    assert_eq!(rig.view("good").faults_total, 0);
}
