//! Worlds of hosts whose groups are joined by links, over a faulty network.
//!
//! First there is a storm: datagrams are lost, duplicated, delayed, truncated and corrupted;
//! networks are partitioned; guests start, stop and migrate. Then the network is healthy, and
//! `HEAL_NS` (15 s of simulated time) later every frame sent to a running guest must arrive, in
//! order. Then one or two guests migrate, one after another, and `MOVE_NS` (1 s) after each move
//! every frame must arrive at the new host. A world has one or two storms.
//!
//! [`crate::world`] calls [`run`] for about one seed in five, in its thread. Violations are those
//! of [`crate::check::crossing`] and [`crate::check::remains`], and a [`StageError`]. A host is
//! served for at most 64 rounds at a time, and further at its next event. Sockets, the kernel's
//! network and real time are not simulated.

mod carrier;
mod guest;
mod host;
mod net;

use causeway_fabric::PollConfig;
use causeway_link::limits::{FRAGMENTED_BYTES_MAX, FRAGMENTED_FRAMES_MAX};
use causeway_model::PollPolicy;

use crate::event::{Crossing, Event, Place, To};
use crate::rng::Rng;
use crate::stage::StageError;
use crate::tape::Tape;
use guest::Guest;
use host::{Host, Line};
use net::{Net, Weather, address};

/// The longest time until links carry all traffic again after the network is healthy: handshakes
/// start at most 5.25 s apart, loss of long datagrams is detected within 6 s, and address lists are
/// compared and requested.
const HEAL_NS: u64 = 15_000_000_000;
/// The longest time until a migrated guest is located, in a healthy network.
const MOVE_NS: u64 = 1_000_000_000;
/// The longest transit time of a frame in calm.
const ARRIVE_NS: u64 = 500_000_000;
/// Longer than the life of a session.
const REKEY_NS: u64 = 130_000_000_000;
/// Maximum number of rounds in which a host is served at a time.
const ROUNDS_MAX: usize = 64;
/// Turns of a shard in each round.
const TURNS: usize = 8;
/// Steps of one storm.
const STEPS: (u64, u64) = (40, 150);

/// A world of hosts.
#[derive(Debug)]
struct Lan {
    now: u64,
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    net: Net,
    unders: usize,
    /// Every host but the first has one link, to the first.
    star: bool,
    /// The tunnels are encrypted.
    sealed: bool,
    /// Number of address changes of the first host.
    roamed: u16,
}

impl Lan {
    fn new(rng: &mut Rng, tape: &mut Tape) -> Result<Self, StageError> {
        let hosts = rng.within(2, 4) as usize;
        let groups = rng.within(1, 2) as usize;
        let unders = if rng.chance(30) { 2 } else { 1 };
        let policy =
            rng.pick(&[PollPolicy::Adaptive, PollPolicy::GuestDriven, PollPolicy::VmmDriven]);
        let poll_config =
            PollConfig { policy, spin_ns: 0, period_ns: 1_000_000, ..PollConfig::default() };
        let net = Net::new(Rng::new(rng.number()));
        let (star, sealed) = (hosts > 2 && rng.chance(25), rng.chance(85));
        let transit = !star && rng.chance(25);
        let (now, roamed) = (0, 0);
        let (guests, all) = (Vec::new(), Vec::new());
        let mut lan = Self { now, hosts: all, guests, net, unders, star, sealed, roamed };
        for at in 0..hosts {
            let addresses: Vec<_> = (0..unders).map(|under| address(under, at, 0)).collect();
            let host = Host::new(&addresses, groups, poll_config, Rng::new(rng.number()))?;
            lan.hosts.push(host);
        }
        let longest = rng.pick(&[1_472, 8_972, 65_507]);
        for (own, peer) in (0..hosts).flat_map(|own| (0..hosts).map(move |peer| (own, peer))) {
            if own == peer || (star && own != 0 && peer != 0) {
                continue;
            }
            let key = sealed.then(|| lan.hosts[peer].key());
            let transit = transit || (star && own == 0);
            for under in 0..unders {
                let remote = Some(address(under, peer, 0));
                let line = Line { under, peer, key, remote, longest, transit };
                lan.hosts[own].link(now, &line)?;
            }
        }
        for group in 0..groups {
            let mtu = rng.pick(&[1500, 9000, 65_535]);
            for guest in 0..rng.within(2, 4) as u8 {
                lan.guests.push(Guest::new(Place { stage: group as u8, guest }, mtu));
                let (last, host) = (lan.guests.len() - 1, rng.below(hosts as u64) as usize);
                lan.start(last, host, rng, tape)?;
            }
        }
        Ok(lan)
    }

