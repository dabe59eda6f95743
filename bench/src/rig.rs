//! A dispatcher on its own core, with ports to attach to.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::native::{NetOptions, NetPort, VsockOptions, VsockPort};
use causeway_fabric::control::{Answer, Command, PortView};
use causeway_fabric::dispatch::{Dispatcher, Handle};
use causeway_fabric::spec::{Mac, NetSpec, PortKind, PortSpec, VsockSpec};

use crate::pin::{CLIENT, SERVER, pin};

/// Indirect descriptors and event index, as Linux guests negotiate them.
pub const RING: u64 = 1 << 28 | 1 << 29;

/// The running dispatcher; stopped when dropped.
#[derive(Debug)]
pub struct Rig {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    dir: PathBuf,
}

impl Rig {
    /// A dispatcher that looks at idle queues for `spin` before it parks.
    pub fn new(spin: Duration) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("causeway-bench-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory for sockets");
        let (send, receive) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            pin(SERVER);
            let services: Vec<Box<dyn causeway_fabric::Service>> = vec![
                Box::new(causeway_ethernet::Ethernet::new()),
                Box::new(causeway_socket::Socket::new()),
            ];
            let mut dispatcher = Dispatcher::new(services).expect("a dispatcher");
            dispatcher.set_spin(spin);
            send.send(dispatcher.handle()).expect("the other side waits");
            dispatcher.run().expect("the dispatcher runs");
        });
        pin(CLIENT);
        let handle = receive.recv().expect("a handle");
        let rig = Self { handle, thread: Some(thread), dir };
        rig.call(Command::GroupAdd("bench".parse().expect("a name")));
        rig
    }

    fn call(&self, command: Command) -> Answer {
        self.handle.call(command).expect("the dispatcher agrees")
    }

    fn add(&self, name: &str, kind: PortKind) {
        let name = name.parse().expect("a name");
        let group = "bench".parse().expect("a name");
        let socket = self.path(&name);
        self.call(Command::PortAdd(PortSpec { name, group, socket, kind }));
    }

    fn path(&self, name: &causeway_fabric::Name) -> PathBuf {
        self.dir.join(name.as_str())
    }

    /// Adds a vsock port that no one attaches to.
    pub fn idle_vsock(&self, cid: u32) {
        self.add(&format!("v{cid}"), PortKind::Vsock(VsockSpec { cid, host_socket: None }));
    }

    /// A vsock port, attached and running.
    pub fn vsock(&self, cid: u32, options: VsockOptions) -> VsockPort {
        self.idle_vsock(cid);
        let name = format!("v{cid}");
        let path = self.dir.join(&name);
        let port = VsockPort::attach(&path, options).expect("attached");
        self.wait_running(&name);
        port
    }

    /// A net port, attached and running; its address ends in `number`.
    pub fn net(&self, number: u8, options: NetOptions) -> NetPort {
        let name = format!("n{number}");
        let spec = NetSpec { mac: Mac(mac(number)), mtu: 65535, queue_pairs: 1, learn: false };
        self.add(&name, PortKind::Net(spec));
        let port = NetPort::attach(&self.dir.join(&name), options).expect("attached");
        self.wait_running(&name);
        port
    }

    /// A port as the operator sees it.
    pub fn view(&self, name: &str) -> PortView {
        match self.call(Command::PortShow(name.parse().expect("a name"))) {
            Answer::Port(view) => *view,
            other => unreachable!("{other:?}"),
        }
    }

    fn wait_running(&self, name: &str) {
        let since = Instant::now();
        while !self.view(name).queues.iter().all(|q| q.running) {
            assert!(since.elapsed() < Duration::from_secs(10), "{name} does not start");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The address of net port `number`.
pub fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
