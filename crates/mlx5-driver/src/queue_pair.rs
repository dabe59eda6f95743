//! Queue pairs: creation, state changes, and posts.
//!
//! A post stores the entry, then the counter in the doorbell record, then eight bytes in the
//! doorbell page, as a provider of rdma-core does. [`Driver::stage`] stores entries only, so that a
//! batch has one [`Driver::publish_sends`]. The thread that owns the [`Driver`] posts; only
//! creation and state changes execute commands, and no post makes a system call. causewayd's
//! dispatcher polls the doorbell record and executes the entries.
//!
//! A send entry has at most 1,024 bytes ([`DriverError::Entry`] beyond); a receive entry has room
//! for the segments of its stride, and further segments are ignored. The caller keeps within the
//! ring, whose entries wrap at its end: a counter further ahead moves the queue pair to the error
//! state. No method here destroys a queue pair.

use causeway_wire::mlx5::command::{InputHeader, Opcode};
use causeway_wire::mlx5::queue_pair::{
    AddressPath, CONTEXT, OPTIONAL_MASK, PAGES, QueuePairContext, ReceiveQueueType, SEND_BLOCK,
    Service, optional,
};
use causeway_wire::mlx5::registers::UAR_SEND;
use causeway_wire::mlx5::work_request::{ControlSegment, DataSegment, SendOpcode, SendWriter};

use crate::memory::page_list;
use crate::{Bar, Driver, DriverError};

/// Bytes of the longest send entry.
const ENTRY_BYTES_MAX: usize = 1024;
/// Length of the input of a command that changes a state.
const MODIFY_LEN: usize = 0x110;
/// Queue key of datagrams.
pub const QUEUE_KEY: u32 = 0x1111;
/// User index of all queue pairs.
const USER_INDEX: u32 = 0x1234;
/// Value of the completion field of an entry that completes always; 0 completes a failed entry
/// only.
const COMPLETES: u8 = 2;

/// A queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QueuePair {
    /// Number of the queue pair.
    pub number: u32,
    /// Context at the creation.
    pub context: QueuePairContext,
    /// Address of the rings: receive queue, then send queue.
    pub ring: u64,
    /// Address of the doorbell record.
    pub record: u64,
    /// Blocks of the send queue that were stored, modulo 2^16.
    pub sent: u16,
    /// Receive entries that were posted, modulo 2^16.
    pub received: u16,
}

/// The operation of a send entry.
#[derive(Debug, Clone, Copy)]
pub struct Post {
    /// The operation.
    pub opcode: SendOpcode,
    /// Immediate value, or the key that the operation names.
    pub immediate: u32,
    /// The entry completes; otherwise only if it fails.
    pub is_signaled: bool,
    /// The responder's completion is solicited.
    pub is_solicited: bool,
}

impl Post {
    /// Returns an operation that completes and is not solicited.
    pub fn new(opcode: SendOpcode) -> Self {
        Self { opcode, immediate: 0, is_signaled: true, is_solicited: false }
    }
}

impl Driver {
    /// Returns the context of a queue pair with one completion queue for both rings: 16 blocks to
    /// send, 16 entries of 64 bytes to receive.
    ///
    /// # Errors
    /// [`DriverError::MemoryFull`].
    pub fn qp_context(
        &mut self,
        service: Service,
        cq: u32,
    ) -> Result<QueuePairContext, DriverError> {
        Ok(QueuePairContext {
            service: service.raw(),
            domain: self.domain(),
            log_receive_size: 4,
            log_receive_stride: 2,
            log_send_size: 4,
            uar_page: self.uar(),
            user_index: USER_INDEX,
            send_completion_queue: cq,
            receive_completion_queue: cq,
            doorbell_record: self.allocate(8)?,
            receive_queue_type: ReceiveQueueType::Own.raw(),
            has_fast_registration: true,
            ..Default::default()
        })
    }

    /// Creates a queue pair.
    ///
    /// # Errors
    /// As [`Driver::execute`], and [`DriverError::MemoryFull`].
    pub fn create_pair(
        &mut self,
        bar: &mut dyn Bar,
        context: QueuePairContext,
    ) -> Result<QueuePair, DriverError> {
        let bytes = context.buffer_len().max(1);
        let ring = self.allocate(bytes)?;
        let pages = page_list(ring, bytes);
        let input = (CONTEXT, &context.to_bytes()[..]);
        let number = self.create(bar, Opcode::CreateQueuePair, input, (PAGES, &pages))?;
        let record = context.doorbell_record;
        Ok(QueuePair { number, context, ring, record, sent: 0, received: 0 })
    }

