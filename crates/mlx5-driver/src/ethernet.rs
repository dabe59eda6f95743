//! An Ethernet interface: a send queue, a receive queue, and steering of all frames to the latter.
//!
//! The queues are those of mlx5e: send entries with the first 18 bytes of a frame in the entry and
//! the rest in a buffer, and a cyclic receive queue with one buffer for each entry. A send entry is
//! one block of 64 bytes. All rings have 2^[`EthernetOptions::log_entries`] entries (512 by
//! default). The thread that owns the [`Driver`] makes all calls; only [`EthernetInterface::up`]
//! executes commands. An interface is never taken down.
//!
//! The caller keeps within the send ring ([`EthernetInterface::room`]); a stage beyond overwrites
//! entries that were not sent. Received frames are read or discarded in order, and their buffers
//! are posted again at once; frames that find no buffer are dropped by the function. A completion
//! with an error is [`DriverError::Malformed`], and its queue is then unusable.

use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::completion_queue::{CompletionEntry, Entry};
use causeway_wire::mlx5::steering::{
    ACTION_FORWARD, CRITERIA_OUTER, Destination, DestinationType, ENTRY_DESTINATIONS, EntryInput,
    GroupInput, ReceiveInterface, TableInput, TableReference,
};
use causeway_wire::mlx5::vport::{MODIFY_NIC_CONTEXT, NicVportContext, select};
use causeway_wire::mlx5::work_queue::{
    CONTEXT, PAGES, ReceiveQueueContext, SendQueueContext, WorkQueue, WorkQueueType,
};
use causeway_wire::mlx5::work_request::{
    BLOCK, ControlSegment, DataSegment, EthernetSegment, SendOpcode, SendWriter,
};

use crate::completion_ring::CompletionRing;
use crate::event_ring::{entries, entry_at};
use crate::limits::ETHERNET_LOG_ENTRIES;
use crate::memory::page_list;
use crate::{Bar, Driver, DriverError};

/// Bytes of a frame that lie in the send entry: the Ethernet header and a VLAN tag.
pub const INLINE_BYTES: usize = 18;
/// Bytes that the function counts in addition to the MTU: header, VLAN tag and checksum.
const MTU_OVERHEAD: u16 = 22;
/// Binary logarithm of the length of a receive entry: a segment, and one that ends the list.
const LOG_RECEIVE_STRIDE: u8 = 5;
/// Binary logarithm of the length of a block of the send queue.
const LOG_BLOCK: u8 = BLOCK.trailing_zeros() as u8;
/// State byte of a queue in its context, and the value of the state *ready*.
const STATE_AT: usize = CONTEXT + 1;
const READY: u8 = 1 << 4;
/// Value of the completion field of an entry that completes always.
const COMPLETES: u8 = 2;
/// Lengths of inputs.
const QUEUE_LEN: usize = 0x110;
const TABLE_LEN: usize = 0x40;
const VPORT_LEN: usize = 0x200;
const SEND_INTERFACE_LEN: usize = 0xc0;

/// Properties of an interface.
#[derive(Debug, Clone, Copy)]
pub struct EthernetOptions {
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Binary logarithm of the number of entries of all rings; at most 15, because the driver
    /// counts entries in 16 bits. A larger ring has no room to send.
    pub log_entries: u8,
    /// Length of a receive buffer, in bytes.
    pub buffer_len: u32,
}

impl Default for EthernetOptions {
    fn default() -> Self {
        Self { mtu: 1500, log_entries: ETHERNET_LOG_ENTRIES, buffer_len: 2048 }
    }
}

/// A ring of the interface with its doorbell record.
#[derive(Debug, Clone, Copy)]
struct Ring {
    /// Number of the queue.
    number: u32,
    /// Address of the ring.
    ring: u64,
    /// Address of the doorbell record.
    record: u64,
    /// Entries that were posted, modulo 2^16.
    posted: u16,
    /// Entries that were completed or taken, modulo 2^16.
    taken: u16,
    /// Completion queue of the ring.
    cq: CompletionRing,
}

/// The send entry of frames with the same first bytes and length.
#[derive(Debug, Clone, Copy)]
pub struct FrameTemplate {
    control: ControlSegment,
    entry: [u8; BLOCK],
}

