//! A dispatcher on its own core, and its ports.
//!
//! Most rows create a [`Rig`]: Causeway's dispatcher with the measured services ([`SERVICES`]), as
//! a thread of the benchmark on [`SERVER`], with sockets in a temporary folder. The guests of many
//! rows are native frontends in the row's thread, which a new rig pins to [`CLIENT`]. The caller
//! chooses how long idle queues are polled. A command that the dispatcher refuses, a frontend that
//! cannot attach, and a port with queues that do not run within 10 s of its attachment, are faults
//! of the benchmark and end it with a panic. The dispatcher stops, and the folder is removed, on
//! drop.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use causeway_attach::native::{
    NET_HEADER_BYTES, NativeError, NetOptions, NetPort, VsockOptions, VsockPort,
};
use causeway_fabric::{Fabric, Handle, Options, PollConfig, ServiceRegistration};
use causeway_model::PollPolicy;
use causeway_model::commands::{links, peers};
use causeway_model::port::HcaSpec;
use causeway_model::{Answer, Command, LinkState, PortView};
use causeway_model::{LinkSpec, Mac, Name, NetSpec, PortKind, PortSpec, RuleSpec, VsockSpec};

use crate::peers::process::PREFIX;
use crate::pin::{CLIENT, SERVER, pin};

/// Indirect descriptors and event index, as Linux guests negotiate them.
pub const RING: u64 = 1 << 28 | 1 << 29;

/// Time without progress after which no more frames are expected.
const QUIET: Duration = Duration::from_millis(100);

/// Name of the group of most rows.
pub const GROUP: &str = "bench";

/// The running dispatcher; stopped when dropped.
#[derive(Debug)]
pub struct Rig {
    handle: Handle,
    _fabric: Option<Fabric>,
    dir: PathBuf,
}

/// The measured services.
pub const SERVICES: &[ServiceRegistration] = &[
    causeway_ethernet::SERVICE,
    causeway_socket::SERVICE,
    causeway_link::SERVICE,
    causeway_mx::SERVICE,
    causeway_hca::SERVICE,
];

/// Returns the options of vsock ports.
pub fn vsock_options() -> VsockOptions {
    VsockOptions { features: RING, ..VsockOptions::default() }
}

/// Returns a poll mode that polls idle queues for `spin` before the dispatcher parks; zero disables
/// polling.
pub fn polling(spin: Duration) -> PollConfig {
    let policy = if spin.is_zero() { PollPolicy::GuestDriven } else { PollPolicy::VmmDriven };
    let spin_ns = u64::try_from(spin.as_nanos()).expect("a short time");
    PollConfig { policy, spin_ns, ..PollConfig::default() }
}

impl Rig {
    /// Starts a dispatcher that polls idle queues for `spin` before it parks; zero disables
    /// polling.
    pub fn new(spin: Duration) -> Self {
        Self::paced(polling(spin))
    }

    /// Starts a dispatcher on `core`, as [`Self::new`], in the network namespace of this thread.
    pub fn on(core: usize, spin: Duration) -> Self {
        Self::placed(core, polling(spin))
    }

    /// Starts a dispatcher with this poll mode.
    pub fn paced(poll_config: PollConfig) -> Self {
        Self::placed(SERVER, poll_config)
    }

    /// Starts a dispatcher on a core, and pins this thread to [`CLIENT`].
    fn placed(core: usize, poll_config: PollConfig) -> Self {
        let options = Options { dispatchers: 1, cpus: vec![core], poll_config };
        let fabric = Fabric::start(SERVICES, options).expect("a dispatcher");
        pin(CLIENT);
        let mut rig = Self::with(fabric.handle());
        rig._fabric = Some(fabric);
        rig
    }

