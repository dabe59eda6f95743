//! Two drivers over vfio-user against a dispatcher with ports of kind `hca`.

mod wakeups;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_fabric::{Fabric, Options, PollConfig};
use causeway_mlx5_driver::{
    CompletionRing, Driver, DriverError, EthernetInterface, EthernetOptions, Post, QueuePair,
    VfioBar,
};
use causeway_model::port::HcaSpec;
use causeway_model::{Command, Mac, PortKind, PortSpec};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

const MEMORY: u64 = 16 << 20;
const VIRTUAL: u64 = 0x7fff_0000_0000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A dispatcher with ports; the folder of their sockets is removed with it.
struct Daemon {
    fabric: Fabric,
    dir: PathBuf,
}

impl Daemon {
    fn start(name: &str) -> Self {
        Self::start_with(name, PollConfig::default())
    }

    fn start_with(name: &str, poll_config: PollConfig) -> Self {
        let dir = std::env::temp_dir().join(format!("cw-hca-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let options = Options { dispatchers: 1, cpus: Vec::new(), poll_config };
        let services = &[causeway_hca::SERVICE];
        let fabric = Fabric::start(services, options).unwrap();
        let group = "g".parse::<causeway_model::Name>().unwrap();
        fabric.handle().call(Command::GroupAdd(group.into())).unwrap();
        Self { fabric, dir }
    }

    /// Adds a port. Returns its socket.
    fn port(&self, number: u8) -> PathBuf {
        self.port_with(number, 2000)
    }

    /// Adds a port with this longest pause of polls. Returns its socket.
    fn port_with(&self, number: u8, idle_poll_us: u32) -> PathBuf {
        let socket = self.dir.join(format!("h{number}"));
        let spec = HcaSpec {
            mac: Mac(mac(number)),
            mtu_max: 9000,
            queue_pairs_max: 64,
            completion_queues_max: 64,
            regions_max: 64,
            registered_max: 1024,
            waiting_requests_max: None,
            idle_poll_us,
            doorbell: Default::default(),
            weight: 1,
            byte_rate_max: None,
            message_rate_max: None,
        };
        let port = PortSpec {
            name: format!("h{number}").parse().unwrap(),
            group: "g".parse().unwrap(),
            socket: socket.clone(),
            access: Default::default(),
            memory_max: None,
            kind: PortKind::of(spec),
        };
        self.fabric.handle().call(Command::PortAdd(port)).unwrap();
        socket
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.fabric.handle().stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0x43, 0x57, 0, 0, number]
}

/// Waits until `poll` returns a value.
fn wait<T>(mut poll: impl FnMut() -> Result<Option<T>, DriverError>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = poll().unwrap() {
            return value;
        }
        assert!(since.elapsed() < PATIENCE, "the adapter does not answer");
        std::thread::yield_now();
    }
}

/// A driver with a queue pair and a registered page.
struct Side {
    bar: VfioBar,
    driver: Driver,
    cq: CompletionRing,
    pair: QueuePair,
    page: u64,
    key: u32,
}

impl Side {
    fn start(path: &Path) -> Self {
        let (mut bar, mut driver) = VfioBar::start(path, MEMORY).unwrap();
        let cq = driver.create_cq(&mut bar, 5).unwrap();
        let context = driver.qp_context(Service::ReliableConnection, cq.number).unwrap();
        let pair = driver.create_pair(&mut bar, context).unwrap();
        let page = driver.allocate(4096).unwrap();
        let key = driver.register(&mut bar, VIRTUAL, page, 4096).unwrap();
        Self { bar, driver, cq, pair, page, key }
    }

    fn write(&mut self, key: u32) {
        let from = DataSegment { raw_len: 64, key: self.key, address: VIRTUAL };
        let to = RemoteAddressSegment { address: VIRTUAL + 128, key };
        let post = Post::new(SendOpcode::Write);
        self.driver.post(&mut self.pair, post, |entry| entry.remote(&to).data(&from)).unwrap();
    }
}

/// Returns two connected drivers.
fn connected(daemon: &Daemon) -> (Side, Side) {
    let (mut a, mut b) = (Side::start(&daemon.port(1)), Side::start(&daemon.port(2)));
    a.driver.connect(&mut a.bar, &a.pair, mac(2), b.pair.number).unwrap();
    b.driver.connect(&mut b.bar, &b.pair, mac(1), a.pair.number).unwrap();
    (a, b)
}

#[test]
fn driver_writes_and_polls_without_register_messages() {
    let daemon = Daemon::start("write");
    let (mut a, b) = connected(&daemon);
    let before = a.bar.register_accesses() + b.bar.register_accesses();
    for round in 1..=100_u8 {
        a.driver.memory().write(a.page, &[round; 64]).unwrap();
        a.write(b.key);
        wait(|| a.driver.poll_cq(&mut a.cq));
        assert_eq!(b.driver.memory().read_array(b.page + 128).unwrap(), [round; 64]);
    }
    assert_eq!(a.bar.register_accesses() + b.bar.register_accesses(), before);
    let health = a.driver.health(&mut a.bar).unwrap();
    assert_ne!(a.driver.health(&mut a.bar).unwrap(), health);
}

#[test]
fn driver_sleeps_until_the_interrupt_of_an_armed_queue() {
    let daemon = Daemon::start("interrupt");
    let (mut a, b) = connected(&daemon);
    let mut events = a.driver.events();
    for round in 1..=20 {
        a.driver.arm(&a.cq, round, false).unwrap();
        a.write(b.key);
        wait(|| Ok(a.bar.take_interrupts(1)?.then_some(())));
        assert!(a.driver.take_event(&mut events).unwrap().is_some());
        assert!(a.driver.poll_cq(&mut a.cq).unwrap().is_some());
    }
}

#[test]
fn driver_exchanges_frames_between_two_ports() {
    let daemon = Daemon::start("frames");
    let mut sides: Vec<_> = [1, 2]
        .map(|number| {
            let (mut bar, mut driver) = VfioBar::start(&daemon.port(number), MEMORY).unwrap();
            let options = EthernetOptions { log_entries: 4, ..Default::default() };
            let interface = EthernetInterface::up(&mut driver, &mut bar, options).unwrap();
            (bar, driver, interface)
        })
        .into();
    let (_b_bar, to, receiver) = &mut sides.pop().unwrap();
    let (_a_bar, from, sender) = &mut sides.pop().unwrap();
    let mut head = [0; 18];
    head[..6].copy_from_slice(&mac(2));
    head[6..12].copy_from_slice(&mac(1));
    head[12..14].copy_from_slice(&[0x88, 0xb5]);
    let template = sender.template(&head, 46).unwrap();
    let payload = from.allocate(64).unwrap();
    let mut frame = Vec::new();
    for round in 0..100_u8 {
        from.memory().write(payload, &[round; 46]).unwrap();
        sender.stage(from, &template, payload, true).unwrap();
        sender.publish(from).unwrap();
        let entry = wait(|| receiver.receive(to, &mut frame));
        assert_eq!((entry.bytes, &frame[..18], &frame[18..]), (64, &head[..], &[round; 46][..]));
        wait(|| sender.reclaim(from).map(|()| (sender.room() == 16).then_some(())));
    }
}
