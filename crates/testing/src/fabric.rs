//! A fabric with the services of one test, and native guests on its ports.
//!
//! [`TestFabric`] runs dispatchers in the test's process, has groups, and keeps the sockets of
//! ports in a folder that is deleted at the end. Waits end after [`PATIENCE`] with a panic, those
//! for a port with its view or counters. Commands run in the thread of the test; a refused command
//! panics, except of [`TestFabric::try_add`]. A folder is the only file system state; no daemon,
//! configuration or sandbox is involved. Users: integration tests of `ethernet`, `stream` and
//! `tap`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort};
use causeway_fabric::{Fabric, Handle, Options, ServiceRegistration};
use causeway_model::{
    Answer, Command, CommandError, Mac, Name, NetSpec, PortKind, PortSpec, PortState, PortView,
};
use causeway_wire::virtio_net::Header;

use crate::folder::Folder;
use crate::segments::mac;
use crate::wait::{PATIENCE, wait};

/// A fabric that ends with the test.
#[derive(Debug)]
pub struct TestFabric {
    /// Sends commands.
    pub handle: Handle,
    /// `None` during the drop only.
    fabric: Option<Fabric>,
    dir: Folder,
}

/// Returns the options of station `n`: one address, an MTU of 1,500 and one queue pair.
pub fn net(n: u8) -> NetSpec {
    NetSpec {
        mac: Mac(mac(n)),
        guest_mac: None,
        mtu: 1500,
        queue_pairs: 1,
        learn: false,
        offloads: Default::default(),
    }
}

/// Returns the specification of a port without limits.
pub fn port_spec(name: &str, group: &str, socket: &Path, kind: PortKind) -> PortSpec {
    PortSpec {
        name: name.parse().unwrap(),
        group: group.parse().unwrap(),
        socket: socket.to_owned(),
        access: Default::default(),
        memory_max: None,
        kind,
    }
}

impl TestFabric {
    /// Starts dispatchers with these services and groups.
    pub fn start(services: &[ServiceRegistration], groups: &[&str], options: Options) -> Self {
        let fabric = Fabric::start(services, options).unwrap();
        let dir = Folder::new("fabric");
        let this = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        for group in groups {
            this.handle.call(Command::GroupAdd(group.parse::<Name>().unwrap().into())).unwrap();
        }
        this
    }

    /// Returns the path of a port's socket, or of another file of the test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Adds a port with the socket [`Self::path`].
    ///
    /// # Errors
    /// The fabric refuses the port.
    pub fn try_add(&self, name: &str, group: &str, kind: PortKind) -> Result<Answer, CommandError> {
        self.handle.call(Command::PortAdd(port_spec(name, group, &self.path(name), kind)))
    }

    /// Deletes a port.
    pub fn delete(&self, name: &str) {
        self.handle.call(Command::PortDel(name.parse().unwrap())).unwrap();
    }

    /// Attaches to a net port.
    pub fn attach(&self, name: &str, options: NetOptions) -> NetPort {
        NetPort::attach(&self.path(name), options).unwrap()
    }

    /// Adds a net port to a group and attaches to it with these features.
    pub fn guest(&self, name: &str, group: &str, net: NetSpec, features: u64) -> NetPort {
        self.try_add(name, group, PortKind::of(net)).unwrap();
        self.attach(name, NetOptions { features, ..NetOptions::default() })
    }

    /// Waits until every queue of these ports runs.
    #[track_caller]
    pub fn wait_running(&self, names: &[&str]) {
        for name in names {
            let runs = || self.view(name).queues.iter().all(|queue| queue.running);
            wait(runs, || format!("{:?}", self.view(name)));
        }
    }

    /// Waits until a port is in a state.
    #[track_caller]
    pub fn wait_state(&self, name: &str, state: PortState) {
        wait(|| self.view(name).state == state, || format!("{:?}", self.view(name)));
    }

    /// Returns the view of a port.
    pub fn view(&self, name: &str) -> PortView {
        match self.handle.call(Command::PortShow(name.parse().unwrap())).unwrap() {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the nonzero counters of a port.
    pub fn counters(&self, name: &str) -> BTreeMap<String, u64> {
        self.view(name).counters.into_iter().filter(|(_, n)| *n > 0).collect()
    }

    /// Returns a counter of a port.
    pub fn counter(&self, name: &str, counter: &str) -> u64 {
        self.view(name).counters[counter]
    }

    /// Waits until a counter of a port is at least `least`. Some counters appear with their first
    /// event.
    #[track_caller]
    pub fn wait_counter_least(&self, name: &str, counter: &str, least: u64) {
        wait(
            || self.view(name).counters.get(counter).is_some_and(|count| *count >= least),
            || format!("{name} {counter} {least}: {:?}", self.counters(name)),
        );
    }

    /// Waits until a counter of a port reaches `value`, and asserts that it does not exceed it.
    #[track_caller]
    pub fn wait_counter(&self, name: &str, counter: &str, value: u64) {
        self.wait_counter_least(name, counter, value);
        assert_eq!(self.counter(name, counter), value, "{name} {counter}");
    }
}

impl Drop for TestFabric {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().map(Fabric::wait);
        if !std::thread::panicking() {
            ended.unwrap().expect("no dispatcher failed");
        }
    }
}

/// Returns the next frame of any queue pair of a guest, with its header.
#[track_caller]
pub fn receive_of(port: &mut NetPort, pairs: u16) -> (u16, Header, Vec<u8>) {
    let (start, mut frame) = (Instant::now(), Vec::new());
    loop {
        for pair in 0..pairs {
            if let Some(header) = port.receive(pair, &mut frame).unwrap() {
                return (pair, Header::parse(&header).unwrap(), frame);
            }
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for a frame");
        port.wait(Some(Duration::from_millis(100))).unwrap();
    }
}

/// Returns the next frame of a guest, with its header.
#[track_caller]
pub fn receive(port: &mut NetPort) -> (Header, Vec<u8>) {
    let (_, header, frame) = receive_of(port, 1);
    (header, frame)
}

/// Sends a frame of a guest by its first queue pair, and waits for room.
#[track_caller]
pub fn send(port: &mut NetPort, header: &Header, frame: &[u8]) {
    send_by(port, 0, header, frame);
}

/// As [`send`], by another queue pair.
#[track_caller]
pub fn send_by(port: &mut NetPort, pair: u16, header: &Header, frame: &[u8]) {
    let header = header.emit();
    let start = Instant::now();
    while !port.queue(pair, &header, frame).unwrap() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting for room");
        port.flush(pair).unwrap();
        port.wait_room(pair, Some(Duration::from_millis(100))).unwrap();
    }
    port.flush(pair).unwrap();
}
