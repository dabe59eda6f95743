//! Rows of the guests' table: Ethernet pings, TCP and AF_VSOCK, each exchange over Causeway and
//! over the bridge. An error is printed at once and kept in its row; the other rows continue.
//!
//! AF_VSOCK ping-pongs and streams between guests are compared with TCP over the bridge. AF_VSOCK
//! messages, half-closes and exchanges with the host have no figure of the bridge; without a bridge
//! no row has. MX messages are measured by `super::messages`.
//!
//! `super` calls [`all`] once the guests of the scene are up, in the main thread; the programs run
//! in the guests, by their agents, or in this process for rows from the host. Ping-pongs and
//! streams have the time limit of `--seconds` (2 s) beside a limit of rounds or bytes; pings,
//! messages and half-closes have a fixed number or length, and `ping` stops after 15 s. In a guest,
//! the program of a ping-pong or stream is killed 40 s after its time limit, that of messages or a
//! half-close 40 s and `ping` 50 s after the start (`CAUSEWAY_PATIENCE` multiplies the times until
//! the kill). The content that arrives is compared, except that of pings; a lost ping fails its
//! row.

use crate::scene::{Scene, bridge_ip};
use crate::step;
use crate::table::{Row, Unit};
use causeway_guest_tool::client;
use causeway_guest_tool::limits::MESSAGE_PORT;
use causeway_guest_tool::transport::Target;
use causeway_vm::{Error, Guest, Result, traffic};
use std::time::Duration;

/// Write sizes of the AF_VSOCK rows, in bytes.
const SIZES: [usize; 4] = [64, 4 << 10, 64 << 10, 1 << 20];
/// Maximum rounds of a ping-pong.
const ROUNDS: usize = 2000;
/// Maximum bytes of a stream, beside the time limit.
const STREAM_BYTES: u64 = 16 << 30;
/// Pings of the Ethernet row.
const PINGS: u32 = 200;
/// Bytes that must arrive over AF_VSOCK after a half-close.
const HALF_CLOSE_BYTES: u64 = 1 << 20;
/// Sizes of the AF_VSOCK messages (SEQPACKET), in bytes.
const MESSAGES: [usize; 8] = [1, 64, 3733, 4096, 10_000, 65_535, 65_536, 100_000];

/// Measures every row.
pub fn all(scene: &mut Scene, limit: Duration) -> Vec<Row> {
    let mut rows =
        vec![ethernet_ping(scene), tcp_ping_pong(scene, limit), tcp_stream(scene, limit)];
    for bytes in SIZES {
        rows.push(vsock_ping_pong(scene, bytes, limit));
    }
    for bytes in SIZES {
        rows.push(vsock_stream(scene, bytes, limit));
    }
    rows.extend([messages(scene), half_close(scene)]);
    rows.extend(with_host(scene, limit));
    rows
}

fn row(
    name: &str,
    unit: Unit,
    causeway: impl FnOnce() -> Result<f64>,
    bridge: Option<impl FnOnce() -> Result<f64>>,
) -> Row {
    step(name);
    let row = Row::new(name, unit, causeway(), bridge.map(|b| b()));
    for error in &row.errors {
        step(&format!("  FAILED: {error}"));
    }
    row
}

/// Returns a row without a bridge column.
fn alone(name: &str, unit: Unit, causeway: impl FnOnce() -> Result<f64>) -> Row {
    row(name, unit, causeway, None::<fn() -> Result<f64>>)
}

fn ethernet_ping(scene: &Scene) -> Row {
    let ping = |address: String| {
        let ping = traffic::ping(&scene.guests[0], &address, PINGS)?;
        if ping.received != ping.sent {
            let what = format!("{} of {} pings to {address} answered", ping.received, ping.sent);
            return Err(Error::Traffic { what });
        }
        Ok(ping.avg_us)
    };
    let bridge = scene.bridge.is_ok().then_some(|| ping(bridge_ip(1)));
    row("Ethernet ping, 56 B", Unit::Micros, || ping(scene.members[1].ip()), bridge)
}

