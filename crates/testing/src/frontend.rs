//! A vhost-user frontend that can break every rule: its file can shrink, and its rings are plain
//! memory.
//!
//! | guest addresses | content |
//! |---|---|
//! | 0 | [`RECEIVE`], the receive ring |
//! | 0x1_0000 | [`TRANSMIT`], the transmit ring |
//! | [`RINGS_END`] | receive buffers |
//! | [`SEND_AT`] | the frames that the guest sends |
//! | end | canaries that are not granted, on the last granted page |
//!
//! The frontend speaks the protocol correctly by itself; a test breaks rules by changing the file,
//! the rings or the messages. It has one receive and one transmit queue of 64 entries, is driven by
//! the test's thread, and negotiates VIRTIO_F_VERSION_1 and the given features only. Every failure
//! panics. Used by the integration tests of `ethernet` and `socket`. No guest kernel is involved
//! (`vm` boots real guests).

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use causeway_attach::native::Client;
use causeway_attach::vhost_user::message::{RegionSpec, RingAddresses};
use causeway_memory::{Map, Mapping, Region, Span};
use causeway_ring::Notifier;
use causeway_ring::driver::{Driver, Layout};
use causeway_wire::virtio::{VIRTIO_F_VERSION_1, mask};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};

/// A file of this length has the rings and nothing behind them.
pub const RINGS_END: u64 = 0x2_0000;
/// The receive ring.
pub const RECEIVE: Layout = Layout { base: 0, size: 64, table_entries: 0 };
/// The transmit ring.
pub const TRANSMIT: Layout = Layout { base: 0x1_0000, size: 64, table_entries: 0 };
/// Address of the frames that the guest sends.
pub const SEND_AT: u64 = 0x8_0000;
/// Receive buffers that the guest offers.
pub const BUFFERS: u16 = 32;
const CANARY: u8 = 0xc5;
/// Bytes at the end of the file that are not granted, on the same page as granted ones.
const CANARIES: u64 = 0x800;

/// Sizes of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Length of the memory file, in bytes. All but the last 0x800 bytes are granted.
    pub file: u64,
    /// Length of each receive buffer, in bytes.
    pub buffer: u32,
}

impl Sizes {
    /// Returns the number of granted bytes.
    pub const fn granted(self) -> u64 {
        self.file - CANARIES
    }

    /// Creates a memory file that may shrink, with canaries behind the granted bytes.
    ///
    /// # Panics
    /// The file cannot be created.
    pub fn memory(self) -> File {
        let file = File::from(memfd_create("raw", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(self.file).unwrap();
        file.write_all_at(&[CANARY; CANARIES as usize], self.granted()).unwrap();
        file
    }

    /// Checks the canaries behind the granted bytes.
    ///
    /// # Panics
    /// A canary was overwritten.
    pub fn assert_canaries(self, file: &File) {
        let mut bytes = [0; CANARIES as usize];
        file.read_exact_at(&mut bytes, self.granted()).unwrap();
        assert!(bytes.iter().all(|&byte| byte == CANARY), "bytes outside the grant were written");
    }

    /// Maps the granted bytes of `file`.
    ///
    /// # Panics
    /// The file cannot be mapped.
    pub fn map(self, file: &File) -> Map {
        let mapping = Arc::new(Mapping::new(file.as_fd(), 0, self.granted()).unwrap());
        Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap()
    }

    /// Returns the receive buffer with number `n`.
    pub const fn buffer(self, n: u16) -> Span {
        Span { addr: RINGS_END + n as u64 * self.buffer as u64, len: self.buffer }
    }
}

/// An attached frontend with one receive and one transmit queue.
#[derive(Debug)]
pub struct Frontend {
    /// The connection to the backend.
    pub client: Client,
    /// The granted memory.
    pub map: Map,
    /// The memory file.
    pub file: File,
    /// Driver of the receive ring.
    pub receive: Driver,
    /// Driver of the transmit ring.
    pub transmit: Driver,
    /// Descriptors by which the backend notifies the guest, of both rings.
    pub calls: [OwnedFd; 2],
    kicks: [Notifier; 2],
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl Frontend {
    /// Attaches to the port at `path` with `file` as memory, offers receive buffers and starts both
    /// queues. `features` are added to VIRTIO_F_VERSION_1.
    ///
    /// # Panics
    /// The backend refuses a step.
    pub fn attach(path: &Path, features: u64, sizes: Sizes, file: File) -> Self {
        let map = sizes.map(&file);
        let mut client = Client::connect(path).unwrap();
        client.set_features(mask(VIRTIO_F_VERSION_1) | features).unwrap();
        let region = RegionSpec { guest: 0, len: sizes.granted(), user: 0, offset: 0 };
        client.grant(&region, file.as_fd()).unwrap();
        let mut receive = Driver::new(RECEIVE, false, false, &map).unwrap();
        let transmit = Driver::new(TRANSMIT, false, false, &map).unwrap();
        for n in 0..BUFFERS {
            let head = receive.add(&map, &[], &[sizes.buffer(n)]).unwrap();
            assert_eq!(head, n, "a new ring gives descriptors in ascending order");
        }
        receive.publish().unwrap();
        let calls = [event(), event()];
        let kicks = [0, 1].map(|queue| start(&mut client, queue, 0, &calls[queue]));
        Self { client, map, file, receive, transmit, calls, kicks }
    }

    /// Sends a chain of `spans`.
    ///
    /// # Panics
    /// The ring is full.
    pub fn send_chain(&mut self, spans: &[Span]) {
        self.transmit.add(&self.map, spans, &[]).unwrap();
        self.transmit.publish().unwrap();
    }

    /// Rings the doorbell of the transmit ring.
    ///
    /// # Panics
    /// The doorbell cannot be written.
    pub fn kick(&self) {
        self.kicks[1].notify().unwrap();
    }

    /// Rings both doorbells.
    ///
    /// # Panics
    /// A doorbell cannot be written.
    pub fn kick_all(&self) {
        self.kicks.iter().for_each(|kick| kick.notify().unwrap());
    }

    /// Stops both queues, as for a paused VM, and returns their positions.
    ///
    /// # Panics
    /// The backend refuses.
    pub fn pause(&mut self) -> [u16; 2] {
        [0, 1].map(|queue| self.client.stop_queue(queue).unwrap())
    }

    /// Starts both queues at these positions.
    ///
    /// # Panics
    /// The backend refuses.
    pub fn resume(&mut self, at: [u16; 2]) {
        self.calls = [event(), event()];
        let Self { client, calls, .. } = self;
        self.kicks = [0, 1].map(|queue| start(client, queue, at[queue], &calls[queue]));
    }
}

/// Starts a queue at `base`, and returns its doorbell.
fn start(client: &mut Client, queue: usize, base: u16, call: &OwnedFd) -> Notifier {
    let layout = [RECEIVE, TRANSMIT][queue];
    let addresses = RingAddresses {
        index: queue as u32,
        flags: 0,
        descriptors: layout.desc().0,
        used: layout.used().0,
        available: layout.avail().0,
        log: 0,
    };
    let kick = event();
    client.start_queue(layout.size, base, &addresses, kick.as_fd(), call.as_fd()).unwrap();
    Notifier::new(kick).unwrap()
}
