//! Two guests with adapters in a group, and the daemon between them.
//!
//! Tests, the demo and the matrix boot a [`Pair`]; the daemon and the guests are child processes.
//! With `CAUSEWAY_RDMA_SOCKETS` (two paths with a comma between) [`Pair::boot`] attaches the guests
//! to another server, and no daemon runs. Each adapter of [`Pair::setup`] has a NIC for messages
//! behind it. [`Pair::carried`] returns the growth of the counters of adapters and NICs during a
//! program, and [`Pair::by_queue_pairs`] and [`Pair::by_nics`] check it, because programs fall back
//! to TCP without an error; without a daemon the counters are 0 and nothing is checked. A part that
//! fails to start is an error with its console or log. Guests drop before the daemon. All runs in
//! the thread of the caller; nothing is repeated after an error.

use crate::daemon::{Adapter, Daemon, MxNic, Setup};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::rdma::programs::messages;
use crate::rdma::{self, Counters, Programs, RdmaGuest, Suite};
use std::path::PathBuf;
use std::time::Duration;

/// Ports of the guests' adapters.
const PORTS: [&str; 2] = ["hca1", "hca2"];
/// Ports of the NICs behind these adapters.
pub(super) const NICS: [&str; 2] = ["mx1", "mx2"];
/// Names two vfio-user sockets of another server, which then takes the daemon's place.
const SOCKETS: &str = "CAUSEWAY_RDMA_SOCKETS";

/// Asks for the commands of the drivers, which the daemon's log has at the level debug.
const COMMANDS: &str = "CAUSEWAY_RDMA_COMMANDS";
/// Time until the daemon has logged the commands of a guest that ended.
const LOGGED: Duration = Duration::from_secs(3);

/// Two guests, and the daemon unless another server is tested. Guests drop first.
#[derive(Debug)]
pub struct Pair {
    /// The guests: the first is the server, the second the client.
    pub guests: [RdmaGuest; 2],
    /// The daemon.
    pub daemon: Option<Daemon>,
    /// The suite of the guests.
    pub suite: Suite,
    machine: Machine,
}

/// Growth of both adapters' counters while a program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Messages of queue pairs.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Bytes of Ethernet frames that the guests received.
    pub frame_bytes: u64,
    /// Bytes of messages that the guests' NICs carried.
    pub nic_bytes: u64,
}

impl Pair {
    /// Starts a daemon with two adapters in a group, or takes the server of
    /// `CAUSEWAY_RDMA_SOCKETS`, and boots a guest on each adapter. The parts must have been fetched
    /// ([`rdma::fetch`]).
    ///
    /// # Errors
    /// When a part is missing, or a guest or the daemon fails.
    pub fn boot(suite: Suite, programs: Programs) -> Result<Self> {
        match std::env::var(SOCKETS) {
            Ok(paths) => {
                let sockets: Vec<_> = paths.split(',').map(PathBuf::from).collect();
                Self::on_sockets(None, &sockets, suite, programs)
            }
            Err(_) => Self::on(Daemon::with(Self::setup())?, suite, programs),
        }
    }

    /// Returns the configuration of a daemon with two adapters in the group `blue`, and a NIC
    /// behind each.
    #[must_use]
    pub fn setup() -> Setup {
        let adapter = |(name, number): (&str, u8)| Adapter {
            name: name.into(),
            group: "blue".into(),
            number,
        };
        let nic = |((name, adapter), number): ((&str, &str), u8)| MxNic {
            name: name.into(),
            group: "blue".into(),
            number,
            adapter: Some(adapter.into()),
            ..MxNic::default()
        };
        let adapters = PORTS.into_iter().zip(1..).map(adapter).collect();
        let nics = NICS.into_iter().zip(PORTS).zip(1..).map(nic).collect();
        let log = std::env::var_os(COMMANDS).map(|_| "debug".into());
        Setup { adapters, nics, log, ..Setup::default() }
    }

    /// Boots a guest on each adapter of a daemon with the ports of [`Self::setup`].
    ///
    /// # Errors
    /// As [`Self::boot`].
    pub fn on(daemon: Daemon, suite: Suite, programs: Programs) -> Result<Self> {
        let sockets = PORTS.map(|name| daemon.adapter_socket(name));
        Self::on_sockets(Some(daemon), &sockets, suite, programs)
    }

    fn on_sockets(
        daemon: Option<Daemon>,
        sockets: &[PathBuf],
        suite: Suite,
        programs: Programs,
    ) -> Result<Self> {
        let mut machine = rdma::machine(suite, programs)?;
        if programs == Programs::Mpi {
            machine = machine.with_files(&messages::files()?)?;
        }
        let [first, second] = sockets else {
            return Err(Error::Traffic {
                what: format!("{SOCKETS}: expected two, not {sockets:?}"),
            });
        };
        let mut guests = [
            RdmaGuest::start(&machine, "rdma1", first, 1)?,
            RdmaGuest::start(&machine, "rdma2", second, 2)?,
        ];
        for guest in &mut guests {
            if let Err(why) = guest.await_ready() {
                let log = daemon.as_ref().map(Daemon::log).unwrap_or_default();
                return Err(Error::Daemon { what: why.to_string(), log });
            }
        }
        Ok(Self { guests, daemon, suite, machine })
    }

