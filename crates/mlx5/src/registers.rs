//! The trapped registers of the function: configuration space, initialisation segment and MSI-X
//! table.
//!
//! `causeway-hca` passes the registers to the attachment ([`REGION_BAR`], [`REGION_MSIX`] and
//! [`REGION_CONFIG`] are VFIO's regions). The control thread of the attachment reads and writes
//! them while the dispatcher runs commands, so the values that both use are atomics: the address of
//! the command queue, the bitmap of its rung doorbells, which `poll` takes in the dispatcher's
//! thread, the state of the function (failed, resuming), and the counters. The control thread alone
//! uses the rest, under a lock that no other thread waits for. No access blocks: a driver that
//! waits longer than 5 s for a register declares the function dead.
//!
//! The initialisation segment is the start of BAR 0: 32-bit registers, big-endian. Accesses to the
//! segment and the MSI-X table have 1 or 2 bytes, aligned to that, or a multiple of 4 bytes,
//! aligned to 4; others read zeros and write nothing, as do unknown registers, and writes of less
//! than 4 bytes have no effect. No access is an error. The MSI-X table is stored only: the VMM
//! raises and masks vectors.
//!
//! A reset, which the VMM requests and the control thread performs, clears registers and rung
//! doorbells, not the driver's objects: the dispatcher removes these later ([`crate::reset()`]),
//! and begins no command that was rung for before the reset. A function that reports an internal
//! error ([`Registers::fail`]) ignores command doorbells until its driver sets the command queue up
//! again, or a reset.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use causeway_wire::mlx5::registers::{
    COMMAND_DOORBELL, COMMAND_INTERFACE as INTERFACE_REVISION, COMMAND_QUEUE_HIGH,
    COMMAND_QUEUE_LOW, FIRMWARE_VERSION, HEALTH_COUNTER, HEALTH_SYNDROME, TIMER_HIGH, TIMER_LOW,
};

use crate::config_space::ConfigSpace;
use crate::limits::{
    COMMAND_LOG_ENTRIES, COMMAND_LOG_STRIDE, MSIX_PENDING_OFFSET, PAGE_BYTES, TRAPPED_BYTES,
};

/// Region of the doorbell pages and the initialisation segment (VFIO: BAR 0).
pub const REGION_BAR: u32 = 0;
/// Region of the MSI-X table (VFIO: BAR 2).
pub const REGION_MSIX: u32 = 2;
/// Region of the configuration space (VFIO).
pub const REGION_CONFIG: u32 = 7;
/// Value of [`Registers::write`] after a doorbell of the command queue.
pub const DOORBELL_COMMAND: usize = 0;
/// Value of [`Registers::write`] after a write to a doorbell page that is not mapped: the driver
/// posted work, or armed a queue. The value written has no meaning; doorbell records have it.
pub const DOORBELL_WORK: usize = 1;

/// Firmware version that the function reports: 16.32 has every command that is answered.
const FIRMWARE: u32 = 32 << 16 | 16;
/// Revision of the command interface; drivers accept no other.
const COMMAND_INTERFACE: u32 = 5 << 16 | 1000;
/// Syndrome of an internal error of the firmware, in the second byte of its word.
const FIRMWARE_ERROR: u32 = 1;
/// Bits of the interface's state in the low word of the command queue's address.
const INTERFACE_STATE: u32 = 7 << 8;
/// State of an interface that executes no commands.
const INTERFACE_DISABLED: u32 = 1 << 8;
/// Number of 32-bit words of the MSI-X table.
const MSIX_WORDS: usize = MSIX_PENDING_OFFSET as usize / 4;

/// Bits of rung doorbells.
const RUNG: u64 = u32::MAX as u64;
/// Value of a reset in the high half.
const RESET: u64 = 1 << 32;

/// Doorbells of the command queue that were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// Bit n is the command with number n.
    pub commands: u32,
    /// The number of resets before, in the high half.
    reset: u64,
}

