//! Many endpoints at a time: pairs of guests that stream short messages, in one thread.
//!
//! `super` measures 20 pairs, or one, on a dispatcher of their own. Each pair has one direction; a
//! message that arrives is counted, and its content is not checked. An observation takes 1 s.

use std::time::{Duration, Instant};

use causeway_wire::mx::{Event, PeerId, Request, Token};

use crate::effort::Effort;
use crate::rig::Rig;

use super::end::End;
use super::{Side, ends};

/// Pairs of guests at a time.
const PAIRS: usize = 20;
/// Requests that a sender writes, and events that a receiver takes, before the next pair.
const BURST: usize = 16;
/// Length of a message, in bytes.
const LEN: usize = 8;
/// Length of an observation.
const OBSERVED: Duration = Duration::from_secs(1);

/// A pair of endpoints: sender, receiver and the number of the receiver at the sender.
struct Pair {
    from: End,
    to: End,
    peer: PeerId,
    received: u64,
}

impl Pair {
    /// Writes and takes a burst. Returns whether there was anything to do.
    fn turn(&mut self) -> Result<bool, String> {
        let (peer, token) = (self.peer, Token::UNREPORTED);
        let request = Request::Eager { peer, token, match_info: 1, data: &[1; LEN] };
        let mut worked = false;
        for _ in 0..BURST {
            if !self.from.try_request(&request)? {
                break;
            }
            worked = true;
        }
        for _ in 0..BURST {
            match self.to.poll(&mut [0; LEN])? {
                Some(Event::Message { .. }) => self.received += 1,
                Some(_) => {}
                None => break,
            }
            worked = true;
        }
        while self.from.poll(&mut [])?.is_some() {}
        Ok(worked)
    }
}

/// Returns the messages that each of `count` pairs received in an observation, for each run.
fn observe(effort: &Effort, count: usize) -> Result<Vec<Vec<u64>>, String> {
    let rig = Rig::new(Duration::from_millis(100));
    let mut pairs = Vec::new();
    for pair in 0..count {
        let first = u8::try_from(2 * pair + 1).map_err(|error| error.to_string())?;
        let ([from, to], [peer, _]) = ends(&rig, Side::Guest, first)?;
        pairs.push(Pair { from, to, peer, received: 0 });
    }
    let mut runs = Vec::new();
    for _ in 0..effort.runs {
        pairs.iter_mut().for_each(|pair| pair.received = 0);
        let (since, observed) = (Instant::now(), effort.time(OBSERVED));
        while since.elapsed() < observed {
            for pair in &mut pairs {
                pair.turn()?;
            }
        }
        runs.push(pairs.iter().map(|pair| pair.received).collect());
    }
    Ok(runs)
}

/// Returns the rate of messages of all of `count` pairs, in millions a second.
pub fn aggregate_mps(effort: &Effort, count: usize) -> Result<Vec<f64>, String> {
    let seconds = effort.time(OBSERVED).as_secs_f64();
    let runs = observe(effort, count)?;
    Ok(runs.iter().map(|run| run.iter().sum::<u64>() as f64 / seconds / 1e6).collect())
}

/// Returns the rate of all pairs, in millions of messages a second.
pub fn all_mps(effort: &Effort) -> Result<Vec<f64>, String> {
    aggregate_mps(effort, PAIRS)
}

/// Returns the messages of the pair with the fewest, as a share of those of the pair with the most.
pub fn fairness(effort: &Effort) -> Result<Vec<f64>, String> {
    let runs = observe(effort, PAIRS)?;
    let share = |run: &Vec<u64>| {
        let (least, most) = (run.iter().min().copied(), run.iter().max().copied());
        least.unwrap_or(0) as f64 / most.unwrap_or(0).max(1) as f64
    };
    Ok(runs.iter().map(share).collect())
}
