//! Routes are in force at every moment of a start and of `causeway apply`: two guests that are
//! connected as soon as their ports exist never reach each other against a route.

mod common;

use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use causeway_daemon::config::{Config, ConfigContext};
use causeway_daemon::fabric::{FabricControl, apply, ask};
use causeway_daemon::plan::{FabricState, SectionObject, execute, plan, read_running};
use causeway_daemon::services::{Registered, SERVICES};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_mlx5_driver::{
    CompletionRing, Driver, EthernetInterface, EthernetOptions, Post, QueuePair, VfioBar,
};
use causeway_model::commands::routes;
use causeway_model::draft::host::resolve_later;
use causeway_model::{Answer, Command, CommandError, TableContext};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};
use common::Dir;

const MEMORY: u64 = 16 << 20;
/// Time in which a frame or a message arrives that is not denied.
const TIME: Duration = Duration::from_millis(30);

/// Time limit of the test's end.
const PATIENCE: Duration = Duration::from_secs(30);

fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, n]
}

/// A guest at an adapter.
struct Guest {
    bar: VfioBar,
    driver: Driver,
    interface: EthernetInterface,
    buffer: u64,
    key: u32,
}

impl Guest {
    fn start(socket: &Path) -> Self {
        let (mut bar, mut driver) = VfioBar::start(socket, MEMORY).unwrap();
        let options = EthernetOptions::default();
        let interface = EthernetInterface::up(&mut driver, &mut bar, options).unwrap();
        let buffer = driver.allocate(4096).unwrap();
        let key = driver.register(&mut bar, buffer, buffer, 4096).unwrap();
        Self { bar, driver, interface, buffer, key }
    }

    fn pair(&mut self) -> (QueuePair, CompletionRing) {
        let cq = self.driver.create_cq(&mut self.bar, 5).unwrap();
        let context = self.driver.qp_context(Service::ReliableConnection, cq.number).unwrap();
        (self.driver.create_pair(&mut self.bar, context).unwrap(), cq)
    }
}

/// Waits for a result for [`TIME`].
fn within<T>(mut poll: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    while start.elapsed() < TIME {
        if let Some(found) = poll() {
            return Some(found);
        }
        thread::yield_now();
    }
    None
}

/// Guests 0 and 1.
struct Guests([Guest; 2]);

impl Guests {
    /// Returns whether a message of guest 0 reaches guest 1.
    fn write_arrives(&mut self) -> bool {
        let Self([a, b]) = self;
        let (own, peer) = (a.pair(), b.pair());
        let (mut pair, mut cq) = own;
        a.driver.connect(&mut a.bar, &pair, mac(1), peer.0.number).unwrap();
        b.driver.connect(&mut b.bar, &peer.0, mac(0), pair.number).unwrap();
        let segment = DataSegment { raw_len: 8, key: a.key, address: a.buffer };
        let remote = RemoteAddressSegment { address: b.buffer, key: b.key };
        let post = Post::new(SendOpcode::Write);
        a.driver.post(&mut pair, post, |entry| entry.remote(&remote).data(&segment)).unwrap();
        let entry = within(|| a.driver.poll_cq(&mut cq).unwrap());
        matches!(entry, Some(Entry::Success(_)))
    }

    /// Returns whether a frame of guest 0 to `to` reaches guest 1.
    fn frame_arrives(&mut self, to: [u8; 6]) -> bool {
        let Self([a, b]) = self;
        let mut head = [0; 18];
        head[..6].copy_from_slice(&to);
        head[6..12].copy_from_slice(&mac(0));
        head[12..14].copy_from_slice(&[0x88, 0xb5]);
        let template = a.interface.template(&head, 82).unwrap();
        a.interface.stage(&a.driver, &template, a.buffer, true).unwrap();
        a.interface.publish(&a.driver).unwrap();
        let mut bytes = Vec::new();
        within(|| b.interface.receive(&b.driver, &mut bytes).unwrap()).is_some()
    }
}

/// A fabric whose guests connect when both their ports exist, and send after each command.
struct Probed {
    handle: Handle,
    dir: Dir,
    guests: Mutex<Option<Guests>>,
    /// Commands after which guest 0 reached guest 1.
    reached: Mutex<Vec<String>>,
    probes: Mutex<u32>,
    _fabric: Fabric,
}

impl Probed {
    fn new() -> Self {
        let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
        Self {
            handle: fabric.handle(),
            dir: Dir::new(),
            guests: Mutex::default(),
            reached: Mutex::default(),
            probes: Mutex::default(),
            _fabric: fabric,
        }
    }

