//! A process in a guest, by a native driver of the guest's adapter: a queue pair to the service of
//! the daemon, and registered memory for the rings and for large messages.
//!
//! The driver's memory is one row of bytes, as a huge page of a guest is, so the daemon serves the
//! rings where they are. `super::end` calls it in the benchmark's thread. A wait for a completion
//! ends with an error after [`PATIENCE`] (10 s); so does a completion with an error, at once.

use std::path::Path;
use std::time::Instant;

use causeway_channel::mx_rings::layout;
use causeway_memory::View;
use causeway_mlx5_driver::{CompletionRing, Driver, Post, QueuePair, VfioBar};
use causeway_wire::local::{ClientMessage, DaemonMessage, VERSION};
use causeway_wire::mlx5::completion_queue::{CompletionOpcode, Entry};
use causeway_wire::mlx5::queue_pair::Service;
use causeway_wire::mlx5::work_request::{DataSegment, SendOpcode};
use causeway_wire::session::{MESSAGE_BYTES, Offer, SERVICE_QPN, SessionMessage};

use super::{PATIENCE, text};

/// Memory of a guest's driver, in bytes.
const MEMORY: u64 = 8 << 20;
/// Receive work requests of the process.
const RECEIVES: u64 = 16;
/// Bytes between its buffers.
const STRIDE: u64 = 256;
/// Polls of an empty completion queue before each further poll yields the processor.
const POLLS_BEFORE_YIELD: u32 = 64;

/// The process, with the driver of its guest.
pub struct GuestProcess {
    bar: VfioBar,
    driver: Driver,
    pair: QueuePair,
    cq: CompletionRing,
    buffer: u64,
    key: u32,
}

impl GuestProcess {
    /// Starts the driver of the adapter with this address, and attaches the process.
    pub fn start(socket: &Path, mac: [u8; 6]) -> Result<Self, String> {
        let (mut bar, mut driver) = VfioBar::start(socket, MEMORY).map_err(text)?;
        let cq = driver.create_cq(&mut bar, 6).map_err(text)?;
        let context = driver.qp_context(Service::ReliableConnection, cq.number).map_err(text)?;
        let pair = driver.create_pair(&mut bar, context).map_err(text)?;
        let bytes = (RECEIVES + 1) * STRIDE;
        let buffer = driver.allocate(bytes).map_err(text)?;
        let key = driver.register(&mut bar, buffer, buffer, bytes).map_err(text)?;
        driver.connect(&mut bar, &pair, mac, SERVICE_QPN).map_err(text)?;
        let mut process = Self { bar, driver, pair, cq, buffer, key };
        for index in 0..RECEIVES {
            process.post_receive(index)?;
        }
        process.ask(ClientMessage::Hello { version: VERSION, direct: 0 }, None)?;
        match process.hear()? {
            DaemonMessage::Welcome { .. } => Ok(process),
            other => Err(format!("no welcome: {other:?}")),
        }
    }

    /// Opens endpoint 0. Returns its rings.
    pub fn open(&mut self, key: u32) -> Result<View, String> {
        let bytes = layout().bytes();
        let (address, offer) = self.offer(bytes as u64)?;
        self.ask(ClientMessage::Open { tag: 1, endpoint: 0, key }, Some(offer))?;
        match self.hear()? {
            DaemonMessage::Opened { code: 0, .. } => {}
            other => return Err(format!("no endpoint: {other:?}")),
        }
        self.driver.memory().map().view(address, bytes).map_err(text)
    }

    /// Registers memory for large messages. Returns the answer.
    pub fn region(&mut self, len: u64) -> Result<DaemonMessage, String> {
        let (_, offer) = self.offer(len)?;
        self.ask(ClientMessage::Region { tag: 2, endpoint: 0, len }, Some(offer))?;
        self.hear()
    }

    /// Rings the doorbell of the endpoint, and waits for a completion; a message in it is dropped.
    pub fn ring(&mut self) -> Result<(), String> {
        let post = Post { immediate: 0, ..Post::new(SendOpcode::SendImmediate) };
        self.driver.post(&mut self.pair, post, |entry| entry).map_err(text)?;
        self.wait_completion().map(drop)
    }

    /// Allocates and registers memory. Returns its address, and the offer.
    fn offer(&mut self, len: u64) -> Result<(u64, Offer), String> {
        let address = self.driver.allocate(len).map_err(text)?;
        let key = self.driver.register(&mut self.bar, address, address, len).map_err(text)?;
        Ok((address, Offer { key, address, len }))
    }

    fn post_receive(&mut self, index: u64) -> Result<(), String> {
        let address = self.buffer + index * STRIDE;
        let segment = DataSegment { raw_len: MESSAGE_BYTES as u32, key: self.key, address };
        self.driver.post_receive(&mut self.pair, &[segment]).map_err(text)
    }

    /// Sends a message.
    fn ask(&mut self, message: ClientMessage, offer: Option<Offer>) -> Result<(), String> {
        let address = self.buffer + RECEIVES * STRIDE;
        let bytes = SessionMessage { message, offer }.emit();
        self.driver.memory().write(address, &bytes).map_err(text)?;
        let segment = DataSegment { raw_len: bytes.len() as u32, key: self.key, address };
        let post = Post::new(SendOpcode::Send);
        self.driver.post(&mut self.pair, post, |entry| entry.data(&segment)).map_err(text)
    }

    /// Waits for the next message of the daemon. Completions of sends, and wake-ups, are forgotten.
    fn hear(&mut self) -> Result<DaemonMessage, String> {
        loop {
            match self.wait_completion()? {
                Some(DaemonMessage::Wake { .. }) | None => {}
                Some(message) => return Ok(message),
            }
        }
    }

    /// Waits for a completion. Returns the message, if it is that of a receive.
    fn wait_completion(&mut self) -> Result<Option<DaemonMessage>, String> {
        let (since, mut polls) = (Instant::now(), 0_u32);
        loop {
            match self.driver.poll_cq(&mut self.cq).map_err(text)? {
                None if since.elapsed() > PATIENCE => return Err("no completion arrives".into()),
                // The dispatcher may be on this core.
                None if polls >= POLLS_BEFORE_YIELD => std::thread::yield_now(),
                None => {
                    polls += 1;
                    std::hint::spin_loop();
                }
                Some(Entry::Error(entry)) => return Err(format!("a work request: {entry:?}")),
                Some(Entry::Success(entry)) if entry.opcode == CompletionOpcode::Request.raw() => {
                    return Ok(None);
                }
                Some(Entry::Success(entry)) => {
                    let index = u64::from(entry.counter) % RECEIVES;
                    let at = self.buffer + index * STRIDE;
                    let bytes: [u8; MESSAGE_BYTES] =
                        self.driver.memory().read_array(at).map_err(text)?;
                    self.post_receive(index)?;
                    let message = SessionMessage::<DaemonMessage>::parse(&bytes).map_err(text)?;
                    return Ok(Some(message.message));
                }
            }
        }
    }
}