    /// Executes a command that changes the state of a queue pair.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn modify(
        &self,
        bar: &mut dyn Bar,
        opcode: Opcode,
        pair: &QueuePair,
        (mask, context): (u32, QueuePairContext),
    ) -> Result<(), DriverError> {
        let header = InputHeader::new(opcode, pair.number);
        let values: [(usize, &[u8]); 2] =
            [(OPTIONAL_MASK, &mask.to_be_bytes()), (CONTEXT, &context.to_bytes())];
        self.with_values(bar, &header, MODIFY_LEN, &values).map(drop)
    }

    /// Moves a queue pair from *reset* to *ready to send*, with a peer: queue pair `number` of the
    /// adapter `mac`.
    ///
    /// # Errors
    /// As [`Driver::execute`].
    pub fn connect(
        &self,
        bar: &mut dyn Bar,
        pair: &QueuePair,
        mac: [u8; 6],
        number: u32,
    ) -> Result<(), DriverError> {
        let rights = QueuePairContext {
            remote_read: true,
            remote_write: true,
            remote_atomic: true,
            queue_key: QUEUE_KEY,
            ..Default::default()
        };
        self.modify(bar, Opcode::ResetToInit, pair, (0, rights))?;
        let path = AddressPath { destination_mac: mac, ..Default::default() };
        let peer = QueuePairContext {
            mtu: 3,
            remote_number: number,
            primary_path: path,
            min_rnr_timer: 1,
            ..Default::default()
        };
        self.modify(bar, Opcode::InitToReadyToReceive, pair, (0, peer))?;
        let path = AddressPath { ack_timeout: 14, ..Default::default() };
        let send = QueuePairContext {
            retry_count: 7,
            rnr_retry: 7,
            primary_path: path,
            ..Default::default()
        };
        let opcode = Opcode::ReadyToReceiveToReadyToSend;
        self.modify(bar, opcode, pair, (optional::RNR_TIMEOUT, send))
    }

    /// Stores a send entry that `build` completes, without a doorbell.
    ///
    /// # Errors
    /// [`DriverError::Entry`] if the entry is too long.
    #[inline]
    pub fn stage(
        &self,
        pair: &mut QueuePair,
        post: Post,
        build: impl for<'a> FnOnce(SendWriter<'a>) -> SendWriter<'a>,
    ) -> Result<(), DriverError> {
        let control = ControlSegment {
            index: pair.sent,
            opcode: post.opcode.raw(),
            queue: pair.number,
            completion: if post.is_signaled { COMPLETES } else { 0 },
            immediate: post.immediate,
            is_solicited: post.is_solicited,
            ..Default::default()
        };
        let mut entry = [0; ENTRY_BYTES_MAX];
        let blocks = build(SendWriter::new(&mut entry, control)).finish()?;
        let mask = (pair.context.send_blocks() as u16).wrapping_sub(1);
        let start = pair.ring.wrapping_add(pair.context.send_offset());
        for block in entry.chunks(SEND_BLOCK).take(usize::from(blocks)) {
            let index = u64::from(pair.sent & mask);
            let at = start.wrapping_add(index.wrapping_mul(SEND_BLOCK as u64));
            self.memory().write(at, block)?;
            pair.sent = pair.sent.wrapping_add(1);
        }
        Ok(())
    }

    /// Publishes all stored send entries: doorbell record, then doorbell page.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn publish_sends(&self, pair: &QueuePair) -> Result<(), DriverError> {
        self.memory().publish(pair.record.wrapping_add(4), u32::from(pair.sent))?;
        let [high, low] = pair.sent.to_be_bytes();
        let [_, a, b, c] = pair.number.to_be_bytes();
        self.ring(UAR_SEND, [0, high, low, 0, a, b, c, 0])
    }

    /// Posts a send entry that `build` completes.
    ///
    /// # Errors
    /// As [`Self::stage`].
    #[inline]
    pub fn post(
        &self,
        pair: &mut QueuePair,
        post: Post,
        build: impl for<'a> FnOnce(SendWriter<'a>) -> SendWriter<'a>,
    ) -> Result<(), DriverError> {
        self.stage(pair, post, build)?;
        self.publish_sends(pair)
    }

    /// Posts a receive entry.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub fn post_receive(
        &self,
        pair: &mut QueuePair,
        segments: &[DataSegment],
    ) -> Result<(), DriverError> {
        let stride = u64::from(pair.context.receive_stride());
        let mask = (pair.context.receive_entries() as u16).wrapping_sub(1);
        let index = u64::from(pair.received & mask);
        let mut at = pair.ring.wrapping_add(index.wrapping_mul(stride));
        let end = [DataSegment::end()];
        let room = usize::try_from(stride).unwrap_or(0) / DataSegment::LEN;
        for segment in segments.iter().chain(&end).take(room) {
            self.memory().write(at, &segment.to_bytes())?;
            at = at.wrapping_add(DataSegment::LEN as u64);
        }
        pair.received = pair.received.wrapping_add(1);
        self.memory().publish(pair.record, u32::from(pair.received))
    }
}
