//! Asks a peer to play, and takes the time.

use std::time::Instant;

use crate::api::{Address, Api, ENDPOINT_ANY};
use crate::args::Measure;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::order::{ORDER, Order, Play};
use crate::play::{Player, keep};
use crate::report::{Report, Row};

/// Parts of a run whose times are held against each other.
pub const PARTS: u32 = 21;
/// Messages that are exchanged first, to know how many a second takes.
const TRIAL: u32 = 200;
/// How long a run takes at about, in seconds, where nothing else is said.
const RUN_S: f64 = 1.0;
/// ... and how many messages at most.
const COUNT_MAX: f64 = 2e6;

/// Measures each length, and shows it.
pub fn run(api: &Api, how: &Measure, play: Play) -> Result<(), Error> {
    let nic = api.nic(&how.peer)?;
    let endpoint = Endpoint::open(api, &how.own, ENDPOINT_ANY)?;
    let peer = endpoint.connect(nic, how.endpoint.into())?;
    let mut report = Report::new(&how.peer, play, how.json);
    for &len in &how.sizes {
        let ask = |count| Order { play, len, count, sync: how.sync, verify: how.verify };
        let trial = TRIAL.min(how.count.unwrap_or(TRIAL));
        let took: f64 = parts(&endpoint, peer, &ask(trial))?.iter().sum();
        let count = how.count.unwrap_or_else(|| {
            (RUN_S / (took / f64::from(trial)).max(1e-9)).clamp(TRIAL.into(), COUNT_MAX) as u32
        });
        let order = ask(count);
        let parts = parts(&endpoint, peer, &order)?;
        report.row(Row::new(&order, &parts))?;
    }
    ask_for(&endpoint, peer, &Order::END)?;
    report.end()
}

/// Sends an order.
fn ask_for(endpoint: &Endpoint<'_>, peer: Address, order: &Order) -> Result<(), Error> {
    let bytes = order.emit().to_vec();
    // SAFETY: the bytes are freed when the request has ended, and kept on an error.
    let sent = unsafe { endpoint.send(peer, ORDER, &bytes, false) };
    let sent = sent.and_then(|sent| endpoint.wait(sent));
    keep(bytes, sent)
}

/// Plays an order, in parts where it has parts: the seconds that each took.
fn parts(endpoint: &Endpoint<'_>, peer: Address, order: &Order) -> Result<Vec<f64>, Error> {
    let player = Player { endpoint, peer, asked: true };
    ask_for(endpoint, peer, order)?;
    let every = match order.play {
        Play::Pingpong => (order.count / PARTS).max(1),
        _ => u32::MAX,
    };
    let (mut parts, mut done) = (Vec::new(), 0);
    let mut since = Instant::now();
    player.play(order, &mut || {
        done += 1;
        if done % every == 0 {
            let now = Instant::now();
            parts.push(now.duration_since(since).as_secs_f64());
            since = now;
        }
    })?;
    if parts.is_empty() {
        parts.push(since.elapsed().as_secs_f64());
    }
    Ok(parts)
}
