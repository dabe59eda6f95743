//! Results of units, in a file each, in the folder `matrix` of the cache.
//!
//! A unit is a part of the programs in guests of a suite, such as `trixie/verbs`; a step is a
//! program or an exchange of the unit. `units` saves a result when its unit ends, and that of kills
//! after each exchange too, so that an interrupted matrix continues; `units`, `page` and `main`
//! load results. All run in the main thread of `causeway-matrix`.
//!
//! A file that is missing or unreadable counts as no result, and the unit runs again. The record of
//! a unit of kills is complete when it has as many kills as wanted, so that a unit with guests that
//! did not boot runs again; every other record is complete, also one with failed steps, or with a
//! failed boot alone, which only `--fresh` repeats. A file is replaced as a whole. One matrix at a
//! time may use the folder; nothing checks it.

use crate::units::{Part, Unit};
use causeway_vm::rdma::{Outcome, Step};
use causeway_vm::{Error, Result, place};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;

/// Result of a unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Description of the guests.
    pub guests: String,
    /// All steps.
    pub steps: Vec<Step>,
    /// Kills of causewayd.
    pub kills: Option<Kills>,
}

/// Kills of causewayd under load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kills {
    /// Kills.
    pub count: u32,
    /// Kills during exchanges that ended without an error.
    pub without_error: u32,
    /// Exchanges.
    pub exchanges: u32,
}

impl Record {
    /// Returns whether the part of this record need not run again: kills if there are at least
    /// `kills`, any other part always.
    pub fn is_complete(&self, part: Part, kills: u32) -> bool {
        part != Part::Kills || self.kills.is_some_and(|done| done.count >= kills)
    }

    /// Returns this record with the steps of another run in place of those with the same names, and
    /// the further steps behind. Guests and kills stay those of this record. `units` calls it for a
    /// run of selected steps.
    pub fn with(mut self, other: Self) -> Self {
        for step in other.steps {
            match self.steps.iter_mut().find(|known| known.name == step.name) {
                Some(known) => *known = step,
                None => self.steps.push(step),
            }
        }
        self
    }

    /// Returns whether no step failed.
    pub fn has_passed(&self) -> bool {
        !self.steps.iter().any(Step::has_failed)
    }

    /// Returns the numbers of steps by result.
    pub fn summary(&self) -> String {
        let count = |is: fn(&Outcome) -> bool| self.steps.iter().filter(|s| is(&s.outcome)).count();
        let passed = count(|outcome| matches!(outcome, Outcome::Passed));
        let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
        let rest = self.steps.len().saturating_sub(passed + failed);
        let text = format!("{passed} passed, {failed} failed, {rest} not available");
        match self.kills {
            None => text,
            Some(Kills { count, without_error, exchanges }) => {
                format!(
                    "{text}; {count} kills in {exchanges} exchanges, {without_error} without an error"
                )
            }
        }
    }
}

/// The folder of the results.
pub struct Store(PathBuf);

impl Store {
    /// Opens the folder.
    pub fn open() -> Result<Self> {
        let dir = place::cache()?.join("matrix");
        fs::create_dir_all(&dir).map_err(Error::io(format!("create {}", dir.display())))?;
        Ok(Self(dir))
    }

    /// Returns the store in a folder.
    #[cfg(test)]
    pub fn at(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// Returns the stored result of a unit; `None` where it is missing or unreadable.
    pub fn load(&self, unit: &Unit) -> Option<Record> {
        serde_json::from_str(&fs::read_to_string(self.path(unit)).ok()?).ok()
    }

    /// Stores the result of a unit.
    pub fn save(&self, unit: &Unit, record: &Record) -> Result<()> {
        let path = self.path(unit);
        let text = serde_json::to_string_pretty(record).unwrap_or_default();
        let new = path.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(Error::io(format!("write {}", path.display())))
    }

    fn path(&self, unit: &Unit) -> PathBuf {
        self.0.join(unit.name().replace('/', "-")).with_extension("json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_kills_is_complete_with_the_wanted_kills_only() {
        let boot = Step { name: "boot".into(), outcome: Outcome::Failed("".into()), seconds: 1.0 };
        let no_boot = Record { steps: vec![boot], ..Record::default() };
        assert!(!no_boot.is_complete(Part::Kills, 1), "guests that did not boot");
        assert!(no_boot.is_complete(Part::Verbs, 1), "a failed step is a result");
        let kills = Some(Kills { count: 100, without_error: 99, exchanges: 2 });
        let half = Record { kills, ..Record::default() };
        assert!(half.is_complete(Part::Kills, 100) && !half.is_complete(Part::Kills, 101));
    }
}
