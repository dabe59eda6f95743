//! The shard table of a dispatcher: busy shards, the next turn, passed deadlines.
//!
//! The dispatcher's thread owns the table and calls [`ShardTable::turns`] in its loop; orders of
//! the registry add, detach and attach shards ([`crate::registry`]). The table asks
//! [`crate::schedule`] for the next group, divides the time of a group's turn among its busy
//! shards, and calls [`Shard::turn_for`]. After each call the table updates whether the shard is
//! busy, and its deadline.
//!
//! A slot holds one shard; its serial number distinguishes events of a removed shard from those of
//! its successor. A table has at most 65,536 slots; then adding fails. Shards are found by key in
//! linear time, for commands only. A detached shard is served by no dispatcher until another
//! attaches it. The table does not read the clock between turns except through the slice.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::load::{Load, Meter};
use crate::schedule::{GroupTurn, Schedule};
use crate::shard::{Shard, ShardKey, Turn};
use crate::slice::Slice;
use crate::source_doorbell::{self, ShardLocation};
use crate::spin_budget::SpinBudget;
use crate::turn_times::TurnTimes;
use crate::watch::{Poller, Trigger, Watch, WatchToken};

/// A shard and its state in this dispatcher.
#[derive(Debug)]
struct ShardEntry {
    key: ShardKey,
    shard: Box<Shard>,
    /// Distinguishes the shard from earlier shards in its slot.
    serial: u32,
    /// Watch of the shard's epoll set.
    watch: Watch,
    /// Number of its group in the schedule.
    group: usize,
    /// The shard is in the schedule's list of busy shards.
    is_busy: bool,
    /// First deadline of the shard, as it is in the deadlines of the table.
    deadline_ns: Option<u64>,
    /// Empty polls of this round since a queue last became active.
    empty_polls: usize,
    /// Round in which `empty_polls` was counted.
    round: u32,
    /// Time in which the shard had work.
    meter: Meter,
    /// Published load.
    load: Arc<Load>,
}

impl ShardEntry {
    /// Counts a turn in a round; the flags: a queue became active before and during the turn.
    fn count_turn(&mut self, round: u32, idle: u32, (before, during): (bool, bool)) {
        if before || self.round != round {
            self.empty_polls = 0;
        }
        let polls = usize::try_from(idle).unwrap_or(usize::MAX);
        self.empty_polls = if during { 0 } else { self.empty_polls.saturating_add(polls) };
        self.round = round;
    }
}

/// A shard that moves from one dispatcher to another.
#[derive(Debug)]
pub(crate) struct DetachedShard {
    pub shard: Box<Shard>,
    /// Moves with the shard: a closed descriptor could at once be taken by another thread.
    watch: Watch,
    load: Arc<Load>,
}

/// The shards of a dispatcher.
#[derive(Debug)]
pub(crate) struct ShardTable {
    /// The epoll set of the dispatcher, which watches the sets of the shards.
    pub(crate) poller: Poller,
    /// Shards by slot.
    entries: Vec<Option<ShardEntry>>,
    schedule: Schedule,
    /// Deadlines of shards, with the slot of each.
    deadlines: BTreeSet<(u64, usize)>,
    /// Serial number of the last shard.
    serial: u32,
    /// Time of the last read of the kernel's events.
    pub(crate) now_ns: u64,
    /// The clock within turns.
    pub(crate) slice: Slice,
    /// Idle spin of the dispatcher.
    pub(crate) spin_budget: SpinBudget,
    /// A process was notified, and the processor was not yielded since.
    pub(crate) has_notified: bool,
    /// Number of the round of turns without work: work or a yield begins a new round.
    pub(crate) round: u32,
    /// Time until which other threads need this processor.
    pub(crate) contended_until_ns: u64,
    /// Number of the dispatcher, for doorbells of sources.
    pub(crate) number: u16,
    /// Times of turns, which views read.
    pub(crate) turn_times: Arc<TurnTimes>,
}

impl ShardTable {
    /// Makes a table without shards, on a clock that counts from `start`.
    pub(crate) fn new(poller: Poller, spin_budget: SpinBudget, start: Instant) -> Self {
        Self {
            poller,
            entries: Vec::new(),
            schedule: Schedule::default(),
            deadlines: BTreeSet::new(),
            serial: 0,
            now_ns: 0,
            slice: Slice::timed(start),
            spin_budget,
            has_notified: false,
            round: 0,
            contended_until_ns: 0,
            number: 0,
            turn_times: Arc::default(),
        }
    }