/// The registers of one function, shared by the control thread and the dispatcher.
#[derive(Debug)]
pub struct Registers {
    /// Guest address of the command queue; 0 for none.
    command_queue: AtomicU64,
    /// Rung doorbells in the low half, the number of resets in the high half.
    doorbells: AtomicU64,
    /// The health counter, which moves with each read.
    health: AtomicU32,
    /// The function reports an internal error.
    has_failed: AtomicBool,
    /// The frontend is one that an earlier process served.
    is_resuming: AtomicBool,
    /// Reads since these registers were made.
    reads: AtomicU64,
    /// Writes since these registers were made.
    writes: AtomicU64,
    /// Begin of the timer.
    created: Instant,
    /// Length of BAR 0, in bytes.
    bar_bytes: u64,
    vectors: u16,
    private: Mutex<Private>,
}

/// Registers of the control thread.
#[derive(Debug)]
struct Private {
    config: ConfigSpace,
    /// MSI-X table. The VMM emulates the table of its guest; these bytes only read as written.
    msix: [u32; MSIX_WORDS],
}

impl Private {
    fn new(bar_bytes: u64, vectors: u16) -> Self {
        let mut msix = [0; MSIX_WORDS];
        // A vector is masked until the driver unmasks it.
        for control in msix.iter_mut().skip(3).step_by(4).take(usize::from(vectors)) {
            *control = 1;
        }
        Self { config: ConfigSpace::new(bar_bytes, vectors), msix }
    }
}

impl Registers {
    /// Returns the registers after a reset, for a BAR 0 of `bar_bytes` and `vectors` interrupts.
    pub fn new(bar_bytes: u64, vectors: u16) -> Self {
        Self {
            command_queue: AtomicU64::new(0),
            doorbells: AtomicU64::new(0),
            health: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            is_resuming: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            created: Instant::now(),
            bar_bytes,
            vectors,
            private: Mutex::new(Private::new(bar_bytes, vectors)),
        }
    }