/// An Ethernet interface that is up.
#[derive(Debug)]
pub struct EthernetInterface {
    options: EthernetOptions,
    /// Memory key of all the driver's memory.
    key: u32,
    send: Ring,
    receive: Ring,
    /// Address of the receive buffers.
    buffers: u64,
}

/// Returns the work queue of a ring.
fn work_queue(
    driver: &mut Driver,
    log_size: u8,
    log_stride: u8,
) -> Result<(WorkQueue, Vec<u64>), DriverError> {
    let queue = WorkQueue {
        queue_type: WorkQueueType::Cyclic.raw(),
        domain: driver.domain(),
        doorbell_record: driver.allocate(8)?,
        log_stride,
        log_size,
        ..Default::default()
    };
    let ring = driver.allocate(queue.buffer_len())?;
    Ok((queue, page_list(ring, queue.buffer_len())))
}

/// Moves a queue from *reset* to *ready*.
fn make_ready(
    driver: &Driver,
    bar: &mut dyn Bar,
    opcode: Opcode,
    number: u32,
) -> Result<(), DriverError> {
    let header = InputHeader::new(opcode, number);
    driver.with_values(bar, &header, QUEUE_LEN, &[(STATE_AT, &[READY])]).map(drop)
}

/// Creates the send queue.
fn create_send(driver: &mut Driver, bar: &mut dyn Bar, log: u8) -> Result<Ring, DriverError> {
    let header = InputHeader::new(Opcode::CreateTis, 0);
    let interface = driver.with_values(bar, &header, SEND_INTERFACE_LEN, &[])?;
    let cq = driver.create_cq(bar, log)?;
    let (queue, pages) = work_queue(driver, log, LOG_BLOCK)?;
    let context = SendQueueContext {
        flushes_in_error: true,
        completion_queue: cq.number,
        interface_count: 1,
        interface,
        queue,
        ..Default::default()
    };
    let input = (CONTEXT, &context.to_bytes()[..]);
    let number = driver.create(bar, Opcode::CreateSendQueue, input, (PAGES, &pages))?;
    make_ready(driver, bar, Opcode::ModifySendQueue, number)?;
    let ring = pages.first().copied().unwrap_or(0);
    Ok(Ring { number, ring, record: queue.doorbell_record, posted: 0, taken: 0, cq })
}

/// Creates the receive queue.
fn create_receive(driver: &mut Driver, bar: &mut dyn Bar, log: u8) -> Result<Ring, DriverError> {
    let cq = driver.create_cq(bar, log)?;
    let (queue, pages) = work_queue(driver, log, LOG_RECEIVE_STRIDE)?;
    let context = ReceiveQueueContext {
        keeps_vlan: true,
        completion_queue: cq.number,
        queue,
        ..Default::default()
    };
    let input = (CONTEXT, &context.to_bytes()[..]);
    let number = driver.create(bar, Opcode::CreateReceiveQueue, input, (PAGES, &pages))?;
    make_ready(driver, bar, Opcode::ModifyReceiveQueue, number)?;
    let ring = pages.first().copied().unwrap_or(0);
    Ok(Ring { number, ring, record: queue.doorbell_record, posted: 0, taken: 0, cq })
}

/// Creates a root table with one entry: all frames go to the receive queue.
fn steer(driver: &Driver, bar: &mut dyn Bar, queue: u32) -> Result<(), DriverError> {
    let context = ReceiveInterface { receive_queue: queue, ..Default::default() }.to_bytes();
    let header = InputHeader::new(Opcode::CreateTir, 0);
    let interface = driver.with_values(bar, &header, QUEUE_LEN, &[(CONTEXT, &context)])?;
    let header = InputHeader::new(Opcode::CreateFlowTable, 0);
    let bytes = TableInput { log_size: 2, ..Default::default() }.to_bytes();
    let table = driver.with_values(bar, &header, TABLE_LEN, &[(0, &bytes)])?;
    let header = InputHeader::new(Opcode::SetFlowTableRoot, 0);
    let bytes = TableReference { table, ..Default::default() }.to_bytes();
    driver.with_values(bar, &header, TABLE_LEN, &[(0, &bytes)])?;
    let header = InputHeader::new(Opcode::CreateFlowGroup, 0);
    let bytes = GroupInput { table, criteria: CRITERIA_OUTER, ..Default::default() }.to_bytes();
    let group = driver.with_values(bar, &header, 0x400, &[(0, &bytes)])?;
    let header = InputHeader::new(Opcode::SetFlowTableEntry, 0);
    let entry =
        EntryInput { table, group, action: ACTION_FORWARD, destinations: 1, ..Default::default() };
    let destination_type = DestinationType::ReceiveInterface.raw();
    let to = Destination { destination_type, number: interface }.to_bytes();
    let values: [(usize, &[u8]); 2] = [(0, &entry.to_bytes()), (ENTRY_DESTINATIONS, &to)];
    let len = ENTRY_DESTINATIONS.saturating_add(to.len());
    driver.with_values(bar, &header, len, &values).map(drop)
}

