//! A stage of sockets.

mod conn;
pub mod guest;

use causeway_attach::native::{NativeError, VsockOptions};
use causeway_attach::vhost_user::FrontendReq;
use causeway_fabric::control::PortState;
use causeway_fabric::{Name, Pacing};
use causeway_socket::Socket;

use crate::event::{Event, Place};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, vsock_spec};
use crate::tape::Tape;
use crate::world::{Play, Temper, pieces, ring_features};
use guest::{CID_FIRST, Guest};

const QUEUES: usize = 3;
/// Bytes that a guest wants to send at once, and of a heavy world.
const WANT_BYTES_MAX: [u64; 2] = [60_000, 900_000];
/// Receive buffers are 4 KiB times two to the power of these.
const BUFFERS: [(u64, u64); 2] = [(0, 5), (6, 8)];
/// Most ends of one guest.
const ENDS_MAX: usize = 24;

/// See the module.
#[derive(Debug)]
pub struct Sockets {
    stage: Stage,
    index: u8,
    guests: Vec<Guest>,
    /// Which of the ports exist.
    there: Vec<bool>,
    /// Connections that the backend ended for a counted reason, of ports that are gone too.
    excused: u64,
    temper: Temper,
}

fn name(guest: usize) -> Result<Name, StageError> {
    let text = format!("v{guest}");
    text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
}

impl Sockets {
    /// A stage of `ports` guests.
    ///
    /// # Errors
    /// The host fails us.
    pub fn new(index: u8, ports: u8, pacing: Pacing, temper: Temper) -> Result<Self, StageError> {
        let group = "group".parse().map_err(|_| StageError::Host(std::io::Error::other("name")))?;
        let stage = Stage::new(group, Box::new(Socket::new()), pacing)?;
        let guests = (0..ports).map(|guest| Guest::new(Place { stage: index, guest })).collect();
        let mut play =
            Self { stage, index, guests, there: vec![false; ports.into()], excused: 0, temper };
        for guest in 0..play.guests.len() {
            play.add(guest)?;
        }
        Ok(play)
    }

    fn add(&mut self, guest: usize) -> Result<(), StageError> {
        let cid = u32::try_from(CID_FIRST as usize + guest).unwrap_or(u32::MAX);
        self.stage.add(vsock_spec(self.stage.group(), &name(guest)?, cid))?;
        self.there[guest] = true;
        Ok(())
    }

    fn act(&self, tape: &mut Tape, guest: usize, what: &'static str, value: u64) {
        let at = Place { stage: self.index, guest: u8::try_from(guest).unwrap_or(u8::MAX) };
        tape.put(Event::Act { now_ns: self.stage.now_ns(), at, what, value });
    }

    /// Attaches a guest with random options, maybe not to the end.
    fn join(&mut self, guest: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let (features, declined) = ring_features(rng);
        let ring_size = 1 << rng.within(2, 8);
        let options = VsockOptions {
            ring_size,
            receive_bytes: match self.temper.heavy {
                true => rng.pick(&[4096, 70_000]),
                false => rng.pick(&[64, 200, 1500, 4096, 70_000]),
            },
            features,
            piece_bytes: pieces(rng, ring_size, &[None, Some(44), Some(1000)]),
            ..VsockOptions::default()
        };
        let cut = self.temper.leaves && rng.chance(15);
        let patience = cut.then(|| rng.below(20) as usize);
        self.act(tape, guest, "join", patience.map_or(0, |p| p as u64 + 1));
        self.act(tape, guest, "with features", features);
        self.act(tape, guest, "without features", declined);
        self.act(tape, guest, "ring", u64::from(ring_size));
        self.act(tape, guest, "buffers", u64::from(options.receive_bytes));
        self.stage.patience(patience);
        let reset = self.temper.leaves && rng.chance(10);
        let attached = self.stage.client(&name(guest)?).and_then(|mut client| {
            if reset {
                client.tell(FrontendReq::RESET_DEVICE, &[], &[])?;
            }
            self.stage.vsock_over(client, options, declined)
        });
        self.stage.patience(None);
        match attached {
            Ok(port) => {
                let buffers = BUFFERS[usize::from(self.temper.heavy)];
                self.guests[guest].join(port, rng.chance(50), buffers, tape);
            }
            Err(error) if patience.is_none() => return Err(error),
            Err(_) => {
                self.stage.step(4)?;
            }
        }
        Ok(())
    }