    fn guests(&self) -> MutexGuard<'_, Option<Guests>> {
        self.guests.lock().unwrap()
    }

    fn probe(&self, command: &str) {
        let mut guests = self.guests();
        let sockets = [0, 1].map(|n| self.dir.file(&format!("hca-{n}.sock")));
        if guests.is_none() && sockets.iter().all(|socket| socket.exists()) {
            *guests = Some(Guests(sockets.map(|socket| Guest::start(&socket))));
        }
        let Some(guests) = &mut *guests else { return };
        *self.probes.lock().unwrap() += 1;
        for (what, arrives) in [
            ("message", guests.write_arrives()),
            ("frame", guests.frame_arrives(mac(1))),
            ("broadcast", guests.frame_arrives([0xff; 6])),
        ] {
            if arrives {
                self.reached.lock().unwrap().push(format!("{what} after {command}"));
            }
        }
    }

    /// Returns a configuration of both ports and `more`.
    fn config(&self, more: &str) -> Config {
        let port = |n| {
            format!(
                "[[port]]\nname = \"hca-{n}\"\ngroup = \"blue\"\nkind = \"hca\"\n\
                 mac = \"52:54:00:00:01:0{n}\"\nidle_poll_us = 100\n"
            )
        };
        let text = format!("[[group]]\nname = \"blue\"\n{}{}{more}", port(0), port(1));
        let registered = Registered::of(SERVICES);
        let mut around = ConfigContext::of_process(registered);
        around.run_dir = Some(self.dir.0.clone());
        Config::parse(Path::new("test"), &text, &around).unwrap_or_else(|e| panic!("{e}"))
    }
}

impl FabricControl for Probed {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let shown = format!("{command:.80?}");
        let answer = self.handle.call(command);
        self.probe(shown.get(..60).unwrap_or(&shown));
        answer
    }
}

/// Denies traffic of guest 0 to all others, by leading it to `to`.
fn denial(to: &str) -> String {
    format!(
        "[[route]]\ngroup = \"blue\"\nsource = \"52:54:00:00:01:00\"\n\
         to = {{ interface = \"{to}\" }}\n"
    )
}

fn net(name: &str, mtu: u16) -> String {
    format!("[[port]]\nname = \"{name}\"\ngroup = \"blue\"\nkind = \"net\"\nmtu = {mtu}\n")
}

/// Returns the part of a configuration that can change.
fn state(config: Config) -> FabricState {
    let Config { groups, rules, ports, objects, .. } = config;
    let cx = TableContext { key_file: Path::new("/"), resolve: resolve_later };
    let object = |object| SectionObject::of_config(object, cx).unwrap();
    FabricState { groups, rules, ports, objects: objects.iter().map(object).collect() }
}

/// Returns the running state.
fn running(fabric: &Probed) -> FabricState {
    read_running(&fabric.handle, Registered::of(SERVICES).sections).unwrap()
}

#[test]
fn start_serves_no_port_before_the_routes_of_its_group() {
    let fabric = Probed::new();
    let config = fabric.config(&(net("sink", 1500) + &denial("hca-0") + &denial("sink")));
    apply(&fabric, &config, Vec::new(), &|| (), &|| false).unwrap();
    assert!(*fabric.probes.lock().unwrap() >= 3, "the guests sent before the last command");
    assert_eq!(*fabric.reached.lock().unwrap(), [""; 0]);
    let views = ask(&fabric, routes::List).unwrap();
    assert_eq!(views.iter().map(|view| view.index).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn apply_keeps_routes_in_force_while_their_ports_are_replaced() {
    let fabric = Probed::new();
    let before = fabric.config(&(net("sink", 1500) + &denial("sink")));
    apply(&fabric, &before, Vec::new(), &|| (), &|| false).unwrap();
    fabric.reached.lock().unwrap().clear();
    // The target of the route is replaced; then the route is; then its target is gone.
    for more in [
        net("sink", 1400) + &denial("sink"),
        net("sink", 1400) + &denial("hca-0"),
        net("sink", 1400) + &denial("sink"),
        denial("hca-0"),
    ] {
        let wanted = state(fabric.config(&more));
        let plan = plan(&running(&fabric), &wanted);
        let result = execute(&fabric, &plan);
        assert_eq!(result.failed, None);
        assert_eq!(running(&fabric).objects, wanted.objects);
    }
    assert_eq!(*fabric.reached.lock().unwrap(), [""; 0]);
    // Without the route the guests do reach each other.
    let nothing = state(fabric.config(""));
    let all = plan(&running(&fabric), &nothing);
    assert_eq!(execute(&fabric, &all).failed, None);
    let start = Instant::now();
    let reached =
        |text: &str| fabric.reached.lock().unwrap().iter().any(|reached| reached.starts_with(text));
    while !["message", "frame", "broadcast"].into_iter().all(reached) {
        assert!(start.elapsed() < PATIENCE, "{:?}", fabric.reached);
        fabric.probe("the end");
    }
}