    /// Describes the guests.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("Linux {}, {}", self.machine.image.kernel.release, self.machine.describe())
    }

    /// Returns the short name of the guests' engine, as [`Machine::word`].
    #[must_use]
    pub fn engine(&self) -> &'static str {
        self.machine.word()
    }

    /// Returns the last lines of the daemon's log; empty without a daemon.
    #[must_use]
    pub fn log(&self) -> String {
        self.daemon.as_ref().map(Daemon::log).unwrap_or_default()
    }

    /// Ends the guests and then the daemon, and returns the last lines of the daemon's log. Prints
    /// the commands that the drivers sent, as far as these lines have them, if
    /// `CAUSEWAY_RDMA_COMMANDS` is set.
    #[must_use]
    pub fn end(self) -> String {
        let Self { guests, daemon, .. } = self;
        drop(guests);
        if std::env::var_os(COMMANDS).is_some() {
            std::thread::sleep(LOGGED);
        }
        let log = daemon.as_ref().map(Daemon::log).unwrap_or_default();
        log.lines().filter(|line| line.contains("opcodes=")).for_each(|line| println!("{line}"));
        log
    }

    /// Returns a sample of the counters of a guest's adapter: 0 for the server, 1 for the client.
    /// Without a daemon, all counters are 0.
    ///
    /// # Errors
    /// As [`Counters::sample`].
    pub fn counters(&self, guest: usize) -> Result<Counters> {
        match (&self.daemon, PORTS.get(guest)) {
            (Some(daemon), Some(port)) => Counters::sample(daemon, port),
            _ => Ok(Counters::default()),
        }
    }

    /// Returns a sample of the counters of the NIC behind a guest's adapter, as [`Self::counters`].
    pub(super) fn nic_counters(&self, guest: usize) -> Result<Counters> {
        match (&self.daemon, NICS.get(guest)) {
            (Some(daemon), Some(nic)) => Counters::sample_port(daemon, nic),
            _ => Ok(Counters::default()),
        }
    }

    /// Runs `act` and returns its result, with the traffic of both adapters and NICs meanwhile.
    ///
    /// # Errors
    /// Those of `act` and of [`Counters::sample`].
    pub fn carried<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<(T, Carried)> {
        let sample =
            |pair: &Self| -> Result<[Counters; 2]> { Ok([pair.counters(0)?, pair.counters(1)?]) };
        let sample_nics = |pair: &Self| -> Result<[Counters; 2]> {
            Ok([pair.nic_counters(0)?, pair.nic_counters(1)?])
        };
        let (before, nics_before) = (sample(self)?, sample_nics(self)?);
        let result = act(self)?;
        let (after, nics_after) = (sample(self)?, sample_nics(self)?);
        let growth = |after: &[Counters; 2], before: &[Counters; 2], name: &str| -> u64 {
            after.iter().zip(before).map(|(a, b)| a.since(b, name)).sum()
        };
        let sum = |name: &str| growth(&after, &before, name);
        let sum_of_nics = |name: &str| growth(&nics_after, &nics_before, name);
        let carried = Carried {
            messages: sum("requests_total"),
            bytes: sum("request_bytes_total"),
            frame_bytes: sum("received_frame_bytes_total"),
            nic_bytes: sum_of_nics("bytes_sent_total")
                .saturating_add(sum_of_nics("bytes_pulled_total")),
        };
        Ok((result, carried))
    }

    /// Runs `act`, in which queue pairs must carry at least `bytes`, and frames less than a quarter
    /// of that: programs of MPI and sockets fall back to TCP without an error.
    ///
    /// # Errors
    /// Those of `act`; and when the adapters did not carry the traffic.
    pub fn by_queue_pairs(
        &mut self,
        bytes: u64,
        act: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let ((), carried) = self.carried(act)?;
        self.judge("queue pairs", carried.bytes, bytes, &carried)
    }

    /// Runs `act`, in which the guests' NICs must carry at least `bytes`, and frames less than a
    /// quarter of that.
    ///
    /// # Errors
    /// Those of `act`; and when the NICs did not carry the traffic.
    pub fn by_nics(&mut self, bytes: u64, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let ((), carried) = self.carried(act)?;
        self.judge("the NICs", carried.nic_bytes, bytes, &carried)
    }

    /// Returns an error unless `sent` bytes are at least `bytes`, and bytes of frames less than a
    /// quarter of `bytes`; without a daemon never.
    fn judge(&self, by: &str, sent: u64, bytes: u64, carried: &Carried) -> Result<()> {
        let (messages, frames) = (carried.messages, carried.frame_bytes);
        eprintln!(
            "  {sent} bytes by {by}; {messages} work requests; Ethernet frames: {frames} bytes"
        );
        if self.daemon.is_none() || (sent >= bytes && frames < bytes / 4) {
            return Ok(());
        }
        let what = format!("expected {bytes} bytes by {by} and few by frames: {carried:?}");
        Err(Error::Traffic { what })
    }
}
