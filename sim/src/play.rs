//! The guests of one stage and the actions that all device types share: join, leave, pause, resume,
//! ring.
//!
//! [`crate::world`] plays a stage through the trait [`Play`], which [`crate::ether`] and
//! [`crate::sock`] implement, in the thread of the world: [`Play::turn`] is one random action of
//! one random guest; after [`Play::settle`] all guests behave correctly ([`Play::behave`]).
//! [`Behaviour`] states which faults a world has. An error means that an invariant was violated
//! against an honest guest, or that a system call failed; [`crate::world`] records each as the
//! violation of the world. Simulated time passes only between actions.

use std::fmt;

use causeway_attach::native::{Client, Frontend, NativeError};
use causeway_attach::vhost_user::FrontendReq;
use causeway_model::Name;

use crate::doorbells::Doorbells;
use crate::event::{Event, Place};
use crate::rng::Rng;
use crate::stage::{Stage, StageError};
use crate::tape::Tape;

/// The faults and the behaviour that a world allows.
#[derive(Debug, Clone, Copy)]
pub struct Behaviour {
    /// Guests leave and return at any moment, and set-ups are interrupted.
    pub leaves: bool,
    /// Ports of virtio-net stages are deleted and added, if `leaves` is set too. Vsock stages
    /// delete ports whenever `leaves` is set.
    pub deletes: bool,
    /// Guests are paused, and their memory is granted anew.
    pub pauses: bool,
    /// The longest time in which a guest takes nothing from its rings, in nanoseconds.
    pub away_ns: u64,
    /// Guests with vsock devices send more, have larger buffers, and pause their receive side more
    /// often. The random phase is twice as long.
    pub heavy: bool,
}

/// The state of a guest that does not depend on its device type.
#[derive(Debug, Default)]
pub struct Life {
    /// The ring positions of its queues when the guest was paused.
    pub paused: Option<Vec<u16>>,
    /// The guest takes nothing from its rings until this time.
    pub away_until_ns: u64,
    /// The doorbells of the guest.
    pub doorbells: Doorbells,
}

/// A stage with the ports that exist on it.
#[derive(Debug)]
pub struct Scene {
    /// The stage.
    pub stage: Stage,
    /// The number of the stage in the world.
    pub index: u8,
    /// For each guest, whether its port exists.
    pub there: Vec<bool>,
    /// The faults and the behaviour allowed.
    pub behaviour: Behaviour,
    /// The prefix of the ports' names.
    prefix: char,
}

/// Parameters with which a guest attaches.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Required features.
    pub features: u64,
    /// Declined features.
    pub declined: u64,
    /// Entries of each ring.
    pub ring_size: u16,
    /// Bytes of each receive buffer.
    pub receive_bytes: u32,
    /// The approximate number of messages of a complete set-up; an interrupted set-up ends after a
    /// random number of them.
    pub messages: u64,
}

impl Scene {
    /// Creates a scene without a port for any of `ports` guests.
    pub fn new(stage: Stage, index: u8, ports: u8, behaviour: Behaviour, prefix: char) -> Self {
        Self { stage, index, there: vec![false; ports.into()], behaviour, prefix }
    }

    /// Returns the name of a guest's port.
    ///
    /// # Errors
    /// None in practice: the name is valid.
    pub fn name(&self, guest: usize) -> Result<Name, StageError> {
        let text = format!("{}{guest}", self.prefix);
        text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
    }

    /// Records an action of a guest on the tape.
    pub fn act(&self, tape: &mut Tape, guest: usize, what: &'static str, value: u64) {
        let at = Place { stage: self.index, guest: u8::try_from(guest).unwrap_or(u8::MAX) };
        tape.put(Event::Act { now_ns: self.stage.now_ns(), at, what, value });
    }

    /// Attaches a guest by `over`. The set-up may be interrupted; the result is then `None`.
    ///
    /// # Errors
    /// An honest guest was refused.
    pub fn attach<P>(
        &self,
        guest: usize,
        entry: Entry,
        rng: &mut Rng,
        tape: &mut Tape,
        over: impl FnOnce(&Stage, Client) -> Result<P, StageError>,
    ) -> Result<Option<P>, StageError> {
        let cut = self.behaviour.leaves && rng.chance(15);
        let patience = cut.then(|| rng.below(entry.messages) as usize);
        self.act(tape, guest, "join", patience.map_or(0, |p| p as u64 + 1));
        self.act(tape, guest, "with features", entry.features);
        self.act(tape, guest, "without features", entry.declined);
        self.act(tape, guest, "ring", u64::from(entry.ring_size));
        self.act(tape, guest, "buffers", u64::from(entry.receive_bytes));
        self.stage.patience(patience);
        let reset = self.behaviour.leaves && rng.chance(10);
        let attached = self.stage.client(&self.name(guest)?).and_then(|mut client| {
            if reset {
                client.tell(FrontendReq::RESET_DEVICE, &[], &[])?;
            }
            over(&self.stage, client)
        });
        self.stage.patience(None);
        match attached {
            Ok(port) => Ok(Some(port)),
            Err(error) if patience.is_none() => Err(error),
            Err(_) => {
                self.stage.step(4)?;
                Ok(None)
            }
        }
    }
}

