//! A stage of guests with vsock devices.
//!
//! [`crate::world`] creates the stage and plays it by [`Play`], in the thread of the world: guests
//! connect streams and messages to each other, send, stop reading, close and reset at random; then
//! they behave correctly, and all data must arrive. The [`Stage`] has the product's socket shard. A
//! guest has at most 24 ends. Connections that the backend ended for a documented reason are
//! counted and excused ([`Event::Excuse`]). A command that the shard refuses to an honest guest is
//! a violation.

mod conn;
pub mod guest;

use causeway_attach::native::{Frontend, VsockOptions, VsockPort};
use causeway_attach::vhost_user::FrontendReq;
use causeway_fabric::PollConfig;
use causeway_model::PortState;
use causeway_socket::Socket;

use crate::event::{Event, Place};
use crate::play::{Behaviour, Entry, Life, Play, Scene};
use crate::rng::Rng;
use crate::stage::{Stage, StageError, vsock_spec};
use crate::tape::Tape;
use crate::world::{pieces, ring_features};
use guest::{CID_FIRST, Guest};

const QUEUES: usize = 3;
/// The most bytes that a guest queues at a time, in normal and in heavy worlds.
const WANT_BYTES_MAX: [u64; 2] = [60_000, 900_000];
/// Receive buffers are 4 KiB times two to the power of these, in normal and in heavy worlds.
const BUFFERS: [(u64, u64); 2] = [(0, 5), (6, 8)];
/// The maximum number of ends of a guest.
const ENDS_MAX: usize = 24;

/// A stage of vsock ports.
#[derive(Debug)]
pub struct Sockets {
    scene: Scene,
    guests: Vec<Guest>,
    /// Connections that the backend ended for a counted reason, including those of deleted ports.
    excused: u64,
}

impl Sockets {
    /// Creates a stage of `ports` guests.
    ///
    /// # Errors
    /// The stage cannot be created.
    pub fn new(
        index: u8,
        ports: u8,
        poll_config: PollConfig,
        behaviour: Behaviour,
    ) -> Result<Self, StageError> {
        let group = "group".parse().map_err(|_| StageError::Host(std::io::Error::other("name")))?;
        let stage = Stage::new(group, Box::new(Socket::new()), poll_config)?;
        let guests = (0..ports).map(|guest| Guest::new(Place { stage: index, guest })).collect();
        let scene = Scene::new(stage, index, ports, behaviour, 'v');
        let mut play = Self { scene, guests, excused: 0 };
        for guest in 0..play.guests.len() {
            play.add(guest)?;
        }
        Ok(play)
    }

    fn leave(&mut self, guest: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.guests[guest].leave(tape);
        // The frontend closed its end; the shard detects the closed socket in its next turn.
        self.scene.stage.step(4)?;
        Ok(())
    }

    /// Returns the connections that existing ports lost for a counted reason.
    fn excuses(&self) -> u64 {
        let views = self.scene.stage.with(|shard| shard.port_views());
        let count = |view: &causeway_model::PortView| {
            let of = |name: &str| view.counters.get(name).copied().unwrap_or(0);
            of("reset_stalled_total") + of("reset_unanswered_total") + of("reject_limit_total")
        };
        views.iter().map(count).sum()
    }
}

impl Play for Sockets {
    fn scene(&self) -> &Scene {
        &self.scene
    }

    fn queues(&self) -> usize {
        QUEUES
    }

    fn device(&mut self, at: usize) -> (Option<&mut Frontend>, &mut Life) {
        let Guest { port, life, .. } = &mut self.guests[at];
        (port.as_mut().map(VsockPort::frontend), life)
    }

    fn add(&mut self, at: usize) -> Result<(), StageError> {
        let Scene { stage, .. } = &self.scene;
        let cid = u32::try_from(CID_FIRST as usize + at).unwrap_or(u32::MAX);
        stage.add(vsock_spec(stage.group(), &self.scene.name(at)?, cid))?;
        self.scene.there[at] = true;
        Ok(())
    }

    fn join(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let heavy = self.scene.behaviour.heavy;
        let (features, declined) = ring_features(rng);
        let ring_size = 1 << rng.within(2, 8);
        let options = VsockOptions {
            ring_size,
            receive_bytes: match heavy {
                true => rng.pick(&[4096, 70_000]),
                false => rng.pick(&[64, 200, 1500, 4096, 70_000]),
            },
            features,
            descriptor_bytes: pieces(rng, ring_size, &[None, Some(44), Some(1000)]),
            ..VsockOptions::default()
        };
        let receive_bytes = options.receive_bytes;
        let entry = Entry { features, declined, ring_size, receive_bytes, messages: 20 };
        let over = |stage: &Stage, client| stage.vsock_over(client, options, declined);
        if let Some(port) = self.scene.attach(at, entry, rng, tape, over)? {
            self.guests[at].join(port, rng.chance(50), BUFFERS[usize::from(heavy)], tape);
        }
        Ok(())
    }

