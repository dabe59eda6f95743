//! Rounds of a row: Causeway and each peer, with the floor before and after each figure.
//!
//! On shared machines the two cores move near each other or far apart, many times a minute, and
//! communication between them takes longer when they are far. Causeway and the peers are therefore
//! compared within a round, not across rounds. A figure during which the floor moved is measured
//! again at once, at most [`TRIES`] (4) times in all; a round in which the floor moved nevertheless
//! is discarded and repeated; and each figure starts, within limits, when the cores are near.
//!
//! [`crate::row`] makes the rounds of each row, in the main thread. A row repeats at most as many
//! rounds as it has runs: at that limit a round counts although the floor moved in it, which the
//! row records. Short runs, and rows that accept a floor that moves, repeat nothing. A peer that
//! fails is left out of the later rounds, with the reason; a failure of Causeway's side, and a
//! signal, end the row.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effort::Effort;
use crate::floor;
use crate::progress::is_stopped;
use crate::stats::Spread;

/// Floors that differ by more than this factor are of different core placements.
const DRIFT: f64 = 1.4;
/// Cores are near while the floor is within this factor of the best floor of this row.
const NEAR: f64 = 1.6;
/// Samples of the floor before a figure, after the first, until the cores are near.
const SAMPLES: usize = 12;
/// Measurements for each sample.
const MEASUREMENTS_PER_SAMPLE: usize = 3;
/// Pause between two samples.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Cores with a shared cache transfer a line within this time. A row with an aim for such cores
/// waits longer for them.
const NEAR_US: f64 = 0.1;
/// Vain samples in which a row waits for such cores, for each of its runs.
const NEAR_SAMPLES: usize = 120;
/// Most attempts at a figure until the floor is the same before and after it.
const TRIES: usize = 4;

/// Measures one side: a figure for each run, or the reason for their absence.
pub type Measure = Box<dyn Fn(&Effort) -> Result<Vec<f64>, String>>;

/// Requirements of a row.
#[derive(Debug, Clone, Copy)]
pub struct Requirements {
    /// The floor must not move within a round.
    pub steady: bool,
    /// The row's aim is for cores that share a cache.
    pub near: bool,
}

/// Result of the rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    ours: Vec<f64>,
    floors: Vec<f64>,
    peers: BTreeMap<String, Vec<f64>>,
    ratios: BTreeMap<String, Vec<f64>>,
    /// Peers that failed, with the reason; figures of rounds before the failure are kept.
    pub left_out: BTreeMap<String, String>,
    /// Number of discarded rounds.
    pub discarded: usize,
    /// Rounds that count although the floor moved in them: the limit of repetitions was reached.
    pub unsteady: usize,
}

