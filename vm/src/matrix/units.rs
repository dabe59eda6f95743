//! Units of work: a part of the programs in guests of a suite.
//!
//! `main` runs the selected units one after another, in its thread; a unit boots guests of its
//! suite and a daemon, runs the steps ([`causeway_vm::rdma::Steps`]) or kills causewayd under load,
//! and stores the result. A daemon or guests that do not start are a failed step, not an error; an
//! error is a part of the guests that cannot be fetched, or the result of a unit that cannot be
//! stored, and ends the matrix. The part of kills boots fresh guests after a failed exchange,
//! stores its count after each exchange, and gives up, with the count so far, after 5 exchanges in
//! a row without a kill.

use crate::options::Options;
use crate::store::{Record, Store};
use causeway_vm::daemon::Setup;
use causeway_vm::rdma::programs::{device, ethernet, loopback, many, mpi, sockets, storage, verbs};
use causeway_vm::rdma::{
    self, Group, Load, Outcome, Pair, Programs, Step, Steps, Suite, kill_under_load, unplug,
};
use causeway_vm::{Daemon, Error, Result};
use std::time::{Duration, Instant};

/// Selects steps by name.
const STEPS: &str = "CAUSEWAY_RDMA_STEPS";
/// Name of the step that fails when a daemon or guests do not start, also after a kill.
const BOOT: &str = "boot";
/// Guests of the part [`Part::Four`].
const FOUR: u8 = 4;
/// Messages of an exchange during which causewayd is killed, in each direction.
const MESSAGES: u32 = 15_000;
/// Time of traffic between two kills.
const PAUSE: Duration = Duration::from_millis(200);
/// Most kills in an exchange.
const KILLS_PER_EXCHANGE: u32 = 50;
/// Exchanges without a kill after which the part gives up.
const IDLE_EXCHANGES_MAX: u32 = 5;

/// A part of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Verbs, sockets, storage, the Ethernet interface, and the life of the driver: two guests.
    Verbs,
    /// UCX and MPI: two guests.
    Mpi,
    /// Exchanges of all pairs of four guests.
    Four,
    /// Kills of causewayd during exchanges of two guests.
    Kills,
    /// Hot unplug of a function after the unbind of its driver.
    Unplug,
}

impl Part {
    /// All parts, in their order.
    pub const ALL: [Self; 5] = [Self::Verbs, Self::Mpi, Self::Four, Self::Kills, Self::Unplug];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Mpi => "mpi",
            Self::Four => "four",
            Self::Kills => "kills",
            Self::Unplug => "unplug",
        }
    }

    /// Returns the programs of its guests.
    fn programs(self) -> Programs {
        match self {
            Self::Mpi => Programs::Mpi,
            Self::Verbs | Self::Four | Self::Kills | Self::Unplug => Programs::Verbs,
        }
    }
}

/// A part in guests of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// The suite.
    pub suite: Suite,
    /// The part.
    pub part: Part,
}

