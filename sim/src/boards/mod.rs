//! Worlds of hosts with one MX NIC each, whose processes exchange messages over a faulty network.
//!
//! First there is a storm: datagrams are lost, duplicated and delayed; networks are partitioned;
//! processes start, exit and stop polling; daemons die. Then the network is healthy, and every
//! endpoint must reach every endpoint of another NIC. A world has one or two storms. The NICs and
//! their UDP sockets are the product's own; time is simulated. The host's loopback interface
//! carries the datagrams, so that two plays of one seed may differ in rare cases.
//!
//! `causeway-sim --boards` and the tests of the crate call [`play`], which runs the world in the
//! caller's thread: each host is a [`Stage`] that is served for at most 256 rounds at a time, and
//! further at the next event. In a healthy network all send to all, for at most 400 s of simulated
//! time until they know each other; each message of a second round must arrive and complete within
//! 60 s. Violations are those of [`crate::check::messages`], late messages included, and of
//! [`crate::check::remains`], more than 1,000 events in a row at one time, and a [`StageError`].

mod folder;
mod net;
mod process;

use std::io;

use causeway_fabric::PollConfig;
use causeway_model::{Mac, MxPeer, MxSpec, MxUdp, PortKind, PortSpec};
use causeway_model::{Name, PollPolicy};
use causeway_mx::MxService;

use crate::check::broken;
use crate::event::{Event, MessageEvent, Place};
use crate::rng::Rng;
use crate::stage::{Stage, StageError};
use crate::tape::Tape;
use crate::world::{Outcome, PlayOptions, descriptors, left_open};
use folder::Folder;
use net::{Net, Weather, home};
use process::{LEN_MAX, Process, nic};

/// Maximum number of rounds in which a host is served at a time, and turns of a shard in each
/// round.
const ROUNDS_MAX: usize = 256;
const TURNS: usize = 4;
/// Steps of one storm.
const STEPS: (u64, u64) = (20, 80);
/// The longest time until NICs have discovered each other: a NIC announces itself every three
/// minutes.
const HEAL_NS: u64 = 400_000_000_000;
/// The longest time until a message sent in calm has arrived or failed.
const ARRIVE_NS: u64 = 60_000_000_000;
/// Message lengths around protocol limits; other lengths are drawn at random.
const EDGES: &[u64] = &[0, 1, 32, 33, 128, 129, 4096, 4097, 32_768, 32_769, 65_536];

/// A host with its NIC and its processes.
#[derive(Debug)]
struct Host {
    stage: Stage,
    processes: Vec<Process>,
}

/// A world of NICs.
#[derive(Debug)]
struct Boards {
    now: u64,
    hosts: Vec<Host>,
    net: Net,
    folder: Folder,
    poll_config: PollConfig,
    /// The NICs know each other from the start, without discovery.
    named: bool,
    /// Counts the lives of all processes.
    lives: u8,
    /// The time of the next turn of every host.
    looks_at: u64,
}

fn mac(board: usize) -> Mac {
    let [_, _, mac @ ..] = nic(board as u8).to_be_bytes();
    Mac(mac)
}

fn name() -> Result<Name, StageError> {
    "board".parse().map_err(|_| io::Error::other("invalid name").into())
}

impl Boards {
    fn new(rng: &mut Rng, tape: &mut Tape) -> Result<Self, StageError> {
        let count = rng.within(2, 4) as usize;
        let policy =
            rng.pick(&[PollPolicy::Adaptive, PollPolicy::GuestDriven, PollPolicy::VmmDriven]);
        let spin_ns = rng.pick(&[0, 50_000]);
        let poll_config =
            PollConfig { policy, spin_ns, period_ns: 1_000_000, ..PollConfig::default() };
        let net = Net::new(count, Rng::new(rng.number()))?;
        let (named, hosts) = (rng.chance(60), Vec::new());
        let (now, lives, looks_at) = (1_000_000_000, 0, 0);
        let folder = Folder::new()?;
        let mut world = Self { now, hosts, net, folder, poll_config, named, lives, looks_at };
        for board in 0..count {
            let stage = world.stage(board, count)?;
            world.hosts.push(Host { stage, processes: Vec::new() });
            for endpoint in 0..rng.within(1, 2) as u8 {
                world.start(Place { stage: board as u8, guest: endpoint }, rng, tape)?;
            }
        }
        Ok(world)
    }

