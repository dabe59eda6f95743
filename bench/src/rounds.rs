//! Rounds of a row: ours and each peer, and the floor before each of them and after the last.
//!
//! On shared machines the two cores come to lie near each other or far apart, many times a
//! minute, and everything between them takes up to five times as long when they are far. So
//! ours and the peers are compared within a round, not across rounds; a figure during which the floor
//! moved is taken again at once, and a round whose floor moved nevertheless is thrown away and made
//! again; and each figure is begun, as far as patience goes, when the cores are near.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::effort::Effort;
use crate::floor;
use crate::row::Measure;
use crate::stats::Spread;

/// Floors that differ by more than this factor are two different machines.
const DRIFT: f64 = 1.4;
/// Cores are near while the floor is within this factor of the best one of this run.
const NEAR: f64 = 1.6;
/// How often, and how long apart, the floor is looked at before a round for the cores to be near.
const LOOKS: usize = 12;
/// How often it is measured for each look.
const LOOKS_AT_ONCE: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between cores that share a cache a line takes less than this: what a row waits for longer whose
/// aim is of such cores.
const NEAR_US: f64 = 0.1;
/// In a row, for each of its rounds.
const LOOKS_FOR_NEAR: usize = 120;
/// How often a figure is taken until the floor is the same before and after it.
const TRIES: usize = 4;

/// What a row asks of its rounds.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The floor may not move within one.
    pub steady: bool,
    /// Its aim is of cores that share a cache.
    pub near: bool,
}

/// What rounds came to.
#[derive(Debug, Default)]
pub struct Rounds {
    ours: Vec<f64>,
    floors: Vec<f64>,
    peers: BTreeMap<String, Vec<f64>>,
    ratios: BTreeMap<String, Vec<f64>>,
    /// Peers without a figure, and why.
    pub left_out: BTreeMap<String, String>,
    /// Rounds that were thrown away.
    pub discarded: usize,
    /// Rounds that count although the floor moved in them: patience was at its end.
    pub unsteady: usize,
}

