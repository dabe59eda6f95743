//! A shard of adapters, with a guest at each port.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::message::{
    DMA_READABLE, DMA_WRITABLE, DmaMap, ResumePhase, command,
};
use causeway_fabric::{PollConfig, Shard};
use causeway_hca::HcaService;
use causeway_host::fd::receive::UntrustedSocket;
use causeway_memory::Map;
use causeway_mlx5::registers::REGION_BAR;
use causeway_mlx5_driver::limits::BASE;
use causeway_mlx5_driver::{
    Bar, CompletionRing, Driver, DriverError, DriverMemory, EventRing, Post, QueuePair,
};
use causeway_model::port::{HcaDoorbell, HcaSpec};
use causeway_model::{Mac, Name, PortKind, PortSpec, PortState};
use causeway_wire::mlx5::completion_queue::Entry;
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::registers::COMMAND_DOORBELL;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

/// Length of a guest's memory.
const MEMORY: u64 = 16 << 20;
/// Duration of a turn, in nanoseconds.
pub const TURN_NS: u64 = 50_000;
/// Address of buffers in work requests.
const VIRTUAL: u64 = 0x7fff_0000_0000;
/// Length of buffers.
pub const BUFFER: u64 = 64 << 10;
/// Doorbell of a send queue in the first doorbell page.
const SEND_DOORBELL: u64 = 16 * 4096 + 0x800;

/// The shard, its clock, and the frontends.
pub struct Rig {
    pub shard: Shard,
    pub now: u64,
    clients: BTreeMap<[u8; 6], VfioUserClient>,
    /// Folder of the ports' inner sockets; `None` for ports that are not held.
    dir: Option<PathBuf>,
}

/// A guest with a driver.
pub struct Guest {
    pub driver: Driver,
    pub mac: [u8; 6],
}

/// The registers of a guest, with the shard that executes its commands.
struct RigBar<'a> {
    rig: &'a mut Rig,
    mac: [u8; 6],
    map: Arc<Map>,
}

impl Bar for RigBar<'_> {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DriverError> {
        self.rig.clients.get_mut(&self.mac).unwrap().read(REGION_BAR, offset, into).unwrap();
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DriverError> {
        self.rig.clients.get_mut(&self.mac).unwrap().write(REGION_BAR, offset, bytes).unwrap();
        let mut status = [1];
        for _ in 0..1000 {
            if offset != COMMAND_DOORBELL || status[0] & 1 == 0 {
                return Ok(());
            }
            self.rig.turn();
            self.map.read(BASE + 0x3f, &mut status).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        panic!("the command is not executed");
    }
}

impl Guest {
    /// Calls `work` with the driver and its registers.
    pub fn with<T>(
        &mut self,
        rig: &mut Rig,
        work: impl FnOnce(&mut Driver, &mut dyn Bar) -> Result<T, DriverError>,
    ) -> T {
        self.try_with(rig, work).unwrap()
    }

    /// As [`Self::with`], for work that may fail.
    pub fn try_with<T>(
        &mut self,
        rig: &mut Rig,
        work: impl FnOnce(&mut Driver, &mut dyn Bar) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let map = Arc::clone(self.driver.memory().map());
        work(&mut self.driver, &mut RigBar { rig, mac: self.mac, map })
    }

    /// Takes the events of a queue. Returns their number.
    pub fn count_events(&self, ring: &mut EventRing) -> usize {
        std::iter::from_fn(|| self.driver.take_event(ring).unwrap()).count()
    }
}

fn mac(n: u8) -> [u8; 6] {
    [2, 0x43, 0x57, 0, 0, n]
}

/// Returns the name of port `n`.
pub fn name(n: u8) -> Name {
    format!("p{n}").parse().unwrap()
}

/// Returns the options of port `n` with their defaults.
pub fn options(n: u8) -> HcaSpec {
    HcaSpec {
        mac: Mac(mac(n)),
        mtu_max: 9000,
        queue_pairs_max: 64,
        completion_queues_max: 64,
        regions_max: 64,
        registered_max: 1024,
        waiting_requests_max: None,
        idle_poll_us: 2000,
        doorbell: HcaDoorbell::Poll,
        weight: 1,
        byte_rate_max: None,
        message_rate_max: None,
    }
}

