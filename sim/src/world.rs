//! A world: one or two stages, or hosts joined by links, with random guests and faults, all from
//! one seed.
//!
//! A world has three phases. First, guests act at random and faults occur (80 to 500 steps). Then
//! all guests behave correctly, and everything in flight must arrive by notifications alone, within
//! 5,000 rounds. Last, all guests leave, and no resource may remain.
//!
//! `causeway-sim` and tests of the crate call [`play`], which runs the world in the caller's thread
//! and returns the first violation, without a panic. One seed in five is a world of hosts
//! ([`crate::lan`]), the others have stages of guests ([`crate::ether`], [`crate::sock`]). Worker
//! threads of the product close descriptors in the background, which the end of a world awaits for
//! up to 5 s. With [`PlayOptions::descriptors`] no other thread of the process may open
//! descriptors.

use std::time::{Duration, Instant};

use causeway_fabric::PollConfig;
use causeway_model::PollPolicy;
use causeway_wire::virtio::{
    VIRTIO_F_EVENT_IDX, VIRTIO_F_INDIRECT_DESC, VIRTIO_F_RING_PACKED, mask,
};

use crate::check::{Violation, broken};
use crate::ether::Cards;
use crate::event::{Event, Place};
use crate::lan;
use crate::play::{Behaviour, Play, Scene};
use crate::rng::{Rng, mix};
use crate::sock::Sockets;
use crate::stage::StageError;
use crate::tape::Tape;

/// Steps of the random phase.
const STEPS: (u64, u64) = (80, 500);
/// Time limit for the worker threads to close descriptors, on a loaded host too.
const CLOSES_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of rounds in which guests behave correctly; each round advances time by
/// [`ROUND_NS`].
const ROUNDS_MAX: usize = 5000;
const ROUND_NS: u64 = 20_000;
/// Deadlines within this time are awaited before a world counts as quiet: credit is requested from
/// a receiver at intervals of up to 100 ms.
const SOON_NS: u64 = 100_000_000;
/// Quiet rounds before time is advanced to such a deadline.
const ROUNDS_BEFORE_SOON: usize = 3;
/// Number of rounds without an event after which the world counts as quiet.
const ROUNDS_QUIET: usize = 60;
/// Choices for the longest time in which a guest takes nothing from its rings.
const AWAY_NS: [u64; 3] = [1_000_000, 300_000_000, 3_000_000_000];
/// Longer than every deadline of the services, in nanoseconds.
const AFTERWARDS_NS: u64 = 1_000_000_000_000;

/// The result of a world.
#[derive(Debug)]
pub struct Outcome {
    /// The hash of all events.
    pub hash: u64,
    /// The number of events.
    pub count: u64,
    /// The events, if [`PlayOptions::keep`] was set.
    pub events: Vec<Event>,
    /// The first violated invariant.
    pub violation: Option<Violation>,
}

/// Draws ring features: the required and the declined ones.
pub fn ring_features(rng: &mut Rng) -> (u64, u64) {
    let packed = if rng.chance(50) { mask(VIRTIO_F_RING_PACKED) } else { 0 };
    let mut declined = 0;
    for bit in [VIRTIO_F_EVENT_IDX, VIRTIO_F_INDIRECT_DESC] {
        if rng.chance(30) {
            declined |= mask(bit);
        }
    }
    (packed, declined)
}

/// Draws the descriptor length a guest cuts its frames to; `None` if its ring has no room for the
/// longest chain.
pub fn pieces(rng: &mut Rng, ring_size: u16, choices: &[Option<u32>]) -> Option<u32> {
    /// The longest descriptor chain that a native port builds.
    const PIECES_MAX: u16 = 64;
    rng.pick(choices).filter(|_| ring_size >= PIECES_MAX)
}

/// Draws the poll mode of a shard.
fn poll_config(rng: &mut Rng) -> PollConfig {
    let policy = rng.pick(&[PollPolicy::Adaptive, PollPolicy::GuestDriven, PollPolicy::VmmDriven]);
    PollConfig {
        policy,
        spin_ns: rng.below(200_000),
        period_ns: 1_000_000,
        ..PollConfig::default()
    }
}

/// Options of a play.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlayOptions {
    /// Write every event to standard output.
    pub print: bool,
    /// Retain the events.
    pub keep: bool,
    /// Count the descriptors of the process; valid only if no other code in the process opens
    /// descriptors.
    pub descriptors: bool,
}

/// Plays the world of `seed`.
pub fn play(seed: u64, options: PlayOptions) -> Outcome {
    let mut tape = Tape::new(options.print, options.keep);
    if let Err(error) = run(seed, options, &mut tape) {
        tape.fail(broken("honest", error.to_string()));
    }
    let (hash, count, events, violation) = tape.close();
    Outcome { hash, count, events, violation }
}

/// Draws the stages of a world.
fn cast(rng: &mut Rng) -> Result<Vec<Box<dyn Play>>, StageError> {
    let heavy = rng.chance(10);
    let behaviour = Behaviour {
        leaves: rng.chance(60),
        deletes: rng.chance(40),
        pauses: rng.chance(50),
        away_ns: if heavy { AWAY_NS[2] } else { rng.pick(&AWAY_NS) },
        heavy,
    };
    let sockets = rng.chance(60);
    let stages = if rng.chance(30) { 2 } else { 1 };
    let mut plays: Vec<Box<dyn Play>> = Vec::new();
    for index in 0..stages {
        let (ports, poll_config) = (rng.within(2, 6) as u8, poll_config(rng));
        plays.push(if sockets {
            Box::new(Sockets::new(index, ports, poll_config, behaviour)?)
        } else {
            Box::new(Cards::new(index, ports, poll_config, behaviour, rng)?)
        });
    }
    Ok(plays)
}