fn ping_pong(guest: &Guest, target: &Target, bytes: usize, limit: Duration) -> Result<f64> {
    let report = traffic::ping_pong(guest, target, bytes, ROUNDS, limit)?;
    Ok(report.median_ns as f64 / 1e3)
}

fn stream(guest: &Guest, target: &Target, bytes: usize, limit: Duration) -> Result<f64> {
    Ok(traffic::stream(guest, target, bytes, STREAM_BYTES, limit)?.bytes_per_second() / 1e6)
}

fn tcp_ping_pong(scene: &Scene, limit: Duration) -> Row {
    let guest = &scene.guests[0];
    let bridge = scene.bridge_tcp().map(|t| move || ping_pong(guest, &t, 64, limit));
    let ours = || ping_pong(guest, &scene.tcp(), 64, limit);
    row("TCP ping-pong, 64 B", Unit::Micros, ours, bridge)
}

fn tcp_stream(scene: &Scene, limit: Duration) -> Row {
    let guest = &scene.guests[0];
    let bridge = scene.bridge_tcp().map(|t| move || stream(guest, &t, 64 << 10, limit));
    let ours = || stream(guest, &scene.tcp(), 64 << 10, limit);
    row("TCP throughput, 64 KiB writes", Unit::MegabytesPerSecond, ours, bridge)
}

fn vsock_ping_pong(scene: &Scene, bytes: usize, limit: Duration) -> Row {
    let guest = &scene.guests[0];
    let bridge = scene.bridge_tcp().map(|t| move || ping_pong(guest, &t, bytes, limit));
    let ours = || ping_pong(guest, &scene.vsock(), bytes, limit);
    row(&format!("AF_VSOCK ping-pong, {}", size(bytes)), Unit::Micros, ours, bridge)
}

fn vsock_stream(scene: &Scene, bytes: usize, limit: Duration) -> Row {
    let guest = &scene.guests[0];
    let bridge = scene.bridge_tcp().map(|t| move || stream(guest, &t, bytes, limit));
    let ours = || stream(guest, &scene.vsock(), bytes, limit);
    let name = format!("AF_VSOCK stream, {} writes", size(bytes));
    row(&name, Unit::MegabytesPerSecond, ours, bridge)
}

fn messages(scene: &Scene) -> Row {
    let target = Target::SeqPacket(scene.members[1].cid, MESSAGE_PORT);
    alone("AF_VSOCK messages (SEQPACKET)", Unit::Count, || {
        Ok(traffic::messages(&scene.guests[0], &target, &MESSAGES)?.count as f64)
    })
}

fn half_close(scene: &Scene) -> Row {
    alone("AF_VSOCK 1 MiB after half-close", Unit::Count, || {
        let done = traffic::half_close(&scene.guests[0], &scene.vsock(), HALF_CLOSE_BYTES)?;
        Ok(done.bytes as f64)
    })
}

fn with_host(scene: &Scene, limit: Duration) -> [Row; 4] {
    let guest = &scene.guests[0];
    let from_host = scene.host_to_guest();
    let failed = |e: std::io::Error| Error::Traffic { what: format!("host: {e}") };
    [
        alone("AF_VSOCK ping-pong, host to guest, 64 B", Unit::Micros, || {
            let report = client::ping_pong(&from_host, 64, ROUNDS, limit).map_err(failed)?;
            Ok(report.median_ns as f64 / 1e3)
        }),
        alone("AF_VSOCK stream, host to guest, 64 KiB writes", Unit::MegabytesPerSecond, || {
            let report = client::stream(&from_host, 64 << 10, STREAM_BYTES, limit);
            Ok(report.map_err(failed)?.bytes_per_second() / 1e6)
        }),
        alone("AF_VSOCK ping-pong, guest to host, 64 B", Unit::Micros, || {
            ping_pong(guest, &Scene::guest_to_host(), 64, limit)
        }),
        alone("AF_VSOCK stream, guest to host, 64 KiB writes", Unit::MegabytesPerSecond, || {
            stream(guest, &Scene::guest_to_host(), 64 << 10, limit)
        }),
    ]
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
