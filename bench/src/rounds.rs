//! Rounds of a row: the floor, ours, each peer, the floor again.
//!
//! On shared machines the two cores come to lie near each other or far apart, many times a
//! minute, and everything between them takes up to five times as long when they are far. So
//! ours and the peers are compared within a round, not across rounds; a round whose floor moved is
//! thrown away and made again; and a round begins, as far as patience goes, when the cores are
//! near.

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
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
    floors: [f64; 2],
}

impl Rounds {
    /// Makes as many rounds as the effort says. In `steady` ones the floor may not move. `better` gives the ratio of ours to a peer's
    /// figure, above 1 where ours is better.
    ///
    /// # Errors
    /// Ours cannot be measured.
    pub fn make(
        effort: &Effort,
        steady: bool,
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        better: impl Fn(f64, f64) -> f64,
    ) -> Result<Self, String> {
        let mut rounds = Self::default();
        let mut patience = if effort.quick || !steady { 0 } else { effort.runs };
        let mut best = floor::cache_line_us();
        while rounds.ours.len() < effort.runs {
            let round = rounds.one(effort, ours, peers, &mut best)?;
            let moved = steady && moved(round.floors);
            if moved && patience > 0 {
                let [before, after] = round.floors;
                eprintln!("  the floor moved from {before:.3} to {after:.3} us: once more");
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
        ours: &Measure,
        peers: &[(&'static str, Measure)],
        best: &mut f64,
    ) -> Result<Round, String> {
        let once = Effort { runs: 1, ..*effort };
        let before = near(effort, best);
        let ours = single(ours(&once)?);
        let mut figures = Vec::new();
        for (name, measure) in peers {
            if self.left_out.contains_key(*name) {
                continue;
            }
            match measure(&once) {
                Ok(values) => figures.push((*name, single(values))),
                Err(why) => drop(self.left_out.insert((*name).to_owned(), why)),
            }
        }
        let after = floor::cache_line_us();
        *best = best.min(after);
        Ok(Round { ours, peers: figures, floors: [before, after] })
    }

    /// Our figures.
    pub fn ours(&self) -> Spread {
        Spread::of(self.ours.clone())
    }

    /// The floors before and after every round.
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

/// Whether the machine became another one within a round.
fn moved([before, after]: [f64; 2]) -> bool {
    before.max(after) / before.min(after) > DRIFT
}

fn single(values: Vec<f64>) -> f64 {
    Spread::of(values).median
}

/// The floor, once the cores are near or patience is at its end.
fn near(effort: &Effort, best: &mut f64) -> f64 {
    let mut now = floor::cache_line_us();
    for _ in 0..LOOKS {
        *best = best.min(now);
        if effort.quick || now <= *best * NEAR {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
        now = floor::cache_line_us();
    }
    now
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_floor_that_moves_is_noticed_whichever_way() {
        let moves = [[0.14, 0.14], [0.14, 0.19], [0.14, 0.2], [0.2, 0.14]].map(moved);
        assert_eq!(moves, [false, false, true, true]);
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
        let rounds = Rounds::make(&effort, true, &ours, &peers, |ours, peer| ours / peer).unwrap();
        let ratio = rounds.ratios()["peer"];
        assert_eq!((ratio.min, ratio.max), (2.0, 2.0));
        assert!(rounds.ours().max / rounds.ours().min > 2.0);
        assert_eq!(rounds.left_out["gone"], "it is not installed");
        assert_eq!(rounds.floors.len(), 4);
    }
}