    fn stage(&self, board: usize, count: usize) -> Result<Stage, StageError> {
        let stage = Stage::new(name()?, Box::new(MxService::new()), self.poll_config)?;
        stage.advance(self.now);
        let local = MxSpec::local(mac(board), format!("board-{board}:0"));
        let peer = |at| MxPeer { mac: mac(at), name: Some(format!("board-{at}:0")) };
        let others = (0..count).filter(|at| *at != board && self.named);
        let udp = Some(MxUdp { listen: home(board), peers: self.net.others(board)? });
        let spec = MxSpec { udp, peers: others.map(peer).collect(), ..local };
        let (name, group) = (name()?, name()?);
        stage.add(PortSpec {
            name,
            group,
            socket: self.folder.socket(board),
            access: Default::default(),
            memory_max: None,
            kind: PortKind::of(spec),
        })?;
        Ok(stage)
    }

    /// Records an action of the world on the tape.
    fn act(&self, tape: &mut Tape, at: Place, what: &'static str, value: u64) {
        tape.put(Event::Act { now_ns: self.now, at, what, value });
    }

    /// Starts a process at an endpoint.
    fn start(&mut self, at: Place, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, at, "start", u64::from(self.lives));
        let host = &mut self.hosts[usize::from(at.stage)];
        host.stage.advance(self.now.saturating_sub(host.stage.now_ns()));
        let process = Process::start(&host.stage, at, self.lives, rng.chance(20))?;
        host.processes.push(process);
        host.processes.sort_by_key(|process| process.at);
        self.lives = self.lives.wrapping_add(1);
        Ok(())
    }

    /// Kills a process and starts its replacement.
    fn kill(&mut self, at: Place, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, at, "kill", 0);
        let processes = &mut self.hosts[usize::from(at.stage)].processes;
        if let Some(index) = processes.iter().position(|process| process.at == at) {
            processes.remove(index).die(tape)?;
        }
        self.work(at.stage.into(), tape)?;
        if rng.chance(50) {
            self.run(rng.below(300_000_000), tape)?;
        }
        self.start(at, rng, tape)
    }

    /// Kills a daemon with its state and starts its replacement.
    fn crash(&mut self, board: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, Place { stage: board as u8, guest: 0 }, "crash", 0);
        let processes = std::mem::take(&mut self.hosts[board].processes);
        let places: Vec<_> = processes.iter().map(|process| process.at).collect();
        processes.into_iter().try_for_each(|process| process.die(tape))?;
        // The old daemon ends before its successor is created.
        let nobody = Stage::new(name()?, Box::new(MxService::new()), self.poll_config)?;
        self.hosts[board].stage = nobody;
        self.net.left(board);
        self.hosts[board].stage = self.stage(board, self.hosts.len())?;
        places.into_iter().try_for_each(|at| self.start(at, rng, tape))
    }

    /// Serves a host and its processes until neither has work left, or for [`ROUNDS_MAX`] rounds.
    fn work(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let Self { now, hosts, net, .. } = self;
        let Host { stage, processes } = &mut hosts[at];
        for _ in 0..ROUNDS_MAX {
            stage.advance(now.saturating_sub(stage.now_ns()));
            let mut busy = false;
            for process in processes.iter_mut() {
                busy |= process.play(*now, tape)?;
            }
            let waits = stage.step(TURNS)?;
            busy |= net.take(*now)?;
            if !busy && !waits {
                return Ok(());
            }
            if !busy {
                // A polling process repeats without effect until time advances.
                self.looks_at = self.looks_at.min(*now + 20_000);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the time of the next event.
    fn next(&self) -> u64 {
        let deadlines = self.hosts.iter().filter_map(|host| host.stage.deadline_ns());
        let processes = self.hosts.iter().flat_map(|host| &host.processes);
        let away = processes.map(|process| process.away_until).filter(|until| *until > self.now);
        let all = deadlines.chain(away).chain(self.net.next()).chain([self.looks_at]);
        all.min().unwrap_or(u64::MAX)
    }

    /// Advances time, serving hosts and network as due.
    fn run(&mut self, ns: u64, tape: &mut Tape) -> Result<(), StageError> {
        let end = self.now + ns;
        let mut stood = 0;
        while !tape.is_broken() {
            let next = self.next();
            if next > end {
                break;
            }
            stood = if next > self.now { 0 } else { stood + 1 };
            if stood > 1000 {
                tape.fail(broken("remains", "a host has work without end"));
            }
            self.now = self.now.max(next);
            let mut due = self.net.pass(self.now)?;
            let looks = self.looks_at <= self.now;
            if looks {
                self.looks_at = u64::MAX;
            }
            for (at, host) in self.hosts.iter().enumerate() {
                let away = host.processes.iter().any(|process| process.away_until == self.now);
                if looks || away || host.stage.deadline_ns().is_some_and(|at| at <= self.now) {
                    due.insert(at);
                }
            }
            due.into_iter().try_for_each(|at| self.work(at, tape))?;
        }
        self.now = end;
        Ok(())
    }

    fn places(&self) -> Vec<Place> {
        self.hosts.iter().flat_map(|host| host.processes.iter().map(|its| its.at)).collect()
    }

    fn process(&mut self, at: Place) -> Option<&mut Process> {
        let host = self.hosts.get_mut(usize::from(at.stage))?;
        host.processes.iter_mut().find(|process| process.at == at)
    }

    /// Returns the endpoints on other NICs; endpoints on the same NIC communicate by channels of
    /// their own.
    fn others(&self, at: Place) -> Vec<Place> {
        self.places().into_iter().filter(|other| other.stage != at.stage).collect()
    }

    /// Posts a message of random length.
    fn send(&mut self, at: Place, to: Place, rng: &mut Rng) {
        let len = match rng.below(10) {
            0..4 => rng.pick(EDGES),
            4..7 => rng.below(200),
            7..9 => rng.below(40_000),
            _ => rng.below(LEN_MAX as u64),
        };
        if let Some(process) = self.process(at) {
            process.post(to, len as usize);
        }
    }

    /// Draws new fault probabilities.
    fn weather(&mut self, rng: &mut Rng, tape: &mut Tape) {
        self.net.weather = Weather {
            lost: rng.pick(&[0, 1, 5, 20]),
            doubled: rng.pick(&[0, 5, 20]),
            late: rng.pick(&[0, 5, 30]),
            late_ns: rng.pick(&[1_000_000, 10_000_000, 50_000_000]),
        };
        self.act(tape, Place { stage: 0, guest: 0 }, "weather", self.net.weather.lost);
    }

    /// Stops a process and sends it more messages than its rings hold.
    fn flood(&mut self, at: Place, to: Place, rng: &mut Rng, tape: &mut Tape) {
        let (until, count) = (self.now + 500_000_000, rng.within(300, 600));
        self.act(tape, to, "flood", count);
        if let Some(process) = self.process(to) {
            process.away_until = until;
        }
        if let Some(process) = self.process(at) {
            (0..count).for_each(|_| process.post(to, rng.below(40) as usize));
        }
    }

    /// Applies one random action or fault.
    fn strike(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let places = self.places();
        let at = rng.pick(&places);
        let other = rng.pick(&self.others(at));
        let (one, two) = (usize::from(at.stage), usize::from(other.stage));
        match rng.below(100) {
            0..3 => self.kill(at, rng, tape)?,
            3..5 => self.crash(one, rng, tape)?,
            5..8 => {
                self.act(tape, at, "disconnect", other.stage.into());
                if let Some(process) = self.process(at) {
                    process.part(other)?;
                }
            }
            8..12 => {
                self.act(tape, at, "part", other.stage.into());
                self.net.partitions.insert((one, two));
                if rng.chance(70) {
                    self.net.partitions.insert((two, one));
                }
            }
            12..18 => {
                self.act(tape, at, "join", 0);
                self.net.partitions.pop_first();
            }
            18..22 => self.weather(rng, tape),
            22..28 => {
                let until = self.now + rng.below(400_000_000);
                self.act(tape, at, "away", until);
                if let Some(process) = self.process(at) {
                    process.away_until = until;
                }
            }
            28..31 => self.flood(at, other, rng, tape),
            _ => {
                for _ in 0..rng.within(1, 12) {
                    self.send(at, other, rng);
                }
            }
        }
        self.work(one, tape)?;
        let most = if rng.chance(10) { 2_000_000_000 } else { 30_000_000 };
        self.run(rng.below(most), tape)
    }

    /// Runs until every requested message has ended, or for `most_ns`.
    fn settle(&mut self, most_ns: u64, tape: &mut Tape) -> Result<(), StageError> {
        let end = self.now + most_ns;
        for at in 0..self.hosts.len() {
            self.work(at, tape)?;
        }
        while self.now < end && !tape.is_broken() {
            if self.hosts.iter().all(|host| host.processes.iter().all(Process::is_idle)) {
                return Ok(());
            }
            self.run(100_000_000, tape)?;
        }
        Ok(())
    }

    /// Heals the network; all endpoints send to all others until stale peers are detected, after
    /// which every message must arrive.
    fn calm(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, Place { stage: 0, guest: 0 }, "heal", 0);
        self.net.partitions.clear();
        self.net.weather = Weather { doubled: rng.pick(&[0, 10]), ..Weather::default() };
        for well in [false, true] {
            // Messages requested before must end first.
            self.settle(HEAL_NS, tape)?;
            if well {
                tape.put(Event::Message(MessageEvent::Calm));
            }
            for at in self.places() {
                for other in self.others(at) {
                    (0..rng.within(1, 3)).for_each(|_| self.send(at, other, rng));
                }
            }
            self.settle(if well { ARRIVE_NS } else { HEAL_NS }, tape)?;
        }
        tape.put(Event::Message(MessageEvent::Arrived));
        Ok(())
    }

    /// Stops all processes and checks that no resource remains.
    fn part(mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.hosts.len() {
            let processes = std::mem::take(&mut self.hosts[at].processes);
            processes.into_iter().try_for_each(|process| process.die(tape))?;
            self.work(at, tape)?;
            let Host { stage, .. } = &self.hosts[at];
            let view = stage.view(&name()?)?;
            let counted = |what: &str| view.counters.get(what).copied().unwrap_or(0);
            for (what, count) in [
                ("processes", counted("processes")),
                ("endpoints", counted("endpoints")),
                ("drops of malformed frames", counted("drop_malformed_total")),
            ] {
                tape.put(Event::Remains { stage: at as u8, what, count });
            }
            stage.delete(&name()?)?;
            let busy = u64::from(stage.step(64)?);
            let deadlines = u64::from(stage.deadline_ns().is_some());
            for (what, count) in [("work", busy), ("deadlines", deadlines)] {
                tape.put(Event::Remains { stage: at as u8, what, count });
            }
        }
        Ok(())
    }
}

/// Plays the phases of a world.
fn run(seed: u64, options: PlayOptions, tape: &mut Tape) -> Result<(), StageError> {
    let before = if options.descriptors { descriptors()? } else { 0 };
    let mut rng = Rng::new(seed);
    let mut world = Boards::new(&mut rng, tape)?;
    for _ in 0..rng.within(1, 2) {
        world.weather(&mut rng, tape);
        for _ in 0..rng.within(STEPS.0, STEPS.1) {
            world.strike(&mut rng, tape)?;
            if tape.is_broken() {
                return Ok(());
            }
        }
        world.calm(&mut rng, tape)?;
    }
    world.part(tape)?;
    if options.descriptors {
        let count = left_open(before)?;
        tape.put(Event::Remains { stage: 0, what: "descriptors", count });
    }
    Ok(())
}

/// Plays the world of NICs of `seed`. The host's own network carries the datagrams, so two plays of
/// the same seed may differ in rare cases.
pub fn play(seed: u64, options: PlayOptions) -> Outcome {
    let mut tape = Tape::new(options.print, options.keep);
    if let Err(error) = run(seed, options, &mut tape) {
        tape.fail(broken("honest", error.to_string()));
    }
    let (hash, count, events, violation) = tape.close();
    Outcome { hash, count, events, violation }
}