/// Returns the change in the number of open descriptors since `before`, after the worker threads
/// have closed their deferred descriptors.
pub(crate) fn left_open(before: u64) -> Result<u64, StageError> {
    let since = Instant::now();
    loop {
        let count = descriptors()?.abs_diff(before);
        if count == 0 || since.elapsed() > CLOSES_WITHIN {
            return Ok(count);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the number of open descriptors of this process.
pub(crate) fn descriptors() -> Result<u64, StageError> {
    static FIRST: std::sync::Once = std::sync::Once::new();
    FIRST.call_once(|| {
        // The first mapping of a process opens the file that replaces lost memory, and this file
        // stays open.
        if let Ok(file) = causeway_memory::create("first", 4096) {
            drop(causeway_memory::Mapping::new(std::os::fd::AsFd::as_fd(&file), 0, 4096));
        }
    });
    Ok(std::fs::read_dir("/proc/self/fd")?.count() as u64)
}

/// Returns true if the world of this seed has hosts joined by links: one in five has.
pub fn has_hosts(seed: u64) -> bool {
    mix(seed ^ 0x686f_7374).is_multiple_of(5)
}

/// Plays the world of a seed.
fn run(seed: u64, options: PlayOptions, tape: &mut Tape) -> Result<(), StageError> {
    let before = if options.descriptors { descriptors()? } else { 0 };
    let mut rng = Rng::new(seed);
    if has_hosts(seed) {
        lan::run(&mut rng, tape)?
    } else {
        stages(&mut rng, tape)?
    }
    if options.descriptors && !tape.is_broken() {
        let count = left_open(before)?;
        tape.put(Event::Remains { stage: 0, what: "descriptors", count });
    }
    Ok(())
}

/// Plays a world of one or two stages that do not communicate.
fn stages(rng: &mut Rng, tape: &mut Tape) -> Result<(), StageError> {
    let mut plays = cast(rng)?;
    // A heavy world needs more steps until queues and buffers are full.
    let more = if plays.iter().any(|play| play.scene().behaviour.heavy) { 2 } else { 1 };
    for _ in 0..rng.within(STEPS.0, STEPS.1) * more {
        for play in &mut plays {
            play.turn(rng, tape)?;
            elapse(play.as_ref(), rng)?;
        }
        if tape.is_broken() {
            return Ok(());
        }
    }
    for play in &mut plays {
        rest(play.as_mut(), tape)?;
        play.finish(tape)?;
        play.part(tape)?;
        afterwards(play.as_ref(), tape)?;
    }
    Ok(())
}

/// Advances time, and lets the shard work for a random number of turns, possibly none.
fn elapse(play: &dyn Play, rng: &mut Rng) -> Result<(), StageError> {
    let stage = &play.scene().stage;
    match rng.below(100) {
        0..40 => {}
        40..43 => {
            stage.step_elsewhere(rng.within(1, 4) as usize)?;
        }
        _ => {
            stage.step(rng.within(1, 4) as usize)?;
        }
    }
    let soon = rng.below(200_000);
    stage.advance(match rng.below(1000) {
        0..5 => rng.below(400_000_000),
        5..20 => match stage.deadline_ns() {
            Some(at) => at.saturating_sub(stage.now_ns()).min(2_000_000_000),
            None => soon,
        },
        _ => soon,
    });
    Ok(())
}

/// Lets all guests behave correctly until the world is quiet.
fn rest(play: &mut dyn Play, tape: &mut Tape) -> Result<(), StageError> {
    play.settle(tape)?;
    let mut quiet = 0;
    for _ in 0..ROUNDS_MAX {
        let worked = play.behave(tape)?;
        let busy = play.scene().stage.step(64)?;
        play.scene().stage.advance(ROUND_NS);
        quiet = if worked || busy { 0 } else { quiet + 1 };
        let stage = &play.scene().stage;
        let soon = stage.deadline_ns().and_then(|at| at.checked_sub(stage.now_ns()));
        if let Some(ns) = soon.filter(|ns| (1..=SOON_NS).contains(ns))
            && !tape.is_broken()
            && quiet > ROUNDS_BEFORE_SOON
        {
            stage.advance(ns);
            quiet = 0;
        }
        if tape.is_broken() || quiet > ROUNDS_QUIET {
            return Ok(());
        }
    }
    tape.fail(broken("remains", "the world did not become quiet after guests behaved correctly"));
    Ok(())
}

/// Checks that no resource remains after all guests have left.
fn afterwards(play: &dyn Play, tape: &mut Tape) -> Result<(), StageError> {
    let Scene { stage, index, .. } = play.scene();
    for _ in 0..4 {
        stage.advance(AFTERWARDS_NS);
        stage.step(64)?;
    }
    let ports = stage.with(|shard| shard.port_views().len() as u64);
    let busy = u64::from(stage.step(64)?);
    let deadlines = u64::from(stage.deadline_ns().is_some());
    for (what, count) in [("ports", ports), ("work", busy), ("deadlines", deadlines)] {
        tape.put(Event::Remains { stage: *index, what, count });
    }
    let at = Place { stage: *index, guest: 0 };
    tape.put(Event::Act { now_ns: stage.now_ns(), at, what: "end", value: 0 });
    Ok(())
}
