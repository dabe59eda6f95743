//! Settings and counters of the Ethernet interface, by `ethtool`, with traffic after each change.
//!
//! The matrix and a test call [`all`] with two guests; each step fails if `ethtool` does, if its
//! output lacks a text, or if the TCP streams after a change do. Settings of the second guest alone
//! are changed. Afterwards moderation is adaptive, the offloads are on, and the rings have 2,048
//! and 1,024 entries; a failed step leaves its settings.

use crate::error::{Error, Result};
use crate::rdma::guest::INTERFACE;
use crate::rdma::steps::{LIMIT, Steps};
use crate::rdma::{Pair, RdmaGuest};
use crate::traffic;
use causeway_guest_tool::limits::STREAM_PORT;

use super::STREAM_BYTES;
use super::sockets::target;

/// Path of `ethtool`: the agent searches `/bin` and `/usr/bin` only.
const PROGRAM: &str = "/usr/sbin/ethtool";

/// Runs all options of `ethtool` in the second guest.
pub fn all(steps: &mut Steps) {
    steps.step("ethtool -i", |pair| shows(pair, "-i", &["driver: mlx5_core"]));
    steps.step("ethtool -S", counters);
    steps.step("ethtool -c, -C", coalescing);
    steps.step("ethtool -g, -G", rings);
    steps.step("ethtool -k, -K", features);
    // A guest with one processor has one channel.
    steps.step("ethtool -l", |pair| shows(pair, "-l", &["Combined: 1"]));
}

/// Runs `ethtool` and returns its output with single spaces between the words.
fn ethtool(guest: &RdmaGuest, option: &str, values: &str) -> Result<String> {
    let mut line = vec![PROGRAM, option, INTERFACE];
    line.extend(values.split_whitespace());
    let output = guest.run(&line, LIMIT)?;
    Ok(output.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Checks that an option prints each text.
fn shows(pair: &mut Pair, option: &str, wanted: &[&str]) -> Result<()> {
    let output = ethtool(&pair.guests[1], option, "")?;
    match wanted.iter().find(|want| !output.contains(**want)) {
        None => Ok(()),
        Some(want) => {
            Err(Error::Traffic { what: format!("ethtool {option}: '{want}' not in '{output}'") })
        }
    }
}

/// Streams over TCP in both directions.
fn streams(pair: &Pair) -> Result<()> {
    let [a, b] = &pair.guests;
    for (at, from) in [(a, b), (b, a)] {
        let target = target(&format!("tcp:{}:{STREAM_PORT}", at.ip()))?;
        traffic::stream(from.guest(), &target, 65_536, STREAM_BYTES, LIMIT)?;
    }
    Ok(())
}

/// Compares the counters of the driver before and after a stream.
fn counters(pair: &mut Pair) -> Result<()> {
    let count = |pair: &Pair, name: &str| -> Result<u64> {
        let output = ethtool(&pair.guests[1], "-S", "")?;
        let value = output.split_once(&format!(" {name}: ")).map(|(_, rest)| rest);
        let value = value.and_then(|rest| rest.split(' ').next()?.parse().ok());
        value.ok_or_else(|| Error::Traffic { what: format!("ethtool -S: no {name} in '{output}'") })
    };
    let names = ["rx_bytes", "tx_bytes"];
    let before = names.map(|name| count(pair, name));
    streams(pair)?;
    for (name, before) in names.into_iter().zip(before) {
        let grown = count(pair, name)?.saturating_sub(before?);
        if grown < STREAM_BYTES {
            return Err(Error::Traffic { what: format!("{name} grew by {grown} bytes") });
        }
    }
    Ok(())
}

/// Fixes the moderation of completion events, and lets the driver adapt it again.
fn coalescing(pair: &mut Pair) -> Result<()> {
    // Linux 6.1 sets its own values when it stops to adapt them.
    ethtool(&pair.guests[1], "-C", "adaptive-rx off adaptive-tx off")?;
    ethtool(&pair.guests[1], "-C", "rx-usecs 40 rx-frames 20 tx-usecs 30 tx-frames 10")?;
    shows(pair, "-c", &["rx-usecs: 40", "rx-frames: 20", "tx-usecs: 30", "tx-frames: 10"])?;
    streams(pair)?;
    ethtool(&pair.guests[1], "-C", "adaptive-rx on adaptive-tx on")?;
    streams(pair)
}

/// Makes the rings shorter and longer: the driver creates all queues again.
fn rings(pair: &mut Pair) -> Result<()> {
    let before = ethtool(&pair.guests[1], "-g", "")?;
    for (rx, tx) in [(256, 128), (2048, 1024)] {
        ethtool(&pair.guests[1], "-G", &format!("rx {rx} tx {tx}"))?;
        shows(pair, "-g", &[&format!("RX: {rx}"), &format!("TX: {tx}")])?;
        streams(pair)?;
    }
    match before.contains("RX: ") {
        true => Ok(()),
        false => Err(Error::Traffic { what: format!("ethtool -g: {before}") }),
    }
}

/// Turns the offloads off and on.
fn features(pair: &mut Pair) -> Result<()> {
    let names = ["tx-checksumming", "rx-checksumming", "tcp-segmentation-offload"];
    for state in ["on", "off", "on"] {
        let values = names.map(|name| format!("{name} {state}")).join(" ");
        let short = values.replace("tx-checksumming", "tx").replace("rx-checksumming", "rx");
        ethtool(&pair.guests[1], "-K", &short.replace("tcp-segmentation-offload", "tso"))?;
        let wanted = names.map(|name| format!("{name}: {state}"));
        shows(pair, "-k", &wanted.each_ref().map(String::as_str))?;
        streams(pair)?;
    }
    Ok(())
}
