//! A link whose far end is the Linux kernel's vxlan device.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use causeway_fabric::carrier::BufferPool;
use causeway_fabric::udp::{Fragmentation, Origin, Udp, UdpReceiver};
use causeway_guest_tool::limits::STREAM_PORT;
use causeway_vm::daemon::Member;
use causeway_vm::{Daemon, Guest, Machine, Namespace, process, traffic};
use causeway_wire::ecn::{ECN_MASK, Ecn};
use common::LIMIT;
use common::hosts::{Native, TestHosts, address, address6, counter, ping, show, wait};
use common::station::Station;

const VNI: u32 = 42;
/// Largest packet in a VXLAN datagram of 1500 bytes.
const MTU: u16 = 1450;
/// Payload of the longest ping at that MTU.
const LONGEST: usize = MTU as usize - 28;
const KERNEL: [u8; 4] = [10, 77, 0, 200];
const BRIDGED: [u8; 4] = [10, 77, 0, 201];

fn text(ip: [u8; 4]) -> String {
    std::net::Ipv4Addr::from(ip).to_string()
}

/// A causewayd with one guest's ports on host 0, and the kernel's device on host 1.
struct Scene {
    guest: Member,
    daemon: Daemon,
    test_hosts: TestHosts,
}

impl Scene {
    fn new() -> Option<Self> {
        Self::at(address)
    }

    /// Creates the scene with the hosts' addresses of one family.
    fn at(address: fn(usize, usize) -> String) -> Option<Self> {
        let test_hosts = TestHosts::new(&[1500])?;
        let (here, there) = (address(0, 0), address(1, 0));
        let device =
            format!("link add vxlan0 type vxlan id {VNI} remote {here} local {there} dstport 4789");
        if let Err(why) = test_hosts.nets[1].ip(&device) {
            eprintln!("skipped: this kernel has no vxlan device: {why}");
            return None;
        }
        let own = format!("addr add {}/24 dev vxlan0", text(KERNEL));
        test_hosts.nets[1].ip_each(&[own, "link set vxlan0 up".into()]).unwrap();
        let mut guest = Member::new("guest", "blue", 1);
        guest.mtu = MTU;
        let vni = format!("vni = {VNI}");
        let link = test_hosts.link_between([0, 1], "to-kernel", "vxlan", [here, there], &vni);
        let daemon = test_hosts.daemon(0, std::slice::from_ref(&guest), &link);
        Some(Self { guest, daemon, test_hosts })
    }

    /// Adds the device to a bridge, whose other port leads to a separate namespace.
    fn bridge(&self) -> Namespace {
        let (kernel, beyond) =
            (&self.test_hosts.nets[1], self.test_hosts.nets[1].beside().unwrap());
        kernel.cable(&beyond, "inner", MTU).unwrap();
        let lines = [
            format!("addr del {}/24 dev vxlan0", text(KERNEL)),
            format!("link add br0 mtu {MTU} type bridge"),
            "link set vxlan0 master br0".into(),
            "link set inner master br0".into(),
            format!("addr add {}/24 dev br0", text(KERNEL)),
            "link set br0 up".into(),
        ];
        kernel.ip_each(&lines).unwrap();
        beyond.ip(&format!("addr add {}/24 dev inner", text(BRIDGED))).unwrap();
        beyond
    }
}

/// Checks that the station answers pings of `from`.
fn pinged(station: &mut Station, from: &Namespace, ip: &str, longest: usize) {
    let sizes = [56, longest];
    let said = station.while_answering(|| sizes.map(|n| process::output(&mut ping(from, ip, n))));
    for said in said {
        assert!(said.unwrap().contains("3 packets received"));
    }
}

#[test]
fn vxlan_native_port_and_kernel_device_ping_each_other() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(show(&scene.daemon, "to-kernel")["state"], "open");
    let mut station = Station::attach(&scene.daemon, &scene.guest);
    // Started by this station, then by the kernel, whose ARP entry was removed; up to the largest
    // payload.
    for bytes in [0, 56, LONGEST] {
        station.ping(KERNEL, bytes);
    }
    let kernel = &scene.test_hosts.nets[1];
    kernel.ip("neigh flush dev vxlan0").unwrap();
    pinged(&mut station, kernel, &scene.guest.ip(), LONGEST);
    // The same exchange through a bridge, with the bridge itself and with the host behind it.
    let beyond = scene.bridge();
    for ip in [BRIDGED, KERNEL] {
        station.ping(ip, LONGEST);
    }
    for from in [&beyond, kernel] {
        pinged(&mut station, from, &scene.guest.ip(), LONGEST);
    }
}

