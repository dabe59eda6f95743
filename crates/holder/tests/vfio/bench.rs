//! A causewayd that serves one vfio-user device, and a held port for it.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::device::{DEVICE_PCI, DEVICE_RESET, REGION_READ, REGION_WRITE};
use causeway_attach::vfio_user::message::DmaMap;
use causeway_attach::vfio_user::{
    DeviceDescription, DeviceHandle, RegionDescription, Registers, VfioUserAttachment,
};
use causeway_attach::{Attachment, Event};
use causeway_holder::protocol::{HeldPort, HeldProtocol};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::watchdog::Watchdog;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::common::{Control, Held, LIMIT};

pub const PAGE: u64 = 4096;
/// A write here rings doorbell 0.
pub const DOORBELL: u64 = 0x18;
/// Length of region 0: 64 KiB of registers, and doorbell pages.
pub const BAR_BYTES: u64 = 256 << 10;
/// Name of the port.
pub const PORT: &str = "p";

/// Registers that keep what is written, and list the writes.
#[derive(Debug, Default)]
pub struct Memory {
    pub bytes: Mutex<Vec<u8>>,
    pub writes: Mutex<Vec<(u64, Vec<u8>)>>,
    /// The device may have state of an earlier causewayd.
    pub is_resuming: AtomicBool,
}

impl Registers for Memory {
    fn read(&self, _region: u32, offset: u64, into: &mut [u8]) {
        let at = usize::try_from(offset).unwrap();
        into.copy_from_slice(&self.bytes.lock().unwrap()[at..at + into.len()]);
    }

    fn write(&self, _region: u32, offset: u64, from: &[u8]) -> Option<usize> {
        let at = usize::try_from(offset).unwrap();
        self.bytes.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
        self.writes.lock().unwrap().push((offset, from.to_vec()));
        (offset == DOORBELL).then_some(0)
    }

    fn begin_resume(&self) {
        self.is_resuming.store(true, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.bytes.lock().unwrap().fill(0);
    }
}

fn description() -> DeviceDescription {
    let flags = REGION_READ | REGION_WRITE;
    DeviceDescription {
        regions: vec![RegionDescription { index: 0, size: BAR_BYTES, flags, mmap: None }],
        interrupts: vec![(2, 8)],
        flags: DEVICE_RESET | DEVICE_PCI,
        may_resume: true,
    }
}

pub fn port(held: &Held, name: &str) -> HeldPort {
    HeldPort { protocol: HeldProtocol::VfioUser, ..held.port(name) }
}

/// What a causewayd's dispatcher has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub events: Mutex<Vec<Event>>,
    pub handle: Mutex<Option<DeviceHandle>>,
    stop: AtomicBool,
}

/// A generation of causewayd. Dropping it has the effect of a kill.
pub struct Life {
    pub registers: Arc<Memory>,
    pub seen: Arc<Seen>,
    control: Option<Control>,
    dispatcher: Option<JoinHandle<()>>,
}

/// Listens at the inner socket and registers the port.
pub fn listen(held: &Held) -> (UnixListener, Control) {
    listen_as(held, PORT)
}

fn listen_as(held: &Held, name: &str) -> (UnixListener, Control) {
    let port = port(held, name);
    let _ = std::fs::remove_file(&port.inner);
    let listener = UnixListener::bind(&port.inner).unwrap();
    let mut control = held.client();
    control.add(port).unwrap();
    (listener, control)
}

impl Life {
    pub fn new(held: &Held) -> Self {
        Self::named(held, PORT)
    }

    /// Serves a port of another name.
    pub fn named(held: &Held, name: &str) -> Self {
        let (listener, control) = listen_as(held, name);
        listener.set_nonblocking(true).unwrap();
        let bytes = Mutex::new(vec![0; usize::try_from(BAR_BYTES).unwrap()]);
        let registers = Arc::new(Memory { bytes, ..Memory::default() });
        let seen = Arc::new(Seen::default());
        let (shared, device) = (Arc::clone(&seen), Arc::clone(&registers));
        let dispatcher = std::thread::spawn(move || dispatch(&listener, &device, &shared));
        Self { registers, seen, control: Some(control), dispatcher: Some(dispatcher) }
    }

    /// Waits for an event, and returns the events before it.
    pub fn await_event(&self, event: Event) -> Vec<Event> {
        wait_for(&format!("{event:?}"), || self.seen.events.lock().unwrap().contains(&event));
        let events = self.seen.events.lock().unwrap();
        events.iter().copied().take_while(|seen| *seen != event).collect()
    }

    pub fn handle(&self) -> DeviceHandle {
        self.seen.handle.lock().unwrap().clone().unwrap()
    }

    /// Closes all connections of a causewayd that runs on. Returns its process.
    pub fn hang(mut self) -> Control {
        let mut control = self.control.take().unwrap();
        control.disconnect();
        self.stop();
        control
    }

    fn stop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = self.dispatcher.take() {
            let _ = dispatcher.join();
        }
    }

    pub fn writes(&self) -> Vec<(u64, Vec<u8>)> {
        self.registers.writes.lock().unwrap().clone()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // A process that ends closes its control connection, the older descriptor, first. A pause of
        // this thread between the two would else be a causewayd that disconnects its frontend.
        if let Some(control) = &mut self.control {
            control.disconnect();
        }
        self.stop();
        drop(self.control.take());
    }
}

fn dispatch(listener: &UnixListener, registers: &Arc<Memory>, seen: &Seen) {
    let _watchdog = Watchdog::new().unwrap();
    let mut attachment: Option<VfioUserAttachment> = None;
    while !seen.stop.load(Ordering::Relaxed) {
        if attachment.is_none()
            && let Ok((stream, _)) = listener.accept()
        {
            let stream = UntrustedSocket::from(OwnedFd::from(stream));
            let registers = Arc::clone(registers) as Arc<dyn Registers>;
            let new = VfioUserAttachment::new("test", stream, description(), registers);
            *seen.handle.lock().unwrap() = Some(new.handle());
            attachment = Some(new);
        }
        let Some(device) = &mut attachment else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let time = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        if poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&time)).unwrap() == 0 {
            continue;
        }
        let mut events = Vec::new();
        let polled = device.poll(&mut events);
        if polled.is_err() || events.contains(&Event::Closed) {
            attachment = None;
        }
        seen.events.lock().unwrap().extend(events);
    }
}

pub fn client(held: &Held) -> VfioUserClient {
    let stream = UnixStream::connect(held.path(PORT)).unwrap();
    VfioUserClient::over(stream.into()).unwrap()
}

pub fn map(address: u64, offset: u64, pages: u64) -> DmaMap {
    DmaMap { flags: 3, offset, address, size: pages * PAGE }
}

pub fn memory(pages: u64) -> OwnedFd {
    causeway_memory::create("guest", pages * PAGE).unwrap()
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Reads 4 bytes of region 0.
pub fn read(client: &mut VfioUserClient, offset: u64) -> [u8; 4] {
    let mut bytes = [0; 4];
    client.read(0, offset, &mut bytes).unwrap();
    bytes
}

pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether the other end closes within the time limit.
pub fn is_closed(stream: &impl std::os::fd::AsFd) -> bool {
    let since = Instant::now();
    let mut bytes = [0; 4096];
    while since.elapsed() < LIMIT {
        match rustix::net::recv(stream, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => return true,
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    false
}