    /// Records an action on the tape.
    fn act(&self, tape: &mut Tape, host: usize, guest: usize, what: &'static str, value: u64) {
        let at = Place { stage: host as u8, guest: guest as u8 };
        tape.put(Event::Act { now_ns: self.now, at, what, value });
    }

    fn start(
        &mut self,
        guest: usize,
        host: usize,
        rng: &mut Rng,
        tape: &mut Tape,
    ) -> Result<(), StageError> {
        self.act(tape, host, guest, "start", 0);
        let guest = &mut self.guests[guest];
        let host_group = &self.hosts[host].host_groups[usize::from(guest.place.stage)];
        guest.start(host, &host_group.stage, rng, tape)?;
        self.work(host, tape)
    }

    fn stop(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let Some(host) = self.guests[guest].host else { return Ok(()) };
        let delete = rng.chance(50);
        self.act(tape, host, guest, "stop", u64::from(delete));
        let guest = &mut self.guests[guest];
        let host_group = &self.hosts[host].host_groups[usize::from(guest.place.stage)];
        guest.stop(&host_group.stage, delete, tape)?;
        self.work(host, tape)
    }

    /// Stops a guest on its host and starts it on a random host, perhaps the same.
    fn migrate(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.stop(guest, rng, tape)?;
        if rng.chance(50) {
            self.run(rng.below(30_000_000), tape)?;
        }
        let host = rng.below(self.hosts.len() as u64) as usize;
        self.start(guest, host, rng, tape)?;
        // Across a third host, only a frame from the guest updates the learned location.
        if self.star { self.send(guest, To::All, rng, tape) } else { Ok(()) }
    }

    fn send(
        &mut self,
        guest: usize,
        to: To,
        rng: &mut Rng,
        tape: &mut Tape,
    ) -> Result<(), StageError> {
        let Some(host) = self.guests[guest].host else { return Ok(()) };
        self.guests[guest].send(to, rng, tape)?;
        self.work(host, tape)
    }

