//! Units of work: a part of the programs in guests of a suite.
//!
//! `main` runs the selected units one after another, in its thread; a unit boots guests of its
//! suite and a daemon, runs the steps ([`causeway_vm::rdma::Steps`]) or kills causewayd under load
//! (`kills`), and stores the result. A daemon or guests that do not start are a failed step, not an
//! error; an error is a part of the guests that cannot be fetched, or the result of a unit that
//! cannot be stored, and ends the matrix.

use crate::kills;
use crate::options::Options;
use crate::store::{Record, Store};
use causeway_vm::rdma::programs::{device, ethernet, loopback, many, mpi, sockets, storage, verbs};
use causeway_vm::rdma::{self, Group, Outcome, Pair, Programs, Step, Steps, Suite, unplug};
use causeway_vm::{Error, Result};
use std::time::Instant;

/// Selects steps by name.
const STEPS: &str = "CAUSEWAY_RDMA_STEPS";
/// Name of the step that fails when a daemon or guests do not start.
pub const BOOT: &str = "boot";
/// Guests of the part [`Part::Four`].
const FOUR: u8 = 4;

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
        let no_boot = |why| Record { steps: vec![failed(BOOT, &why, start)], ..Record::default() };
        let record = match self.part {
            Part::Verbs => self.two(verbs_steps).unwrap_or_else(no_boot),
            Part::Mpi => self.two(mpi_steps).unwrap_or_else(no_boot),
            Part::Four => self.four().unwrap_or_else(no_boot),
            Part::Unplug => self.unplug(),
            Part::Kills => kills::run(self, store, options)?,
        };
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
        Record { steps: vec![step], ..Record::default() }
    }
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
    ended(name, Outcome::Passed, start)
}

/// Returns a step that failed, and prints it.
pub fn failed(name: &str, why: &Error, start: Instant) -> Step {
    ended(name, Outcome::Failed(why.to_string()), start)
}

fn ended(name: &str, outcome: Outcome, start: Instant) -> Step {
    let step = Step { name: name.into(), outcome, seconds: start.elapsed().as_secs_f32() };
    println!("{}", step.report());
    step
}