impl EthernetInterface {
    /// Brings an interface up, with a buffer in each receive entry.
    ///
    /// # Errors
    /// As [`Driver::create_cq`].
    pub fn up(
        driver: &mut Driver,
        bar: &mut dyn Bar,
        options: EthernetOptions,
    ) -> Result<Self, DriverError> {
        let key = driver.create_local_key(bar)?;
        let mtu = options.mtu.saturating_add(MTU_OVERHEAD);
        let context = NicVportContext { mtu, ..Default::default() }.to_bytes();
        let header = InputHeader {
            argument: select::MTU,
            ..InputHeader::new(Opcode::ModifyNicVportContext, 0)
        };
        driver.with_values(bar, &header, VPORT_LEN, &[(MODIFY_NIC_CONTEXT, &context)])?;
        let send = create_send(driver, bar, options.log_entries)?;
        let receive = create_receive(driver, bar, options.log_entries)?;
        steer(driver, bar, receive.number)?;
        let entries = entries(options.log_entries)?;
        let buffers = u64::from(entries).saturating_mul(u64::from(options.buffer_len));
        let buffers = driver.allocate(buffers)?;
        let mut interface = Self { options, key, send, receive, buffers };
        for _ in 0..entries {
            interface.post_buffer(driver)?;
        }
        interface.publish_buffers(driver)?;
        Ok(interface)
    }

    /// Returns the address of the buffer of a receive entry.
    #[inline]
    fn buffer(&self, number: u16) -> u64 {
        let len = u64::from(self.options.buffer_len);
        entry_at(self.buffers, self.options.log_entries, len, u32::from(number))
    }

    /// Stores the next receive entry, with the buffer of its slot.
    fn post_buffer(&mut self, driver: &Driver) -> Result<(), DriverError> {
        let ring = &self.receive;
        let len = 1_u64 << LOG_RECEIVE_STRIDE;
        let at = entry_at(ring.ring, self.options.log_entries, len, u32::from(ring.posted));
        let (raw_len, address) = (self.options.buffer_len, self.buffer(ring.posted));
        let mut entry = [0; 2 * DataSegment::LEN];
        let segments = [DataSegment { raw_len, key: self.key, address }, DataSegment::end()];
        for (place, segment) in entry.chunks_mut(DataSegment::LEN).zip(segments) {
            segment.emit(place)?;
        }
        driver.memory().write(at, &entry)?;
        self.receive.posted = ring.posted.wrapping_add(1);
        Ok(())
    }

    /// Publishes all stored receive entries.
    fn publish_buffers(&self, driver: &Driver) -> Result<(), DriverError> {
        driver.memory().publish(self.receive.record, u32::from(self.receive.posted))
    }

    /// Returns the number of send entries that are free.
    #[inline]
    pub fn room(&self) -> u16 {
        let entries = 1_u16.checked_shl(u32::from(self.options.log_entries)).unwrap_or(0);
        entries.saturating_sub(self.send.posted.wrapping_sub(self.send.taken))
    }

    /// Returns the send entry of a frame that begins with `head` and goes on with `len` bytes.
    ///
    /// # Errors
    /// [`DriverError::Entry`].
    pub fn template(
        &self,
        head: &[u8; INLINE_BYTES],
        len: u32,
    ) -> Result<FrameTemplate, DriverError> {
        let control = ControlSegment {
            opcode: SendOpcode::Send.raw(),
            queue: self.send.number,
            ..Default::default()
        };
        let mut entry = [0; BLOCK];
        let rest = DataSegment { raw_len: len, key: self.key, address: 0 };
        let writer = SendWriter::new(&mut entry, control);
        writer.ethernet(EthernetSegment::default(), head).data(&rest).finish()?;
        let control = ControlSegment::parse(&entry)?;
        Ok(FrameTemplate { control, entry })
    }