/// The figures of one round.
struct Round {
    ours: f64,
    peers: Vec<(&'static str, f64)>,
    /// The floor before each figure, and after it.
    floors: Vec<f64>,
}

/// Measures a figure, again while the floor moves and tries remain; appends the floors before and
/// after the last try to `floors`.
fn figure(
    effort: &Effort,
    required: Requirements,
    measure: &Measure,
    detector: &mut NearDetector,
    floors: &mut Vec<f64>,
) -> Result<f64, String> {
    let once = Effort { runs: 1, ..*effort };
    let mut tries = if effort.quick || !required.steady { 1 } else { TRIES };
    loop {
        if is_stopped() {
            return Err("the run was interrupted".into());
        }
        tries -= 1;
        if required.near && !effort.quick {
            detector.await_near();
        }
        let before = detector.near(effort);
        let value = single(measure(&once)?);
        let after = (detector.measure)();
        detector.best = detector.best.min(after);
        if tries == 0 || !moved(required, &[before, after]) {
            floors.extend([before, after]);
            return Ok(value);
        }
    }
}

impl Rounds {
    /// Makes the rounds required by the effort, with the floor that `measure` returns. `better` gives
    /// the ratio of Causeway's to a peer's figure, above 1 where Causeway is better.
    ///
    /// # Errors
    /// Causeway cannot be measured, or a signal ended the run.
    pub fn make(
        measure: MeasureFloor,
        effort: &Effort,
        required: Requirements,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        better: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, String> {
        let mut rounds = Self::default();
        let mut repetitions = if effort.quick || !required.steady { 0 } else { effort.runs };
        let mut detector =
            NearDetector { best: measure(), samples: NEAR_SAMPLES * effort.runs, measure };
        while rounds.ours.len() < effort.runs {
            let round = rounds.one(effort, required, ours, peers, &mut detector)?;
            let moved = required.steady && moved(required, &round.floors);
            if moved && repetitions > 0 {
                let all: Vec<_> = round.floors.iter().map(|us| format!("{us:.3}")).collect();
                eprintln!(
                    "  the floor moved during a round ({} us): the round is repeated",
                    all.join(", ")
                );
                repetitions -= 1;
                rounds.discarded += 1;
                continue;
            }
            rounds.unsteady += usize::from(moved);
            for (name, figure) in round.peers {
                rounds.peers.entry(name.to_owned()).or_default().push(figure);
                let ratio = better(round.ours, figure);
                rounds.ratios.entry(name.to_owned()).or_default().push(ratio);
            }
            rounds.ours.push(round.ours);
            rounds.floors.extend(round.floors);
        }
        Ok(rounds)
    }

    fn one(
        &mut self,
        effort: &Effort,
        required: Requirements,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        detector: &mut NearDetector,
    ) -> Result<Round, String> {
        let mut floors = Vec::new();
        let ours = figure(effort, required, ours, detector, &mut floors)?;
        let mut figures = Vec::new();
        for (name, measure) in peers {
            if is_stopped() {
                break;
            }
            if self.left_out.contains_key(*name) {
                continue;
            }
            match figure(effort, required, measure, detector, &mut floors) {
                Ok(value) => figures.push((*name, value)),
                Err(why) => drop(self.left_out.insert((*name).to_owned(), why)),
            }
        }
        Ok(Round { ours, peers: figures, floors })
    }

    /// Returns Causeway's figures.
    pub fn ours(&self) -> Spread {
        Spread::of(self.ours.clone())
    }

    /// Returns the floors of every round that counts.
    pub fn floors(&self) -> Spread {
        Spread::of(self.floors.clone())
    }

    /// Returns the peers' figures.
    pub fn peers(&self) -> BTreeMap<String, Spread> {
        spreads(&self.peers)
    }

    /// Returns the ratios of Causeway to each peer, of each round.
    pub fn ratios(&self) -> BTreeMap<String, Spread> {
        spreads(&self.ratios)
    }
}

fn spreads(figures: &BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Spread> {
    figures.iter().map(|(name, values)| (name.clone(), Spread::of(values.clone()))).collect()
}

/// Returns whether the core placement changed between the floors. Where near cores are required,
/// all near floors are equivalent.
fn moved(required: Requirements, floors: &[f64]) -> bool {
    let of = |pick: fn(f64, f64) -> f64| floors.iter().copied().reduce(pick).unwrap_or(1.0);
    let (least, most) = (of(f64::min), of(f64::max));
    most / least > DRIFT && !(required.near && most <= NEAR_US)
}

/// Measures the floor, in microseconds.
pub type MeasureFloor = fn() -> f64;

fn single(values: Vec<f64>) -> f64 {
    Spread::of(values).median
}

/// Returns the current floor: the minimum of several measurements, because disturbances only
/// lengthen a measurement.
pub fn floor_us() -> f64 {
    (0..MEASUREMENTS_PER_SAMPLE).map(|_| floor::cache_line_us()).fold(f64::INFINITY, f64::min)
}

/// Samples the floor until `is_it` accepts it, at most `samples` times after the first; returns the
/// last sample.
fn sample_floor(samples: usize, measure: MeasureFloor, mut is_it: impl FnMut(f64) -> bool) -> f64 {
    let mut now = measure();
    for _ in 0..samples {
        if is_it(now) {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
        now = measure();
    }
    now
}

/// Detection of near cores.
struct NearDetector {
    /// The best floor of the row so far.
    best: f64,
    /// Remaining samples, in this row, for cores that share a cache.
    samples: usize,
    measure: MeasureFloor,
}

impl NearDetector {
    /// Returns the floor once the cores are near or the samples are used up.
    fn near(&mut self, effort: &Effort) -> f64 {
        sample_floor(SAMPLES, self.measure, |now| {
            self.best = self.best.min(now);
            effort.quick || now <= self.best * NEAR
        })
    }

    /// Waits until the cores share a cache, up to the limit of samples.
    fn await_near(&mut self) {
        let mut vain = 0;
        let now = sample_floor(self.samples, self.measure, |now| {
            if now > NEAR_US && vain == 0 {
                eprintln!("  the cores do not share a cache: waiting until they do");
            }
            vain += usize::from(now > NEAR_US);
            now <= NEAR_US
        });
        self.samples = self.samples.saturating_sub(vain);
        self.best = self.best.min(now);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn rounds_detect_a_floor_that_moves_up_or_down() {
        let moves = [
            [0.14, 0.14, 0.14],
            [0.14, 0.19, 0.14],
            [0.14, 0.14, 0.2],
            [0.2, 0.14, 0.14],
            [0.14, 0.2, 0.14],
        ];
        let of = |near| moves.map(|floors| moved(Requirements { steady: true, near }, &floors));
        assert_eq!(of(false), [false, false, true, true, true]);
        assert_eq!(of(true), of(false), "these are far");
        let required = Requirements { steady: true, near: true };
        assert!(!moved(required, &[0.03, 0.06, 0.03]) && moved(required, &[0.06, 0.2, 0.06]));
    }

    #[test]
    fn ours_and_a_peer_are_compared_within_each_round() {
        // A machine whose speed drops to a third halfway: the ratio does not change.
        let round = Rc::new(Cell::new(0));
        let of = Rc::clone(&round);
        let slow = move || if of.get() > 1 { 3.0 } else { 1.0 };
        let peer_slow = slow.clone();
        let ours: Measure = Box::new(move |_| {
            round.set(round.get() + 1);
            Ok(vec![8.0 / slow()])
        });
        let peer: Measure = Box::new(move |_| Ok(vec![4.0 / peer_slow()]));
        let gone: Measure = Box::new(|_| Err("it is not installed".into()));
        let effort = Effort { runs: 2, quick: true };
        let peers = [("peer", peer), ("gone", gone)];
        let required = Requirements { steady: true, near: true };
        let rounds =
            Rounds::make(|| 0.05, &effort, required, &ours, &peers, |ours, peer| ours / peer);
        let rounds = rounds.unwrap();
        let ratio = rounds.ratios()["peer"];
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!(rounds.ours().max / rounds.ours().min > 2.0);
        assert_eq!(rounds.left_out["gone"], "it is not installed");
        assert_eq!(rounds.floors.len(), 8, "no floor of the one that is gone");
    }
}