#[test]
fn vxlan_kernel_device_is_reached_over_ipv6() {
    let Some(scene) = Scene::at(address6) else { return };
    let mut station = Station::attach(&scene.daemon, &scene.guest);
    // The IPv6 header is 20 bytes longer.
    for bytes in [56, LONGEST - 20] {
        station.ping(KERNEL, bytes);
    }
    pinged(&mut station, &scene.test_hosts.nets[1], &scene.guest.ip(), LONGEST - 20);
}

#[test]
fn vxlan_drops_frames_of_another_kernel_network() {
    let Some(scene) = Scene::new() else { return };
    let mut station = Station::attach(&scene.daemon, &scene.guest);
    station.ping(KERNEL, 56);
    let kernel = &scene.test_hosts.nets[1];
    // First, because the device also sends on its own: neighbour discovery.
    kernel.ip_each(&["link del vxlan0".into()]).unwrap();
    let received = || counter(&scene.daemon, "to-kernel", "receive_packets_total");
    let before = received();
    let (here, there) = (address(0, 0), address(1, 0));
    let lines = [
        format!("link add vxlan1 type vxlan id 43 remote {here} local {there} dstport 4789"),
        format!("addr add {}/24 dev vxlan1", text(KERNEL)),
        "link set vxlan1 up".into(),
    ];
    kernel.ip_each(&lines).unwrap();
    let mut command = kernel.command(causeway_vm::image::busybox().unwrap());
    command.args(["ping", "-c", "2", "-w", "2", "-q", &scene.guest.ip()]);
    assert!(process::output(&mut command).is_err(), "a frame of network 43 was answered");
    wait(
        || counter(&scene.daemon, "to-kernel", "socket_drop_wrong_vni_total") > 0,
        || format!("{:#}", show(&scene.daemon, "to-kernel")),
    );
    assert_eq!(received(), before);
}

#[test]
fn vxlan_virtual_machine_and_kernel_device_stream_both_ways() {
    let Some(scene) = Scene::new() else { return };
    let spec = scene.daemon.guest(&scene.guest);
    let guest = Guest::boot_all(&Machine::qemu().unwrap(), vec![spec]).unwrap().remove(0);
    let stream = |ip| {
        let target = format!("tcp:{}:{STREAM_PORT}", text(ip)).parse().unwrap();
        traffic::stream(&guest, &target, 65_536, 8 << 20, LIMIT)
    };
    let own = scene.guest.ip();
    let kernel = Native::serve(&scene.test_hosts.nets[1]);
    let ping = traffic::ping(&guest, &text(KERNEL), 10).unwrap();
    assert_eq!((ping.sent, ping.received), (10, 10));
    kernel.ping(&own, LONGEST).unwrap();
    stream(KERNEL).unwrap();
    kernel.stream(&own, 8 << 20).unwrap();

    let beyond = scene.bridge();
    let beyond = Native::serve(&beyond);
    // The connection may be opened by either end: here by the far end.
    beyond.stream(&own, 8 << 20).unwrap();
    stream(BRIDGED).unwrap();
    assert_eq!(traffic::ping(&guest, &text(BRIDGED), 10).unwrap().received, 10);
}

