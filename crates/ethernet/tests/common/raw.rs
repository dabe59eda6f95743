//! A front end that can break every rule: its file can shrink, and its rings are plain memory.

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

/// Where the rings and the buffers lie; [`RINGS_END`] is a file length that keeps the rings only.
pub const RINGS_END: u64 = 0x2_0000;
pub const RECEIVE: Layout = Layout { base: 0, size: 64, table_entries: 0 };
pub const TRANSMIT: Layout = Layout { base: 0x1_0000, size: 64, table_entries: 0 };
const BUFFERS: u64 = RINGS_END;
pub const BUFFER_BYTES: u32 = 2048;
pub const SEND_AT: u64 = 0x8_0000;
/// Bytes that are granted; the file goes on behind them, on the same page.
const MEMORY: u64 = 0x10_0000 - 0x800;
const FILE: u64 = 0x10_0000;
const CANARY: u8 = 0xc5;

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
    /// As handed over for the notifications of both rings.
    pub calls: [OwnedFd; 2],
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
        client.set_features(mask(VIRTIO_F_VERSION_1) | super::ALL).unwrap();
        let region = RegionSpec { guest: 0, len: MEMORY, user: 0, offset: 0 };
        client.grant(&region, file.as_fd()).unwrap();
        let mut receive = Driver::new(RECEIVE, false, false, &map).unwrap();
        let transmit = Driver::new(TRANSMIT, false, false, &map).unwrap();
        for n in 0..32 {
            let span = Span { addr: BUFFERS + n * u64::from(BUFFER_BYTES), len: BUFFER_BYTES };
            receive.add(&map, &[], &[span]).unwrap();
        }
        receive.publish().unwrap();
        let calls = [event(), event()];
        let kicks = [(0, RECEIVE), (1, TRANSMIT)].map(|(index, layout)| {
            let addresses = RingAddresses {
                index,
                flags: 0,
                descriptors: layout.desc().0,
                used: layout.used().0,
                available: layout.avail().0,
                log: 0,
            };
            let (kick, call) = (event(), &calls[index as usize]);
            client.start_queue(layout.size, 0, &addresses, kick.as_fd(), call.as_fd()).unwrap();
            Notifier::new(kick).unwrap()
        });
        Self { client, map, file, receive, transmit, kicks, calls }
    }

    /// Sends a frame without offloads.
    pub fn send(&mut self, frame: &[u8]) {
        self.map.write(SEND_AT, &[&[0; 12], frame].concat()).unwrap();
        let len = (frame.len() + 12) as u32;
        self.send_chain(&[Span { addr: SEND_AT, len }]);
    }

    /// Sends whatever `spans` name.
    pub fn send_chain(&mut self, spans: &[Span]) {
        self.transmit.add(&self.map, spans, &[]).unwrap();
        self.transmit.publish().unwrap();
        self.kick();
    }

    pub fn kick(&self) {
        for kick in &self.kicks {
            kick.notify().unwrap();
        }
    }

    /// Overwrites the available index of the transmit ring.
    pub fn jump(&self, index: u16) {
        self.map.write(TRANSMIT.avail().0 + 2, &index.to_le_bytes()).unwrap();
    }

    /// Overwrites a descriptor: 0 for the receive ring, 1 for the transmit ring.
    pub fn describe(&self, ring: usize, at: u16, span: Span, flags: u16, next: u16) {
        let mut bytes = span.addr.to_le_bytes().to_vec();
        bytes.extend(span.len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        let base = [RECEIVE, TRANSMIT][ring].desc().0;
        self.map.write(base + 16 * u64::from(at), &bytes).unwrap();
    }
}