    fn leave(&mut self, guest: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.guests[guest].leave(tape);
        // The frontend's end is closed; the shard finds out when it looks.
        self.stage.step(4)?;
        Ok(())
    }

    /// What guests have lost for a counted reason, of all ports that are there.
    fn excuses(&self) -> u64 {
        let views = self.stage.with(|shard| shard.port_views());
        let count = |view: &causeway_fabric::control::PortView| {
            let of = |name: &str| view.counters.get(name).copied().unwrap_or(0);
            of("reset_stalled_total") + of("reset_unanswered_total") + of("reject_limit_total")
        };
        views.iter().map(count).sum()
    }

    fn excuse(&mut self, tape: &mut Tape) {
        let now = self.excuses();
        if now > self.excused {
            tape.put(Event::Excuse { stage: self.index });
        }
        self.excused = now;
    }

    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let now = self.stage.now_ns();
        let others = self.guests.len() as u64;
        let guest = &mut self.guests[at];
        if guest.away_until_ns > now {
            return Ok(());
        }
        match rng.below(12) {
            0 if guest.ends().len() < ENDS_MAX && !(self.temper.heavy && at == 0) => {
                let to = rng.below(others) as u8;
                let (port, messages) = (rng.within(1, 3) as u32, rng.chance(30));
                let (first, last) = BUFFERS[usize::from(self.temper.heavy)];
                let buffer = 4096 << rng.within(first, last);
                // In heavy worlds most of it goes to one.
                let to = if self.temper.heavy && rng.chance(70) { 0 } else { to };
                guest.connect(to, port, messages, buffer, tape);
            }
            1..7 => {
                let ends = guest.ends();
                if let Some(conn) = (!ends.is_empty())
                    .then(|| rng.pick(&ends))
                    .and_then(|key| guest.conn(key))
                    .filter(|c| c.may_send() && c.want == 0 && !c.shut_after)
                {
                    let most = WANT_BYTES_MAX[usize::from(self.temper.heavy)];
                    let shift = rng.below(if self.temper.heavy { 3 } else { 14 });
                    conn.want = (rng.within(1, most) as u32 >> shift).max(1);
                    conn.shut_after = rng.chance(8);
                }
            }
            9 => guest.consume(rng.below(8000) as u32, tape),
            7 if rng.chance(30) => {
                let ends = guest.ends();
                if !ends.is_empty() {
                    guest.close(rng.pick(&ends), rng.chance(60), tape);
                }
            }
            8 if rng.chance(10) || (self.temper.heavy && guest.ends().len() > 3) => {
                guest.away_until_ns = now + rng.below(self.temper.away_ns)
            }
            _ => guest.consume(u32::MAX, tape),
        }
        if rng.chance(70) {
            guest.receive(rng.within(1, 40) as usize, tape)?;
        }
        if rng.chance(80) {
            guest.send(tape)?;
        }
        Ok(())
    }

    fn disturb(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        match rng.below(5) {
            0 => {
                self.act(tape, at, "leave", 0);
                self.leave(at, tape)?;
            }
            1 if self.there[at] => {
                self.act(tape, at, "delete", 0);
                if rng.chance(50) {
                    self.leave(at, tape)?;
                }
                self.excuse(tape);
                self.stage.delete(&name(at)?)?;
                self.excused = self.excuses();
                self.there[at] = false;
                self.guests[at].leave(tape);
            }
            2 => {
                self.act(tape, at, "reset", 0);
                if let Some(port) = &mut self.guests[at].port {
                    port.frontend().client().tell(FrontendReq::RESET_DEVICE, &[], &[])?;
                }
                self.leave(at, tape)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn pause(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.act(tape, at, "pause", 0);
        let guest = &mut self.guests[at];
        let Some(port) = &mut guest.port else { return Ok(()) };
        let mut bases = [0; QUEUES];
        for (queue, base) in bases.iter_mut().enumerate() {
            *base = port.frontend().pause(queue)?;
        }
        guest.paused = Some(bases);
        Ok(())
    }

    fn resume(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let guest = &mut self.guests[at];
        let (Some(port), Some(bases)) = (&mut guest.port, guest.paused.take()) else {
            return Ok(());
        };
        for (queue, base) in bases.into_iter().enumerate() {
            port.frontend().resume(queue, base)?;
        }
        self.act(tape, at, "resume", 0);
        Ok(())
    }

    fn ring(&mut self, at: usize, rng: Option<&mut Rng>) -> Result<(), NativeError> {
        let now = self.stage.now_ns();
        let guest = &mut self.guests[at];
        match &mut guest.port {
            Some(port) => guest.bells.ring(port.frontend(), QUEUES, now, rng),
            None => Ok(()),
        }
    }
}

impl Play for Sockets {
    fn is_heavy(&self) -> bool {
        self.temper.heavy
    }

    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn turn(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let at = rng.below(self.guests.len() as u64) as usize;
        // What the backend counted comes before what its guests hear of it.
        self.excuse(tape);
        if !self.there[at] {
            if rng.chance(20) {
                self.act(tape, at, "add", 0);
                self.add(at)?;
            }
        } else if self.guests[at].port.is_none() {
            if rng.chance(30) {
                self.join(at, rng, tape)?;
            }
        } else if self.guests[at].paused.is_some() {
            if rng.chance(20) {
                self.resume(at, tape)?;
            }
        } else if self.temper.leaves && rng.chance(2) {
            self.disturb(at, rng, tape)?;
        } else if self.temper.pauses && rng.chance(2) {
            self.pause(at, tape)?;
        } else if self.temper.pauses && rng.chance(2) {
            self.act(tape, at, "grant", 0);
            if let Some(port) = &mut self.guests[at].port {
                port.frontend().grant_again()?;
            }
        } else {
            self.traffic(at, rng, tape)?;
            self.ring(at, Some(rng))?;
        }
        Ok(())
    }

    fn settle(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.guests.len() {
            self.resume(at, tape)?;
            self.guests[at].bells.wake_all();
            self.guests[at].away_until_ns = 0;
        }
        Ok(())
    }

    fn behave(&mut self, tape: &mut Tape) -> Result<bool, StageError> {
        let mut worked = false;
        for at in 0..self.guests.len() {
            self.excuse(tape);
            worked |= self.guests[at].attend(tape)?;
            self.ring(at, None)?;
        }
        Ok(worked)
    }

    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        self.excuse(tape);
        for name in ["transmit_held_total", "transmit_staged_total", "transmit_waited_total"] {
            let views = self.stage.with(|shard| shard.port_views());
            let count = views.iter().filter_map(|view| view.counters.get(name)).sum();
            self.act(tape, 0, name, count);
        }
        for view in self.stage.with(|shard| shard.port_views()) {
            let count = u64::from(view.state == PortState::Faulted);
            if count > 0 {
                self.act(tape, 0, "fault", 0);
                tape.fail(crate::check::broken("remains", format!("a fault: {:?}", view.fault)));
            }
            let breaches = view.counters.get("reset_breach_total").copied().unwrap_or(0);
            if breaches > 0 {
                tape.fail(crate::check::broken("remains", format!("a breach: {:?}", view.fault)));
            }
        }
        for guest in &mut self.guests {
            for key in guest.ends() {
                let Some(conn) = guest.conn(key) else { continue };
                let asking = conn.state == conn::State::Asking;
                tape.put(Event::Still { way: conn.way, asking });
            }
            if let Some(port) = &mut guest.port {
                let count = u64::from(!port.is_idle()?);
                tape.put(Event::Remains { stage: self.index, what: "chains kept", count });
            }
        }
        Ok(())
    }

    fn part(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.guests.len() {
            self.leave(at, tape)?;
        }
        for view in self.stage.with(|shard| shard.port_views()) {
            let count = view.counters.get("connections").copied().unwrap_or(0);
            tape.put(Event::Remains { stage: self.index, what: "connections", count });
        }
        for at in 0..self.guests.len() {
            if self.there[at] {
                self.stage.delete(&name(at)?)?;
            }
        }
        Ok(())
    }
}