/// A router between the daemon's host and the kernel's: a process that forwards datagrams between
/// its two addresses and writes CE to those of one direction.
struct Router {
    /// Whether it marks datagrams to the kernel, and datagrams to the daemon.
    writes: [Arc<AtomicBool>; 2],
    /// The last traffic class of an outer header, by direction.
    saw: [Arc<AtomicU8>; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Router {
    /// Starts the router in a namespace. `ends` are its addresses, each on the path to one of
    /// `far`.
    fn start(net: &Namespace, ends: [SocketAddr; 2], far: [SocketAddr; 2]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root enters a network namespace by itself");
            return None;
        }
        let space = std::fs::File::open(format!("/proc/{}/ns/net", net.holder())).unwrap();
        // A socket stays in the namespace of the thread that created it.
        let bind = move || {
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&space), kind)
                .unwrap();
            ends.map(|end| Arc::new(Udp::bind(end, Fragmentation::Allowed).unwrap()))
        };
        let sockets = std::thread::spawn(bind).join().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let mut router =
            Self { writes: Default::default(), saw: Default::default(), stop, threads: Vec::new() };
        for direction in [0, 1] {
            let (from, to) = (sockets[direction].clone(), sockets[1 - direction].clone());
            let (far, stop) = (far[1 - direction], router.stop.clone());
            let (write, saw) = (router.writes[direction].clone(), router.saw[direction].clone());
            from.report_classes();
            router.threads.push(std::thread::spawn(move || {
                let (mut receiver, mut bursts) =
                    (UdpReceiver::new(BufferPool::default()), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    receiver.receive(&from, &mut bursts, false, usize::MAX).unwrap();
                    for burst in bursts.drain(..) {
                        saw.store(burst.class, Ordering::Relaxed);
                        // Packets that the kernel sends on its own, such as ARP and IGMP, are not
                        // marked.
                        let is_ping = burst.buffer[20..22] == [8, 0] && burst.buffer[31] == 1;
                        let mark =
                            if write.load(Ordering::Relaxed) && is_ping { ECN_MASK } else { 0 };
                        let origin = Origin { from: None, class: burst.class | mark };
                        for datagram in burst.datagrams() {
                            let bytes = &burst.buffer[datagram];
                            to.send_as(far, origin, bytes, bytes.len()).unwrap();
                        }
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }));
        }
        Some(router)
    }

    /// Sets the marking of datagrams to the kernel, and of those to the daemon.
    fn mark(&self, to_kernel: bool, to_daemon: bool) {
        self.writes[0].store(to_kernel, Ordering::Relaxed);
        self.writes[1].store(to_daemon, Ordering::Relaxed);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[test]
fn marks_survive_both_ways_between_a_native_port_and_a_kernel_vxlan_device() {
    let Some(test_hosts) = TestHosts::triangle() else { return };
    let at = |host, cable| address(host, cable);
    let lines = [
        format!(
            "link add vxlan0 type vxlan id {VNI} remote {} local {} dstport 4789",
            at(1, 1),
            at(2, 1)
        ),
        format!("addr add {}/24 dev vxlan0", text(KERNEL)),
        "link set vxlan0 up".into(),
    ];
    if let Err(why) = test_hosts.nets[2].ip_each(&lines) {
        eprintln!("skipped: this kernel has no vxlan device: {why}");
        return;
    }
    let end = |ip: String| format!("{ip}:4789").parse().unwrap();
    let (ends, far) = ([end(at(1, 0)), end(at(1, 1))], [end(at(0, 0)), end(at(2, 1))]);
    let Some(router) = Router::start(&test_hosts.nets[1], ends, far) else { return };
    let mut guest = Member::new("guest", "blue", 1);
    guest.mtu = MTU;
    let vni = format!("vni = {VNI}");
    let link = test_hosts.link_between([0, 1], "to-kernel", "vxlan", [at(0, 0), at(1, 0)], &vni);
    let daemon = test_hosts.daemon(0, std::slice::from_ref(&guest), &link);
    let mut station = Station::attach(&daemon, &guest);
    station.ping(KERNEL, 56);
    let dropped = || counter(&daemon, "to-kernel", "drop_congestion_total");
    // The kernel answers a ping with a packet of the same class. AF11, and each ECN field.
    let class = |ecn: Ecn| 10 << 2 | ecn as u8;
    for ecn in Ecn::ALL {
        router.mark(false, false);
        assert_eq!(station.ping_as(KERNEL, class(ecn)), Some(class(ecn)), "{ecn:?}");
        let saw = |direction: usize| router.saw[direction].load(Ordering::Relaxed);
        assert_eq!(saw(0), ecn as u8, "{ecn:?}: ECN is inherited, DSCP is not");
        assert_eq!(saw(1) == 0, ecn == Ecn::NotEct, "{ecn:?}");
        for (to_kernel, to_daemon) in [(true, false), (false, true)] {
            router.mark(to_kernel, to_daemon);
            let before = dropped();
            let answer = station.ping_as(KERNEL, class(ecn));
            let marked = (ecn != Ecn::NotEct).then_some(class(Ecn::Ce));
            assert_eq!(answer, marked, "{ecn:?} {to_kernel} {to_daemon}");
            let drops = ecn == Ecn::NotEct && to_daemon;
            assert_eq!(dropped() - before, if drops { 3 } else { 0 });
        }
    }
}
