//! A daemon with adapters and NICs, and guests with a driver of the adapter in this process.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_channel::mx_rings::{layout, read_event, write_request};
use causeway_channel::{Receiver, Sender, Side, open};
use causeway_fabric::{Fabric, Handle, Options};
use causeway_memory::View;
use causeway_mlx5_driver::{CompletionRing, Driver, Post, QueuePair, VfioBar};
use causeway_model::commands::{hca, nics};
use causeway_model::port::HcaSpec;
use causeway_model::{
    Answer, Command, CommandError, HcaView, Mac, MxSpec, Name, NicView, PortKind, PortSpec,
    PortView,
};
use causeway_testing::folder::Folder;
use causeway_testing::wait::PATIENCE;
use causeway_wire::local::{ClientMessage, DaemonMessage, VERSION};
use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, Entry};
use causeway_wire::mlx5::memory_key::{ANY_QUEUE_PAIR, MemoryKeyContext};
use causeway_wire::mlx5::queue_pair::{QueuePairContext, Service};
use causeway_wire::mlx5::work_request::{DataSegment, SendOpcode};
use causeway_wire::mx::{Address, Event, NicId, PeerId, Request, Status, Token};
use causeway_wire::session::{MESSAGE_BYTES, Offer, SERVICE_QPN, SessionMessage};

/// Bytes of a guest's memory.
const MEMORY: u64 = 48 << 20;
/// Length of a page.
pub const PAGE: u64 = 4096;
/// Receive work requests of a process.
const RECEIVES: u64 = 16;
/// Bytes between the buffers of a process.
const STRIDE: u64 = 256;

pub fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn mac(kind: u8, number: u8) -> Mac {
    Mac([2, 0, 0, 0, kind, number])
}

/// Returns the address of an endpoint of the NIC `m<number>`.
pub fn at(number: u8, endpoint: u8) -> Address {
    Address { nic: NicId::of(mac(2, number).0), endpoint }
}

