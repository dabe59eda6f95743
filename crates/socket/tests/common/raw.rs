//! A guest that can break every rule: plain memory that can shrink, descriptors of any kind.

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
use causeway_wire::vsock::{HEADER_LEN, Header};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};

/// A file of this length has the rings and nothing behind them.
pub const RINGS_END: u64 = 0x2_0000;
const RECEIVE: Layout = Layout { base: 0, size: 64, table_entries: 0 };
pub const TRANSMIT: Layout = Layout { base: 0x1_0000, size: 64, table_entries: 0 };
const BUFFER_BYTES: u32 = 4096;
const BUFFERS: u16 = 32;
/// Where packets are sent from.
pub const SEND_AT: u64 = 0x8_0000;
/// Bytes that are granted; the file goes on behind them, on the same page.
const MEMORY: u64 = 0x20_0000 - 0x800;
const FILE: u64 = 0x20_0000;
const CANARY: u8 = 0xc5;
const VERSION_1: u64 = 1 << 32;

/// A memory file that may shrink, with canaries behind what will be granted.
pub fn memory() -> File {
    let file = File::from(memfd_create("raw", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(FILE).unwrap();
    file.write_all_at(&vec![CANARY; (FILE - MEMORY) as usize], MEMORY).unwrap();
    file
}

/// That nobody wrote behind what was granted.
pub fn assert_canaries(file: &File) {
    let mut bytes = vec![0; (FILE - MEMORY) as usize];
    file.read_exact_at(&mut bytes, MEMORY).unwrap();
    assert!(bytes.iter().all(|&byte| byte == CANARY), "bytes outside the grant were written");
}

/// All that is granted of `file`.
pub fn map(file: &File) -> Map {
    let mapping = Arc::new(Mapping::new(file.as_fd(), 0, MEMORY).unwrap());
    Map::new(vec![Region { guest: 0, user: 0, mapping }]).unwrap()
}

pub struct Raw {
    pub client: Client,
    pub map: Map,
    pub file: File,
    pub receive: Driver,
    pub transmit: Driver,
    kicks: [Notifier; 2],
    first: u16,
}

/// Where data for the `n`th packet may lie, 4 KiB of it.
pub fn data_at(n: u64) -> Span {
    Span { addr: SEND_AT + (n + 1) * 4096, len: 4096 }
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

impl Raw {
    /// Attaches to the port at `path`, with memory of its own, and gives it receive buffers.
    pub fn attach(path: &Path) -> Self {
        Self::over(path, memory())
    }

    /// The same with the memory of an earlier attachment.
    pub fn over(path: &Path, file: File) -> Self {
        let map = map(&file);
        let mut client = Client::connect(path).unwrap();
        client.set_features(VERSION_1).unwrap();
        let region = RegionSpec { guest: 0, len: MEMORY, user: 0, offset: 0 };
        client.grant(&region, file.as_fd()).unwrap();
        let mut receive = Driver::new(RECEIVE, false, false, &map).unwrap();
        let transmit = Driver::new(TRANSMIT, false, false, &map).unwrap();
        for n in 0..BUFFERS {
            let head = receive.add(&map, &[], &[buffer(n)]).unwrap();
            assert_eq!(head, n, "a fresh ring gives descriptors in their order");
        }
        receive.publish().unwrap();
        let kicks = [0, 1].map(|index| start(&mut client, index, 0));
        Self { client, map, file, receive, transmit, kicks, first: 0 }
    }

    /// Sends a packet whose data are the `spans`.
    pub fn send(&mut self, header: &Header, spans: &[Span]) {
        self.map.write(SEND_AT, &header.emit()).unwrap();
        let head = Span { addr: SEND_AT, len: HEADER_LEN as u32 };
        let all: Vec<_> = std::iter::once(head).chain(spans.iter().copied()).collect();
        self.transmit.add(&self.map, &all, &[]).unwrap();
        self.transmit.publish().unwrap();
        self.kicks[1].notify().unwrap();
    }

    /// Rings for what was added to either ring.
    pub fn kick_all(&self) {
        self.kicks.iter().for_each(|kick| kick.notify().unwrap());
    }

    /// Rings for what was added to the transmit ring.
    pub fn kick(&self) {
        self.kicks[1].notify().unwrap();
    }

    /// Stops both queues, as for a paused VM; gives where they stood.
    pub fn pause(&mut self) -> [u16; 2] {
        [0, 1].map(|index| self.client.stop_queue(index).unwrap())
    }

    /// Starts them again.
    pub fn resume(&mut self, at: [u16; 2]) {
        self.kicks = [0, 1].map(|index| start(&mut self.client, index, at[index as usize]));
    }

    /// Chains sent that have not come back.
    pub fn outstanding(&mut self) -> u16 {
        while self.transmit.take().unwrap().is_some() {}
        self.transmit.outstanding()
    }

    /// The next packet that came, if one did; each buffer is used once.
    pub fn receive(&mut self) -> Option<Header> {
        self.receive.take().unwrap()?;
        let mut bytes = [0; HEADER_LEN];
        self.map.read(buffer(self.first).addr, &mut bytes).unwrap();
        self.first += 1;
        Some(Header::parse(&bytes).unwrap())
    }
}

/// Starts queue `index` at `base`.
fn start(client: &mut Client, index: u32, base: u16) -> Notifier {
    let layout = if index == 0 { RECEIVE } else { TRANSMIT };
    let addresses = RingAddresses {
        index,
        flags: 0,
        descriptors: layout.desc().0,
        used: layout.used().0,
        available: layout.avail().0,
        log: 0,
    };
    let (kick, call) = (event(), event());
    client.start_queue(layout.size, base, &addresses, kick.as_fd(), call.as_fd()).unwrap();
    Notifier::new(kick).unwrap()
}

fn buffer(n: u16) -> Span {
    let addr = RINGS_END + u64::from(n) * u64::from(BUFFER_BYTES);
    Span { addr, len: BUFFER_BYTES }
}
