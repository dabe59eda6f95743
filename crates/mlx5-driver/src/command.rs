//! Commands: an entry of the command queue, chains of mailboxes, and the wait for the end.
//!
//! The thread that owns the [`Driver`] executes one command at a time: [`Driver::command`] writes
//! the input into mailboxes and entry 0 of the command queue, writes the doorbell register
//! ([`Bar`]), and polls the entry's owner bit for at most [`COMMAND_TIMEOUT`] (10 s), as Linux does
//! before its event queue exists. No method here reads the events of commands.
//! [`Driver::place_command`] fills any of the 32 entries without a doorbell, for tests.
//!
//! An input has at most 16 KiB in mailboxes, or 1 MiB if the memory has 64 MiB or more; an output
//! has at most 16 KiB. A longer command is [`DriverError::CommandLen`] and is not sent. After
//! [`DriverError::Late`] the driver is unusable; after a refusal it goes on.

use std::hint::spin_loop;
use std::time::Instant;

use causeway_wire::mlx5::command::{
    ENTRY_TYPE_COMMAND, HEADER_LEN, InputHeader, MAILBOX_ALIGNMENT, MAILBOX_DATA_LEN,
    OUTPUT_OFFSET, Opcode, OutputHeader, STATUS_OFFSET, Status,
};
use causeway_wire::mlx5::registers::COMMAND_DOORBELL;

use crate::limits::{
    BASE, COMMAND_OUTPUT_MAX, COMMAND_TIMEOUT, LONG_MAILBOX_BYTES, MAILBOX_BYTES, MAILBOX_OFFSET,
    POLLS_BEFORE_YIELD,
};
use crate::{Bar, Driver, DriverError};

/// Bytes of an entry of the command queue.
const ENTRY_LEN: u64 = 64;
/// Offset of the address of the next mailbox, in a mailbox.
const NEXT_OFFSET: u64 = 560;
/// Offsets of an entry: length of the input, its mailboxes, first bytes; mailboxes and length of
/// the output.
const INPUT_LEN: usize = 0x04;
const INPUT_MAILBOXES: usize = 0x08;
const INPUT: usize = 0x10;
const OUTPUT_MAILBOXES: usize = 0x30;
const OUTPUT_LEN: usize = 0x38;
/// Bit of the status byte: the function owns the entry.
const OWNED_BY_FUNCTION: u8 = 1;

/// Returns the address of entry `index` of the command queue.
fn entry_address(index: u64) -> u64 {
    BASE.saturating_add(index.saturating_mul(ENTRY_LEN))
}

/// Returns the number of mailboxes for a command of `len` bytes.
fn mailboxes(len: usize) -> u64 {
    len.saturating_sub(HEADER_LEN).div_ceil(MAILBOX_DATA_LEN) as u64
}

/// Returns the address of mailbox `index` of a chain.
fn mailbox(first: u64, index: u64) -> u64 {
    first.saturating_add(index.saturating_mul(MAILBOX_ALIGNMENT as u64))
}

/// Copies `from` into the entry at `at`.
fn put(entry: &mut [u8], at: usize, from: &[u8]) {
    for (to, from) in entry.iter_mut().skip(at).zip(from) {
        *to = *from;
    }
}