impl Rig {
    pub fn new() -> Self {
        let service = Box::new(HcaService::new());
        let shard = Shard::new("red".parse().unwrap(), service, PollConfig::default()).unwrap();
        Self { shard, now: 1_000_000_000, clients: BTreeMap::new(), dir: None }
    }

    /// Returns a shard whose ports are held, with their records in `dir`. A drop has the effect of a
    /// kill.
    pub fn held(dir: &Path) -> Self {
        Self { dir: Some(dir.to_owned()), ..Self::new() }
    }

    fn socket(&self, n: u8) -> PathBuf {
        self.dir.as_ref().map_or("unused".into(), |dir| dir.join(format!("p{n}.inner")))
    }

    /// Returns the path of the record of port `n`.
    pub fn record(&self, n: u8) -> PathBuf {
        self.socket(n).with_extension("hca")
    }

    /// Adds port `n` without a frontend.
    pub fn add(&mut self, n: u8, options: HcaSpec) {
        let spec = PortSpec {
            name: name(n),
            group: "red".parse().unwrap(),
            socket: self.socket(n),
            memory_max: None,
            access: Default::default(),
            kind: PortKind::of(options),
        };
        self.shard.port_add(spec, false).unwrap();
    }

    /// Adds port `n`, attaches a guest and starts its driver.
    pub fn start(&mut self, n: u8, options: HcaSpec) -> Guest {
        self.add(n, options);
        self.boot(n)
    }

    /// Attaches a new guest to port `n` and starts its driver.
    pub fn boot(&mut self, n: u8) -> Guest {
        let memory = DriverMemory::new(MEMORY).unwrap();
        let map = Arc::clone(memory.map());
        self.connect(n, &memory, None);
        let mac = mac(n);
        let driver = Driver::new(&mut RigBar { rig: self, mac, map }, memory).unwrap();
        let mut guest = Guest { driver, mac };
        guest.with(self, |driver, bar| driver.start(bar));
        guest
    }

