//! A device with plain memory as registers, a dispatcher in a thread, and a connected client.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway_attach::native::VfioUserClient;
use causeway_attach::vfio_user::device::{DEVICE_PCI, DEVICE_RESET, REGION_READ, REGION_WRITE};
use causeway_attach::vfio_user::message::{DMA_READABLE, DMA_WRITABLE, DmaMap};
use causeway_attach::vfio_user::{
    DeviceDescription, DeviceHandle, MappableFile, RegionDescription, Registers, VfioUserAttachment,
};
use causeway_attach::{Attachment, AttachmentError, Event};
use causeway_host::fd::receive::UntrustedSocket;
use causeway_host::watchdog::Watchdog;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// Length of region 0; all but its first page can be mapped.
pub const BAR_BYTES: u64 = 0x10000;
pub const PAGE: u64 = 4096;
/// A write here rings doorbell 0, and 8 bytes further doorbell 5.
pub const DOORBELL: u64 = 0x18;
/// A write here rings a doorbell above the limit.
pub const WRONG_DOORBELL: u64 = 0x80;
pub const VECTORS: u32 = 20;

/// Registers without a function.
#[derive(Debug)]
pub struct Memory {
    bytes: Mutex<Vec<u8>>,
    pub resets: AtomicUsize,
    pub writes: AtomicUsize,
}

impl Registers for Memory {
    fn read(&self, region: u32, offset: u64, into: &mut [u8]) {
        if region == 0 {
            let at = usize::try_from(offset).unwrap();
            into.copy_from_slice(&self.bytes.lock().unwrap()[at..at + into.len()]);
        } else {
            into.fill(u8::try_from(region).unwrap());
        }
    }

    fn write(&self, region: u32, offset: u64, from: &[u8]) -> Option<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if region == 0 {
            let at = usize::try_from(offset).unwrap();
            self.bytes.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
        }
        match (region, offset) {
            (0, DOORBELL) => Some(0),
            (0, 0x20) => Some(5),
            (0, WRONG_DOORBELL) => Some(1000),
            _ => None,
        }
    }

    fn reset(&self) {
        self.bytes.lock().unwrap().fill(0);
        self.resets.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn memory(len: u64) -> OwnedFd {
    causeway_memory::create("guest", len).unwrap()
}

pub fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Returns whether an eventfd becomes readable within a second, and resets it.
pub fn is_signalled(event: &OwnedFd) -> bool {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&second)).unwrap() > 0;
    ready && rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// Returns whether an eventfd is readable now.
pub fn is_signalled_now(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

pub fn sockets() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap()
}

