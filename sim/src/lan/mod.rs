//! Hosts whose groups are joined by links, over a network that fails in every way that it can.
//!
//! First there are storms: datagrams are lost, doubled, delayed, cut and damaged, networks part,
//! guests come, go and move from host to host. Then the network is whole again, and after
//! `HEAL_NS` everything that is sent must arrive, in order. Then guests move once more, and
//! after `MOVE_NS` everything must arrive where they are now.

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

/// How long it takes at most until links carry everything again, once the network is whole:
/// initiations at most 5.25 s apart, 6 s until long datagrams are found to be lost, and lists of
/// addresses compared and asked for.
const HEAL_NS: u64 = 15_000_000_000;
/// How long it takes at most until a guest that moved is found, while the network is whole.
const MOVE_NS: u64 = 1_000_000_000;
/// How long a frame is under way at most, in calm.
const ARRIVE_NS: u64 = 500_000_000;
/// Longer than a session is used.
const REKEY_NS: u64 = 130_000_000_000;
/// Rounds until all that is there has been done, at most.
const ROUNDS_MAX: usize = 64;
/// Turns of a shard in each.
const TURNS: usize = 8;
/// Steps of one storm.
const STEPS: (u64, u64) = (40, 150);

/// See the module.
#[derive(Debug)]
struct Lan {
    now: u64,
    hosts: Vec<Host>,
    guests: Vec<Guest>,
    net: Net,
    unders: usize,
    /// All hosts but the first have a link to that one only.
    star: bool,
    /// Tunnels with secrets.
    sealed: bool,
    /// How often the first host changed its addresses.
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
        let room = &self.hosts[host].rooms[usize::from(guest.place.stage)];
        guest.start(host, &room.stage, rng, tape)?;
        self.work(host, tape)
    }

    fn stop(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let Some(host) = self.guests[guest].host else { return Ok(()) };
        let delete = rng.chance(50);
        self.act(tape, host, guest, "stop", u64::from(delete));
        let guest = &mut self.guests[guest];
        let room = &self.hosts[host].rooms[usize::from(guest.place.stage)];
        guest.stop(&room.stage, delete, tape)?;
        self.work(host, tape)
    }

    /// A guest stops where it is, and goes on elsewhere.
    fn migrate(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.stop(guest, rng, tape)?;
        if rng.chance(50) {
            self.run(rng.below(30_000_000), tape)?;
        }
        let host = rng.below(self.hosts.len() as u64) as usize;
        self.start(guest, host, rng, tape)?;
        // Behind a third host only a frame of its own says where it is.
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

    /// A host does all that is to be done, and so do its guests.
    fn work(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let Self { now, hosts, guests, net, .. } = self;
        let host = &mut hosts[at];
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            for room in &host.rooms {
                room.stage.advance(now.saturating_sub(room.stage.now_ns()));
                busy |= room.stage.step(TURNS)?;
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

    /// Lets time pass.
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
            while let Some((under, at, letter)) = self.net.take(self.now) {
                if let Some(host) = self.hosts.get_mut(at) {
                    let news = host.receive(self.now, under, &letter);
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

    /// Whom a guest may send to.
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

    /// One thing happens.
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
                self.net.parted.insert((under, from, to));
                if both {
                    self.net.parted.insert((under, to, from));
                }
            }
            36..42 => {
                self.act(tape, 0, 0, "join", 0);
                self.net.parted.pop_first();
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

    fn weather(&mut self, rng: &mut Rng, tape: &mut Tape) {
        let sealed = |parts: u64| if self.sealed { parts } else { 0 };
        self.net.weather = Weather {
            lost: rng.pick(&[0, 20, 100, 400]),
            // Without secrets nobody tells what was said twice, or otherwise.
            doubled: sealed(rng.pick(&[0, 100, 500])),
            late: rng.pick(&[0, 100, 500]),
            late_ns: rng.pick(&[2_000_000, 30_000_000, 400_000_000]),
            cut: rng.pick(&[0, 20, 50]),
            flipped: sealed(rng.pick(&[0, 20, 50])),
        };
        self.act(tape, 0, 0, "weather", self.net.weather.lost);
    }

    /// The network is whole again.
    fn heal(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, 0, 0, "heal", 0);
        self.net.parted.clear();
        let doubled = if self.sealed { rng.pick(&[0, 300]) } else { 0 };
        self.net.weather = Weather { doubled, ..Weather::default() };
        self.run(HEAL_NS, tape)
    }

    /// All send to all; everything arrives.
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

    /// How much hosts hold of what is bounded.
    fn measure(&self, tape: &mut Tape) {
        for (at, host) in self.hosts.iter().enumerate() {
            let host_number = at as u8;
            for tunnel in host.tunnels() {
                let state = tunnel.state(Host::clock(self.now));
                let addresses = self.guests.len();
                for (what, count, most) in [
                    ("incomplete frames", state.fragments.0, FRAGMENTED_FRAMES_MAX),
                    ("bytes of incomplete frames", state.fragments.1, FRAGMENTED_BYTES_MAX),
                    ("addresses told", state.addresses.0, addresses),
                    ("addresses heard", state.addresses.1, addresses),
                ] {
                    let (count, most) = (count as u64, most as u64);
                    let holds = Crossing::Holds { host: host_number, what, count, most };
                    tape.put(Event::Crossing(holds));
                }
            }
        }
    }

    /// All leave: nothing may be left.
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
                    ("addresses told", state.addresses.0),
                    ("addresses heard", state.addresses.1),
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
/// A rule was broken against an honest guest, or the host fails us.
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
