//! Two adapters with a connected queue pair each.
//!
//! The rows of latency, throughput and pauses create a [`Link`]: two drivers of the ConnectX
//! function (`causeway_mlx5_driver`) in the row's thread, each on the vfio-user socket of an
//! adapter of the rig's dispatcher or of a daemon in a process of its own. Idle rows create a
//! [`Side`] for each adapter. Posts and polls touch memory alone; [`Link::check_trapped`] fails a
//! row that sent a register message. A wait for a completion or a value ends with an error after 5
//! s.

use std::path::Path;
use std::time::{Duration, Instant};

use causeway_mlx5_driver::{CompletionRing, Driver, DriverError, Post, QueuePair, VfioBar};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, RemoteAddressSegment, SendOpcode};

use crate::rig::{Rig, hca_mac};

/// Memory of an adapter's driver, in bytes.
pub const MEMORY: u64 = 16 << 20;
/// Length of each registered buffer, in bytes.
pub const BUFFER: u64 = 1 << 20;
/// Address of each buffer for work requests.
pub const VIRTUAL: u64 = 0x7fff_0000_0000;
/// Binary logarithm of the entries of each work queue; the completion queue has twice as many.
const LOG_ENTRIES: u8 = 8;
/// Waits end with an error after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Polls between two looks at the clock.
const POLLS: u32 = 1 << 16;

/// Returns the reason of a failure.
pub fn failed(error: DriverError) -> String {
    error.to_string()
}

/// One adapter with a queue pair.
#[derive(Debug)]
pub struct Side {
    /// Registers of the function.
    pub bar: VfioBar,
    /// The driver and its memory.
    pub driver: Driver,
    /// Completion queue of both work queues.
    pub cq: CompletionRing,
    /// The queue pair.
    pub pair: QueuePair,
    /// Address of the buffer in the driver's memory.
    pub buffer: u64,
    /// Key of the buffer, with all rights.
    pub key: u32,
}

impl Side {
    /// Starts a driver at a port's socket.
    pub fn start(path: &Path) -> Result<Self, DriverError> {
        let (mut bar, mut driver) = VfioBar::start(path, MEMORY)?;
        let cq = driver.create_cq(&mut bar, LOG_ENTRIES + 1)?;
        let mut context = driver.qp_context(Service::ReliableConnection, cq.number)?;
        (context.log_send_size, context.log_receive_size) = (LOG_ENTRIES, LOG_ENTRIES);
        let pair = driver.create_pair(&mut bar, context)?;
        let buffer = driver.allocate(BUFFER)?;
        let key = driver.register(&mut bar, VIRTUAL, buffer, BUFFER)?;
        Ok(Self { bar, driver, cq, pair, buffer, key })
    }

    /// Connects the queue pair with that of an adapter.
    pub fn connect(&mut self, mac: [u8; 6], number: u32) -> Result<(), DriverError> {
        self.driver.connect(&mut self.bar, &self.pair, mac, number)
    }

    /// Returns the segment of the first `len` bytes of the buffer.
    pub fn segment(&self, len: u32) -> DataSegment {
        DataSegment { raw_len: len, key: self.key, address: VIRTUAL }
    }

    /// Stores an entry that writes the first `len` bytes of the buffer to those of the peer, and
    /// does not publish it.
    pub fn stage_write(
        &mut self,
        len: u32,
        key: u32,
        is_signaled: bool,
    ) -> Result<(), DriverError> {
        let to = RemoteAddressSegment { address: VIRTUAL, key };
        let from = self.segment(len);
        let post = Post { is_signaled, ..Post::new(SendOpcode::Write) };
        self.driver.stage(&mut self.pair, post, |entry| entry.remote(&to).data(&from))
    }

    /// Waits for a completion.
    pub fn wait_completion(&mut self) -> Result<(), String> {
        let Self { driver, cq, .. } = self;
        wait(|| driver.drain_cq(cq, 1).map(|count| count > 0))
    }

    /// Waits until the last byte of the first `len` bytes of the buffer has a value.
    pub fn wait_mark(&self, len: u32, value: u8) -> Result<(), String> {
        let at = self.buffer + u64::from(len) - 1;
        wait(|| Ok(self.driver.memory().read_array(at)? == [value]))
    }

    /// Writes the last byte of the first `len` bytes of the buffer.
    pub fn write_mark(&self, len: u32, value: u8) -> Result<(), DriverError> {
        self.driver.memory().write(self.buffer + u64::from(len) - 1, &[value])
    }

    /// Posts a receive entry of `len` bytes in the second half of the buffer.
    pub fn post_receive(&mut self, len: u32) -> Result<(), DriverError> {
        let segment = DataSegment { raw_len: len, key: self.key, address: VIRTUAL + BUFFER / 2 };
        self.driver.post_receive(&mut self.pair, &[segment])
    }
}

/// Polls until `is_done` returns true; an error after 5 s.
pub fn wait(mut is_done: impl FnMut() -> Result<bool, DriverError>) -> Result<(), String> {
    let mut since = None;
    loop {
        for _ in 0..POLLS {
            if is_done().map_err(failed)? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err("the adapter does not answer".into());
        }
    }
}

/// Two connected adapters.
#[derive(Debug)]
pub struct Link {
    pub a: Side,
    pub b: Side,
    accesses: u64,
}

impl Link {
    /// Adds the adapters 1 and 2 to a dispatcher, and connects them.
    pub fn new(rig: &Rig) -> Result<Self, String> {
        Self::between(&rig.idle_hca(1), &rig.idle_hca(2)).map_err(failed)
    }

    /// Connects the adapters 1 and 2 by their sockets.
    pub fn between(a: &Path, b: &Path) -> Result<Self, DriverError> {
        let (mut a, mut b) = (Side::start(a)?, Side::start(b)?);
        a.connect(hca_mac(2), b.pair.number)?;
        b.connect(hca_mac(1), a.pair.number)?;
        let mut link = Self { a, b, accesses: 0 };
        link.accesses = link.register_accesses();
        Ok(link)
    }

    fn register_accesses(&self) -> u64 {
        self.a.bar.register_accesses() + self.b.bar.register_accesses()
    }

    /// Returns the number of register messages since the adapters are connected.
    pub fn trapped(&self) -> u64 {
        self.register_accesses() - self.accesses
    }

    /// Fails if the data path sent a register message.
    pub fn check_trapped(&self) -> Result<(), String> {
        match self.trapped() {
            0 => Ok(()),
            count => Err(format!("the data path sent {count} register messages")),
        }
    }
}
