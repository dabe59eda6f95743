//! The shard table of a dispatcher: busy shards, the next turn, passed deadlines.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::bell::{self, Home};
use crate::load::{Load, Meter};
use crate::schedule::{GroupTurn, Schedule};
use crate::shard::{Shard, ShardKey, Turn};
use crate::share::Share;
use crate::slice::Slice;
use crate::watch::{Poller, Token, Watch, When};

/// A shard and its state in this dispatcher.
#[derive(Debug)]
struct Seat {
    key: ShardKey,
    shard: Box<Shard>,
    serial: u32,
    watch: Watch,
    /// Number of its group in the schedule.
    group: usize,
    /// The shard is in the schedule's list of busy shards.
    busy: bool,
    deadline_ns: Option<u64>,
    /// Empty polls of this round since a queue last became active.
    vain: usize,
    round: u32,
    meter: Meter,
    load: Arc<Load>,
}

impl Seat {
    /// Counts a turn in a round; the flags: a queue became active before and during the turn.
    fn looked(&mut self, round: u32, idle: u32, (before, during): (bool, bool)) {
        if before || self.round != round {
            self.vain = 0;
        }
        let looks = usize::try_from(idle).unwrap_or(usize::MAX);
        self.vain = if during { 0 } else { self.vain.saturating_add(looks) };
        self.round = round;
    }
}

/// A shard that moves from one dispatcher to another.
#[derive(Debug)]
pub(crate) struct Parted {
    pub shard: Box<Shard>,
    /// Moves with the shard: a closed descriptor could at once be taken by another thread.
    watch: Watch,
    load: Arc<Load>,
}

/// The shards of a dispatcher.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) poller: Poller,
    seats: Vec<Option<Seat>>,
    schedule: Schedule,
    deadlines: BTreeSet<(u64, usize)>,
    serial: u32,
    /// Time of the last read of the kernel's events.
    pub(crate) now_ns: u64,
    /// Time within turns.
    pub(crate) slice: Slice,
    pub(crate) share: Share,
    /// A process was notified, and the processor was not yielded since.
    pub(crate) lets_in: bool,
    /// Number of the round of turns without work: work or a yield begins a new round.
    pub(crate) round: u32,
    /// Time until which other threads need this processor.
    pub(crate) crowded_ns: u64,
    /// Number of the dispatcher, for doorbells of sources.
    pub(crate) number: u16,
}