    /// Wraps a running dispatcher, and adds [`GROUP`] to it.
    pub fn with(handle: Handle) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory for sockets");
        let rig = Self { handle, _fabric: None, dir };
        rig.group(GROUP);
        rig
    }

    /// Adds a group.
    pub fn group(&self, name: &str) {
        self.call(Command::GroupAdd(name.parse::<Name>().expect("a name").into()));
    }

    /// Adds a rule before all others.
    pub fn rule(&self, rule: RuleSpec) {
        self.call(Command::RuleAdd { index: Some(0), rule });
    }

    /// Adds a link.
    pub fn link(&self, spec: LinkSpec) {
        self.handle.ask(links::Add(Box::new(spec))).expect("a link");
    }

    /// Returns the state of a link.
    pub fn link_state(&self, name: &str) -> LinkState {
        let name = name.parse().expect("a name");
        self.handle.ask(links::Show(name)).expect("the link").state
    }

    /// Waits until a NIC of another host has answered.
    ///
    /// # Errors
    /// None answers within 10 s.
    pub fn wait_peer(&self) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let peers = self.handle.ask(peers::List).expect("the NICs");
            match peers.iter().any(|peer| peer.state == "answers") {
                true => return Ok(()),
                false if since.elapsed() > Duration::from_secs(10) => {
                    return Err("the NICs do not find each other within the time limit".into());
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Executes a command, which must succeed.
    fn call(&self, command: Command) -> Answer {
        self.handle.call(command).expect("the dispatcher agrees")
    }

    /// Adds a port.
    pub fn add(&self, group: &str, name: &str, kind: PortKind) {
        let name = name.parse().expect("a name");
        let group = group.parse().expect("a name");
        let socket = self.path(&name);
        self.call(Command::PortAdd(PortSpec {
            name,
            group,
            socket,
            access: Default::default(),
            memory_max: None,
            kind,
        }));
    }

    /// Returns the path of a port's socket.
    fn path(&self, name: &causeway_model::Name) -> PathBuf {
        self.dir.join(name.as_str())
    }

    /// Adds a vsock port that remains unattached.
    pub fn idle_vsock(&self, cid: u32) {
        let kind =
            PortKind::of(VsockSpec { cid, guest_cid: None, host_socket: None, processes: false });
        self.add(GROUP, &format!("v{cid}"), kind);
    }

    /// Adds a vsock port and attaches to it; it runs on return.
    pub fn vsock(&self, cid: u32, options: VsockOptions) -> VsockPort {
        self.idle_vsock(cid);
        let name = format!("v{cid}");
        let path = self.dir.join(&name);
        let port = VsockPort::attach(&path, options).expect("attached");
        self.wait_running(&name);
        port
    }

    /// Adds a net port with the address [`mac`] of `number` and attaches to it; it runs on return.
    pub fn net(&self, number: u8, options: NetOptions) -> NetPort {
        self.net_in(GROUP, number, false, options)
    }

    /// As [`Self::net`], in a group; learns addresses if `learn`.
    pub fn net_in(&self, group: &str, number: u8, learn: bool, options: NetOptions) -> NetPort {
        let path = self.idle_net(group, number, learn);
        let port = NetPort::attach(&path, options).expect("attached");
        self.wait_running(&format!("n{number}"));
        port
    }

    /// Adds a net port that remains unattached; returns its socket.
    pub fn idle_net(&self, group: &str, number: u8, learn: bool) -> PathBuf {
        let name = format!("n{number}");
        let spec = NetSpec {
            mac: Mac(mac(number)),
            guest_mac: None,
            mtu: 65535,
            queue_pairs: 1,
            learn,
            offloads: Default::default(),
        };
        self.add(group, &name, PortKind::of(spec));
        self.socket(&name)
    }

    /// Adds an adapter with the address [`hca_mac`] of `number`, without a driver; returns its
    /// socket.
    pub fn idle_hca(&self, number: u8) -> PathBuf {
        let name = format!("h{number}");
        // The defaults of the configuration.
        let spec = HcaSpec {
            mac: Mac(hca_mac(number)),
            mtu_max: 9000,
            queue_pairs_max: 4096,
            completion_queues_max: 4096,
            regions_max: 65_536,
            registered_max: 1 << 20,
            waiting_requests_max: None,
            idle_poll_us: 2000,
            doorbell: Default::default(),
            weight: 1,
            byte_rate_max: None,
            message_rate_max: None,
        };
        self.add(GROUP, &name, PortKind::of(spec));
        self.socket(&name)
    }

    /// Returns the socket of a port.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns a port's view, as shown to the operator.
    pub fn view(&self, name: &str) -> PortView {
        match self.call(Command::PortShow(name.parse().expect("a name"))) {
            Answer::Port(view) => *view,
            other => unreachable!("{other:?}"),
        }
    }

    /// Waits until all queues of a port run; panics after 10 s.
    pub fn wait_running(&self, name: &str) {
        let since = Instant::now();
        while !self.view(name).queues.iter().all(|q| q.running) {
            assert!(since.elapsed() < Duration::from_secs(10), "{name} does not start");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Returns the MAC address of net port `number`.
pub fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Returns the MAC address of adapter `number`.
pub fn hca_mac(number: u8) -> [u8; 6] {
    [2, 0x43, 0x57, 0, 0, number]
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.handle.stop();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Stores `frame` in each of a port's buffers, for [`queue_as_is`](NetPort::queue_as_is): each
/// buffer is sent once, as far as the ring has room; frames that arrive at `to` are discarded.
/// Returns once nothing has moved for [`QUIET`] (100 ms).
pub fn leave(
    from: &mut NetPort,
    to: &mut NetPort,
    header: &[u8; NET_HEADER_BYTES],
    frame: &[u8],
) -> Result<(), NativeError> {
    while from.queue(0, header, frame)? {}
    from.flush(0)?;
    let mut quiet = Instant::now();
    while quiet.elapsed() < QUIET {
        if to.discard(0)?.is_some() || !from.is_idle(0)? {
            quiet = Instant::now();
        } else {
            std::thread::yield_now();
        }
    }
    Ok(())
}
