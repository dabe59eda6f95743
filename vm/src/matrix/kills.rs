//! The part of kills: causewayd is killed during exchanges of two guests, until the wanted number
//! of kills is reached.
//!
//! `units` calls [`run`], in the thread of the matrix. Fresh guests boot after a failed exchange,
//! which is a failed step; the record is stored after each exchange, so that an interrupted part
//! continues. The part gives up, with the kills so far and a failed step, when guests do not boot
//! or causewayd does not return in an exchange, and without one after 5 exchanges in a row without
//! a kill. A record that cannot be stored is an error. The steps of guests that did not boot are
//! removed when the part runs again.

use crate::options::Options;
use crate::store::{Kills, Record, Store};
use crate::units::{BOOT, Unit, failed};
use causeway_vm::daemon::Setup;
use causeway_vm::rdma::{Load, Pair, Programs, Suite, kill_under_load};
use causeway_vm::{Daemon, Error, Result};
use std::time::{Duration, Instant};

/// Messages of an exchange during which causewayd is killed, in each direction.
const MESSAGES: u32 = 15_000;
/// Time of traffic between two kills.
const PAUSE: Duration = Duration::from_millis(200);
/// Most kills in an exchange.
const KILLS_PER_EXCHANGE: u32 = 50;
/// Exchanges without a kill after which the part gives up.
const IDLE_EXCHANGES_MAX: u32 = 5;

/// Two guests, and the daemon that is killed.
trait Rig {
    /// Describes the guests.
    fn describe(&self) -> String;

    /// Runs an exchange, as [`kill_under_load`].
    fn exchange(&mut self, load: Load) -> Result<(u32, Result<()>)>;
}

/// Guests on a daemon with its records in memory. Guests drop first.
struct Guests {
    pair: Pair,
    daemon: Daemon,
}

impl Guests {
    fn boot(suite: Suite) -> Result<Self> {
        let setup = Setup { in_memory: true, ..Pair::setup() };
        let mut pair = Pair::on(Daemon::with(setup)?, suite, Programs::Verbs)?;
        let daemon = pair.daemon.take();
        let none = || Error::Traffic { what: "the guests have no daemon".into() };
        Ok(Self { pair, daemon: daemon.ok_or_else(none)? })
    }
}

impl Rig for Guests {
    fn describe(&self) -> String {
        self.pair.describe()
    }

    fn exchange(&mut self, load: Load) -> Result<(u32, Result<()>)> {
        kill_under_load(&mut self.daemon, &self.pair.guests, load)
    }
}

/// Kills causewayd until the wanted number is reached, and returns the record.
///
/// # Errors
/// When the record cannot be stored.
pub fn run(unit: &Unit, store: &Store, options: &Options) -> Result<Record> {
    kill(unit, store, options, || Guests::boot(unit.suite))
}

fn kill<R: Rig>(
    unit: &Unit,
    store: &Store,
    options: &Options,
    boot: impl Fn() -> Result<R>,
) -> Result<Record> {
    let known = if options.fresh { None } else { store.load(unit) };
    let mut record = known.unwrap_or_default();
    record.steps.retain(|step| step.name != BOOT);
    let (mut tally, mut idle) = (record.kills.unwrap_or_default(), 0);
    let mut booted = None;
    while tally.count < options.kills && idle < IDLE_EXCHANGES_MAX {
        let start = Instant::now();
        let mut rig = match booted.take().map_or_else(&boot, Ok) {
            Ok(rig) => rig,
            Err(why) => {
                record.steps.push(failed(BOOT, &why, start));
                break;
            }
        };
        record.guests = rig.describe();
        let left = options.kills.saturating_sub(tally.count);
        let events = tally.exchanges % 2 == 1;
        let kills = left.min(KILLS_PER_EXCHANGE);
        let load = Load { messages: MESSAGES, events, kills, pause: PAUSE };
        let start = Instant::now();
        let ended = rig.exchange(load);
        tally.exchanges = tally.exchanges.saturating_add(1);
        match ended {
            Ok((kills, result)) => {
                idle = if kills == 0 { idle.saturating_add(1) } else { 0 };
                match count(&mut tally, kills, result) {
                    Ok(()) => booted = Some(rig),
                    Err(why) => {
                        let name = format!("exchange {} with {kills} kills", tally.exchanges);
                        record.steps.push(failed(&name, &why, start));
                    }
                }
            }
            Err(why) => {
                let name = format!("exchange {}: causewayd", tally.exchanges);
                record.steps.push(failed(&name, &why, start));
                record.kills = Some(tally);
                break;
            }
        }
        println!(
            "{} of {} kills, {} without an error",
            tally.count, options.kills, tally.without_error
        );
        record.kills = Some(tally);
        store.save(unit, &record)?;
    }
    Ok(record)
}

