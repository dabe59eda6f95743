//! Exchanges of the demo and the tests, run by guests: pings, ping-pongs, streams, half-closes and
//! messages.
//!
//! Tests, the demo and [`crate::rdma`] call these functions; each runs `causeway-guest`, or `ping`,
//! in a guest and parses its output. The agent serves TCP and AF_VSOCK in every guest. The receiver
//! of a stream compares its content, the client that of the other exchanges; pings are only
//! counted. A ping-pong or stream ends after its time limit with the figures so far. Commands are
//! killed 40 s after that limit, half-closes and messages 40 s after their start
//! (`CAUSEWAY_PATIENCE` multiplies the time until the kill). An exchange that fails, and changed
//! content, are [`crate::Error::Traffic`]; a guest that ends or does not answer is
//! [`crate::Error::Guest`]. Each function waits in the thread of the caller, and repeats nothing.

use crate::error::{Error, Result};
use crate::guest::Guest;
use causeway_guest_tool::report::{HalfClose, Messages, PingPong, Stream};
use causeway_guest_tool::transport::Target;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time beyond an exchange's own limit before the command is killed.
const SLACK: Duration = Duration::from_secs(40);

/// Result of a series of pings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Fastest reply, in microseconds.
    pub min_us: f64,
    /// Average reply, in microseconds.
    pub avg_us: f64,
    /// Slowest reply, in microseconds.
    pub max_us: f64,
}

/// Pings `address` up to `count` times, each after the answer to the last, for at most 5 s and 1 s
/// for each 20 pings.
///
/// # Errors
/// When the guest fails or ping's output cannot be parsed. Lost replies are reported, not an error.
pub fn ping(guest: &Guest, address: &str, count: u32) -> Result<Ping> {
    let count_text = count.to_string();
    let seconds = (count / 20 + 5).to_string();
    let argv = ["ping", "-A", "-q", "-c", &count_text, "-w", &seconds, address];
    let ran = guest.run(&argv, SLACK + Duration::from_secs(u64::from(count / 20)))?;
    parse_ping(&ran.stdout).ok_or_else(|| Error::Traffic {
        what: format!(
            "guest {}: ping {address} said '{} {}'",
            guest.name(),
            ran.stdout,
            ran.stderr
        ),
    })
}

fn parse_ping(text: &str) -> Option<Ping> {
    let counts = text.lines().find(|l| l.contains("packets transmitted"))?;
    let mut numbers = counts.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    let (sent, received) = (numbers.next()?, numbers.next()?);
    let mut times = [0.0; 3];
    if let Some((_, values)) =
        text.lines().find(|l| l.contains("min/avg/max")).and_then(|l| l.split_once(" = "))
    {
        for (time, value) in times.iter_mut().zip(values.trim_end_matches(" ms").split('/')) {
            *time = value.trim().parse::<f64>().ok()? * 1000.0;
        }
    }
    Some(Ping { sent, received, min_us: times[0], avg_us: times[1], max_us: times[2] })
}

/// Ping-pong from a guest; see [`causeway_guest_tool::client::ping_pong`].
///
/// # Errors
/// When the exchange fails or a byte comes back changed.
pub fn ping_pong(
    guest: &Guest,
    target: &Target,
    bytes: usize,
    rounds: usize,
    limit: Duration,
) -> Result<PingPong> {
    let (bytes, rounds) = (bytes.to_string(), rounds.to_string());
    let limit_ms = limit.as_millis().to_string();
    let target = target.to_string();
    guest.run_json(
        &["causeway-guest", "ping-pong", &target, &bytes, &rounds, &limit_ms],
        limit + SLACK,
    )
}

/// A one-way stream from a guest; see [`causeway_guest_tool::client::stream`].
///
/// # Errors
/// When the exchange fails or a byte arrives changed.
pub fn stream(
    guest: &Guest,
    target: &Target,
    write_bytes: usize,
    max_bytes: u64,
    limit: Duration,
) -> Result<Stream> {
    let (write, max) = (write_bytes.to_string(), max_bytes.to_string());
    let limit_ms = limit.as_millis().to_string();
    let target = target.to_string();
    guest.run_json(&["causeway-guest", "stream", &target, &write, &max, &limit_ms], limit + SLACK)
}

/// A reply after a half-close; see [`causeway_guest_tool::client::half_close`].
///
/// # Errors
/// When the exchange fails or a byte arrives changed.
pub fn half_close(guest: &Guest, target: &Target, bytes: u64) -> Result<HalfClose> {
    let (target, bytes) = (target.to_string(), bytes.to_string());
    guest.run_json(&["causeway-guest", "half-close", &target, &bytes], SLACK)
}

/// Messages there and back; see [`causeway_guest_tool::client::messages`].
///
/// # Errors
/// When the exchange fails or a message is cut, joined or changed.
pub fn messages(guest: &Guest, target: &Target, sizes: &[usize]) -> Result<Messages> {
    let target = target.to_string();
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let mut argv = vec!["causeway-guest", "messages", &target];
    argv.extend(sizes.iter().map(String::as_str));
    guest.run_json(&argv, SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_parses_the_output_of_ping() {
        let text = "PING 10.0.0.2 (10.0.0.2): 56 data bytes\n\n--- 10.0.0.2 ping statistics ---\n\
                    20 packets transmitted, 19 packets received, 5% packet loss\n\
                    round-trip min/avg/max = 0.174/0.220/0.418 ms\n";
        let ping = parse_ping(text).unwrap();
        assert_eq!((ping.sent, ping.received), (20, 19));
        assert!((ping.avg_us - 220.0).abs() < 1e-6 && (ping.max_us - 418.0).abs() < 1e-6);
        let lost = parse_ping("3 packets transmitted, 0 packets received, 100% packet loss\n");
        assert_eq!(lost.map(|p| p.received), Some(0));
        assert_eq!(parse_ping("ping: bad address"), None);
    }
}
