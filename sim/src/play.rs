//! The guests of one stage, and all that they do whatever their device: come, go, pause, ring.

use std::fmt;

use causeway_attach::native::{Client, Frontend, NativeError};
use causeway_attach::vhost_user::FrontendReq;
use causeway_model::Name;

use crate::bells::Bells;
use crate::event::{Event, Place};
use crate::rng::Rng;
use crate::stage::{Stage, StageError};
use crate::tape::Tape;

/// What may happen to the guests of a world.
#[derive(Debug, Clone, Copy)]
pub struct Temper {
    /// Guests leave and come back, at any moment.
    pub leaves: bool,
    /// Ports are deleted and added.
    pub deletes: bool,
    /// Guests are paused, and their memory is granted anew.
    pub pauses: bool,
    /// How long a guest may take nothing, in nanoseconds.
    pub away_ns: u64,
    /// Guests send a lot, and take nothing more often.
    pub heavy: bool,
}

/// What every guest has, whatever its device.
#[derive(Debug, Default)]
pub struct Life {
    /// Where its queues stood when it was paused.
    pub paused: Option<Vec<u16>>,
    /// It takes nothing until then.
    pub away_until_ns: u64,
    /// Its doorbells.
    pub bells: Bells,
}

/// The stage of a play, and who is there.
#[derive(Debug)]
pub struct Scene {
    /// Where they play.
    pub stage: Stage,
    /// Its number in the world.
    pub index: u8,
    /// Which of the ports exist.
    pub there: Vec<bool>,
    /// What may happen.
    pub temper: Temper,
    /// What the ports' names begin with.
    letter: char,
}

/// How a guest attaches.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Features asked for.
    pub features: u64,
    /// Features left out.
    pub declined: u64,
    /// Entries of each ring.
    pub ring_size: u16,
    /// Bytes of each receive buffer.
    pub receive_bytes: u32,
    /// Messages of a whole set-up, about: one that is cut ends at one of them.
    pub messages: u64,
}

impl Scene {
    /// A stage with no port yet for any of `ports` guests.
    pub fn new(stage: Stage, index: u8, ports: u8, temper: Temper, letter: char) -> Self {
        Self { stage, index, there: vec![false; ports.into()], temper, letter }
    }

    /// The name of a guest's port.
    ///
    /// # Errors
    /// Never: it is one.
    pub fn name(&self, guest: usize) -> Result<Name, StageError> {
        let text = format!("{}{guest}", self.letter);
        text.parse().map_err(|_| StageError::Host(std::io::Error::other("a name")))
    }

    /// Writes down what a guest does.
    pub fn act(&self, tape: &mut Tape, guest: usize, what: &'static str, value: u64) {
        let at = Place { stage: self.index, guest: u8::try_from(guest).unwrap_or(u8::MAX) };
        tape.put(Event::Act { now_ns: self.stage.now_ns(), at, what, value });
    }

    /// Attaches a guest by `over`, maybe not to the end: then there is none.
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
        let cut = self.temper.leaves && rng.chance(15);
        let patience = cut.then(|| rng.below(entry.messages) as usize);
        self.act(tape, guest, "join", patience.map_or(0, |p| p as u64 + 1));
        self.act(tape, guest, "with features", entry.features);
        self.act(tape, guest, "without features", entry.declined);
        self.act(tape, guest, "ring", u64::from(entry.ring_size));
        self.act(tape, guest, "buffers", u64::from(entry.receive_bytes));
        self.stage.patience(patience);
        let reset = self.temper.leaves && rng.chance(10);
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
/// Everything that fails means that a rule was broken against an honest guest.
pub trait Play: fmt::Debug {
    /// Where they play.
    fn scene(&self) -> &Scene;
    /// Queues of each device.
    fn queues(&self) -> usize;
    /// The device of a guest, if it is attached, and what else it has.
    fn device(&mut self, at: usize) -> (Option<&mut Frontend>, &mut Life);
    /// A guest's port is added.
    ///
    /// # Errors
    /// See the trait.
    fn add(&mut self, at: usize) -> Result<(), StageError>;
    /// A guest attaches with random options, maybe not to the end.
    ///
    /// # Errors
    /// See the trait.
    fn join(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// A guest leaves, or is made to.
    ///
    /// # Errors
    /// See the trait.
    fn disturb(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// A guest sends and receives as it likes.
    ///
    /// # Errors
    /// See the trait.
    fn traffic(&mut self, at: usize, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError>;
    /// A guest does what it is notified of; says whether there was anything.
    ///
    /// # Errors
    /// See the trait.
    fn attend(&mut self, at: usize, tape: &mut Tape) -> Result<bool, StageError>;
    /// Writes down what the backend counted before its guests hear of it.
    fn count(&mut self, _tape: &mut Tape) {}
    /// All is at rest: tells of what is there.
    ///
    /// # Errors
    /// See the trait.
    fn finish(&mut self, tape: &mut Tape) -> Result<(), StageError>;
    /// All leave, and all ports are deleted.
    ///
    /// # Errors
    /// See the trait.
    fn part(&mut self, tape: &mut Tape) -> Result<(), StageError>;

    /// One of them does something.
    ///
    /// # Errors
    /// See the trait.
    fn turn(&mut self, rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
        let at = rng.below(self.scene().there.len() as u64) as usize;
        let temper = self.scene().temper;
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
        } else if temper.leaves && rng.chance(2) {
            self.disturb(at, rng, tape)?;
        } else if temper.pauses && rng.chance(2) {
            self.pause(at, tape)?;
        } else if temper.pauses && rng.chance(2) {
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

    /// A guest's queues are stopped.
    ///
    /// # Errors
    /// See the trait.
    fn pause(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        self.scene().act(tape, at, "pause", 0);
        let queues = self.queues();
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        let bases: Result<Vec<u16>, NativeError> =
            (0..queues).map(|queue| frontend.pause(queue)).collect();
        life.paused = Some(bases?);
        Ok(())
    }

    /// A guest's queues go on where they stopped.
    ///
    /// # Errors
    /// See the trait.
    fn resume(&mut self, at: usize, tape: &mut Tape) -> Result<(), StageError> {
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        let Some(bases) = life.paused.take() else { return Ok(()) };
        for (queue, base) in bases.into_iter().enumerate() {
            frontend.resume(queue, base)?;
        }
        self.scene().act(tape, at, "resume", 0);
        Ok(())
    }

    /// A guest rings; with `rng` some of it comes late.
    ///
    /// # Errors
    /// See the trait.
    fn ring(&mut self, at: usize, rng: Option<&mut Rng>) -> Result<(), StageError> {
        let (now, queues) = (self.scene().stage.now_ns(), self.queues());
        let (Some(frontend), life) = self.device(at) else { return Ok(()) };
        Ok(life.bells.ring(frontend, queues, now, rng)?)
    }

    /// From now on all behave.
    ///
    /// # Errors
    /// See the trait.
    fn settle(&mut self, tape: &mut Tape) -> Result<(), StageError> {
        for at in 0..self.scene().there.len() {
            self.resume(at, tape)?;
            let (_, life) = self.device(at);
            life.bells.wake_all();
            life.away_until_ns = 0;
        }
        Ok(())
    }

    /// All do what they are notified of; says whether there was anything.
    ///
    /// # Errors
    /// See the trait.
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
