//! Shared receive queues: linked lists of entries in the driver's memory.
//!
//! Each entry begins with the index of the next entry. The function starts at index 0 and follows
//! the links; a counter in the doorbell record has the number of posted entries. The driver may
//! write any link at any time: an index outside of the queue breaks the queue, and a loop lasts
//! only as long as the counter allows, because the number of waiting entries never exceeds the
//! size.
//!
//! A broken queue stays so until the driver destroys it or the function is reset: the queue pair
//! whose message found the fault moves to the error state, and for all others the queue is empty:
//! their reliable messages wait, other messages are dropped. An entry has 32 to 2,048 bytes, a
//! queue at most 2^15 entries. `command::receive_queue` creates the queues, `queues` takes entries
//! for the engine, both in the dispatcher's thread; the limit event is the engine's
//! (`verbs::adapter`).

use causeway_memory::Map;
use causeway_verbs::QueueError;
use causeway_verbs::work::ReceiveWork;
use causeway_wire::mlx5::work_queue::NextSegment;

use crate::completion_queue::read_word;
use crate::page_list::PageList;
use crate::receive_entry;
use crate::work_queues::Scratch;

/// Format of the ring, from the command that created the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolFormat {
    /// Binary logarithm of the number of entries.
    pub log_size: u8,
    /// Length of an entry, in bytes: at most that of [`Scratch`].
    pub stride: u64,
    /// Address of the doorbell record.
    pub doorbell_record: u64,
    /// Protection domain.
    pub domain: u32,
}

/// The values of a queue of an XRC domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct XrcValues {
    /// XRC domain.
    pub xrc_domain: u32,
    /// Completion queue of the entries.
    pub completion_queue: u32,
    /// Number that completions carry; `None` for the queue's own number.
    pub user_index: Option<u32>,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct ReceivePool {
    pages: PageList,
    format: PoolFormat,
    /// Index of the next entry.
    index: u16,
    /// Number of entries taken.
    taken: u16,
    /// Number of entries posted, as last read.
    posted: u16,
    is_broken: bool,
    /// Values of a queue of an XRC domain.
    pub xrc: Option<XrcValues>,
    /// Number of queue pairs that name the queue as their shared receive queue.
    pub users: u32,
    /// Limit below which the queue reports an event, once, as the driver set it.
    pub limit: u16,
    /// Limit that has not been reported; 0 for none.
    pub armed: u16,
    /// Context as the driver gave it, for the query command.
    pub context: Vec<u8>,
}

impl ReceivePool {
    /// Returns an empty queue of a format that the command checked.
    pub fn new(pages: PageList, format: PoolFormat, context: Vec<u8>) -> Self {
        Self {
            pages,
            format,
            index: 0,
            taken: 0,
            posted: 0,
            is_broken: false,
            xrc: None,
            users: 0,
            limit: 0,
            armed: 0,
            context,
        }
    }

    /// Returns the protection domain.
    pub fn domain(&self) -> u32 {
        self.format.domain
    }

    /// Returns the number of entries that were posted and not taken, by the driver's counter, also
    /// of a broken queue; 0 if the doorbell record is not granted.
    pub fn waiting(&self, map: &Map) -> u32 {
        match read_word(map, self.format.doorbell_record) {
            Some(posted) => u32::from((posted as u16).wrapping_sub(self.taken)),
            None => 0,
        }
    }

    /// Returns the recorded word: positions and limits.
    pub fn word(&self) -> u64 {
        let positions = u64::from(self.index) | u64::from(self.taken) << 16;
        let limits = u64::from(self.armed) << 32;
        positions | limits | u64::from(self.is_broken) << 48
    }

    /// Sets the values of the recorded word.
    pub fn resume(&mut self, word: u64) {
        (self.index, self.taken) = (word as u16, (word >> 16) as u16);
        self.posted = self.taken;
        self.armed = (word >> 32) as u16;
        self.limit = self.armed;
        self.is_broken = word >> 48 & 1 != 0;
    }

    /// Reads an entry that was taken before.
    pub fn entry(&self, map: &Map, index: u16) -> Option<ReceiveWork> {
        let mut bytes = vec![0; usize::try_from(self.format.stride).ok()?];
        let at = u64::from(index).wrapping_mul(self.format.stride);
        self.pages.read(map, at, &mut bytes).ok()?;
        let mut work = ReceiveWork::default();
        receive_entry::parse(bytes.get(NextSegment::LEN..)?, &mut work);
        work.token.index = index;
        Some(work)
    }

    /// Takes the next entry. Returns false if there is none.
    ///
    /// # Errors
    /// [`QueueError`]; later calls find the queue empty.
    pub fn next(
        &mut self,
        map: &Map,
        work: &mut ReceiveWork,
        scratch: &mut Scratch,
    ) -> Result<bool, QueueError> {
        if self.is_broken {
            return Ok(false);
        }
        if self.posted == self.taken {
            let record = self.format.doorbell_record;
            let Some(posted) = read_word(map, record) else {
                return self.fail("the doorbell record is not granted");
            };
            self.posted = posted as u16;
            if self.posted == self.taken {
                return Ok(false);
            }
        }
        let size = 1_u32.checked_shl(u32::from(self.format.log_size)).unwrap_or(0);
        if u32::from(self.posted.wrapping_sub(self.taken)) > size {
            return self.fail("more entries are posted than the queue holds");
        }
        let stride = usize::try_from(self.format.stride).unwrap_or(usize::MAX);
        let Some(entry) = scratch.0.get_mut(..stride) else { return self.fail("entry length") };
        let at = u64::from(self.index).wrapping_mul(self.format.stride);
        if self.pages.read(map, at, entry).is_err() {
            return self.fail("the queue is not granted");
        }
        let Ok(link) = NextSegment::parse(entry) else { return self.fail("entry length") };
        if u32::from(link.next) >= size {
            return self.fail("a link leaves the queue");
        }
        receive_entry::parse(entry.get(NextSegment::LEN..).unwrap_or(&[]), work);
        work.token.index = self.index;
        self.index = link.next;
        self.taken = self.taken.wrapping_add(1);
        Ok(true)
    }

    /// Breaks the queue.
    fn fail(&mut self, reason: &'static str) -> Result<bool, QueueError> {
        self.is_broken = true;
        Err(QueueError(reason))
    }
}
