//! Adapters as members of their group: frames and RDMA between them, with the routes and captures
//! of the group. Each guest is a driver in this process, attached by vfio-user.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use causeway_fabric::{Fabric, Handle, Options};
use causeway_mlx5_driver::{
    CompletionRing, Driver, EthernetInterface, EthernetOptions, Post, QueuePair, VfioBar,
};
use causeway_model::commands::{captures, hca, routes, trace, traffic};
use causeway_model::port::HcaSpec;
use causeway_model::{
    Answer, CaptureSpec, Command, CommandError, HcaView, Mac, MacMatch, Name, NetSpec, PortKind,
    PortSpec, RouteEnd, RouteSpec, TraceQuery, TraceView, TrafficPair, TypedRequest,
};
use causeway_testing::folder::Folder;
use causeway_testing::wait::{PATIENCE, wait};
use causeway_wire::mlx5::completion_queue::{Entry, Syndrome};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

/// Bytes of a driver's memory.
const MEMORY: u64 = 16 << 20;
/// Time without a frame after which none is expected.
const SILENCE: Duration = Duration::from_millis(200);
/// Bytes of a frame that lie in its send entry.
const HEAD_BYTES: usize = 18;
/// Broadcast address.
const ALL: Mac = Mac([0xff; 6]);

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

/// A host with one group, `red`.
struct Host {
    handle: Handle,
    fabric: Option<Fabric>,
    dir: Folder,
}