/// Returns the big-endian number in the bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Driver {
    /// Links the mailboxes of a chain.
    fn chain(&self, first: u64, count: u64) -> Result<(), DriverError> {
        for index in 0..count {
            let is_last = index.saturating_add(1) == count;
            let next = if is_last { 0 } else { mailbox(first, index.saturating_add(1)) };
            let at = mailbox(first, index).saturating_add(NEXT_OFFSET);
            self.memory().write(at, &next.to_be_bytes())?;
        }
        Ok(())
    }

    /// Returns the mailboxes for an input and an output of entry `index`.
    fn chains(&self, index: u64, input: usize, output: usize) -> Result<[u64; 2], DriverError> {
        let own = BASE.saturating_add(MAILBOX_OFFSET);
        let own = own.saturating_add(index.saturating_mul(MAILBOX_BYTES));
        let to = own.saturating_add(MAILBOX_BYTES / 2);
        if output > COMMAND_OUTPUT_MAX {
            return Err(DriverError::CommandLen(output));
        }
        let bytes = mailbox(0, mailboxes(input));
        if bytes <= MAILBOX_BYTES / 2 {
            return Ok([own, to]);
        }
        let long = self.memory().long_mailboxes().filter(|_| bytes <= LONG_MAILBOX_BYTES);
        Ok([long.ok_or(DriverError::CommandLen(input))?, to])
    }

    /// Writes a command to entry `index` of the command queue, and its mailboxes. Rings no
    /// doorbell. Returns the address of the entry. `index` is below 32, which is not checked, and
    /// the entry has no command in progress.
    ///
    /// # Errors
    /// [`DriverError::CommandLen`], or an error of memory.
    pub fn place_command(
        &self,
        index: u64,
        input: &[u8],
        output_len: usize,
    ) -> Result<u64, DriverError> {
        let [from, to] = self.chains(index, input.len(), output_len)?;
        let (head, rest) = input.split_at_checked(HEADER_LEN).unwrap_or((input, &[]));
        self.chain(from, mailboxes(input.len()))?;
        for (index, data) in (0..).zip(rest.chunks(MAILBOX_DATA_LEN)) {
            self.memory().write(mailbox(from, index), data)?;
        }
        self.chain(to, mailboxes(output_len))?;
        let len = |len: usize| u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        let mut entry = [0; ENTRY_LEN as usize];
        put(&mut entry, 0, &[ENTRY_TYPE_COMMAND]);
        put(&mut entry, INPUT_LEN, &len(input.len()));
        put(&mut entry, INPUT_MAILBOXES, &from.to_be_bytes());
        put(&mut entry, INPUT, head);
        put(&mut entry, OUTPUT_MAILBOXES, &to.to_be_bytes());
        put(&mut entry, OUTPUT_LEN, &len(output_len));
        put(&mut entry, STATUS_OFFSET, &[OWNED_BY_FUNCTION]);
        let at = entry_address(index);
        self.memory().write(at, &entry)?;
        Ok(at)
    }

    /// Waits until the function has finished the command at `entry`.
    fn wait_command(&self, entry: u64) -> Result<u8, DriverError> {
        let since = Instant::now();
        loop {
            for _ in 0..POLLS_BEFORE_YIELD {
                let status = self.memory().load_mark(entry)?;
                if status & OWNED_BY_FUNCTION == 0 {
                    return Ok(status >> 1);
                }
                spin_loop();
            }
            if since.elapsed() > COMMAND_TIMEOUT {
                return Err(DriverError::Late);
            }
            std::thread::yield_now();
        }
    }

    /// Executes a command. Returns its output and the delivery status: 0 if the function executed
    /// it.
    ///
    /// # Errors
    /// [`DriverError::CommandLen`], [`DriverError::Late`], or an error of memory or transport.
    pub fn command(
        &self,
        bar: &mut dyn Bar,
        input: &[u8],
        output_len: usize,
    ) -> Result<(Vec<u8>, u8), DriverError> {
        let entry = self.place_command(0, input, output_len)?;
        bar.write(COMMAND_DOORBELL, &1_u32.to_be_bytes())?;
        let delivery = self.wait_command(entry)?;
        let bytes: [u8; ENTRY_LEN as usize] = self.memory().read_array(entry)?;
        let mut output = vec![0; output_len.max(HEADER_LEN)];
        let (head, rest) = output.split_at_mut_checked(HEADER_LEN).unwrap_or((&mut [], &mut []));
        head.copy_from_slice(
            bytes.get(OUTPUT_OFFSET..OUTPUT_MAILBOXES).unwrap_or(&[0; HEADER_LEN]),
        );
        let first = number(bytes.get(OUTPUT_MAILBOXES..OUTPUT_LEN).unwrap_or_default());
        for (index, data) in (0..).zip(rest.chunks_mut(MAILBOX_DATA_LEN)) {
            self.memory().read(mailbox(first, index), data)?;
        }
        Ok((output, delivery))
    }

    /// Executes a command. Returns its output.
    ///
    /// # Errors
    /// As [`Self::command`], and [`DriverError::Undelivered`] or [`DriverError::Refused`].
    pub fn execute(
        &self,
        bar: &mut dyn Bar,
        input: &[u8],
        output_len: usize,
    ) -> Result<Vec<u8>, DriverError> {
        let (output, delivery) = self.command(bar, input, output_len)?;
        if delivery != 0 {
            return Err(DriverError::Undelivered(delivery));
        }
        let header = OutputHeader::parse(&output)?;
        match Status::from_raw(header.status) {
            Some(Status::Ok) => Ok(output),
            Some(status) => {
                let opcode = InputHeader::parse(input)?.opcode;
                Err(DriverError::Refused { opcode, status })
            }
            None => Err(DriverError::Malformed("status of a command")),
        }
    }

    /// Executes a command of 16 bytes on an object; 0 if there is none. Returns the number in its
    /// output.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn simple(
        &self,
        bar: &mut dyn Bar,
        opcode: Opcode,
        number: u32,
    ) -> Result<u32, DriverError> {
        self.numbered(bar, &InputHeader::new(opcode, number).to_bytes())
    }

    /// Executes a command with an output of 16 bytes. Returns the number in the output.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn numbered(&self, bar: &mut dyn Bar, input: &[u8]) -> Result<u32, DriverError> {
        let output = self.execute(bar, input, HEADER_LEN)?;
        Ok(number(output.get(8..12).unwrap_or_default()) as u32)
    }

    /// Executes a command of `len` bytes that begins with `header` and has values at offsets.
    /// Returns the number in its output.
    ///
    /// # Errors
    /// As [`Self::execute`], and [`DriverError::Size`] if a value ends behind `len`.
    pub fn with_values(
        &self,
        bar: &mut dyn Bar,
        header: &InputHeader,
        len: usize,
        values: &[(usize, &[u8])],
    ) -> Result<u32, DriverError> {
        let mut input = vec![0; len.max(HEADER_LEN)];
        for (at, bytes) in values {
            let end = at.saturating_add(bytes.len());
            let place = input.get_mut(*at..end).ok_or(DriverError::Size("length of a command"))?;
            place.copy_from_slice(bytes);
        }
        header.emit(&mut input)?;
        self.numbered(bar, &input)
    }

    /// Executes a command that creates an object from a context and a page list, each at its
    /// offset. Returns the number of the object.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn create(
        &self,
        bar: &mut dyn Bar,
        opcode: Opcode,
        context: (usize, &[u8]),
        (list_at, pages): (usize, &[u64]),
    ) -> Result<u32, DriverError> {
        let list: Vec<u8> = pages.iter().flat_map(|page| page.to_be_bytes()).collect();
        let header = InputHeader::new(opcode, 0);
        let len = list_at.saturating_add(list.len());
        self.with_values(bar, &header, len, &[context, (list_at, &list)])
    }
}