    /// Sets the time to a reading of the clock.
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.slice.set_now(now_ns);
    }

    /// Returns whether no shard is busy.
    pub(crate) fn is_idle(&self) -> bool {
        self.schedule.is_idle()
    }

    /// Returns the entry of a shard that is about to be called, after it set the shard's time and
    /// spin budget.
    fn entry(&mut self, index: usize) -> Option<&mut ShardEntry> {
        let entry = self.entries.get_mut(index)?.as_mut()?;
        let awaits = self.now_ns >= self.contended_until_ns;
        entry.shard.set_clock(self.now_ns, self.spin_budget.spin_ns(), awaits);
        Some(entry)
    }

    /// Returns the slot of a shard.
    fn find(&self, key: &ShardKey) -> Option<usize> {
        self.entries.iter().position(|s| s.as_ref().is_some_and(|s| s.key == *key))
    }

    /// Adds a new shard; drops it if the host refuses the watch or no slot is free.
    pub(crate) fn add(
        &mut self,
        key: ShardKey,
        shard: Box<Shard>,
        load: Arc<Load>,
    ) -> io::Result<()> {
        let (index, token) = self.free_slot()?;
        let watch = self.poller.watch(shard.events(), token, Trigger::Readable)?;
        self.insert(index, key, DetachedShard { shard, watch, load });
        Ok(())
    }

    /// Adds a shard that another dispatcher detached, or returns it.
    pub(crate) fn attach(
        &mut self,
        key: ShardKey,
        mut detached: DetachedShard,
    ) -> Result<(), (DetachedShard, io::Error)> {
        let moved = self.free_slot().and_then(|(index, token)| {
            detached.watch.move_to(&self.poller, token)?;
            Ok(index)
        });
        match moved {
            Ok(index) => self.insert(index, key, detached),
            Err(error) => return Err((detached, error)),
        }
        Ok(())
    }

    /// Returns a free slot and its token.
    fn free_slot(&mut self) -> io::Result<(usize, WatchToken)> {
        let free = self.entries.iter().position(Option::is_none);
        let index = free.unwrap_or(self.entries.len());
        self.serial = self.serial.wrapping_add(1);
        let slot = u16::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok((index, WatchToken::Shard { slot, serial: self.serial }))
    }

    /// Puts a shard in a free slot.
    fn insert(&mut self, index: usize, key: ShardKey, detached: DetachedShard) {
        let DetachedShard { shard, watch, load } = detached;
        // A free slot has a 16-bit number.
        let slot = u16::try_from(index).unwrap_or(u16::MAX);
        let location = ShardLocation { dispatcher: self.number, slot, serial: self.serial };
        let group = self.schedule.join(&key.group, shard.weight());
        let entry = ShardEntry {
            watch,
            key,
            shard,
            serial: self.serial,
            group,
            is_busy: false,
            deadline_ns: None,
            empty_polls: 0,
            round: 0,
            meter: Meter::default(),
            load,
        };
        match self.entries.get_mut(index) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        if self.number != 0
            && let Some(entry) = self.entry(index)
        {
            entry.shard.set_location(location);
        }
        self.refresh(index);
    }

    /// Removes a shard, so that another dispatcher can take it.
    pub(crate) fn detach(&mut self, key: &ShardKey) -> Option<DetachedShard> {
        // Rings of this thread are not visible to another thread.
        self.deliver_rings();
        let index = self.find(key)?;
        let ShardEntry { mut shard, watch, load, deadline_ns, group, .. } =
            self.entries.get_mut(index)?.take()?;
        shard.set_location(ShardLocation::NONE);
        self.schedule.leave(group, index);
        if let Some(at) = deadline_ns {
            self.deadlines.remove(&(at, index));
        }
        Some(DetachedShard { shard, watch, load })
    }

    /// Calls `call` with a shard; `None` if this dispatcher does not serve it.
    pub(crate) fn with<R>(
        &mut self,
        key: &ShardKey,
        call: impl FnOnce(&mut Shard) -> R,
    ) -> Option<R> {
        let index = self.find(key)?;
        let entry = self.entry(index)?;
        let result = call(&mut entry.shard);
        self.refresh(index);
        Some(result)
    }

    /// Returns every shard.
    pub(crate) fn shards(&mut self) -> impl Iterator<Item = (&ShardKey, &mut Shard)> {
        self.entries.iter_mut().flatten().map(|s| (&s.key, &mut *s.shard))
    }

    /// Wakes the sources that this thread rang.
    pub(crate) fn deliver_rings(&mut self) {
        while let Some(ring) = source_doorbell::pop_local_ring() {
            let index = usize::from(ring.slot);
            if let Some(entry) = self.entry(index).filter(|entry| entry.serial == ring.serial) {
                entry.shard.ring_source(ring.value);
                self.refresh(index);
            }
        }
    }

    /// Updates whether a shard is busy, and its deadline.
    fn refresh(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) else { return };
        let deadline = entry.shard.deadline_ns();
        if deadline != entry.deadline_ns {
            if let Some(at) = entry.deadline_ns {
                self.deadlines.remove(&(at, index));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, index));
            }
            entry.deadline_ns = deadline;
        }
        if entry.shard.is_busy() && !entry.is_busy {
            entry.is_busy = true;
            self.schedule.wake(entry.group, index);
        }
    }

    /// Serves busy groups until the cycle ends or the time is `until_ns`. Returns the sum of the
    /// turns.
    pub(crate) fn turns(&mut self, until_ns: u64) -> Turn {
        let mut all = Turn::default();
        while let Some(turn) = self.schedule.next_turn() {
            all.add(self.group_turn(turn));
            if self.slice.now_ns() >= until_ns {
                break;
            }
        }
        self.deliver_rings();
        all
    }

    /// Serves the busy shards of a group, each for its part of the group's time.
    fn group_turn(&mut self, GroupTurn { group, len_ns, shards }: GroupTurn) -> Turn {
        let mut all = Turn::default();
        let begun = self.slice.now_ns();
        let until = begun.saturating_add(len_ns);
        for left in (1..=shards).rev() {
            let Some(index) = self.schedule.next_shard(group) else { break };
            let now = self.slice.now_ns();
            let part = until.saturating_sub(now).checked_div(left as u64).unwrap_or(0);
            all.add(self.shard_turn(index, now.saturating_add(part)));
        }
        self.schedule.end_turn(group, self.slice.now_ns().saturating_sub(begun));
        all
    }

    /// Serves a shard until `until_ns`.
    fn shard_turn(&mut self, index: usize, until_ns: u64) -> Turn {
        let (round, slice) = (self.round, self.slice.until(until_ns));
        let Some(entry) = self.entry(index) else { return Turn::default() };
        let before = entry.shard.take_new_work();
        let (turn, slice) = entry.shard.turn_for(slice);
        let during = entry.shard.take_new_work();
        entry.count_turn(round, turn.idle, (before, during));
        let has_notified = entry.shard.take_notified();
        entry.is_busy = false;
        let begun = self.slice.now_ns();
        self.slice.take_time(&slice);
        let used = self.slice.now_ns().saturating_sub(begun);
        if turn.worked > 0
            && let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut)
        {
            entry.meter.add(used);
            self.turn_times.add(used);
        }
        self.has_notified |= has_notified;
        self.refresh(index);
        turn
    }

    /// Returns whether every active queue and source was polled and found empty in this round.
    pub(crate) fn has_polled_all(&self) -> bool {
        let mut busy = self.schedule.busy().filter_map(|index| self.entries.get(index)?.as_ref());
        busy.all(|entry| entry.round == self.round && entry.empty_polls >= entry.shard.waiting())
    }

    /// Schedules the deadline handlers of shards with a passed deadline.
    pub(crate) fn schedule_deadlines(&mut self) {
        let now = self.now_ns;
        let passed =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, index)| *index);
        for index in passed.collect::<Vec<_>>() {
            if let Some(entry) = self.entry(index) {
                entry.shard.set_due();
            }
            self.refresh(index);
        }
    }

    /// Reads the events of a shard; they are handled in its turn.
    pub(crate) fn read_events(&mut self, slot: u16, serial: u32) -> io::Result<()> {
        let index = usize::from(slot);
        let Some(entry) = self.entry(index).filter(|s| s.serial == serial) else { return Ok(()) };
        entry.shard.take_events()?;
        self.refresh(index);
        Ok(())
    }

    /// Searches every shard for a port that stalled this thread for `slept_ns` since `before_ns`.
    pub(crate) fn bar_stalling_ports(&mut self, before_ns: u64, slept_ns: u64) {
        for index in 0..self.entries.len() {
            if let Some(entry) = self.entry(index) {
                entry.shard.bar_stalling_ports(before_ns, slept_ns);
            }
            self.refresh(index);
        }
    }

    /// Returns the first deadline of a shard, in nanoseconds of the fabric's clock.
    pub(crate) fn first_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Publishes the load of each shard in the last `window_ns`.
    pub(crate) fn publish(&mut self, window_ns: u64) {
        for entry in self.entries.iter_mut().flatten() {
            entry.load.charge(entry.meter.busy_ns());
            entry.load.publish(entry.meter.percent(window_ns), self.now_ns);
        }
    }
}