impl Host {
    fn new() -> Self {
        // Two dispatchers, so that adapters and frames are served by different dispatchers.
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_ethernet::SERVICE, causeway_hca::SERVICE];
        let fabric = Fabric::start(&services, options).unwrap();
        let host = Self { handle: fabric.handle(), fabric: Some(fabric), dir: Folder::new("hca") };
        host.handle.call(Command::GroupAdd(name("red").into())).unwrap();
        host
    }

    fn path(&self, port: &str) -> PathBuf {
        self.dir.join(port)
    }

    fn add(&self, port: &str, kind: PortKind) -> Result<Answer, CommandError> {
        self.handle.call(Command::PortAdd(PortSpec {
            name: name(port),
            group: name("red"),
            socket: self.path(port),
            access: Default::default(),
            memory_max: None,
            kind,
        }))
    }

    /// Adds the adapter port `aN` with address `mac(N)`, and starts its driver.
    fn guest(&self, number: u8) -> Guest {
        let port = format!("a{number}");
        self.add(&port, adapter(number)).unwrap();
        let (mut bar, mut driver) = VfioBar::start(&self.path(&port), MEMORY).unwrap();
        let options = EthernetOptions::default();
        let interface = EthernetInterface::up(&mut driver, &mut bar, options).unwrap();
        let buffer = driver.allocate(4096).unwrap();
        let key = driver.register(&mut bar, buffer, buffer, 4096).unwrap();
        Guest { number, bar, driver, interface, buffer, key }
    }

    fn ask<T: TypedRequest>(&self, request: T) -> T::Answer {
        self.handle.ask(request).unwrap()
    }

    fn view(&self, guest: &Guest) -> HcaView {
        self.ask(hca::Show(name(&guest.port())))
    }

    /// Adds a route for frames of one adapter to another. Returns its number.
    fn route(&self, source: &Guest, destination: &Guest, to: &Guest) -> u64 {
        let (source, destination) = (mac(source.number), mac(destination.number));
        let spec = RouteSpec {
            group: name("red"),
            source: MacMatch::Only(source),
            destination: MacMatch::Only(destination),
            to: RouteEnd::Interface(name(&to.port())),
            from: None,
        };
        self.ask(routes::Add(spec)).index
    }

    fn trace(&self, from: &Guest, destination: Mac) -> TraceView {
        let from = name(&from.port());
        let query = TraceQuery::new(&trace::Frame { from, source: None, destination });
        match self.handle.call(Command::Trace(query)).unwrap() {
            Answer::Trace(view) => view,
            other => panic!("{other:?}"),
        }
    }

    fn trace_verbs(&self, from: &Guest, to: &Guest) -> TraceView {
        let query =
            TraceQuery::new(&trace::Verbs { from: name(&from.port()), to: name(&to.port()) });
        match self.handle.call(Command::Trace(query)).unwrap() {
            Answer::Trace(view) => view,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the traffic between two addresses.
    fn traffic(&self, from: u8, to: Mac) -> Option<TrafficPair> {
        let pairs = self.ask(traffic::Show(name("red"))).pairs;
        pairs.into_iter().find(|pair| (pair.source, pair.destination) == (mac(from), to))
    }

    /// Returns the frames of a guest that went to the Ethernet service.
    fn uplinked(&self, guest: &Guest) -> u64 {
        self.view(guest).counters["uplink_frames_total"]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().map(Fabric::wait);
        if !thread::panicking() {
            ended.unwrap().expect("no dispatcher failed");
        }
    }
}

/// Returns an adapter with address `mac(number)`.
fn adapter(number: u8) -> PortKind {
    PortKind::of(HcaSpec {
        mac: mac(number),
        mtu_max: 9000,
        queue_pairs_max: 64,
        completion_queues_max: 64,
        regions_max: 64,
        registered_max: 64,
        waiting_requests_max: None,
        idle_poll_us: 100,
        doorbell: Default::default(),
        weight: 1,
        byte_rate_max: None,
        message_rate_max: None,
    })
}

/// A guest with its driver.
struct Guest {
    number: u8,
    bar: VfioBar,
    driver: Driver,
    interface: EthernetInterface,
    /// A page for payload, registered with `key` at its own address.
    buffer: u64,
    key: u32,
}

impl Guest {
    fn port(&self) -> String {
        format!("a{}", self.number)
    }

    /// Sends a frame of 100 bytes.
    fn send(&mut self, source: Mac, destination: Mac) {
        let mut head = [0; HEAD_BYTES];
        head[..6].copy_from_slice(&destination.0);
        head[6..12].copy_from_slice(&source.0);
        head[12..14].copy_from_slice(&[0x88, 0xb5]);
        let template = self.interface.template(&head, 100 - head.len() as u32).unwrap();
        self.interface.stage(&self.driver, &template, self.buffer, true).unwrap();
        self.interface.publish(&self.driver).unwrap();
    }

    /// Fills the send queue with frames.
    fn fill(&mut self, destination: Mac) {
        self.interface.reclaim(&self.driver).unwrap();
        let mut head = [0; HEAD_BYTES];
        head[..6].copy_from_slice(&destination.0);
        head[6..12].copy_from_slice(&mac(self.number).0);
        head[12..14].copy_from_slice(&[0x88, 0xb5]);
        let template = self.interface.template(&head, 100 - head.len() as u32).unwrap();
        for _ in 0..self.interface.room() {
            self.interface.stage(&self.driver, &template, self.buffer, true).unwrap();
        }
        self.interface.publish(&self.driver).unwrap();
    }

    /// Sends a frame from its own address.
    fn send_to(&mut self, destination: Mac) {
        self.send(mac(self.number), destination);
    }

    fn poll(&mut self) -> Option<Vec<u8>> {
        let mut frame = Vec::new();
        let got = self.interface.receive(&self.driver, &mut frame).unwrap();
        got.map(|_| frame)
    }

    /// Waits for a frame, and returns its source.
    #[track_caller]
    fn receive(&mut self) -> Mac {
        let mut frame = None;
        wait(
            || {
                frame = self.poll();
                frame.is_some()
            },
            || "no frame".into(),
        );
        let frame = frame.unwrap();
        assert_eq!(frame.len(), 100);
        Mac(frame[6..12].try_into().unwrap())
    }

    #[track_caller]
    fn expect_silence(&mut self) {
        let start = Instant::now();
        while start.elapsed() < SILENCE {
            assert_eq!(self.poll(), None, "port {}", self.port());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Creates a queue pair of a reliable connection.
    fn pair(&mut self) -> (QueuePair, CompletionRing) {
        let cq = self.driver.create_cq(&mut self.bar, 5).unwrap();
        let context = self.driver.qp_context(Service::ReliableConnection, cq.number).unwrap();
        (self.driver.create_pair(&mut self.bar, context).unwrap(), cq)
    }

    /// Writes the first 8 bytes of the buffer to that of `to`, and waits for the completion.
    fn write(&mut self, (pair, cq): &mut (QueuePair, CompletionRing), to: &Guest) -> Entry {
        let segment = DataSegment { raw_len: 8, key: self.key, address: self.buffer };
        let remote = RemoteAddressSegment { address: to.buffer, key: to.key };
        let post = Post::new(SendOpcode::Write);
        self.driver.post(pair, post, |entry| entry.remote(&remote).data(&segment)).unwrap();
        let start = Instant::now();
        loop {
            if let Some(entry) = self.driver.poll_cq(cq).unwrap() {
                return entry;
            }
            assert!(start.elapsed() < PATIENCE, "no completion");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns a queue pair of each guest, connected with the other.
fn connect(
    a: &mut Guest,
    b: &mut Guest,
) -> ((QueuePair, CompletionRing), (QueuePair, CompletionRing)) {
    let (own, peer) = (a.pair(), b.pair());
    a.driver.connect(&mut a.bar, &own.0, mac(b.number).0, peer.0.number).unwrap();
    b.driver.connect(&mut b.bar, &peer.0, mac(a.number).0, own.0.number).unwrap();
    (own, peer)
}

#[test]
fn hca_frames_go_directly_unless_a_route_or_capture_applies() {
    let host = Host::new();
    let (mut a, mut b) = (host.guest(1), host.guest(2));
    a.send_to(mac(2));
    assert_eq!(b.receive(), mac(1));
    assert_eq!(host.uplinked(&a), 0, "the frame went directly");
    let trace = host.trace(&a, mac(2));
    assert_eq!((&*trace.verdict, trace.to), ("forward", vec!["a2".to_owned()]));

    let at = RouteEnd::Interface(name("a2"));
    let spec = CaptureSpec { at, filter: Default::default(), snap: 0, count: 0 };
    let capture = host.ask(captures::Begin(spec)).capture;
    a.send_to(mac(2));
    b.receive();
    b.send_to(mac(1));
    a.receive();
    assert_eq!(host.ask(captures::Fetch(capture)).frames, 2, "sent and received");
    host.ask(captures::End(capture));
    // The capture ends with the first frame that passes it.
    a.send_to(mac(2));
    b.receive();
    wait(
        || {
            let before = host.uplinked(&a);
            a.send_to(mac(2));
            b.receive();
            host.uplinked(&a) == before
        },
        || "frames still pass the Ethernet service".into(),
    );

    let to_itself = host.route(&a, &b, &a);
    for _ in 0..5 {
        a.send_to(mac(2));
    }
    b.expect_silence();
    let dropped = host.view(&a).counters["drop_no_route_total"];
    assert_eq!(dropped, 5, "each frame that was sent after the command");
    host.ask(routes::Delete(to_itself));
    a.send_to(mac(2));
    assert_eq!(b.receive(), mac(1));
}

#[test]
fn hca_capture_leaves_other_ports_on_the_direct_path() {
    let host = Host::new();
    let (mut a, mut b, mut c) = (host.guest(1), host.guest(2), host.guest(3));
    let at = RouteEnd::Interface(name("a3"));
    let spec = CaptureSpec { at, filter: Default::default(), snap: 0, count: 0 };
    let capture = host.ask(captures::Begin(spec)).capture;
    for _ in 0..3 {
        a.send_to(mac(2));
        b.receive();
    }
    assert_eq!(host.uplinked(&a), 0);
    a.send_to(mac(3));
    c.receive();
    c.send_to(mac(2));
    b.receive();
    assert_eq!((host.uplinked(&a), host.uplinked(&c)), (1, 1));
    assert_eq!(host.ask(captures::Fetch(capture)).frames, 2);
}

#[test]
fn hca_traffic_has_direct_frames_and_messages() {
    let host = Host::new();
    let (mut a, mut b) = (host.guest(1), host.guest(2));
    for _ in 0..3 {
        a.send_to(mac(2));
        b.receive();
    }
    assert_eq!(host.uplinked(&a), 0);
    let (mut own, _) = connect(&mut a, &mut b);
    for _ in 0..2 {
        assert!(matches!(a.write(&mut own, &b), Entry::Success(_)));
    }
    let pair = host.traffic(1, mac(2)).unwrap();
    assert_eq!((pair.frames_total, pair.bytes_total), (3, 300));
    assert_eq!((pair.messages_total, pair.message_bytes_total), (2, 16));
    assert_eq!(pair.from, "a1");
    assert!(host.traffic(2, mac(1)).is_none());
    // A deleted port leaves its traffic in the matrix.
    host.handle.call(Command::PortDel(name("a1"))).unwrap();
    assert_eq!(host.traffic(1, mac(2)).unwrap().messages_total, 2);
}

#[test]
fn hca_broadcast_reaches_each_other_member_once() {
    let host = Host::new();
    let (mut a, mut b, mut c) = (host.guest(1), host.guest(2), host.guest(3));
    for _ in 0..3 {
        a.send_to(ALL);
    }
    for guest in [&mut b, &mut c] {
        for _ in 0..3 {
            assert_eq!(guest.receive(), mac(1));
        }
        guest.expect_silence();
    }
    a.expect_silence();
    assert_eq!(host.traffic(1, ALL).unwrap().frames_total, 3);
    // The service floods the frames while a capture observes an adapter.
    let at = RouteEnd::Interface(name("a2"));
    let spec = CaptureSpec { at, filter: Default::default(), snap: 0, count: 0 };
    let capture = host.ask(captures::Begin(spec)).capture;
    a.send_to(ALL);
    for guest in [&mut b, &mut c] {
        assert_eq!(guest.receive(), mac(1));
        guest.expect_silence();
    }
    assert_eq!(host.ask(captures::Fetch(capture)).frames, 1);
    assert_eq!(host.trace(&b, ALL).to, ["a1", "a3"]);
}

#[test]
fn hca_floods_through_the_uplink_cost_another_adapter_no_frame() {
    let host = Host::new();
    let (mut b, mut d, c) = (host.guest(1), host.guest(2), host.guest(3));
    let mut floods: Vec<Guest> = (4..7).map(|number| host.guest(number)).collect();
    // A route makes all frames pass the Ethernet service.
    host.route(&b, &d, &d);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (is_over, floods) = (&is_over, &mut floods);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                floods.iter_mut().for_each(|guest| guest.fill(mac(3)));
            }
        });
        let received = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..300 {
                b.send_to(mac(2));
                assert_eq!(d.receive(), mac(1));
                b.interface.reclaim(&b.driver).unwrap();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        received.unwrap();
    });
    let flooded = floods.iter().map(|guest| host.view(guest).counters["sent_frames_total"]);
    assert!(flooded.min().unwrap() > 300);
    // The frames of the floods that found no room waited, and those to adapter 3 were not dropped.
    assert_eq!(host.view(&b).counters["uplink_waits_total"], 0);
    for guest in floods.iter().chain([&c]) {
        let drops = host.view(guest).counters;
        assert_eq!(drops.get("drop_no_buffer_total"), None, "{drops:?}");
    }
}

#[test]
fn hca_frame_with_a_forged_source_is_dropped() {
    let host = Host::new();
    let (mut a, mut b) = (host.guest(1), host.guest(2));
    for source in [mac(2), mac(9), ALL] {
        a.send(source, mac(2));
        a.send(source, ALL);
    }
    b.expect_silence();
    assert_eq!(host.view(&a).counters["drop_spoofed_frames_total"], 6);
}

#[test]
fn hca_queue_pairs_obey_routes() {
    let host = Host::new();
    let (mut a, mut b) = (host.guest(1), host.guest(2));
    let (mut own, _) = connect(&mut a, &mut b);
    a.driver.memory().write(a.buffer, b"payload1").unwrap();
    assert!(matches!(a.write(&mut own, &b), Entry::Success(_)));
    let mut got = [0; 8];
    b.driver.memory().read(b.buffer, &mut got).unwrap();
    assert_eq!(&got, b"payload1");

    // The responses of a reliable connection are denied too.
    for (from, to, why) in [(1, 2, "traffic"), (2, 1, "responses")] {
        let ends = if from == 1 { (&a, &b) } else { (&b, &a) };
        let route = host.route(ends.0, ends.1, ends.0);
        let (mut own, _) = connect(&mut a, &mut b);
        a.driver.memory().write(a.buffer, b"payload2").unwrap();
        let Entry::Error(error) = a.write(&mut own, &b) else { panic!("{from} reached {to}") };
        assert_eq!(error.syndrome, Syndrome::RetryExceeded.raw());
        let pairs = host.view(&a).queue_pair_list;
        let refusal = pairs.iter().find(|pair| pair.number == own.0.number).unwrap();
        let refusal = refusal.refusal.clone().unwrap_or_default();
        assert!(refusal.contains(why) && refusal.contains(&format!("route {route}")), "{refusal}");
        let trace = host.trace_verbs(&a, &b);
        let verdict = if from == 1 { "refused" } else { "possible" };
        let denial = format!("deny traffic from a{from} to a{to}: route {route} leads elsewhere");
        assert_eq!(trace.verdict, verdict, "{trace:#?}");
        assert!(trace.steps.iter().any(|step| step.contains(&denial)), "{trace:#?}");
        host.ask(routes::Delete(route));
    }
    b.driver.memory().read(b.buffer, &mut got).unwrap();
    assert_eq!(&got, b"payload1", "nothing of the refused message arrived");
    let (mut own, _) = connect(&mut a, &mut b);
    assert!(matches!(a.write(&mut own, &b), Entry::Success(_)));
}

#[test]
fn hca_port_is_refused_if_its_address_is_in_use() {
    let host = Host::new();
    let net = |number| {
        PortKind::of(NetSpec {
            mac: mac(number),
            guest_mac: None,
            mtu: 1500,
            queue_pairs: 1,
            learn: false,
            offloads: Default::default(),
        })
    };
    host.add("n1", net(1)).unwrap();
    let refused = host.add("a1", adapter(1)).unwrap_err().to_string();
    assert!(refused.contains("a1") && refused.contains("n1"), "{refused}");
    assert!(host.ask(hca::List).is_empty(), "the port was deleted again");
    host.add("a2", adapter(2)).unwrap();
    let refused = host.add("n2", net(2)).unwrap_err().to_string();
    assert!(refused.contains("n2") && refused.contains("a2"), "{refused}");
    host.handle.call(Command::PortDel(name("a2"))).unwrap();
    host.add("n2", net(2)).unwrap();
    host.handle.call(Command::PortDel(name("n1"))).unwrap();
    host.add("a1", adapter(1)).unwrap();
}

#[test]
fn hca_route_ends_with_its_port() {
    let host = Host::new();
    let (a, b) = (host.guest(1), host.guest(2));
    host.route(&a, &b, &b);
    assert_eq!(host.ask(routes::List).len(), 1);
    host.handle.call(Command::PortDel(name("a2"))).unwrap();
    assert!(host.ask(routes::List).is_empty());
    assert_eq!(host.trace(&a, mac(2)).verdict, "drop");
}
