//! Several guests with adapters in a group, and the daemon between them.
//!
//! The matrix and the test of four guests boot a [`Group`]: one causewayd with an adapter for each
//! guest, all as child processes. Exchanges of several pairs run at once, each in a thread of its
//! own. A guest or daemon that fails to start ends the boot with its console or log; errors of
//! exchanges that run at once are collected, and later rounds are then omitted. Guests drop before
//! the daemon, which their devices would otherwise miss.

use crate::daemon::{Adapter, Daemon, Setup};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::rdma::{self, Programs, RdmaGuest, Suite};
use std::thread;

/// Guests of a group, all started at once, and their daemon. Guests drop first.
#[derive(Debug)]
pub struct Group {
    /// The guests.
    pub guests: Vec<RdmaGuest>,
    /// The daemon.
    pub daemon: Daemon,
    machine: Machine,
}

impl Group {
    /// Starts a daemon with `count` adapters in a group and boots a guest on each. The parts must
    /// have been fetched ([`rdma::fetch`]).
    ///
    /// # Errors
    /// When a part is missing, or a guest or the daemon fails.
    pub fn boot(suite: Suite, programs: Programs, count: u8) -> Result<Self> {
        let machine = rdma::machine(suite, programs)?;
        let daemon = Daemon::with(Self::setup(count))?;
        let numbers = 1..=count;
        let start = |number: u8| {
            let socket = daemon.adapter_socket(&port(number));
            RdmaGuest::start(&machine, &format!("rdma{number}"), &socket, number)
        };
        let mut guests = numbers.map(start).collect::<Result<Vec<_>>>()?;
        for guest in &mut guests {
            guest
                .await_ready()
                .map_err(|why| Error::Daemon { what: why.to_string(), log: daemon.log() })?;
        }
        Ok(Self { guests, daemon, machine })
    }

    /// Returns the configuration of a daemon with adapters in the group `blue`.
    #[must_use]
    pub fn setup(count: u8) -> Setup {
        let adapter = |number| Adapter { name: port(number), group: "blue".into(), number };
        Setup { adapters: (1..=count).map(adapter).collect(), ..Setup::default() }
    }

    /// Describes the guests.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("Linux {}, {}", self.machine.image.kernel.release, self.machine.describe())
    }

    /// Runs `act` for each two guests, in rounds in which each guest has at most one partner: all
    /// exchanges of a round run at once. In each round every guest has a partner if the number of
    /// guests is a power of two.
    ///
    /// # Errors
    /// The errors of all exchanges of the first round that has any.
    pub fn each_pair<F>(&self, act: F) -> Result<()>
    where
        F: Fn(&RdmaGuest, &RdmaGuest) -> Result<()> + Sync,
    {
        let guests = &self.guests;
        for pairs in rounds(guests.len()) {
            let errors: Vec<String> = thread::scope(|scope| {
                let runs = pairs.into_iter().filter_map(|(at, from)| {
                    let (at, from) = (guests.get(at)?, guests.get(from)?);
                    let act = &act;
                    Some(scope.spawn(move || act(at, from)))
                });
                let runs: Vec<_> = runs.collect();
                runs.into_iter().filter_map(|run| failure(run.join())).collect()
            });
            if !errors.is_empty() {
                return Err(Error::Traffic { what: errors.join("\n") });
            }
        }
        Ok(())
    }

    /// Runs `act` for the first guest and each other guest, all at once.
    ///
    /// # Errors
    /// The errors of all exchanges.
    pub fn all_with_first<F>(&self, act: F) -> Result<()>
    where
        F: Fn(&RdmaGuest, &RdmaGuest) -> Result<()> + Sync,
    {
        let Some((first, others)) = self.guests.split_first() else { return Ok(()) };
        let errors: Vec<String> = thread::scope(|scope| {
            let act = &act;
            let runs: Vec<_> =
                others.iter().map(|other| scope.spawn(move || act(first, other))).collect();
            runs.into_iter().filter_map(|run| failure(run.join())).collect()
        });
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Error::Traffic { what: errors.join("\n") }),
        }
    }
}

/// Returns the port of a guest's adapter.
fn port(number: u8) -> String {
    format!("hca{number}")
}

/// Returns the pairs of each round, each as (lower index, higher index).
fn rounds(count: usize) -> impl Iterator<Item = Vec<(usize, usize)>> {
    // The indices of a pair differ by the same bits as the number of its round.
    (1..count.next_power_of_two()).map(move |round| {
        let pairs = (0..count).map(|at| (at, at ^ round));
        pairs.filter(|&(at, from)| at < from && from < count).collect()
    })
}

/// Returns the error of an exchange that ran in a thread.
fn failure(joined: thread::Result<Result<()>>) -> Option<String> {
    match joined {
        Ok(result) => result.err().map(|why| why.to_string()),
        Err(_) => Some("the thread of an exchange panicked".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rdma_group_meets_each_pair_once() {
        for count in 0..=9 {
            let mut met: Vec<_> = rounds(count).flatten().collect();
            met.sort_unstable();
            let all = (0..count).flat_map(|at| (at + 1..count).map(move |from| (at, from)));
            assert_eq!(met, all.collect::<Vec<_>>(), "{count} guests");
        }
    }

    #[test]
    fn rdma_group_gives_each_guest_one_partner_in_a_round() {
        for (count, all_busy) in [(3, false), (4, true), (6, false), (8, true)] {
            for pairs in rounds(count) {
                let guests: Vec<_> = pairs.iter().flat_map(|(at, from)| [at, from]).collect();
                let busy: BTreeSet<_> = guests.iter().collect();
                assert_eq!(busy.len(), guests.len(), "{count} guests: {pairs:?}");
                assert!(!all_busy || busy.len() == count, "{count} guests: {pairs:?}");
            }
        }
    }
}