/// The figures of one round.
struct Round {
    ours: f64,
    peers: Vec<(&'static str, f64)>,
    /// Before each figure, and after it.
    floors: Vec<f64>,
}

/// A figure, taken again while the floor moves; the floors before and after it are put with `floors`.
fn figure(
    effort: &Effort,
    asked: Asked,
    measure: &Measure,
    eye: &mut Eye,
    floors: &mut Vec<f64>,
) -> Result<f64, String> {
    let once = Effort { runs: 1, ..*effort };
    let mut tries = if effort.quick || !asked.steady { 1 } else { TRIES };
    loop {
        tries -= 1;
        if asked.near && !effort.quick {
            eye.await_near();
        }
        let before = eye.near(effort);
        let value = single(measure(&once)?);
        let after = (eye.measure)();
        eye.best = eye.best.min(after);
        if tries == 0 || !moved(asked, &[before, after]) {
            floors.extend([before, after]);
            return Ok(value);
        }
    }
}

impl Rounds {
    /// Makes as many rounds as the effort says. `better` gives the ratio of ours to a peer's figure,
    /// above 1 where ours is better.
    ///
    /// # Errors
    /// Ours cannot be measured.
    pub fn make(
        effort: &Effort,
        asked: Asked,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        better: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, String> {
        Self::beside(floor_us, effort, asked, ours, peers, better)
    }

    /// As [`Self::make`], with another measurement of the floor.
    fn beside(
        measure: Floor,
        effort: &Effort,
        asked: Asked,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        better: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, String> {
        let mut rounds = Self::default();
        let mut patience = if effort.quick || !asked.steady { 0 } else { effort.runs };
        let mut eye = Eye { best: measure(), looks: LOOKS_FOR_NEAR * effort.runs, measure };
        while rounds.ours.len() < effort.runs {
            let round = rounds.one(effort, asked, ours, peers, &mut eye)?;
            let moved = asked.steady && moved(asked, &round.floors);
            if moved && patience > 0 {
                let all: Vec<_> = round.floors.iter().map(|us| format!("{us:.3}")).collect();
                eprintln!("  the floor moved ({} us): once more", all.join(", "));
                patience -= 1;
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
        asked: Asked,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        eye: &mut Eye,
    ) -> Result<Round, String> {
        let mut floors = Vec::new();
        let ours = figure(effort, asked, ours, eye, &mut floors)?;
        let mut figures = Vec::new();
        for (name, measure) in peers {
            if self.left_out.contains_key(*name) {
                continue;
            }
            match figure(effort, asked, measure, eye, &mut floors) {
                Ok(value) => figures.push((*name, value)),
                Err(why) => drop(self.left_out.insert((*name).to_owned(), why)),
            }
        }
        Ok(Round { ours, peers: figures, floors })
    }

    /// Our figures.
    pub fn ours(&self) -> Spread {
        Spread::of(self.ours.clone())
    }

    /// The floors of every round.
    pub fn floors(&self) -> Spread {
        Spread::of(self.floors.clone())
    }

    /// The peers' figures.
    pub fn peers(&self) -> BTreeMap<String, Spread> {
        spreads(&self.peers)
    }

    /// Ours against each peer's, of each round.
    pub fn ratios(&self) -> BTreeMap<String, Spread> {
        spreads(&self.ratios)
    }
}

fn spreads(figures: &BTreeMap<String, Vec<f64>>) -> BTreeMap<String, Spread> {
    figures.iter().map(|(name, values)| (name.clone(), Spread::of(values.clone()))).collect()
}

/// Whether the machine became another one meanwhile. Where near cores are asked for, near is near.
fn moved(asked: Asked, floors: &[f64]) -> bool {
    let of = |pick: fn(f64, f64) -> f64| floors.iter().copied().reduce(pick).unwrap_or(1.0);
    let (least, most) = (of(f64::min), of(f64::max));
    most / least > DRIFT && !(asked.near && most <= NEAR_US)
}

/// Measures the floor, in microseconds.
type Floor = fn() -> f64;

fn single(values: Vec<f64>) -> f64 {
    Spread::of(values).median
}

/// The floor as it is now: the best of some, as whatever disturbs one makes it longer.
fn floor_us() -> f64 {
    (0..LOOKS_AT_ONCE).map(|_| floor::cache_line_us()).fold(f64::INFINITY, f64::min)
}

/// The floor, once it is what is looked for or so many looks were in vain.
fn look(looks: usize, measure: Floor, mut is_it: impl FnMut(f64) -> bool) -> f64 {
    let mut now = measure();
    for _ in 0..looks {
        if is_it(now) {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
        now = measure();
    }
    now
}

/// What looks whether the cores are near.
struct Eye {
    /// The best floor so far.
    best: f64,
    /// How often it may yet look, in this row, for cores that share a cache.
    looks: usize,
    measure: Floor,
}

impl Eye {
    /// The floor, once the cores are near or patience is at its end.
    fn near(&mut self, effort: &Effort) -> f64 {
        look(LOOKS, self.measure, |now| {
            self.best = self.best.min(now);
            effort.quick || now <= self.best * NEAR
        })
    }

    /// Waits until the cores share a cache, as far as patience goes.
    fn await_near(&mut self) {
        let mut vain = 0;
        let now = look(self.looks, self.measure, |now| {
            if now > NEAR_US && vain == 0 {
                eprintln!("  the cores are far apart: waiting until they are near");
            }
            vain += usize::from(now > NEAR_US);
            now <= NEAR_US
        });
        self.looks = self.looks.saturating_sub(vain);
        self.best = self.best.min(now);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_floor_that_moves_is_noticed_whichever_way() {
        let moves = [
            [0.14, 0.14, 0.14],
            [0.14, 0.19, 0.14],
            [0.14, 0.14, 0.2],
            [0.2, 0.14, 0.14],
            [0.14, 0.2, 0.14],
        ];
        let of = |near| moves.map(|floors| moved(Asked { steady: true, near }, &floors));
        assert_eq!(of(false), [false, false, true, true, true]);
        assert_eq!(of(true), of(false), "these are far");
        let asked = Asked { steady: true, near: true };
        assert!(!moved(asked, &[0.03, 0.06, 0.03]) && moved(asked, &[0.06, 0.2, 0.06]));
    }

    #[test]
    fn ours_and_a_peer_are_compared_within_each_round() {
        // A machine that becomes three times as slow halfway: the ratio stays what it is.
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
        let asked = Asked { steady: true, near: true };
        let rounds =
            Rounds::beside(|| 0.05, &effort, asked, &ours, &peers, |ours, peer| ours / peer);
        let rounds = rounds.unwrap();
        let ratio = rounds.ratios()["peer"];
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!(rounds.ours().max / rounds.ours().min > 2.0);
        assert_eq!(rounds.left_out["gone"], "it is not installed");
        assert_eq!(rounds.floors.len(), 8, "no floor of the one that is gone");
    }
}
