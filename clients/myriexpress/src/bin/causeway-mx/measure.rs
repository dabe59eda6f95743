//! Measurements with a peer: the commands `pingpong` and `stream`.
//!
//! For each length the tool sends a request to a peer that runs `serve`, exchanges the messages
//! (`traffic`), and prints a row (`report`). A trial of at most 200 messages comes first; without
//! `--count` it estimates a number that takes about one second, at least 200 and at most 2 million.
//! A ping-pong is timed in 21 to 41 parts ([`BenchRequest::part`]), or one for each of fewer
//! messages, a stream as a whole. Warm-up is not excluded beyond the trial, and other load of the
//! host is not detected. The first error ends the command, with the rows printed before (none in
//! JSON); the peer gives up this side after its own patience. `main` calls [`run`], in the only thread.

use std::time::Instant;

use crate::api::{Api, ENDPOINT_ANY, MxAddress};
use crate::args::MeasureArgs;
use crate::bench_request::{BenchRequest, MessagePattern, REQUEST};
use crate::endpoint::BenchEndpoint;
use crate::error::Error;
use crate::report::{MeasureReport, Row};
use crate::traffic::{BenchSide, keep};

/// Number of messages of the trial that estimates the rate.
const TRIAL: u32 = 200;
/// Approximate duration of a measurement in seconds.
const RUN_S: f64 = 1.0;
/// Maximum number of messages of a measurement.
const COUNT_MAX: f64 = 2e6;

/// Measures each length and prints the results.
pub fn run(api: &Api, how: &MeasureArgs, pattern: MessagePattern) -> Result<(), Error> {
    let nic = api.nic(&how.peer)?;
    let endpoint = BenchEndpoint::open(api, &how.own, ENDPOINT_ANY)?;
    let peer = endpoint.connect(nic, how.endpoint.into())?;
    let mut report = MeasureReport::new(&how.peer, pattern, how.json)?;
    for &len in &how.sizes {
        let ask = |count| BenchRequest { pattern, len, count, sync: how.sync, verify: how.verify };
        let trial = TRIAL.min(how.count.unwrap_or(TRIAL));
        let took: f64 = parts(&endpoint, peer, &ask(trial))?.iter().sum();
        let count = how.count.unwrap_or_else(|| {
            (RUN_S / (took / f64::from(trial)).max(1e-9)).clamp(TRIAL.into(), COUNT_MAX) as u32
        });
        let order = ask(count);
        let parts = parts(&endpoint, peer, &order)?;
        report.row(Row::new(&order, &parts))?;
    }
    ask_for(&endpoint, peer, &BenchRequest::END)?;
    report.end()
}

/// Sends a request to the peer.
fn ask_for(
    endpoint: &BenchEndpoint<'_>,
    peer: MxAddress,
    order: &BenchRequest,
) -> Result<(), Error> {
    let bytes = order.emit().to_vec();
    // SAFETY: the bytes are freed after the request has ended, and are leaked on an error.
    let sent = unsafe { endpoint.send(peer, REQUEST, &bytes, false) };
    let sent = sent.and_then(|sent| endpoint.wait(sent));
    keep(bytes, sent)
}

/// Runs a measurement, in parts if it is a ping-pong. Returns the duration of each part in seconds.
fn parts(
    endpoint: &BenchEndpoint<'_>,
    peer: MxAddress,
    order: &BenchRequest,
) -> Result<Vec<f64>, Error> {
    let side = BenchSide { endpoint, peer, asked: true };
    ask_for(endpoint, peer, order)?;
    let every = order.part().unwrap_or(u32::MAX);
    let (mut parts, mut done) = (Vec::new(), 0);
    let mut since = Instant::now();
    side.run(order, &mut || {
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