impl Unit {
    /// Returns all units, part by part.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_part = |part| Suite::ALL.into_iter().map(move |suite| Self { suite, part });
        Part::ALL.into_iter().flat_map(of_part)
    }

    /// Returns the name, as `trixie/verbs`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.suite.as_str(), self.part.as_str())
    }

    /// Runs the unit, stores its result, and returns the result. Guests that do not boot are a
    /// failed step.
    pub fn run(&self, store: &Store, options: &Options) -> Result<Record> {
        rdma::fetch(self.suite, self.part.programs())?;
        let start = Instant::now();
        let record = match self.part {
            Part::Verbs => self.two(verbs_steps),
            Part::Mpi => self.two(mpi_steps),
            Part::Four => self.four(),
            Part::Unplug => Ok(self.unplug()),
            Part::Kills => self.kills(store, options),
        };
        let record = record.unwrap_or_else(|why| {
            let step = failed(BOOT, &why, start);
            println!("{}", step.report());
            // The kills before the failure count.
            let known = store.load(self).filter(|_| self.part == Part::Kills);
            let mut record = known.unwrap_or_default();
            record.steps.retain(|step| step.name != BOOT);
            record.steps.push(step);
            record
        });
        let record = match store.load(self) {
            // A selection of steps replaces their results.
            Some(known) if std::env::var_os(STEPS).is_some() => known.with(record),
            _ => record,
        };
        store.save(self, &record)?;
        Ok(record)
    }

    /// Runs steps in two guests.
    fn two(&self, run: fn(&mut Steps)) -> Result<Record> {
        let pair = Pair::boot(self.suite, self.part.programs())?;
        let guests = pair.describe();
        let mut steps = Steps::new(pair);
        run(&mut steps);
        Ok(Record { guests, steps: steps.done, kills: None })
    }

    /// Runs steps in four guests of a group.
    fn four(&self) -> Result<Record> {
        let group = Group::boot(self.suite, self.part.programs(), FOUR)?;
        let guests = group.describe();
        let mut steps = Steps::new(group);
        many::all(&mut steps);
        Ok(Record { guests, steps: steps.done, kills: None })
    }

    /// Runs the unplug of a function as one step.
    fn unplug(&self) -> Record {
        let name = "device_del after the driver was unbound";
        let start = Instant::now();
        let step = match unplug(self.suite) {
            Ok(()) => passed(name, start),
            Err(why) => failed(name, &why, start),
        };
        println!("{}", step.report());
        Record { steps: vec![step], ..Record::default() }
    }

    /// Kills causewayd until the wanted number is reached. After a failed exchange, fresh guests
    /// boot.
    fn kills(&self, store: &Store, options: &Options) -> Result<Record> {
        let known = if options.fresh { None } else { store.load(self) };
        let mut record = known.unwrap_or_default();
        // Guests that did not boot are tried again.
        record.steps.retain(|step| step.name != BOOT);
        let (mut tally, mut idle) = (record.kills.unwrap_or_default(), 0);
        let mut bed = None;
        while tally.count < options.kills && idle < IDLE_EXCHANGES_MAX {
            let (daemon, pair) = match &mut bed {
                Some(bed) => bed,
                none => none.insert(boot_in_memory(self.suite)?),
            };
            record.guests = pair.describe();
            let left = options.kills.saturating_sub(tally.count);
            let kills = left.min(KILLS_PER_EXCHANGE);
            let events = tally.exchanges % 2 == 1;
            let load = Load { messages: MESSAGES, events, kills, pause: PAUSE };
            let start = Instant::now();
            let (kills, result) = kill_under_load(daemon, &pair.guests, load)?;
            idle = if kills == 0 { idle.saturating_add(1) } else { 0 };
            tally.exchanges = tally.exchanges.saturating_add(1);
            tally.count = tally.count.saturating_add(kills);
            match result {
                Ok(()) => tally.without_error = tally.without_error.saturating_add(kills),
                Err(why) => {
                    let name = format!("exchange {} with {kills} kills", tally.exchanges);
                    let step = failed(&name, &why, start);
                    println!("{}", step.report());
                    record.steps.push(step);
                    bed = None;
                }
            }
            println!(
                "{} of {} kills, {} without an error",
                tally.count, options.kills, tally.without_error
            );
            record.kills = Some(tally);
            store.save(self, &record)?;
        }
        Ok(record)
    }
}

/// Boots two guests on a daemon with its records in memory. The caller must drop the guests first.
fn boot_in_memory(suite: Suite) -> Result<(Daemon, Pair)> {
    let setup = Setup { in_memory: true, ..Pair::setup() };
    let mut pair = Pair::on(Daemon::with(setup)?, suite, Programs::Verbs)?;
    let daemon = pair.daemon.take();
    let none = || Error::Traffic { what: "the guests have no daemon".into() };
    Ok((daemon.ok_or_else(none)?, pair))
}

fn verbs_steps(steps: &mut Steps) {
    verbs::all(steps);
    loopback::all(steps);
    ethernet::all(steps);
    sockets::streams(steps);
    sockets::rsockets(steps);
    storage::all(steps);
    device::rebind(steps);
    device::leave_and_return(steps);
    steps.kernel_messages();
}

fn mpi_steps(steps: &mut Steps) {
    mpi::ucx(steps);
    mpi::ranks(steps);
    steps.kernel_messages();
}

fn passed(name: &str, start: Instant) -> Step {
    let seconds = start.elapsed().as_secs_f32();
    Step { name: name.into(), outcome: Outcome::Passed, seconds }
}

fn failed(name: &str, why: &Error, start: Instant) -> Step {
    let outcome = Outcome::Failed(why.to_string());
    Step { name: name.into(), outcome, seconds: start.elapsed().as_secs_f32() }
}