impl Roster {
    pub(crate) fn new(poller: Poller, share: Share, start: Instant) -> Self {
        Self {
            poller,
            seats: Vec::new(),
            schedule: Schedule::default(),
            deadlines: BTreeSet::new(),
            serial: 0,
            now_ns: 0,
            slice: Slice::timed(start),
            share,
            lets_in: false,
            round: 0,
            crowded_ns: 0,
            number: 0,
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
    fn seat(&mut self, index: usize) -> Option<&mut Seat> {
        let seat = self.seats.get_mut(index)?.as_mut()?;
        let awaits = self.now_ns >= self.crowded_ns;
        seat.shard.set_clock(self.now_ns, self.share.spin_ns(), awaits);
        Some(seat)
    }

    fn find(&self, key: &ShardKey) -> Option<usize> {
        self.seats.iter().position(|s| s.as_ref().is_some_and(|s| s.key == *key))
    }

    /// Adds a new shard.
    pub(crate) fn adopt(
        &mut self,
        key: ShardKey,
        shard: Box<Shard>,
        load: Arc<Load>,
    ) -> io::Result<()> {
        let (index, token) = self.vacancy()?;
        let watch = self.poller.watch(shard.events(), token, When::Readable)?;
        self.sit(index, key, Parted { shard, watch, load });
        Ok(())
    }

    /// Adds a shard that another dispatcher detached, or returns it.
    pub(crate) fn adopt_again(
        &mut self,
        key: ShardKey,
        mut parted: Parted,
    ) -> Result<(), (Parted, io::Error)> {
        let moved = self.vacancy().and_then(|(index, token)| {
            parted.watch.move_to(&self.poller, token)?;
            Ok(index)
        });
        match moved {
            Ok(index) => self.sit(index, key, parted),
            Err(error) => return Err((parted, error)),
        }
        Ok(())
    }

    /// Returns a free slot and its token.
    fn vacancy(&mut self) -> io::Result<(usize, Token)> {
        let free = self.seats.iter().position(Option::is_none);
        let index = free.unwrap_or(self.seats.len());
        self.serial = self.serial.wrapping_add(1);
        let slot = u16::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok((index, Token::Shard { slot, serial: self.serial }))
    }

    fn sit(&mut self, index: usize, key: ShardKey, parted: Parted) {
        let Parted { shard, watch, load } = parted;
        // A free slot has a 16-bit number.
        let slot = u16::try_from(index).unwrap_or(u16::MAX);
        let home = Home { dispatcher: self.number, slot, serial: self.serial };
        let group = self.schedule.join(&key.group, shard.weight());
        let seat = Seat {
            watch,
            key,
            shard,
            serial: self.serial,
            group,
            busy: false,
            deadline_ns: None,
            vain: 0,
            round: 0,
            meter: Meter::default(),
            load,
        };
        match self.seats.get_mut(index) {
            Some(place) => *place = Some(seat),
            None => self.seats.push(Some(seat)),
        }
        if self.number != 0
            && let Some(seat) = self.seat(index)
        {
            seat.shard.moved(home);
        }
        self.refresh(index);
    }

    /// Removes a shard, so that another dispatcher can take it.
    pub(crate) fn release(&mut self, key: &ShardKey) -> Option<Parted> {
        // Rings of this thread are not visible to another thread.
        self.hear();
        let index = self.find(key)?;
        let Seat { mut shard, watch, load, deadline_ns, group, .. } =
            self.seats.get_mut(index)?.take()?;
        shard.moved(Home::NONE);
        self.schedule.leave(group, index);
        if let Some(at) = deadline_ns {
            self.deadlines.remove(&(at, index));
        }
        Some(Parted { shard, watch, load })
    }

    /// Calls `call` with a shard.
    pub(crate) fn with<R>(
        &mut self,
        key: &ShardKey,
        call: impl FnOnce(&mut Shard) -> R,
    ) -> Option<R> {
        let index = self.find(key)?;
        let seat = self.seat(index)?;
        let result = call(&mut seat.shard);
        self.refresh(index);
        Some(result)
    }

    /// Returns every shard.
    pub(crate) fn shards(&mut self) -> impl Iterator<Item = (&ShardKey, &mut Shard)> {
        self.seats.iter_mut().flatten().map(|s| (&s.key, &mut *s.shard))
    }

    /// Wakes the sources whose doorbells this thread rang.
    pub(crate) fn hear(&mut self) {
        while let Some(rung) = bell::next_rung() {
            let index = usize::from(rung.slot);
            if let Some(seat) = self.seat(index).filter(|seat| seat.serial == rung.serial) {
                seat.shard.rung(rung.value);
                self.refresh(index);
            }
        }
    }

    /// Updates whether a shard is busy, and its deadline.
    fn refresh(&mut self, index: usize) {
        let Some(seat) = self.seats.get_mut(index).and_then(Option::as_mut) else { return };
        let deadline = seat.shard.deadline_ns();
        if deadline != seat.deadline_ns {
            if let Some(at) = seat.deadline_ns {
                self.deadlines.remove(&(at, index));
            }
            if let Some(at) = deadline {
                self.deadlines.insert((at, index));
            }
            seat.deadline_ns = deadline;
        }
        if seat.shard.is_busy() && !seat.busy {
            seat.busy = true;
            self.schedule.wake(seat.group, index);
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
        self.hear();
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

    fn shard_turn(&mut self, index: usize, until_ns: u64) -> Turn {
        let (round, slice) = (self.round, self.slice.until(until_ns));
        let Some(seat) = self.seat(index) else { return Turn::default() };
        let before = seat.shard.came();
        let (turn, slice) = seat.shard.turn_for(slice);
        let during = seat.shard.came();
        seat.looked(round, turn.idle, (before, during));
        let lets_in = seat.shard.lets_in();
        seat.busy = false;
        let begun = self.slice.now_ns();
        self.slice.follow(&slice);
        let used = self.slice.now_ns().saturating_sub(begun);
        if turn.worked > 0
            && let Some(seat) = self.seats.get_mut(index).and_then(Option::as_mut)
        {
            seat.meter.add(used);
        }
        self.lets_in |= lets_in;
        self.refresh(index);
        turn
    }

    /// Returns whether every active queue and source was polled and found empty in this round.
    pub(crate) fn all_in_vain(&self) -> bool {
        let mut busy = self.schedule.busy().filter_map(|index| self.seats.get(index)?.as_ref());
        busy.all(|seat| seat.round == self.round && seat.vain >= seat.shard.waiting())
    }

    /// Schedules the deadline handlers of the shards whose deadlines have passed.
    pub(crate) fn due(&mut self) {
        let now = self.now_ns;
        let passed =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, index)| *index);
        for index in passed.collect::<Vec<_>>() {
            if let Some(seat) = self.seat(index) {
                seat.shard.set_due();
            }
            self.refresh(index);
        }
    }

    /// Reads the events of a shard; they are handled in its turn.
    pub(crate) fn look(&mut self, slot: u16, serial: u32) -> io::Result<()> {
        let index = usize::from(slot);
        let Some(seat) = self.seat(index).filter(|s| s.serial == serial) else { return Ok(()) };
        seat.shard.take_events()?;
        self.refresh(index);
        Ok(())
    }

    /// Searches every shard for a port that stalled this thread for `slept_ns` since `before_ns`.
    pub(crate) fn stalled(&mut self, before_ns: u64, slept_ns: u64) {
        for index in 0..self.seats.len() {
            if let Some(seat) = self.seat(index) {
                seat.shard.stalled(before_ns, slept_ns);
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
        for seat in self.seats.iter_mut().flatten() {
            seat.load.publish(seat.meter.percent(window_ns), self.now_ns);
        }
    }
}