    fn count(&mut self, tape: &mut Tape) {
        let now = self.excuses();
        if now > self.excused {
            tape.put(Event::Excuse { stage: self.scene.index });
        }
        self.excused = now;
    }

    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let now = self.scene.stage.now_ns();
        let others = self.guests.len() as u64;
        let guest = &mut self.guests[at];
        if guest.life.away_until_ns > now {
            return Ok(());
        }
        match rng.below(12) {
            0 if guest.ends().len() < ENDS_MAX && !(self.scene.behaviour.heavy && at == 0) => {
                let to = rng.below(others) as u8;
                let (port, messages) = (rng.within(1, 3) as u32, rng.chance(30));
                let (first, last) = BUFFERS[usize::from(self.scene.behaviour.heavy)];
                let buffer = 4096 << rng.within(first, last);
                // In heavy worlds most connections go to guest 0.
                let to = if self.scene.behaviour.heavy && rng.chance(70) { 0 } else { to };
                guest.connect(to, port, messages, buffer, tape);
            }
            1..7 => {
                let ends = guest.ends();
                if let Some(conn) = (!ends.is_empty())
                    .then(|| rng.pick(&ends))
                    .and_then(|key| guest.conn(key))
                    .filter(|c| c.may_send() && c.want == 0 && !c.shut_after)
                {
                    let most = WANT_BYTES_MAX[usize::from(self.scene.behaviour.heavy)];
                    let shift = rng.below(if self.scene.behaviour.heavy { 3 } else { 14 });
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
            8 if rng.chance(10) || (self.scene.behaviour.heavy && guest.ends().len() > 3) => {
                guest.life.away_until_ns = now + rng.below(self.scene.behaviour.away_ns)
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
                self.scene.act(tape, at, "leave", 0);
                self.leave(at, tape)?;
            }
            1 if self.scene.behaviour.deletes && self.scene.there[at] => {
                self.scene.act(tape, at, "delete", 0);
                if rng.chance(50) {
                    self.leave(at, tape)?;
                }
                self.count(tape);
                self.scene.stage.delete(&self.scene.name(at)?)?;
                self.excused = self.excuses();
                self.scene.there[at] = false;
                self.guests[at].leave(tape);
            }
            2 => {
                self.scene.act(tape, at, "reset", 0);
                if let (Some(frontend), _) = self.device(at) {
                    frontend.client().tell(FrontendReq::RESET_DEVICE, &[], &[])?;
                }
                self.leave(at, tape)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn attend(&mut self, at: usize, tape: &mut Tape) -> Result<bool, StageError> {
        Ok(self.guests[at].attend(tape)?)
    }

    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        self.count(tape);
        for name in ["transmit_held_total", "transmit_staged_total", "transmit_waited_total"] {
            let views = self.scene.stage.with(|shard| shard.port_views());
            let count = views.iter().filter_map(|view| view.counters.get(name)).sum();
            self.scene.act(tape, 0, name, count);
        }
        for view in self.scene.stage.with(|shard| shard.port_views()) {
            let count = u64::from(view.state == PortState::Faulted);
            if count > 0 {
                self.scene.act(tape, 0, "fault", 0);
                tape.fail(crate::check::broken("remains", format!("port fault: {:?}", view.fault)));
            }
            let breaches = view.counters.get("reset_breach_total").copied().unwrap_or(0);
            if breaches > 0 {
                tape.fail(crate::check::broken(
                    "remains",
                    format!("port breach: {:?}", view.fault),
                ));
            }
        }
        for guest in &mut self.guests {
            for key in guest.ends() {
                let Some(conn) = guest.conn(key) else { continue };
                let asking = conn.state == conn::State::Asking;
                tape.put(Event::Still { direction: conn.direction, asking });
            }
            if let Some(port) = &mut guest.port {
                let count = u64::from(!port.is_idle()?);
                tape.put(Event::Remains { stage: self.scene.index, what: "chains kept", count });
            }
        }
        Ok(())
    }

    fn part(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.guests.len() {
            self.leave(at, tape)?;
        }
        for view in self.scene.stage.with(|shard| shard.port_views()) {
            let count = view.counters.get("connections").copied().unwrap_or(0);
            tape.put(Event::Remains { stage: self.scene.index, what: "connections", count });
        }
        for at in 0..self.guests.len() {
            if self.scene.there[at] {
                self.scene.stage.delete(&self.scene.name(at)?)?;
            }
        }
        Ok(())
    }
}