    /// Reads a register. Unknown regions and offsets read zeros.
    pub fn read(&self, region: u32, offset: u64, into: &mut [u8]) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        into.fill(0);
        match region {
            REGION_CONFIG => self.private().config.read(offset, into),
            REGION_BAR => self.read_words(offset, into, |at| self.segment(at).to_be_bytes()),
            REGION_MSIX => {
                let private = self.private();
                self.read_words(offset, into, |at| {
                    msix_index(at)
                        .and_then(|i| private.msix.get(i))
                        .map_or([0; 4], |w| w.to_le_bytes())
                });
            }
            _ => {}
        }
    }

    /// Writes a register. Returns the doorbell that the write rings, if any. Unknown regions and
    /// offsets are ignored.
    pub fn write(&self, region: u32, offset: u64, from: &[u8]) -> Option<usize> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        match region {
            REGION_CONFIG => self.private().config.write(offset, from),
            REGION_BAR if (TRAPPED_BYTES..self.bar_bytes).contains(&offset) => {
                return Some(DOORBELL_WORK);
            }
            REGION_BAR => {
                let mut rung = None;
                for (at, word) in words(offset, from) {
                    rung = rung.or(self.write_segment(at, u32::from_be_bytes(word)));
                }
                return rung;
            }
            REGION_MSIX => {
                let mut private = self.private();
                for (at, word) in words(offset, from) {
                    if let Some(entry) = msix_index(at).and_then(|i| private.msix.get_mut(i)) {
                        *entry = u32::from_le_bytes(word);
                    }
                }
            }
            _ => {}
        }
        None
    }

    /// Sets all registers to their values after power-on; the health counter and the timer go on.
    pub fn reset(&self) {
        let reset = |doorbells: u64| Some((doorbells & !RUNG).wrapping_add(RESET));
        let _ = self.doorbells.fetch_update(Ordering::AcqRel, Ordering::Relaxed, reset);
        self.command_queue.store(0, Ordering::Release);
        self.has_failed.store(false, Ordering::Release);
        *self.private() = Private::new(self.bar_bytes, self.vectors);
    }

    /// Marks the frontend as one that an earlier process served.
    pub fn begin_resume(&self) {
        self.is_resuming.store(true, Ordering::Release);
    }

    /// Returns whether an earlier process served the frontend, as long as its connection lasts.
    pub fn is_resuming(&self) -> bool {
        self.is_resuming.load(Ordering::Acquire)
    }

    /// Makes the function report an internal error, until its driver sets the command queue up
    /// again or a reset. Doorbells that were rung before, and those rung meanwhile, are void: the
    /// driver gives up its outstanding commands.
    pub fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.take_doorbells();
    }

    /// Returns whether the function reports an internal error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Returns the guest address of the command queue; 0 if the driver has set none.
    pub fn command_queue(&self) -> u64 {
        self.command_queue.load(Ordering::Acquire)
    }

    /// Takes the doorbells that were rung since the last call.
    pub fn take_doorbells(&self) -> Rung {
        let mut doorbells = self.doorbells.load(Ordering::Relaxed);
        if doorbells & RUNG != 0 {
            doorbells = self.doorbells.fetch_and(!RUNG, Ordering::Acquire);
        }
        Rung { commands: (doorbells & RUNG) as u32, reset: doorbells & !RUNG }
    }

    /// Returns whether no reset happened since the doorbells were taken.
    pub fn is_current(&self, rung: &Rung) -> bool {
        self.doorbells.load(Ordering::Acquire) & !RUNG == rung.reset
    }

    /// Rings doorbells again, for commands that the caller has taken and not run. Does nothing if a
    /// reset happened since they were taken.
    pub fn return_doorbells(&self, rung: &Rung) {
        let ring = |doorbells: u64| {
            (doorbells & !RUNG == rung.reset).then_some(doorbells | u64::from(rung.commands))
        };
        let _ = self.doorbells.fetch_update(Ordering::AcqRel, Ordering::Relaxed, ring);
    }

    /// Rings the doorbells of all commands.
    pub(crate) fn ring_all(&self) {
        self.doorbells.fetch_or(RUNG, Ordering::Release);
    }

    /// Returns the numbers of reads and writes since these registers were made: since the port was
    /// added, or its last frontend disconnected ([`crate::disconnect`]). Each read or write of a
    /// guest is a VM exit; a reset keeps the numbers.
    pub fn accesses(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Returns the number of MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.vectors
    }

    fn private(&self) -> std::sync::MutexGuard<'_, Private> {
        self.private.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_words(&self, offset: u64, into: &mut [u8], word: impl Fn(u64) -> [u8; 4]) {
        if !is_aligned(offset, into.len()) {
            return;
        }
        let mut at = offset & !3;
        let mut skip = (offset & 3) as usize;
        for piece in into.chunks_mut(4) {
            for (to, from) in piece.iter_mut().zip(word(at).iter().skip(skip)) {
                *to = *from;
            }
            skip = 0;
            at = at.wrapping_add(4);
        }
    }

    /// Returns a word of the initialisation segment. Words without a meaning are zero: the function
    /// is initialised (bit 31 of 0x1fc), and healthy (the buffer at 0x200) unless it has failed.
    fn segment(&self, at: u64) -> u32 {
        let queue = self.command_queue.load(Ordering::Relaxed);
        match at {
            FIRMWARE_VERSION => FIRMWARE,
            INTERFACE_REVISION => COMMAND_INTERFACE,
            COMMAND_QUEUE_HIGH => (queue >> 32) as u32,
            COMMAND_QUEUE_LOW => {
                let log = COMMAND_LOG_ENTRIES << 4 | COMMAND_LOG_STRIDE;
                let state = if self.has_failed() { INTERFACE_DISABLED } else { 0 };
                queue as u32 & !0xfff | state | u32::from(log)
            }
            HEALTH_SYNDROME if self.has_failed() => FIRMWARE_ERROR << 16,
            TIMER_HIGH => (self.microseconds() >> 32) as u32,
            TIMER_LOW => self.microseconds() as u32,
            HEALTH_COUNTER => self.health.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            _ => 0,
        }
    }

    fn write_segment(&self, at: u64, value: u32) -> Option<usize> {
        let queue = self.command_queue.load(Ordering::Relaxed);
        match at {
            COMMAND_QUEUE_HIGH => {
                let low = queue & 0xffff_ffff;
                self.command_queue.store(u64::from(value) << 32 | low, Ordering::Release);
                None
            }
            COMMAND_QUEUE_LOW => {
                let low = u64::from(value) & !PAGE_BYTES.wrapping_sub(1);
                self.command_queue.store(queue & !0xffff_ffff | low, Ordering::Release);
                if value & INTERFACE_STATE == 0 {
                    self.has_failed.store(false, Ordering::Release);
                }
                None
            }
            COMMAND_DOORBELL if !self.has_failed() => {
                self.doorbells.fetch_or(u64::from(value), Ordering::Release);
                Some(DOORBELL_COMMAND)
            }
            _ => None,
        }
    }

    fn microseconds(&self) -> u64 {
        self.created.elapsed().as_micros() as u64
    }
}