/// Waits until a condition is true.
#[track_caller]
pub fn soon(mut is: impl FnMut() -> bool, what: &str) {
    let since = Instant::now();
    let mut polls = 0_u32;
    while !is() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        polls += 1;
        if polls < 200 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// A host with one group, `red`.
pub struct Host {
    pub handle: Handle,
    fabric: Option<Fabric>,
    pub dir: Folder,
}

impl Host {
    /// Starts a daemon whose adapters and NICs may be served by different dispatchers.
    pub fn new() -> Self {
        let options = Options { dispatchers: 2, ..Options::default() };
        let services = [causeway_hca::SERVICE, causeway_mx::SERVICE];
        let fabric = Fabric::start(&services, options).unwrap();
        let dir = Folder::new("mx-guest");
        let host = Self { handle: fabric.handle(), fabric: Some(fabric), dir };
        host.handle.call(Command::GroupAdd(name("red").into())).unwrap();
        host
    }

    pub fn path(&self, port: &str) -> PathBuf {
        self.dir.join(port)
    }

    pub fn add(&self, port: &str, kind: PortKind) -> Result<Answer, CommandError> {
        self.handle.call(Command::PortAdd(PortSpec {
            name: name(port),
            group: name("red"),
            socket: self.path(port),
            access: Default::default(),
            memory_max: None,
            kind,
        }))
    }

    pub fn add_adapter(&self, number: u8) {
        self.add(&format!("a{number}"), adapter(number)).unwrap();
    }

    /// Adds the NIC `m<number>` of the guest behind a port.
    pub fn add_nic(&self, number: u8, adapter: &str) -> Result<Answer, CommandError> {
        let local = MxSpec::local(mac(2, number), format!("m{number}:0"));
        let kind = PortKind::of(MxSpec { adapter: Some(name(adapter)), ..local });
        self.add(&format!("m{number}"), kind)
    }

    /// Adds the adapter `a<number>` with a NIC `m<number>`, and starts its driver.
    pub fn guest(&self, number: u8) -> Guest {
        self.add_adapter(number);
        self.add_nic(number, &format!("a{number}")).unwrap();
        self.boot(number)
    }

    /// Starts the driver of the adapter `a<number>`.
    pub fn boot(&self, number: u8) -> Guest {
        let (bar, driver) = VfioBar::start(&self.path(&format!("a{number}")), MEMORY).unwrap();
        Guest { number, bar, driver }
    }

    pub fn port(&self, port: &str) -> PortView {
        match self.handle.call(Command::PortShow(name(port))).unwrap() {
            Answer::Port(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the view of an adapter.
    pub fn adapter(&self, port: &str) -> HcaView {
        self.handle.ask(hca::Show(name(port))).unwrap()
    }

    /// Returns the view of a NIC.
    pub fn nic(&self, port: &str) -> NicView {
        self.handle.ask(nics::Show(name(port))).unwrap()
    }

    pub fn counter(&self, port: &str, counter: &str) -> u64 {
        self.port(port).counters.get(counter).copied().unwrap_or(0)
    }

    /// Returns the text of the last fault of a port.
    pub fn fault(&self, port: &str) -> String {
        self.port(port).fault.unwrap_or_default()
    }

    /// Waits until a port has a fault with this text.
    #[track_caller]
    pub fn expect_fault(&self, port: &str, text: &str) {
        let since = Instant::now();
        while !self.fault(port).contains(text) {
            assert!(since.elapsed() < PATIENCE, "{text:?}: {:?}", self.fault(port));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[track_caller]
    pub fn wait(&self, port: &str, counter: &str, value: u64) {
        soon(|| self.counter(port, counter) == value, counter);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.fabric.take().map(Fabric::wait);
        if !std::thread::panicking() {
            ended.unwrap().expect("no dispatcher failed");
        }
    }
}

/// Returns an adapter.
fn adapter(number: u8) -> PortKind {
    PortKind::of(HcaSpec {
        mac: mac(1, number),
        mtu_max: 1500,
        queue_pairs_max: 512,
        completion_queues_max: 512,
        regions_max: 4096,
        registered_max: 1024,
        waiting_requests_max: None,
        idle_poll_us: 100,
        doorbell: Default::default(),
        weight: 1,
        byte_rate_max: None,
        message_rate_max: None,
    })
}

/// A guest with its driver.
pub struct Guest {
    pub number: u8,
    pub bar: VfioBar,
    pub driver: Driver,
}

/// Registered memory in scattered pages.
pub struct Scattered {
    pub offer: Offer,
    pub pages: Vec<u64>,
    /// The pages as one row of bytes, as the process sees them.
    pub view: View,
}

impl Guest {
    pub fn mac(&self) -> [u8; 6] {
        mac(1, self.number).0
    }

    /// Returns the context of a key with all rights.
    pub fn key_context(&self, start: u64, len: u64) -> MemoryKeyContext {
        MemoryKeyContext {
            access_mode: 1,
            has_update: true,
            remote_write: true,
            remote_read: true,
            local_write: true,
            local_read: true,
            queue_pair: ANY_QUEUE_PAIR,
            variable: 7,
            domain: self.driver.domain(),
            start,
            len,
            list_size: 8,
            log_page_size: 12,
            ..Default::default()
        }
    }

    /// Registers `len` bytes in pages of which no two are adjacent.
    pub fn scattered(&mut self, len: u64) -> Scattered {
        let count = len.div_ceil(PAGE);
        let first = self.driver.allocate(count * 2 * PAGE).unwrap();
        let pages: Vec<u64> = (0..count).rev().map(|page| first + page * 2 * PAGE).collect();
        self.register(pages, len)
    }

    /// Registers `len` bytes in adjacent pages.
    pub fn adjacent(&mut self, len: u64) -> Scattered {
        let count = len.div_ceil(PAGE);
        let first = self.driver.allocate(count * PAGE).unwrap();
        self.register((0..count).map(|page| first + page * PAGE).collect(), len)
    }

    fn register(&mut self, pages: Vec<u64>, len: u64) -> Scattered {
        let start = 0x7f00_0000_0000;
        let context = self.key_context(start, len);
        let key = self.driver.create_key(&mut self.bar, &context, &pages).unwrap();
        let spans: Vec<(u64, u64)> = pages.iter().map(|page| (*page, PAGE)).collect();
        let (mirror, _) = self.driver.memory().map().mirror(&spans, usize::MAX).unwrap();
        let view = View::new(Arc::clone(&mirror), 0, mirror.len()).unwrap();
        Scattered { offer: Offer { key, address: start, len }, pages, view }
    }

    /// Registers pages again, under another key.
    pub fn reregister(&mut self, memory: &Scattered) -> Offer {
        let context = self.key_context(memory.offer.address, memory.offer.len);
        let key = self.driver.create_key(&mut self.bar, &context, &memory.pages).unwrap();
        Offer { key, ..memory.offer }
    }

    /// Deregisters memory.
    pub fn deregister(&mut self, offer: &Offer) {
        let number = offer.key >> 8;
        self.driver.simple(&mut self.bar, Opcode::DestroyMemoryKey, number).unwrap();
    }

    /// Returns rings for an endpoint.
    pub fn rings(&mut self) -> Scattered {
        self.scattered(layout().bytes() as u64)
    }

    /// Creates a queue pair of a process, connects it to the service, and posts receive work requests.
    pub fn process(&mut self) -> Process {
        let mut process = self.silent_process();
        for index in 0..RECEIVES {
            process.post_receive(self, index);
        }
        process
    }

    /// As [`Self::process`], without receive work requests.
    pub fn silent_process(&mut self) -> Process {
        let cq = self.driver.create_cq(&mut self.bar, 6).unwrap();
        self.process_on(cq)
    }

    /// As [`Self::silent_process`], with this completion queue.
    pub fn process_on(&mut self, cq: CompletionRing) -> Process {
        let context = self.driver.qp_context(Service::ReliableConnection, cq.number).unwrap();
        let pair = self.driver.create_pair(&mut self.bar, context).unwrap();
        let bytes = RECEIVES * STRIDE * 2;
        let buffer = self.driver.allocate(bytes).unwrap();
        let key = self.driver.register(&mut self.bar, buffer, buffer, bytes).unwrap();
        let own = self.mac();
        self.driver.connect(&mut self.bar, &pair, own, SERVICE_QPN).unwrap();
        Process { pair, cq, buffer, key, heard: VecDeque::new(), sends: 0, failed: None }
    }

    /// Creates a process that was welcomed.
    pub fn attach(&mut self) -> Process {
        let mut process = self.process();
        process.ask(self, ClientMessage::Hello { version: VERSION, direct: 0 }, None);
        let DaemonMessage::Welcome { version, nic, .. } = process.hear(self) else { panic!() };
        assert_eq!((version, nic), (VERSION, at(self.number, 0).nic.0));
        process
    }

    /// Creates a process with an endpoint in scattered memory.
    pub fn endpoint(&mut self, number: u8) -> (Process, Endpoint) {
        let mut process = self.attach();
        let endpoint = process.open(self, number);
        (process, endpoint)
    }
}

/// A process of a guest, by its queue pair.
pub struct Process {
    pub pair: QueuePair,
    pub cq: CompletionRing,
    buffer: u64,
    key: u32,
    heard: VecDeque<DaemonMessage>,
    sends: u64,
    /// Opcode and syndrome of the first failed work request.
    pub failed: Option<(u8, u8)>,
}

impl Process {
    pub fn post_receive(&mut self, guest: &Guest, index: u64) {
        let address = self.buffer + index * STRIDE;
        let segment = DataSegment { raw_len: MESSAGE_BYTES as u32, key: self.key, address };
        guest.driver.post_receive(&mut self.pair, &[segment]).unwrap();
    }

    /// Posts the bytes of a message, without waiting.
    pub fn post(&mut self, guest: &Guest, bytes: &[u8]) {
        let address = self.buffer + (RECEIVES + self.sends % RECEIVES) * STRIDE;
        self.sends += 1;
        guest.driver.memory().write(address, bytes).unwrap();
        let segment = DataSegment { raw_len: bytes.len() as u32, key: self.key, address };
        let post = Post::new(SendOpcode::Send);
        guest.driver.post(&mut self.pair, post, |entry| entry.data(&segment)).unwrap();
    }

    /// Takes a completion, if there is one. Returns whether it is that of a send.
    pub fn poll(&mut self, guest: &Guest) -> Option<bool> {
        match guest.driver.poll_cq(&mut self.cq).unwrap()? {
            Entry::Success(entry) if entry.opcode == CompletionOpcode::Request.raw() => Some(true),
            Entry::Success(entry) => {
                assert_eq!((entry.bytes, entry.source_queue_pair), (160, SERVICE_QPN));
                let index = u64::from(entry.counter) % RECEIVES;
                let mut bytes = [0; MESSAGE_BYTES];
                guest.driver.memory().read(self.buffer + index * STRIDE, &mut bytes).unwrap();
                let message = SessionMessage::<DaemonMessage>::parse(&bytes).unwrap();
                assert_eq!(message.offer, None);
                self.heard.push_back(message.message);
                self.post_receive(guest, index);
                Some(false)
            }
            Entry::Error(entry) => {
                self.failed.get_or_insert((entry.opcode, entry.syndrome));
                Some(entry.opcode == CompletionOpcode::RequestError.raw())
            }
        }
    }

    /// Takes a completion, if there is one, and forgets it.
    pub fn poll_only(&mut self, driver: &Driver) -> bool {
        self.heard.clear();
        driver.poll_cq(&mut self.cq).unwrap().is_some()
    }

    /// Sends a message, and waits for its completion.
    #[track_caller]
    pub fn send(&mut self, guest: &Guest, bytes: &[u8]) {
        self.post(guest, bytes);
        soon(|| self.poll(guest) == Some(true), "the send does not complete");
    }

    #[track_caller]
    pub fn ask(&mut self, guest: &Guest, message: ClientMessage, offer: Option<Offer>) {
        self.send(guest, &SessionMessage { message, offer }.emit());
        assert_eq!(self.failed, None, "{message:?}");
    }

    /// Rings the doorbell of an endpoint.
    #[track_caller]
    pub fn ring(&mut self, guest: &Guest, value: u32) {
        let post = Post { immediate: value, ..Post::new(SendOpcode::SendImmediate) };
        guest.driver.post(&mut self.pair, post, |entry| entry).unwrap();
        soon(|| self.poll(guest) == Some(true), "the doorbell does not complete");
    }

    /// Returns the next message of the daemon, if it has come.
    pub fn next(&mut self, guest: &Guest) -> Option<DaemonMessage> {
        while self.heard.is_empty() && self.poll(guest).is_some() {}
        self.heard.pop_front()
    }

    #[track_caller]
    pub fn hear(&mut self, guest: &Guest) -> DaemonMessage {
        let mut next = None;
        soon(
            || {
                next = self.next(guest);
                next.is_some() || self.failed.is_some()
            },
            "no message comes",
        );
        assert_eq!(self.failed, None);
        next.unwrap()
    }

    /// Waits until a work request fails, because the session ended.
    #[track_caller]
    pub fn expect_end(&mut self, guest: &Guest) {
        soon(
            || {
                self.poll(guest);
                self.failed.is_some()
            },
            "the session goes on",
        );
    }

    /// Opens an endpoint in memory. Returns the code of the answer.
    #[track_caller]
    pub fn try_open(&mut self, guest: &Guest, endpoint: u8, offer: Offer) -> u32 {
        let message = ClientMessage::Open { tag: 4, endpoint, key: 7 };
        self.ask(guest, message, Some(offer));
        match self.hear(guest) {
            DaemonMessage::Opened { tag: 4, code, endpoint: its, bypass: 0, .. } => {
                assert_eq!(its, endpoint);
                code
            }
            other => panic!("{other:?}"),
        }
    }

    /// Opens an endpoint in scattered memory.
    #[track_caller]
    pub fn open(&mut self, guest: &mut Guest, endpoint: u8) -> Endpoint {
        let memory = guest.rings();
        self.open_in(guest, endpoint, memory)
    }

    /// Opens an endpoint in memory.
    #[track_caller]
    pub fn open_in(&mut self, guest: &Guest, endpoint: u8, memory: Scattered) -> Endpoint {
        // The daemon formats the memory, whatever it has.
        memory.view.write(0, &[0xa5; 5000]).unwrap();
        assert_eq!(self.try_open(guest, endpoint, memory.offer), 0);
        let (sender, receiver) = open(&memory.view, Side::First).unwrap();
        Endpoint { number: endpoint, sender, receiver, memory }
    }

    /// Registers memory for large messages. Returns the code and the number of the region.
    #[track_caller]
    pub fn lend(&mut self, guest: &Guest, endpoint: u8, offer: Offer) -> (u32, u8) {
        let message = ClientMessage::Region { tag: 3, endpoint, len: offer.len };
        self.ask(guest, message, Some(offer));
        match self.hear(guest) {
            DaemonMessage::Region { tag: 3, code, region, .. } => (code, region),
            other => panic!("{other:?}"),
        }
    }

    /// Moves the queue pair to the reset state.
    pub fn reset(&mut self, guest: &mut Guest) {
        let Guest { bar, driver, .. } = guest;
        let nothing = (0, QueuePairContext::default());
        driver.modify(bar, Opcode::ToReset, &self.pair, nothing).unwrap();
    }
}

/// An endpoint with its rings in the memory of a process.
pub struct Endpoint {
    pub number: u8,
    pub sender: Sender,
    pub receiver: Receiver,
    pub memory: Scattered,
}

impl Endpoint {
    /// Writes a request, and rings if the daemon sleeps.
    #[track_caller]
    pub fn request(&mut self, (guest, process): (&Guest, &mut Process), request: &Request<'_>) {
        assert!(write_request(&mut self.sender, request).unwrap());
        if self.sender.take_wake_request() {
            process.ring(guest, u32::from(self.number));
        }
    }

    /// Returns the next event with its bytes, if there is one.
    pub fn poll(&mut self) -> Option<(Event<'static>, Vec<u8>)> {
        let event = self.receiver.poll().unwrap()?;
        let mut data = vec![0; event.len];
        self.receiver.copy(&event, 0, &mut data);
        self.receiver.advance(&event);
        Some((read_event(&event.head, event.len).unwrap(), data))
    }

    /// Returns the next event that neither introduces nor ends a peer.
    #[track_caller]
    pub fn hear(&mut self) -> (Event<'static>, Vec<u8>) {
        let mut heard = None;
        soon(
            || {
                let is_news = |(event, _): &(Event<'_>, _)| {
                    !matches!(event, Event::PeerSeen { .. } | Event::PeerGone { .. })
                };
                heard = self.poll().filter(is_news);
                heard.is_some()
            },
            "no event comes",
        );
        heard.unwrap()
    }

    /// Connects to an endpoint with the key 7.
    #[track_caller]
    pub fn connect(&mut self, side: (&Guest, &mut Process), to: Address) -> PeerId {
        let (token, timeout_ns) = (Token(77), Some(5_000_000_000));
        self.request(side, &Request::Connect { token, to, key: 7, timeout_ns });
        loop {
            match self.hear().0 {
                Event::Connected { token: Token(77), status: Status::Success, peer } => {
                    return peer;
                }
                // Of messages to an endpoint that is gone.
                Event::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a message, and waits for its end.
    #[track_caller]
    pub fn send(&mut self, side: (&Guest, &mut Process), peer: PeerId, info: u64, data: &[u8]) {
        let token = Token(info);
        self.request(side, &Request::Eager { peer, token, match_info: info, data });
        match self.hear().0 {
            Event::Sent { token: Token(sent), status: Status::Success, .. } if sent == info => {}
            other => panic!("{other:?}"),
        }
    }

    /// Returns the next message.
    #[track_caller]
    pub fn receive(&mut self) -> (u64, Vec<u8>) {
        match self.hear() {
            (Event::Message { match_info, .. }, data) => (match_info, data),
            other => panic!("{other:?}"),
        }
    }
}