    /// Serves a host and its guests until neither has work left, or for [`ROUNDS_MAX`] rounds.
    fn work(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let Self { now, hosts, guests, net, .. } = self;
        let host = &mut hosts[at];
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            for host_group in &host.host_groups {
                host_group.stage.advance(now.saturating_sub(host_group.stage.now_ns()));
                busy |= host_group.stage.step(TURNS)?;
            }
            busy |= host.notice(*now);
            busy |= host.post(*now, net);
            for guest in guests.iter_mut().filter(|guest| guest.host == Some(at)) {
                busy |= guest.receive(tape)?;
            }
            if !busy {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Advances time, serving hosts and network as due.
    fn run(&mut self, ns: u64, tape: &mut Tape) -> Result<(), StageError> {
        let end = self.now + ns;
        loop {
            let hosts = self.hosts.iter().map(Host::deadline);
            let next = hosts.chain(self.net.next()).min().unwrap_or(end);
            if next > end || tape.is_broken() {
                break;
            }
            self.now = self.now.max(next);
            let mut busy = vec![false; self.hosts.len()];
            for (at, host) in self.hosts.iter_mut().enumerate() {
                let due = host.deadline() <= self.now;
                host.tick(self.now);
                busy[at] |= due;
            }
            while let Some((under, at, datagram)) = self.net.take(self.now) {
                if let Some(host) = self.hosts.get_mut(at) {
                    let news = host.receive(self.now, under, &datagram);
                    host.post(self.now, &mut self.net);
                    busy[at] |= news;
                }
            }
            for at in (0..self.hosts.len()).filter(|at| busy[*at]) {
                self.work(at, tape)?;
            }
        }
        self.now = end;
        Ok(())
    }

    /// Draws the destination of a frame.
    fn target(&self, guest: usize, rng: &mut Rng) -> To {
        let from = self.guests[guest].place;
        let others = self.guests.iter().map(|g| g.place);
        let others: Vec<_> = others.filter(|p| p.stage == from.stage && *p != from).collect();
        match rng.below(10) {
            0 => To::Nobody,
            1 | 2 => To::All,
            _ => To::One(rng.pick(&others).guest),
        }
    }

    /// Applies one random action or fault.
    fn strike(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let guest = rng.below(self.guests.len() as u64) as usize;
        let here = self.guests[guest].host.is_some();
        let hosts = self.hosts.len() as u64;
        match rng.below(100) {
            0..8 if here => self.migrate(guest, rng, tape)?,
            8..11 if here => self.stop(guest, rng, tape)?,
            0..30 if !here => self.start(guest, rng.below(hosts) as usize, rng, tape)?,
            30..36 => {
                let (from, to) = (rng.below(hosts) as usize, rng.below(hosts) as usize);
                let (under, both) = (rng.below(self.unders as u64) as usize, rng.chance(70));
                self.act(tape, from, to, "part", u64::from(both));
                self.net.partitions.insert((under, from, to));
                if both {
                    self.net.partitions.insert((under, to, from));
                }
            }
            36..42 => {
                self.act(tape, 0, 0, "join", 0);
                self.net.partitions.pop_first();
            }
            42..46 => self.weather(rng, tape),
            46..48 => {
                self.net.mtu = rng.pick(&[1_280, 1_452, 9_000, usize::MAX]);
                self.act(tape, 0, 0, "mtu", self.net.mtu as u64);
            }
            48..50 if self.sealed && self.unders == 1 => {
                self.roamed += 1;
                self.act(tape, 0, 0, "roam", u64::from(self.roamed));
                self.hosts[0].unders[0].address = address(0, 0, self.roamed);
            }
            _ => {
                for _ in 0..rng.within(1, 6) {
                    self.send(guest, self.target(guest, rng), rng, tape)?;
                }
            }
        }
        let most = if rng.chance(8) { 3_000_000_000 } else { 40_000_000 };
        self.run(rng.below(most), tape)
    }

    /// Draws new fault probabilities.
    fn weather(&mut self, rng: &mut Rng, tape: &mut Tape) {
        let sealed = |parts: u64| if self.sealed { parts } else { 0 };
        self.net.weather = Weather {
            lost: rng.pick(&[0, 20, 100, 400]),
            // Without encryption, duplicated and corrupted datagrams are not detected.
            doubled: sealed(rng.pick(&[0, 100, 500])),
            late: rng.pick(&[0, 100, 500]),
            late_ns: rng.pick(&[2_000_000, 30_000_000, 400_000_000]),
            cut: rng.pick(&[0, 20, 50]),
            flipped: sealed(rng.pick(&[0, 20, 50])),
        };
        self.act(tape, 0, 0, "weather", self.net.weather.lost);
    }

    /// Heals the network.
    fn heal(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, 0, 0, "heal", 0);
        self.net.partitions.clear();
        let doubled = if self.sealed { rng.pick(&[0, 300]) } else { 0 };
        self.net.weather = Weather { doubled, ..Weather::default() };
        self.run(HEAL_NS, tape)
    }

    /// Lets all guests send to all others; every frame must arrive.
    fn calm(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        if self.star {
            for guest in 0..self.guests.len() {
                self.send(guest, To::All, rng, tape)?;
            }
            self.run(ARRIVE_NS, tape)?;
        }
        tape.put(Event::Crossing(Crossing::Calm));
        let mut pairs = Vec::new();
        for (at, from) in self.guests.iter().enumerate() {
            let same = |to: &&Guest| to.place.stage == from.place.stage && to.place != from.place;
            let others = self.guests.iter().filter(same).map(|to| To::One(to.place.guest));
            pairs.extend(others.chain([To::Nobody]).map(|to| (at, to)));
        }
        for round in 0..3 {
            let mut left = pairs.clone();
            while !left.is_empty() {
                let (from, to) = left.swap_remove(rng.below(left.len() as u64) as usize);
                self.send(from, to, rng, tape)?;
                self.run(rng.below(1_500_000), tape)?;
            }
            if round == 0 {
                for from in 0..self.guests.len() {
                    self.send(from, To::All, rng, tape)?;
                    self.run(rng.below(1_500_000), tape)?;
                }
            }
        }
        self.run(ARRIVE_NS, tape)?;
        tape.put(Event::Crossing(Crossing::Arrived));
        Ok(())
    }

    /// Records the use of each bounded resource.
    fn measure(&self, tape: &mut Tape) {
        for (at, host) in self.hosts.iter().enumerate() {
            let host_number = at as u8;
            for tunnel in host.tunnels() {
                let state = tunnel.state(Host::clock(self.now));
                let addresses = self.guests.len();
                for (what, count, most) in [
                    ("incomplete frames", state.fragments.0, FRAGMENTED_FRAMES_MAX),
                    ("bytes of incomplete frames", state.fragments.1, FRAGMENTED_BYTES_MAX),
                    ("addresses announced", state.addresses.0, addresses),
                    ("addresses learned", state.addresses.1, addresses),
                ] {
                    let (count, most) = (count as u64, most as u64);
                    let holds = Crossing::Holds { host: host_number, what, count, most };
                    tape.put(Event::Crossing(holds));
                }
            }
        }
    }

    /// Stops all guests and checks that no resource remains.
    fn part(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        for guest in 0..self.guests.len() {
            self.stop(guest, rng, tape)?;
        }
        self.run(5_000_000_000, tape)?;
        for (at, host) in self.hosts.iter().enumerate() {
            for tunnel in host.tunnels() {
                let state = tunnel.state(Host::clock(self.now));
                for (what, count) in [
                    ("incomplete frames", state.fragments.0),
                    ("addresses announced", state.addresses.0),
                    ("addresses learned", state.addresses.1),
                    ("tunnels down", usize::from(!state.up)),
                ] {
                    tape.put(Event::Remains { stage: at as u8, what, count: count as u64 });
                }
            }
        }
        Ok(())
    }
}

/// Plays a world of hosts.
///
/// # Errors
/// An invariant was violated against an honest guest, or a system call fails.
pub fn run(rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
    let mut lan = Lan::new(rng, tape)?;
    lan.run(rng.below(2_000_000_000), tape)?;
    for _ in 0..rng.within(1, 2) {
        lan.weather(rng, tape);
        for _ in 0..rng.within(STEPS.0, STEPS.1) {
            lan.strike(rng, tape)?;
            if tape.is_broken() {
                return Ok(());
            }
        }
        lan.measure(tape);
        lan.heal(rng, tape)?;
        if rng.chance(10) {
            lan.run(REKEY_NS, tape)?;
        }
        lan.calm(rng, tape)?;
        for _ in 0..rng.within(1, 2) {
            let guest = rng.below(lan.guests.len() as u64) as usize;
            lan.migrate(guest, rng, tape)?;
            lan.run(MOVE_NS, tape)?;
            lan.calm(rng, tape)?;
        }
        if tape.is_broken() {
            return Ok(());
        }
    }
    lan.part(rng, tape)
}
