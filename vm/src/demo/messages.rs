//! The second table: MX messages between two processes, on one host and on two hosts, compared with
//! sockets. Hosts are network namespaces connected by a veth pair.
//!
//! `super` calls [`all`], in the main thread. Each place has its own daemon, or two, and servers
//! that run as child processes until the place drops; `causeway-mx` and, for sockets,
//! `causeway-guest` are servers and clients. Before a figure of messages, 100 messages of its
//! length are verified; `causeway-guest` compares all content. A peer of messages without an answer
//! for 20 s fails the row; a figure of sockets has a limit of 0.5 s, which does not end the warm-up
//! of a ping-pong. Without the privilege for namespaces, or another part of them, the rows of two
//! hosts are omitted and no failure.

use crate::step;
use crate::table::{Row, Unit};
use causeway_guest_tool::report::{PingPong, Stream};
use causeway_vm::daemon::{Daemon, MxNic, Setup};
use causeway_vm::process::{self, Process};
use causeway_vm::{Error, Namespace, Result, RunDir, build};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Messages of each length that are verified before the measurement.
const VERIFIED: &str = "100";
/// Time limit of each socket figure; `--seconds` may shorten the limit.
const LIMIT: Duration = Duration::from_millis(500);
/// Maximum rounds of a ping-pong through sockets.
const ROUNDS: &str = "20000";
const STREAM_BYTES: &str = "17179869184";
/// Seconds before an unresponsive peer is given up.
const PATIENCE: &str = "20";
/// MTU of the veth pair: MXoE frames exceed the standard Ethernet MTU.
const MTU: u16 = 9000;

/// Programs of both ends.
struct Programs {
    messages: PathBuf,
    sockets: PathBuf,
}

/// Environment of two processes: the first is the client, the second the server. Fields drop in
/// this order.
struct Place {
    name: &'static str,
    /// The server processes of messages and of sockets.
    _serving: Vec<Process>,
    asks: Daemon,
    _answers: Option<Daemon>,
    /// The hosts' namespaces; empty: both processes run on this host.
    spaces: Vec<Namespace>,
    /// Last byte of the server NIC's MAC.
    peer: u8,
    /// Socket address of the server.
    target: String,
    also: &'static [&'static str],
    _dir: RunDir,
}

/// Starts the processes of a place.
type SetUp = fn(&Programs) -> Result<Place>;

/// Measures every row.
pub fn all(limit: Duration) -> Vec<Row> {
    let limit = limit.min(LIMIT);
    let programs = programs();
    let places: [(&str, SetUp); 3] =
        [("one host", one_host), ("two hosts", two_hosts), ("two hosts, bypass", two_hosts_direct)];
    let mut rows = Vec::new();
    for (name, set_up) in places {
        let place = match &programs {
            Ok(programs) => set_up(programs).map(|place| (programs, place)),
            Err(why) => Err(Error::Traffic { what: why.to_string() }),
        };
        match place {
            Ok((programs, place)) => rows.extend(measured(programs, &place, limit)),
            // As for the bridge: a missing privilege of this machine is not a failure.
            Err(why @ Error::Missing { .. }) if name != "one host" => {
                step(&format!("messages between hosts are not measured: {why}"));
            }
            Err(why) => {
                step(&format!("  FAILED: {why}"));
                rows.push(Row::beside_sockets(&format!("MX, {name}"), Unit::Count, Err(why), None));
            }
        }
    }
    rows
}

fn programs() -> Result<Programs> {
    Ok(Programs { messages: build::message_tool()?, sockets: build::guest_tool()? })
}

fn nic(number: u8, interface: Option<&str>, bypass: bool) -> Setup {
    let (name, group) = (format!("mx{number}"), "blue".into());
    let interface = interface.map(str::to_owned);
    let nic = MxNic { name, group, number, interface, bypass, adapter: None };
    Setup { nics: vec![nic], ..Setup::default() }
}

fn one_host(programs: &Programs) -> Result<Place> {
    step("messages between two processes of this host");
    let (daemon, dir) = (Daemon::with(nic(1, None, false))?, RunDir::new()?);
    let target = format!("unix:{}", dir.join("sockets").display());
    let serving = serve(
        programs,
        |program: &Path| process::tied(program),
        &daemon.nic_socket("mx1"),
        &target,
        &[],
    )?;
    Ok(Place {
        name: "one host",
        _serving: serving,
        asks: daemon,
        _answers: None,
        spaces: Vec::new(),
        peer: 1,
        target,
        also: &[],
        _dir: dir,
    })
}

fn two_hosts(programs: &Programs) -> Result<Place> {
    step("messages between two hosts: network namespaces, connected by a veth pair");
    hosts(programs, "two hosts", false)
}

fn two_hosts_direct(programs: &Programs) -> Result<Place> {
    step("the same in direct mode: the processes use the interface themselves (bypass = true)");
    hosts(programs, "two hosts, bypass", true)
}