    /// Stores a send entry for a frame that goes on at `address` of the driver's memory. Without
    /// `is_signaled`, a later entry completes this entry too.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn stage(
        &mut self,
        driver: &Driver,
        template: &FrameTemplate,
        address: u64,
        is_signaled: bool,
    ) -> Result<(), DriverError> {
        let mut entry = template.entry;
        let completion = if is_signaled { COMPLETES } else { 0 };
        let control = ControlSegment { index: self.send.posted, completion, ..template.control };
        control.emit(&mut entry)?;
        // The data segment ends the block, and its address ends the segment.
        if let Some(place) = entry.last_chunk_mut() {
            *place = address.to_be_bytes();
        }
        let number = u32::from(self.send.posted);
        let at = entry_at(self.send.ring, self.options.log_entries, BLOCK as u64, number);
        driver.memory().write(at, &entry)?;
        self.send.posted = self.send.posted.wrapping_add(1);
        Ok(())
    }

    /// Publishes all stored send entries: doorbell record, then doorbell page.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn publish(&self, driver: &Driver) -> Result<(), DriverError> {
        let counter = self.send.posted;
        driver.memory().publish(self.send.record.wrapping_add(4), u32::from(counter))?;
        let [high, low] = counter.to_be_bytes();
        let [_, a, b, c] = self.send.number.to_be_bytes();
        driver.ring(causeway_wire::mlx5::registers::UAR_SEND, [0, high, low, 0, a, b, c, 0])
    }

    /// Takes completions of sent frames.
    ///
    /// # Errors
    /// [`DriverError::Malformed`] if a frame failed.
    #[inline]
    pub fn reclaim(&mut self, driver: &Driver) -> Result<(), DriverError> {
        while let Some(entry) = driver.poll_cq(&mut self.send.cq)? {
            match entry {
                Entry::Success(entry) => self.send.taken = entry.counter.wrapping_add(1),
                Entry::Error(_) => {
                    return Err(DriverError::Malformed("completion of a sent frame"));
                }
            }
        }
        Ok(())
    }

    /// Takes up to `max` received frames without reading them, and posts their buffers again: the
    /// entries stay as they are, because each has a buffer of its own. Returns their number.
    ///
    /// # Errors
    /// [`DriverError::Malformed`] if a completion reports an error.
    #[inline]
    pub fn discard(&mut self, driver: &Driver, max: u32) -> Result<u32, DriverError> {
        let count = driver.drain_cq(&mut self.receive.cq, max)?;
        if count > 0 {
            // A ring has less than 2^16 entries.
            self.receive.taken = self.receive.taken.wrapping_add(count as u16);
            self.receive.posted = self.receive.posted.wrapping_add(count as u16);
            self.publish_buffers(driver)?;
        }
        Ok(count)
    }

    /// Takes the next received frame into `into`, with its completion, and posts its buffer again.
    ///
    /// # Errors
    /// [`DriverError::Malformed`] if the completion reports an error, or more bytes than the
    /// buffer.
    pub fn receive(
        &mut self,
        driver: &Driver,
        into: &mut Vec<u8>,
    ) -> Result<Option<CompletionEntry>, DriverError> {
        let Some(entry) = driver.poll_cq(&mut self.receive.cq)? else { return Ok(None) };
        let Entry::Success(entry) = entry else {
            return Err(DriverError::Malformed("completion of a received frame"));
        };
        if entry.bytes > self.options.buffer_len {
            return Err(DriverError::Malformed("length of a received frame"));
        }
        into.resize(usize::try_from(entry.bytes).unwrap_or(0), 0);
        driver.memory().read(self.buffer(self.receive.taken), into)?;
        self.receive.taken = self.receive.taken.wrapping_add(1);
        self.receive.posted = self.receive.posted.wrapping_add(1);
        self.publish_buffers(driver)?;
        Ok(Some(entry))
    }
}