/// Sends bytes with descriptors of any type.
pub fn send_bytes(by: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let parts = [std::io::IoSlice::new(bytes)];
    sendmsg(by, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// A mapping of `pages` pages that the device may read and write.
pub fn map(address: u64, offset: u64, pages: u64) -> DmaMap {
    DmaMap { flags: DMA_READABLE | DMA_WRITABLE, offset, address, size: pages * PAGE }
}

/// Waits until `condition` holds.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a thread of this process has this name.
pub fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.into_iter().any(|found| found.trim() == name)
}

/// The state that the dispatcher's thread shares with the test.
#[derive(Debug, Default)]
pub struct Seen {
    pub events: Mutex<Vec<Event>>,
    pub error: Mutex<Option<AttachmentError>>,
    stop: AtomicBool,
    /// The dispatcher polls no attachment while set.
    pub is_stalled: AtomicBool,
}

/// A server in its thread, a dispatcher in another, and the socket of the frontend.
pub struct Bench {
    pub registers: Arc<Memory>,
    pub bar: Arc<OwnedFd>,
    pub handle: DeviceHandle,
    pub seen: Arc<Seen>,
    dispatcher: Option<JoinHandle<()>>,
    socket: Option<OwnedFd>,
}

pub fn description(bar: &Arc<OwnedFd>) -> DeviceDescription {
    let both = REGION_READ | REGION_WRITE;
    let areas = std::iter::once(PAGE..BAR_BYTES).collect();
    let mmap = Some(MappableFile { file: Arc::clone(bar), areas });
    DeviceDescription {
        regions: vec![
            RegionDescription { index: 0, size: BAR_BYTES, flags: both, mmap },
            RegionDescription { index: 2, size: PAGE, flags: REGION_READ, mmap: None },
            RegionDescription { index: 7, size: 256, flags: both, mmap: None },
        ],
        interrupts: vec![(2, VECTORS), (1, 2)],
        flags: DEVICE_RESET | DEVICE_PCI,
        may_resume: true,
    }
}

pub fn registers() -> Arc<Memory> {
    let bytes = vec![0; usize::try_from(BAR_BYTES).unwrap()];
    Arc::new(Memory {
        bytes: Mutex::new(bytes),
        resets: AtomicUsize::new(0),
        writes: AtomicUsize::new(0),
    })
}

/// Returns an attachment, and the socket of its frontend.
pub fn attach(
    port: &str,
    registers: &Arc<Memory>,
    bar: &Arc<OwnedFd>,
) -> (VfioUserAttachment, OwnedFd) {
    let (ours, theirs) = sockets();
    let registers = Arc::clone(registers) as Arc<dyn Registers>;
    let stream = UntrustedSocket::from(ours);
    (VfioUserAttachment::new(port, stream, description(bar), registers), theirs)
}

/// Polls an attachment whenever it is readable until it reports events, and returns them.
pub fn poll_events(attachment: &mut VfioUserAttachment) -> Vec<Event> {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut events = Vec::new();
    while events.is_empty() {
        let ready = poll(&mut [PollFd::new(attachment, PollFlags::IN)], Some(&second)).unwrap();
        assert!(ready > 0, "no event");
        attachment.poll(&mut events).unwrap();
    }
    events
}

impl Bench {
    /// Starts the server of a port; the frontend has sent nothing yet.
    pub fn named(port: &str) -> Self {
        let (registers, bar) = (registers(), Arc::new(memory(BAR_BYTES)));
        let (attachment, theirs) = attach(port, &registers, &bar);
        let (handle, seen) = (attachment.handle(), Arc::new(Seen::default()));
        let shared = Arc::clone(&seen);
        let dispatcher = Some(std::thread::spawn(move || dispatch(attachment, &shared)));
        Self { registers, bar, handle, seen, dispatcher, socket: Some(theirs) }
    }

    pub fn new() -> Self {
        Self::named("test")
    }

    /// Returns a client that has agreed on the version.
    pub fn client(&mut self) -> VfioUserClient {
        VfioUserClient::over(self.socket()).unwrap()
    }

    /// Returns the socket of the frontend.
    pub fn socket(&mut self) -> OwnedFd {
        self.socket.take().unwrap()
    }

    /// Returns the events so far, and forgets them.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.seen.events.lock().unwrap())
    }

    /// Waits for an event.
    pub fn wait_event(&self, event: Event) {
        let seen = || self.seen.events.lock().unwrap().contains(&event);
        wait_for(&format!("{event:?}"), seen);
    }

    /// Waits for the error that ends the attachment, and returns its text.
    pub fn wait_error(&self) -> String {
        let error = || self.seen.error.lock().unwrap().as_ref().map(ToString::to_string);
        wait_for("an error", || error().is_some());
        error().unwrap()
    }

    /// Drops the attachment, as the dispatcher does at a fault.
    pub fn stop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.join().unwrap();
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(dispatcher) = self.dispatcher.take() {
            let _ = dispatcher.join();
        }
    }
}

/// The body of the dispatcher's thread.
fn dispatch(mut attachment: VfioUserAttachment, seen: &Seen) {
    let _watchdog = Watchdog::new().unwrap();
    while !seen.stop.load(Ordering::Relaxed) {
        let time = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let ready = poll(&mut [PollFd::new(&attachment, PollFlags::IN)], Some(&time)).unwrap();
        if ready == 0 || seen.is_stalled.load(Ordering::Relaxed) {
            std::thread::yield_now();
            continue;
        }
        let mut events = Vec::new();
        let polled = attachment.poll(&mut events);
        let is_closed = events.contains(&Event::Closed);
        seen.events.lock().unwrap().extend(events);
        if let Err(error) = polled {
            *seen.error.lock().unwrap() = Some(error);
            return;
        }
        if is_closed {
            return;
        }
    }
}
