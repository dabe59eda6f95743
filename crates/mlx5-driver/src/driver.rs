//! The start of the driver, and the objects that all others need: command queue, doorbell page,
//! event queues, protection domain.
//!
//! The benchmark and the tests own a driver, in one thread of their process; the other modules add
//! methods to [`Driver`]. [`Driver::new`] leaves the function able to take commands;
//! [`Driver::start`] makes it ready for queue pairs, by eight commands, each at most 10 s. A driver
//! is started once, which is not checked, and a second function needs a second driver with memory
//! of its own. A start that fails is not undone. The drop of a driver sends nothing to the
//! function: its objects live until the reset by the transport.

use causeway_wire::mlx5::command::Opcode;
use causeway_wire::mlx5::registers::{
    COMMAND_QUEUE_HIGH, COMMAND_QUEUE_LOW, HEALTH_COUNTER, INITIALIZING,
};

use crate::limits::{BASE, LOG_COMPLETION_EVENTS, LOG_EVENTS};
use crate::{Bar, DoorbellPages, DriverError, DriverMemory, EventRing};

/// Event type of finished commands.
const COMMAND_EVENTS: u64 = 1 << 0xa;
/// All asynchronous event types: not completions (0), not commands.
const ASYNCHRONOUS_EVENTS: u64 = 0x1f_ffff & !COMMAND_EVENTS & !1;
/// Bit of the register INITIALIZING: the function is not ready.
const NOT_READY: u32 = 1 << 31;

/// A driver and its memory. The caller passes the BAR to calls that execute commands.
#[derive(Debug)]
pub struct Driver {
    /// Memory that the function reaches.
    memory: DriverMemory,
    /// Mapped doorbell pages; `None` if the transport has none.
    doorbells: Option<DoorbellPages>,
    /// Number of the protection domain; 0 before the start.
    domain: u32,
    /// Number of the doorbell page; 0 before the start.
    uar: u32,
    /// Event queue of finished commands (vector 0).
    command_events: EventRing,
    /// Event queue of asynchronous events (vector 0).
    async_events: EventRing,
    /// Event queue of completions (vector 1).
    events: EventRing,
}

impl Driver {
    /// Writes the address of the command queue to its registers. Executes no command.
    ///
    /// # Errors
    /// Returns an error if the function is not ready or the transport failed.
    pub fn new(bar: &mut dyn Bar, memory: DriverMemory) -> Result<Self, DriverError> {
        let mut word = [0; 4];
        bar.read(INITIALIZING, &mut word)?;
        if u32::from_be_bytes(word) & NOT_READY != 0 {
            return Err(DriverError::Malformed("register INITIALIZING"));
        }
        let queue = BASE.to_be_bytes();
        let (high, low) = queue.split_at_checked(4).unwrap_or_default();
        bar.write(COMMAND_QUEUE_HIGH, high)?;
        bar.write(COMMAND_QUEUE_LOW, low)?;
        let (command_events, async_events, events) = Default::default();
        let doorbells = bar.doorbells();
        let (domain, uar) = (0, 0);
        Ok(Self { memory, doorbells, domain, uar, command_events, async_events, events })
    }

    /// Starts the function as Linux does: initialisation, a doorbell page, a protection domain, and
    /// event queues for commands and asynchronous events (vector 0) and completions (vector 1).
    ///
    /// # Errors
    /// Returns an error if the function refuses a command or does not answer.
    pub fn start(&mut self, bar: &mut dyn Bar) -> Result<(), DriverError> {
        for opcode in [Opcode::EnableHca, Opcode::QueryPages, Opcode::InitHca] {
            self.simple(bar, opcode, 0)?;
        }
        self.uar = self.simple(bar, Opcode::AllocateUar, 0)?;
        self.domain = self.simple(bar, Opcode::AllocateProtectionDomain, 0)?;
        self.command_events = self.create_events(bar, LOG_EVENTS, 0, COMMAND_EVENTS)?;
        self.async_events = self.create_events(bar, LOG_EVENTS, 0, ASYNCHRONOUS_EVENTS)?;
        self.events = self.create_events(bar, LOG_COMPLETION_EVENTS, 1, 0)?;
        Ok(())
    }

    /// Reads the health counter, which each read advances.
    ///
    /// # Errors
    /// Returns an error if the transport failed.
    pub fn health(&self, bar: &mut dyn Bar) -> Result<u32, DriverError> {
        let mut word = [0; 4];
        bar.read(HEALTH_COUNTER, &mut word)?;
        Ok(u32::from_be_bytes(word))
    }

    /// Returns the memory.
    #[inline]
    pub fn memory(&self) -> &DriverMemory {
        &self.memory
    }

    /// Allocates page-aligned memory. Returns its address.
    ///
    /// # Errors
    /// [`DriverError::MemoryFull`].
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        self.memory.allocate(bytes)
    }

    /// Returns the protection domain.
    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// Returns the number of the doorbell page.
    pub fn uar(&self) -> u32 {
        self.uar
    }

    /// Returns the queue of events of commands, as created.
    pub fn command_events(&self) -> EventRing {
        self.command_events
    }

    /// Returns the queue of asynchronous events, as created.
    pub fn async_events(&self) -> EventRing {
        self.async_events
    }

    /// Returns the queue of completion events, as created.
    pub fn events(&self) -> EventRing {
        self.events
    }

    /// Stores eight bytes at `offset` of the driver's doorbell page, if the transport has pages.
    ///
    /// # Errors
    /// [`DriverError::Address`].
    #[inline]
    pub(crate) fn ring(&self, offset: u64, bytes: [u8; 8]) -> Result<(), DriverError> {
        match &self.doorbells {
            Some(pages) => pages.store(self.uar, offset, bytes),
            None => Ok(()),
        }
    }
}