/// Returns whether an access has a length of 1, 2, 4 or 8 bytes and is aligned to it, or a multiple
/// of 4 bytes and is aligned to 4.
fn is_aligned(offset: u64, len: usize) -> bool {
    match len {
        1 => true,
        2 => offset.is_multiple_of(2),
        0 => false,
        _ => len.is_multiple_of(4) && offset.is_multiple_of(4),
    }
}

/// Returns the whole words of a write with their offsets; none if the write is unaligned.
fn words(offset: u64, from: &[u8]) -> impl Iterator<Item = (u64, [u8; 4])> + '_ {
    let from = if is_aligned(offset, from.len()) { from } else { &[] };
    let (chunks, _) = from.as_chunks::<4>();
    let offsets = (0_u64..).map(move |index| offset.wrapping_add(index.wrapping_mul(4)));
    offsets.zip(chunks.iter().copied())
}

fn msix_index(at: u64) -> Option<usize> {
    usize::try_from(at >> 2).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(registers: &Registers, at: u64) -> u32 {
        let mut word = [0; 4];
        registers.read(REGION_BAR, at, &mut word);
        u32::from_be_bytes(word)
    }

    fn registers() -> Registers {
        Registers::new(32 << 20, 8)
    }

    #[test]
    fn registers_report_an_initialised_healthy_function() {
        let registers = registers();
        assert_eq!(read(&registers, 4) >> 16, 5);
        assert_eq!(read(&registers, 0x14), 0x56);
        assert_eq!(read(&registers, 0x1fc) >> 31, 0);
        assert_eq!(read(&registers, 0x23c), 0);
        assert_ne!(read(&registers, 0x230), u32::MAX);
    }

    #[test]
    fn registers_of_a_failed_function_report_it_until_the_queue_is_set_up_again() {
        let registers = registers();
        let ring = |bits: u32| registers.write(REGION_BAR, 0x18, &bits.to_be_bytes());
        ring(3);
        registers.fail();
        assert_eq!(read(&registers, 0x14) & INTERFACE_STATE, INTERFACE_DISABLED);
        assert_eq!(read(&registers, 0x23c), 1 << 16);
        assert_eq!(ring(1), None);
        assert_eq!(registers.take_doorbells().commands, 0);
        registers.write(REGION_BAR, 0x14, &[0, 1, 1, 0]);
        assert!(registers.has_failed(), "the driver disabled the interface");
        registers.write(REGION_BAR, 0x14, &[0, 1, 0, 0]);
        assert!(!registers.has_failed());
        assert_eq!([read(&registers, 0x14), read(&registers, 0x23c)], [0x1_0056, 0]);
        assert_eq!(ring(1), Some(DOORBELL_COMMAND));
        registers.fail();
        registers.reset();
        assert!(!registers.has_failed());
    }

    #[test]
    fn registers_move_the_health_counter_between_reads() {
        let registers = registers();
        let first = read(&registers, 0x1010);
        assert_ne!(read(&registers, 0x1010), first);
    }

    #[test]
    fn registers_count_accesses_across_a_reset() {
        let registers = registers();
        read(&registers, 0x14);
        registers.write(REGION_BAR, 0x18, &[0, 0, 0, 1]);
        registers.write(REGION_CONFIG, 4, &[6, 4]);
        registers.reset();
        assert_eq!(registers.accesses(), (1, 2));
    }

    #[test]
    fn registers_collect_doorbells_and_the_command_queue() {
        let registers = registers();
        assert_eq!(registers.write(REGION_BAR, 0x10, &[0, 0, 0, 1]), None);
        assert_eq!(registers.write(REGION_BAR, 0x14, &[0x12, 0x34, 0x5f, 0xff]), None);
        assert_eq!(registers.command_queue(), 0x1_1234_5000);
        assert_eq!(read(&registers, 0x14), 0x1234_5056);
        assert_eq!(registers.write(REGION_BAR, 0x18, &[0, 0, 0, 1]), Some(DOORBELL_COMMAND));
        assert_eq!(registers.write(REGION_BAR, 0x18, &[0x80, 0, 0, 0]), Some(DOORBELL_COMMAND));
        assert_eq!(registers.take_doorbells().commands, 0x8000_0001);
        assert_eq!(registers.take_doorbells().commands, 0);
    }

    #[test]
    fn registers_forget_doorbells_that_were_taken_before_a_reset() {
        let registers = registers();
        let ring = |bits: u32| registers.write(REGION_BAR, 0x18, &bits.to_be_bytes());
        ring(3);
        let rung = registers.take_doorbells();
        assert!(registers.is_current(&rung));
        registers.return_doorbells(&rung);
        assert_eq!(registers.take_doorbells(), rung);
        ring(8);
        registers.reset();
        ring(4);
        assert!(!registers.is_current(&rung));
        registers.return_doorbells(&rung);
        assert_eq!(registers.take_doorbells().commands, 4);
    }

    #[test]
    fn registers_ignore_unaligned_and_unknown_accesses() {
        let registers = registers();
        assert_eq!(registers.write(REGION_BAR, 0x16, &[0xff; 4]), None);
        assert_eq!(registers.write(REGION_BAR, u64::MAX, &[0xff; 3]), None);
        assert_eq!(registers.write(99, 0x18, &[0xff; 4]), None);
        assert_eq!(registers.command_queue(), 0);
        let mut bytes = [7; 3];
        registers.read(REGION_BAR, 1, &mut bytes);
        assert_eq!(bytes, [0; 3]);
        let mut byte = [0];
        registers.read(REGION_BAR, 5, &mut byte);
        assert_eq!(byte, [5]);
    }

    #[test]
    fn registers_keep_the_msix_table_until_a_reset() {
        let registers = registers();
        let mut words = [0; 16];
        registers.read(REGION_MSIX, 0, &mut words);
        assert_eq!(words[12..], [1, 0, 0, 0]);
        registers.write(REGION_MSIX, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        registers.read(REGION_MSIX, 0, &mut words);
        assert_eq!(words[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        registers.write(REGION_MSIX, 0x800, &[0xff; 8]);
        registers.write(REGION_MSIX, !3, &[0xff; 8]);
        registers.reset();
        registers.read(REGION_MSIX, 0, &mut words);
        assert_eq!(words[..8], [0; 8]);
        assert_eq!(registers.command_queue(), 0);
    }
}
