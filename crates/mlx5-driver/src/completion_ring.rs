//! Completion queues: creation, polling, the doorbell record, and arming.
//!
//! The record has two words: the number of completions that the driver took, and the arm word.
//! Polling reads the last byte of the next entry first; the entry is copied once when that byte has
//! the owner bit of this round. An empty poll stores nothing and returns `None`. A completion with
//! an error is an [`Entry`] of [`Driver::poll_cq`], and an error of [`Driver::drain_cq`].
//! [`crate::EthernetInterface`], `bench` and tests call the module, in the thread that owns the
//! [`Driver`]. Only [`Driver::create_cq`] executes a command, and no poll or arm makes a system
//! call.
//!
//! A ring has at most 2^20 entries; more is [`DriverError::Size`]. The caller keeps the number of
//! completions that the function may still write or the driver has not taken within the 2^`log`
//! entries of its ring: the function loses completions for a full ring, and the queue is then
//! broken, which polls do not notice. An arm asks for an event about a completion behind the
//! position of the arm word (`causeway_mlx5` has the rule). An arm word equal to that of the last
//! event asks for nothing; a new queue counts as armed with the word 0.

use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::completion_queue::{
    CONTEXT, CompletionOpcode, CompletionQueueContext, ENTRY_LEN, Entry, OPCODE_INVALID, PAGES,
};
use causeway_wire::mlx5::event_queue::owner_bit;
use causeway_wire::mlx5::registers::UAR_ARM_COMPLETION;

use crate::event_ring::entry_at;
use crate::{Bar, Driver, DriverError};

/// Bits of a position in a doorbell record.
const POSITION: u32 = 0xff_ffff;
/// Last byte of an entry that was never written: opcode *invalid*, owner bit set.
const UNUSED: u8 = OPCODE_INVALID << 4 | 1;

/// A completion queue.
#[derive(Debug, Clone, Copy)]
pub struct CompletionRing {
    /// Number of the queue.
    pub number: u32,
    /// Address of the doorbell record.
    pub record: u64,
    /// Number of completions that the driver took, modulo 2^32.
    pub taken: u32,
    /// Address of the ring.
    pub(crate) ring: u64,
    /// The ring has 2^`log` entries.
    pub(crate) log: u8,
}

impl CompletionRing {
    /// Returns the arm word after the completions taken so far.
    fn arm_word(&self, sequence: u32, solicited: bool) -> u32 {
        (sequence & 3) << 28 | u32::from(solicited) << 24 | self.taken & POSITION
    }
}

impl Driver {
    /// Allocates a completion queue of 2^`log` entries. Returns its context and its pages, for
    /// [`Self::create_cq`], [`Self::resize_cq`] and commands of tests.
    ///
    /// # Errors
    /// [`DriverError::MemoryFull`], or [`DriverError::Size`] beyond 2^20 entries.
    pub fn cq_context(
        &mut self,
        log: u8,
    ) -> Result<(CompletionQueueContext, Vec<u64>), DriverError> {
        let (_, pages) = self.marked_ring(log, UNUSED)?;
        let context = CompletionQueueContext {
            log_size: log,
            event_queue: self.events().number,
            uar_page: self.uar(),
            doorbell_record: self.allocate(8)?,
            ..Default::default()
        };
        Ok((context, pages))
    }

    /// Creates a completion queue of 2^`log` entries.
    ///
    /// # Errors
    /// As [`Driver::execute`] and [`Driver::cq_context`].
    pub fn create_cq(&mut self, bar: &mut dyn Bar, log: u8) -> Result<CompletionRing, DriverError> {
        let (context, pages) = self.cq_context(log)?;
        let bytes = context.to_bytes();
        let opcode = Opcode::CreateCompletionQueue;
        let number = self.create(bar, opcode, (CONTEXT, &bytes), (PAGES, &pages))?;
        let (record, ring) = (context.doorbell_record, pages.first().copied().unwrap_or(0));
        Ok(CompletionRing { number, record, taken: 0, ring, log })
    }

    /// Returns the address and the opcode of the next completion if the function has written it.
    #[inline]
    fn next_completion(&self, cq: &CompletionRing) -> Result<Option<(u64, u8)>, DriverError> {
        let at = entry_at(cq.ring, cq.log, ENTRY_LEN as u64, cq.taken);
        let mark = self.memory().load_mark(at)?;
        let opcode = mark >> 4;
        let is_new = opcode != OPCODE_INVALID && mark & 1 == u8::from(owner_bit(cq.taken, cq.log));
        Ok(is_new.then_some((at, opcode)))
    }

    /// Takes the next completion, and stores the position in the doorbell record.
    ///
    /// # Errors
    /// [`DriverError::Address`] if the ring is outside memory.
    #[inline]
    pub fn poll_cq(&self, cq: &mut CompletionRing) -> Result<Option<Entry>, DriverError> {
        let Some((at, _)) = self.next_completion(cq)? else { return Ok(None) };
        let entry = Entry::parse(&self.memory().read_array::<ENTRY_LEN>(at)?)?;
        cq.taken = cq.taken.wrapping_add(1);
        self.memory().publish(cq.record, cq.taken & POSITION)?;
        Ok(Some(entry))
    }

    /// Takes up to `max` completions without reading more than their opcodes, and stores the
    /// position once. Returns their number.
    ///
    /// # Errors
    /// [`DriverError::Malformed`] at a completion with an error; it is taken, with those before it.
    pub fn drain_cq(&self, cq: &mut CompletionRing, max: u32) -> Result<u32, DriverError> {
        let before = cq.taken;
        let mut result = Ok(());
        while cq.taken.wrapping_sub(before) < max && result.is_ok() {
            let Some((_, opcode)) = self.next_completion(cq)? else { break };
            if opcode >= CompletionOpcode::RequestError.raw() {
                result = Err(DriverError::Malformed("completion: it reports an error, and"));
            }
            cq.taken = cq.taken.wrapping_add(1);
        }
        let count = cq.taken.wrapping_sub(before);
        if count > 0 {
            self.memory().publish(cq.record, cq.taken & POSITION)?;
        }
        result.map(|()| count)
    }

    /// Arms a completion queue: stores the arm word in the doorbell record, then in the doorbell
    /// page. `sequence` must differ, modulo 4, from that of the arm of the last event, unless a
    /// completion was taken since that arm.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    pub fn arm(
        &self,
        cq: &CompletionRing,
        sequence: u32,
        solicited: bool,
    ) -> Result<(), DriverError> {
        let word = cq.arm_word(sequence, solicited);
        self.memory().publish(cq.record.wrapping_add(4), word)?;
        let ([a, b, c, d], [e, f, g, h]) = (word.to_be_bytes(), cq.number.to_be_bytes());
        self.ring(UAR_ARM_COMPLETION, [a, b, c, d, e, f, g, h])
    }
}