/// Adds the kills of an exchange, and returns its result.
fn count(tally: &mut Kills, kills: u32, result: Result<()>) -> Result<()> {
    tally.count = tally.count.saturating_add(kills);
    if result.is_ok() {
        tally.without_error = tally.without_error.saturating_add(kills);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Part;
    use causeway_vm::RunDir;
    use std::cell::Cell;

    const UNIT: Unit = Unit { suite: Suite::Trixie, part: Part::Kills };

    /// Guests without exchanges: each call of an exchange has this result.
    struct Scripted(fn(Load) -> Result<(u32, Result<()>)>);

    impl Rig for Scripted {
        fn describe(&self) -> String {
            "Linux".into()
        }

        fn exchange(&mut self, load: Load) -> Result<(u32, Result<()>)> {
            (self.0)(load)
        }
    }

    fn options(kills: u32) -> Options {
        Options { only: Vec::new(), kills, fresh: false, page: "page".into() }
    }

    fn broken<T>() -> Result<T> {
        Err(Error::Traffic { what: "broken".into() })
    }

    fn names(record: &Record) -> Vec<&str> {
        record.steps.iter().map(|step| step.name.as_str()).collect()
    }

    #[test]
    fn kills_count_until_the_wanted_number_and_keep_a_failed_exchange() {
        let dir = RunDir::new().unwrap();
        let store = Store::at(dir.path().into());
        let exchange = |load: Load| {
            let result = if load.events { broken() } else { Ok(()) };
            Ok((load.kills, result))
        };
        let boots = Cell::new(0);
        let boot = || {
            boots.set(boots.get() + 1);
            Ok(Scripted(exchange))
        };
        let record = kill(&UNIT, &store, &options(110), boot).unwrap();
        assert_eq!(boots.get(), 2, "fresh guests after the failed exchange alone");
        assert_eq!(record.kills, Some(Kills { count: 110, without_error: 60, exchanges: 3 }));
        assert_eq!(names(&record), ["exchange 2 with 50 kills"]);
        assert_eq!(store.load(&UNIT), Some(record));
    }

    #[test]
    fn kills_name_a_daemon_that_does_not_return_and_guests_that_do_not_boot() {
        let dir = RunDir::new().unwrap();
        let store = Store::at(dir.path().into());
        let record = kill(&UNIT, &store, &options(9), || Ok(Scripted(|_| broken()))).unwrap();
        assert_eq!(names(&record), ["exchange 1: causewayd"]);
        assert_eq!(record.kills, Some(Kills { exchanges: 1, ..Kills::default() }));
        store.save(&UNIT, &record).unwrap();
        for _ in 0..2 {
            let record = kill(&UNIT, &store, &options(9), broken::<Scripted>).unwrap();
            assert_eq!(names(&record), ["exchange 1: causewayd", BOOT]);
            store.save(&UNIT, &record).unwrap();
        }
    }

    #[test]
    fn kills_end_with_an_error_when_the_record_cannot_be_stored() {
        let dir = RunDir::new().unwrap();
        let store = Store::at(dir.join("none"));
        let exchange = |load: Load| Ok((load.kills, Ok(())));
        let why = kill(&UNIT, &store, &options(9), || Ok(Scripted(exchange))).unwrap_err();
        assert!(matches!(why, Error::Io { .. }), "{why}");
    }

    #[test]
    fn kills_give_up_after_exchanges_without_a_kill() {
        let dir = RunDir::new().unwrap();
        let store = Store::at(dir.path().into());
        let record =
            kill(&UNIT, &store, &options(9), || Ok(Scripted(|_| Ok((0, Ok(())))))).unwrap();
        assert_eq!(record.kills.map(|kills| kills.exchanges), Some(IDLE_EXCHANGES_MAX));
    }
}