/// The guests of one stage.
///
/// An error means that an invariant was violated against an honest guest, or that a system call
/// failed.
pub trait Play: fmt::Debug {
    /// Returns the scene.
    fn scene(&self) -> &Scene;
    /// Returns the number of queues of each device.
    fn queues(&self) -> usize;
    /// Returns the device of a guest, if the guest is attached, and the rest of its state.
    fn device(&mut self, at: usize) -> (Option<&mut Frontend>, &mut Life);
    /// Adds a guest's port.
    ///
    /// # Errors
    /// An invariant was violated.
    fn add(&mut self, at: usize) -> Result<(), StageError>;
    /// Attaches a guest with random options; the set-up may be interrupted.
    ///
    /// # Errors
    /// An invariant was violated.
    fn join(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// Detaches a guest, resets its device, or deletes its port; or does nothing.
    ///
    /// # Errors
    /// An invariant was violated.
    fn disturb(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// Lets a guest send and receive at random.
    ///
    /// # Errors
    /// An invariant was violated.
    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// Lets a guest serve the queues that it was notified of. Returns true if there was work.
    ///
    /// # Errors
    /// An invariant was violated.
    fn attend(&mut self, at: usize, tape: &mut Tape) -> Result<bool, StageError>;
    /// Records the backend's counters before the guests observe their effect.
    fn count(&mut self, _tape: &mut Tape) {}
    /// Records the final state, once the world is quiet.
    ///
    /// # Errors
    /// An invariant was violated.
    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError>;
    /// Detaches all guests and deletes all ports.
    ///
    /// # Errors
    /// An invariant was violated.
    fn part(&mut self, tape: &mut Tape) -> Result<(), StageError>;

    /// Applies one random action to one random guest.
    ///
    /// # Errors
    /// An invariant was violated.
    fn turn(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let at = rng.below(self.scene().there.len() as u64) as usize;
        let behaviour = self.scene().behaviour;
        self.count(tape);
        let there = self.scene().there.get(at).copied().unwrap_or(false);
        let (device, life) = self.device(at);
        let (attached, paused) = (device.is_some(), life.paused.is_some());
        if !there {
            if rng.chance(20) {
                self.scene().act(tape, at, "add", 0);
                self.add(at)?;
            }
        } else if !attached {
            if rng.chance(30) {
                self.join(at, rng, tape)?;
            }
        } else if paused {
            if rng.chance(20) {
                self.resume(at, tape)?;
            }
        } else if behaviour.leaves && rng.chance(2) {
            self.disturb(at, rng, tape)?;
        } else if behaviour.pauses && rng.chance(2) {
            self.pause(at, tape)?;
        } else if behaviour.pauses && rng.chance(2) {
            self.scene().act(tape, at, "grant", 0);
            if let (Some(frontend), _) = self.device(at) {
                frontend.grant_again()?;
            }
        } else {
            self.traffic(at, rng, tape)?;
            self.ring(at, Some(rng))?;
        }
        Ok(())
    }

    /// Stops a guest's queues.
    ///
    /// # Errors
    /// An invariant was violated.
    fn pause(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.scene().act(tape, at, "pause", 0);
        let queues = self.queues();
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        let bases: Result<Vec<u16>, NativeError> =
            (0..queues).map(|queue| frontend.pause(queue)).collect();
        life.paused = Some(bases?);
        Ok(())
    }

    /// Resumes a guest's queues at the positions where they stopped.
    ///
    /// # Errors
    /// An invariant was violated.
    fn resume(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        let Some(bases) = life.paused.take() else { return Ok(()) };
        for (queue, base) in bases.into_iter().enumerate() {
            frontend.resume(queue, base)?;
        }
        self.scene().act(tape, at, "resume", 0);
        Ok(())
    }

    /// Rings a guest's doorbells; with `rng`, some of them late.
    ///
    /// # Errors
    /// An invariant was violated.
    fn ring(&mut self, at: usize, rng: Option<&mut Rng>) -> Result<(), StageError> {
        let (now, queues) = (self.scene().stage.now_ns(), self.queues());
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        Ok(life.doorbells.ring(frontend, queues, now, rng)?)
    }

    /// Ends the random phase: from now on all guests behave correctly.
    ///
    /// # Errors
    /// An invariant was violated.
    fn settle(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.scene().there.len() {
            self.resume(at, tape)?;
            let (_, life) = self.device(at);
            life.doorbells.wake_all();
            life.away_until_ns = 0;
        }
        Ok(())
    }

    /// Lets all guests serve the queues that they were notified of. Returns true if there was work.
    ///
    /// # Errors
    /// An invariant was violated.
    fn behave(&mut self, tape: &mut Tape) -> Result<bool, StageError> {
        let mut worked = false;
        for at in 0..self.scene().there.len() {
            self.count(tape);
            worked |= self.attend(at, tape)?;
            self.ring(at, None)?;
        }
        Ok(worked)
    }
}