    /// Connects a frontend with this memory to port `n`, as the holder does with `resume`.
    fn connect(&mut self, n: u8, memory: &DriverMemory, resume: Option<ResumePhase>) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        self.shard.connect(&name(n), UntrustedSocket::from(OwnedFd::from(far))).unwrap();
        let file = memory.file().try_clone_to_owned().unwrap();
        let flags = DMA_READABLE | DMA_WRITABLE;
        let grant = DmaMap { flags, offset: 0, address: BASE, size: MEMORY };
        let client = self.during(move || {
            let mut client = VfioUserClient::over(OwnedFd::from(near)).unwrap();
            let phase = |client: &mut VfioUserClient, phase: ResumePhase| {
                client.request(command::RESUME, &phase.emit(), &[]).map(drop)
            };
            if let Some(begin) = resume {
                phase(&mut client, begin).unwrap();
            }
            client.map(&grant, Some(file.as_fd())).unwrap();
            if resume.is_some() {
                for (at, word) in [(0x10, (BASE >> 32) as u32), (0x14, BASE as u32)] {
                    client.write(REGION_BAR, at, &word.to_be_bytes()).unwrap();
                }
                phase(&mut client, ResumePhase::End).unwrap();
            }
            client
        });
        self.clients.insert(mac(n), client);
    }

    /// Adds port `n` and continues its guest, after a kill.
    pub fn resume(&mut self, n: u8, options: HcaSpec, guest: &Guest) {
        self.add(n, options);
        self.reconnect(n, guest);
        self.settle();
    }

    /// Continues the guest of port `n`, as the holder does after a kill.
    pub fn reconnect(&mut self, n: u8, guest: &Guest) {
        self.connect(n, guest.driver.memory(), Some(ResumePhase::Begin));
    }

    /// Adds port `n` with a guest that connected while no causewayd ran.
    pub fn resume_new(&mut self, n: u8, options: HcaSpec, guest: &Guest) {
        self.add(n, options);
        self.connect(n, guest.driver.memory(), Some(ResumePhase::BeginNew));
        self.settle();
    }

    /// Disconnects the frontend of port `n`.
    pub fn leave(&mut self, n: u8) {
        self.clients.remove(&mac(n));
        let since = std::time::Instant::now();
        while self.shard.port_view(&name(n)).unwrap().state != PortState::Listening {
            assert!(since.elapsed().as_secs() < 20, "the frontend does not leave");
            self.turn();
        }
    }

    /// Returns whether the function of a guest reports an internal error.
    pub fn has_failed(&mut self, guest: &Guest) -> bool {
        let mut word = [0; 4];
        self.client(guest).read(REGION_BAR, 0x14, &mut word).unwrap();
        u32::from_be_bytes(word) >> 8 & 7 == 1
    }

    /// Runs `work` in a thread, and the shard meanwhile.
    fn during<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(work);
            while !thread.is_finished() {
                self.shard.step(self.now, 4).unwrap();
            }
            thread.join().unwrap()
        })
    }

    /// Calls `work` with the frontend of a guest, and serves the shard meanwhile.
    pub fn with_client<T: Send>(
        &mut self,
        guest: &Guest,
        work: impl FnOnce(&mut VfioUserClient) -> T + Send,
    ) -> T {
        let mut client = self.clients.remove(&guest.mac).unwrap();
        let (client, result) = self.during(move || {
            let result = work(&mut client);
            (client, result)
        });
        self.clients.insert(guest.mac, client);
        result
    }

    pub fn client(&mut self, guest: &Guest) -> &mut VfioUserClient {
        self.clients.get_mut(&guest.mac).unwrap()
    }

    /// Writes to the doorbell page of a guest's send queues.
    pub fn ring(&mut self, guest: &Guest) {
        self.client(guest).write(REGION_BAR, SEND_DOORBELL, &[0; 8]).unwrap();
    }

    /// Serves a turn, and advances the clock by its duration.
    pub fn turn(&mut self) {
        self.shard.step(self.now, 1).unwrap();
        self.now += TURN_NS;
    }

    /// Serves a further turn at the same time, as a dispatcher does that has more time.
    pub fn turn_again(&mut self) {
        self.shard.step(self.now, 1).unwrap();
    }

    /// Serves until no port is served in turns.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            self.turn();
            if !self.shard.is_busy() {
                return;
            }
        }
        panic!("the shard does not become idle");
    }

    /// Returns a counter of port `n`.
    pub fn counter(&self, n: u8, counter: &str) -> u64 {
        let view = self.shard.port_view(&name(n)).unwrap();
        view.counters.get(counter).copied().unwrap_or_else(|| panic!("no counter {counter}"))
    }
}

/// Creates a completion queue, and a queue pair that uses it.
fn create_pair(rig: &mut Rig, guest: &mut Guest) -> (CompletionRing, QueuePair) {
    guest.with(rig, |driver, bar| {
        let cq = driver.create_cq(bar, 6)?;
        let mut context = driver.qp_context(Service::ReliableConnection, cq.number)?;
        context.log_send_size = 5;
        Ok((cq, driver.create_pair(bar, context)?))
    })
}

/// Registers a buffer. Returns its address and its key.
fn create_buffer(rig: &mut Rig, guest: &mut Guest) -> (u64, u32) {
    guest.with(rig, |driver, bar| {
        let buffer = driver.allocate(BUFFER)?;
        Ok((buffer, driver.register(bar, VIRTUAL, buffer, BUFFER)?))
    })
}

/// Returns a data segment.
fn data(key: u32, address: u64, len: u32) -> DataSegment {
    DataSegment { raw_len: len, key, address }
}

/// A connection from a guest to another: queue pairs, and a registered buffer of each.
pub struct Stream {
    pub from: QueuePair,
    pub to: QueuePair,
    pub cq: CompletionRing,
    own_key: u32,
    peer_key: u32,
    own_buffer: u64,
    in_flight: u32,
    pub done: u64,
}

