//! A sequence of programs in guests: each has a name, a result and a time.
//!
//! A failed step does not end the sequence: the list of the failed programs locates a fault.
//! `CAUSEWAY_RDMA_STEPS=A,B` selects the steps with A or B in their names. Tests and the matrix
//! create a [`Steps`] for booted guests, and the functions of [`super::programs`] add steps, one
//! after another in the caller's thread. Each step is printed when it ends; a step that is not
//! selected leaves no trace. A panic in a step ends the sequence.

use crate::error::{Error, Result};
use crate::rdma::outcome::{Outcome, Step};
use crate::rdma::{DEVICE, Exchange, Group, Listener, Pair, RdmaGuest};
use std::time::{Duration, Instant};

/// Time limit of most programs, for emulated guests.
pub const LIMIT: Duration = Duration::from_secs(40);
/// TCP port of rdma-core's and perftest's programs.
pub(super) const PORT: Listener = Listener::Tcp(18515);

/// Runs steps and collects their results.
#[derive(Debug)]
pub struct Steps<G = Pair> {
    /// The guests and their daemon.
    pub rig: G,
    /// Finished steps in their order.
    pub done: Vec<Step>,
    wanted: String,
}

impl<G> Steps<G> {
    /// Creates an empty sequence for guests.
    #[must_use]
    pub fn new(rig: G) -> Self {
        let wanted = std::env::var("CAUSEWAY_RDMA_STEPS").unwrap_or_default();
        Self { rig, done: Vec::new(), wanted }
    }

    /// Runs a step, and prints its result and time; does nothing if the step is not selected.
    pub fn step(&mut self, name: &str, act: impl FnOnce(&mut G) -> Result<()>) {
        if !self.wants(name) {
            return;
        }
        let start = Instant::now();
        let outcome = match act(&mut self.rig) {
            Ok(()) => Outcome::Passed,
            Err(why) => Outcome::Failed(why.to_string()),
        };
        self.add(name, outcome, start.elapsed().as_secs_f32());
    }

    /// Records a step that these guests cannot run, with the reason, if it is selected.
    pub fn omit(&mut self, name: &str, why: &str) {
        if self.wants(name) {
            self.add(name, Outcome::Unavailable(why.into()), 0.0);
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.wanted.split(',').any(|part| name.contains(part))
    }

    fn add(&mut self, name: &str, outcome: Outcome, seconds: f32) {
        let step = Step { name: name.into(), outcome, seconds };
        println!("{}", step.report());
        self.done.push(step);
    }

    /// Returns the names of the failed steps.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        let failed = self.done.iter().filter(|step| step.has_failed());
        failed.map(|step| step.name.as_str()).collect()
    }
}

impl Steps {
    /// Runs a program of rdma-core or perftest as server and, with the address of the server added,
    /// as client.
    pub fn program(&mut self, command: &str, options: &str) {
        self.step(&format!("{command} {options}"), |pair| {
            let [at, from] = &pair.guests;
            program(at, from, command, options)
        });
    }

    /// Runs a server and its client, which meet by the connection manager. `SERVER` in a command
    /// stands for the address of the server.
    pub fn managed(&mut self, server: &str, client: &str) {
        self.step(client, |pair| managed(pair, server, client).map(|_| ()));
    }

    /// Checks that neither kernel reported a fault since its boot.
    pub fn kernel_messages(&mut self) {
        self.step("kernel messages", |pair| {
            pair.guests.iter().try_for_each(RdmaGuest::check_kernel)
        });
    }
}

impl Steps<Group> {
    /// Checks that no kernel reported a fault since its boot.
    pub fn kernel_messages(&mut self) {
        self.step("kernel messages", |group| {
            group.guests.iter().try_for_each(RdmaGuest::check_kernel)
        });
    }
}

/// Runs a program of rdma-core or perftest in two guests. The server of `ibv_…_pingpong -c` reports
/// changed content in its output.
///
/// # Errors
/// As [`Exchange::run`]; and when the content changed.
pub(super) fn program(
    at: &RdmaGuest,
    from: &RdmaGuest,
    command: &str,
    options: &str,
) -> Result<()> {
    let (index, ip) = (at.gid_index(), at.ip());
    let gid = if command.starts_with("ibv_") { "-g" } else { "-x" };
    let mut server = vec![command, "-d", DEVICE, gid, &index];
    server.extend(options.split_whitespace());
    let mut client = server.clone();
    client.push(&ip);
    let exchange = Exchange { server: &server, client: &client, listener: PORT, limit: LIMIT };
    let (served, _) = exchange.run(at, from)?;
    match served.contains("invalid data") {
        true => Err(Error::Traffic { what: format!("content changed: {served}") }),
        false => Ok(()),
    }
}

/// Runs a server and its client, which meet by the connection manager, and returns their outputs.
///
/// # Errors
/// As [`Exchange::run`].
pub(super) fn managed(pair: &Pair, server: &str, client: &str) -> Result<(String, String)> {
    let [at, from] = &pair.guests;
    let ip = at.ip();
    let (server, client) = (words(server, &ip), words(client, &ip));
    let exchange = Exchange {
        server: &server,
        client: &client,
        listener: Listener::ConnectionManager,
        limit: LIMIT,
    };
    exchange.run(at, from)
}

/// Splits a command line and inserts the address of the server.
fn words<'a>(line: &'a str, server: &'a str) -> Vec<&'a str> {
    line.split_whitespace().map(|word| if word == "SERVER" { server } else { word }).collect()
}