fn hosts(programs: &Programs, name: &'static str, bypass: bool) -> Result<Place> {
    let one = Namespace::new()?;
    let two = one.beside()?;
    one.cable(&two, "eth0", MTU)?;
    for (space, address) in [(&one, "10.79.0.1/24"), (&two, "10.79.0.2/24")] {
        space.ip(&format!("addr add {address} dev eth0"))?;
    }
    let daemon = |number: u8, space: &Namespace| {
        Daemon::with(Setup {
            namespace_of: Some(space.holder()),
            ..nic(number, Some("eth0"), bypass)
        })
    };
    let (asks, answers) = (daemon(1, &one)?, daemon(2, &two)?);
    // Without bypass, a client that polls would keep its daemon from the shared processor.
    let also: &[&str] = if bypass { &[] } else { &["--blocking"] };
    let target = "tcp:10.79.0.2:7001".to_owned();
    let socket = answers.nic_socket("mx2");
    let serving = serve(programs, |program: &Path| two.command(program), &socket, &target, also)?;
    let (dir, spaces) = (RunDir::new()?, vec![one, two]);
    Ok(Place {
        name,
        _serving: serving,
        asks,
        _answers: Some(answers),
        spaces,
        peer: 2,
        target,
        also,
        _dir: dir,
    })
}

/// Starts the servers.
fn serve(
    programs: &Programs,
    command: impl Fn(&Path) -> Command,
    nic: &Path,
    target: &str,
    also: &[&str],
) -> Result<Vec<Process>> {
    let mut messages = command(&programs.messages);
    messages.env("CAUSEWAY_MX", nic).arg("serve").args(also);
    messages.stderr(std::process::Stdio::null());
    let mut sockets = command(&programs.sockets);
    sockets.args(["serve", target]);
    Ok(vec![Process::start("causeway-mx", messages)?, Process::start("causeway-guest", sockets)?])
}

impl Place {
    fn command(&self, program: &Path) -> Command {
        match self.spaces.first() {
            Some(space) => space.command(program),
            None => process::tied(program),
        }
    }

    /// Returns a figure of `causeway-mx`, after messages of that length were verified.
    fn messages(&self, programs: &Programs, play: &str, len: &str, of: &[&str]) -> Result<f64> {
        let said = |more: &[&str]| {
            let mut command = self.command(&programs.messages);
            let peer = format!("52:54:00:79:00:{:02x}", self.peer);
            command.env("CAUSEWAY_MX", self.asks.nic_socket("mx1")).args([play, &peer, "--json"]);
            command.args(["--sizes", len, "--patience", PATIENCE]).args(self.also);
            process::output(command.args(more))
        };
        said(&["--count", VERIFIED, "--verify"])?;
        let text = said(&[])?;
        let whole: serde_json::Value = parsed(&text)?;
        let row = whole.get("rows").and_then(|rows| rows.get(0));
        let found = of.iter().fold(row, |value, key| value.and_then(|value| value.get(key)));
        found.and_then(serde_json::Value::as_f64).ok_or_else(|| unreadable(&text))
    }

    /// Returns the report of the socket benchmark.
    fn sockets<T: DeserializeOwned>(&self, programs: &Programs, words: [&str; 4]) -> Result<T> {
        let [play, len, most, limit] = words;
        let mut command = self.command(&programs.sockets);
        parsed(&process::output(command.args([play, &self.target, len, most, limit]))?)
    }
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|_| unreadable(text))
}

fn unreadable(text: &str) -> Error {
    Error::Traffic { what: format!("cannot parse the output '{text}'") }
}

fn measured(programs: &Programs, place: &Place, limit: Duration) -> Vec<Row> {
    let limit = limit.as_millis().to_string();
    let mut rows = Vec::new();
    for (len, name) in [("8", "8 B"), ("1048576", "1 MiB")] {
        let name = format!("MX ping-pong, {}, {name}", place.name);
        step(&name);
        let half = place.messages(programs, "pingpong", len, &["us", "median"]);
        let sockets = place.sockets(programs, ["ping-pong", len, ROUNDS, &limit]);
        let sockets = sockets.map(|report: PingPong| report.median_ns as f64 / 1e3);
        let ours = half.map(|half| 2.0 * half);
        rows.push(Row::beside_sockets(&name, Unit::Micros, ours, Some(sockets)));
    }
    let name = format!("MX stream, {}, 1 MiB", place.name);
    step(&name);
    let ours = place.messages(programs, "stream", "1048576", &["mb_per_s"]);
    let sockets = place.sockets(programs, ["stream", "1048576", STREAM_BYTES, &limit]);
    let sockets = sockets.map(|report: Stream| report.bytes_per_second() / 1e6);
    rows.push(Row::beside_sockets(&name, Unit::MegabytesPerSecond, ours, Some(sockets)));
    for error in rows.iter().flat_map(|row| &row.errors) {
        step(&format!("  FAILED: {error}"));
    }
    rows
}