impl Stream {
    pub fn new(rig: &mut Rig, from: &mut Guest, to: &mut Guest) -> Self {
        let (cq, own) = create_pair(rig, from);
        let (_, peer) = create_pair(rig, to);
        let (own_mac, peer_mac) = (from.mac, to.mac);
        from.with(rig, |driver, bar| driver.connect(bar, &own, peer_mac, peer.number));
        to.with(rig, |driver, bar| driver.connect(bar, &peer, own_mac, own.number));
        let (own_buffer, own_key) = create_buffer(rig, from);
        let (_, peer_key) = create_buffer(rig, to);
        Self { from: own, to: peer, cq, own_key, peer_key, own_buffer, in_flight: 0, done: 0 }
    }

    /// Returns the connection of a guest with itself.
    pub fn looped(rig: &mut Rig, guest: &mut Guest) -> Self {
        let (cq, own) = create_pair(rig, guest);
        let mac = guest.mac;
        guest.with(rig, |driver, bar| driver.connect(bar, &own, mac, own.number));
        let (own_buffer, key) = create_buffer(rig, guest);
        let to = own;
        let (own_key, peer_key) = (key, key);
        Self { from: own, to, cq, own_key, peer_key, own_buffer, in_flight: 0, done: 0 }
    }

    /// Posts a write of `len` bytes.
    pub fn post_write(&mut self, guest: &Guest, len: u32) {
        let to = RemoteAddressSegment { address: VIRTUAL, key: self.peer_key };
        let from = data(self.own_key, VIRTUAL, len);
        let post = Post::new(SendOpcode::Write);
        guest.driver.post(&mut self.from, post, |e| e.remote(&to).data(&from)).unwrap();
        self.in_flight += 1;
    }

    /// Posts a read of `len` bytes.
    pub fn post_read(&mut self, guest: &Guest, len: u32) {
        let from = RemoteAddressSegment { address: VIRTUAL, key: self.peer_key };
        let to = data(self.own_key, VIRTUAL, len);
        let post = Post::new(SendOpcode::Read);
        guest.driver.post(&mut self.from, post, |e| e.remote(&from).data(&to)).unwrap();
        self.in_flight += 1;
    }

    /// Posts a send of `len` bytes.
    pub fn post_send(&mut self, guest: &Guest, len: u32) {
        let from = data(self.own_key, VIRTUAL, len);
        let post = Post::new(SendOpcode::Send);
        guest.driver.post(&mut self.from, post, |e| e.data(&from)).unwrap();
        self.in_flight += 1;
    }

    /// Posts a receive work request at the other end.
    pub fn post_receive(&mut self, guest: &Guest) {
        let segment = data(self.peer_key, VIRTUAL, BUFFER as u32);
        guest.driver.post_receive(&mut self.to, &[segment]).unwrap();
    }

    /// Takes completions. Returns their number.
    pub fn reap(&mut self, guest: &Guest) -> u32 {
        let mut taken = 0;
        while let Some(entry) = guest.driver.poll_cq(&mut self.cq).unwrap() {
            assert!(matches!(entry, Entry::Success(_)), "{entry:?}");
            taken += 1;
        }
        self.in_flight -= taken;
        self.done += u64::from(taken);
        taken
    }

    /// Takes completions of failed requests. Returns their number.
    pub fn take_failures(&mut self, guest: &Guest) -> u32 {
        let mut taken = 0;
        while let Some(entry) = guest.driver.poll_cq(&mut self.cq).unwrap() {
            assert!(matches!(entry, Entry::Error(_)), "{entry:?}");
            taken += 1;
        }
        self.in_flight -= taken;
        taken
    }

    /// Keeps `count` writes of `len` bytes in flight.
    pub fn fill(&mut self, guest: &Guest, count: u32, len: u32) {
        self.reap(guest);
        while self.in_flight < count {
            self.post_write(guest, len);
        }
    }

    /// Returns the buffer of the sender, for its content.
    pub fn buffer(&self) -> u64 {
        self.own_buffer
    }
}
