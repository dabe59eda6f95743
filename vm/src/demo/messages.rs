//! The second table: MX messages between two processes, of one host and of two, and beside them
//! the same through sockets. Hosts are network namespaces with a cable between them.

use crate::step;
use crate::table::{Row, Unit};
use causeway_guest_tool::report::{PingPong, Stream};
use causeway_vm::daemon::{Board, Daemon, Setup};
use causeway_vm::process::{self, Process};
use causeway_vm::{Error, Namespace, Result, RunDir, build};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Messages of each length that are looked at byte by byte, before time is taken.
const VERIFIED: &str = "100";
/// Most time for each figure of sockets; the messages' own take about a second.
const LIMIT: Duration = Duration::from_millis(500);
/// Most rounds of a ping-pong through sockets, and bytes of a stream.
const ROUNDS: &str = "20000";
const STREAM_BYTES: &str = "17179869184";
/// Seconds after which a silent peer is given up.
const PATIENCE: &str = "20";
/// MTU of the cable: frames of MXoE are longer than Ethernet's usual ones.
const MTU: u16 = 9000;

/// The programs that talk.
struct Programs {
    messages: PathBuf,
    sockets: PathBuf,
}

/// Where two processes talk: the first asks, the second answers. Fields drop in this order.
struct Place {
    name: &'static str,
    /// The second process, of messages and of sockets.
    _serving: Vec<Process>,
    asks: Daemon,
    _answers: Option<Daemon>,
    /// The hosts; none: both are here.
    spaces: Vec<Namespace>,
    /// What the boards' MACs end with.
    peer: u8,
    /// Where the second process answers, for sockets.
    target: String,
    also: &'static [&'static str],
    _dir: RunDir,
}

/// Measures every row.
pub fn all(limit: Duration) -> Vec<Row> {
    let limit = limit.min(LIMIT);
    let programs = programs();
    let both = [("one host", one_host as fn(&Programs) -> Result<Place>), ("two hosts", two_hosts)];
    let mut rows = Vec::new();
    for (name, set_up) in both {
        let place = match &programs {
            Ok(programs) => set_up(programs).map(|place| (programs, place)),
            Err(why) => Err(Error::Traffic { what: why.to_string() }),
        };
        match place {
            Ok((programs, place)) => rows.extend(measured(programs, &place, limit)),
            // As with the bridge: what this machine does not allow is not ours to fail.
            Err(why @ Error::Missing { .. }) if name == "two hosts" => {
                step(&format!("no messages between hosts: {why}"));
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

fn board(number: u8, interface: Option<&str>) -> Setup {
    let (name, group) = (format!("mx{number}"), "blue".into());
    let interface = interface.map(str::to_owned);
    Setup { boards: vec![Board { name, group, number, interface }], ..Setup::default() }
}

fn one_host(programs: &Programs) -> Result<Place> {
    step("messages between two processes of this host");
    let (daemon, dir) = (Daemon::with(board(1, None))?, RunDir::new()?);
    let target = format!("unix:{}", dir.join("sockets").display());
    let serving = serve(
        programs,
        |program: &Path| process::tied(program),
        &daemon.board_socket("mx1"),
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
    step("messages between two hosts: network namespaces, with a cable between them");
    let one = Namespace::new()?;
    let two = one.beside()?;
    one.cable(&two, "eth0", MTU)?;
    for (space, address) in [(&one, "10.79.0.1/24"), (&two, "10.79.0.2/24")] {
        space.ip(&format!("addr add {address} dev eth0"))?;
    }
    let daemon = |number: u8, space: &Namespace| {
        Daemon::with(Setup { namespace_of: Some(space.holder()), ..board(number, Some("eth0")) })
    };
    let (asks, answers) = (daemon(1, &one)?, daemon(2, &two)?);
    // Whoever looks again and again would keep its daemon from a processor.
    let (target, also) = ("tcp:10.79.0.2:7001".to_owned(), &["--blocking"][..]);
    let socket = answers.board_socket("mx2");
    let serving = serve(programs, |program: &Path| two.command(program), &socket, &target, also)?;
    let (dir, spaces) = (RunDir::new()?, vec![one, two]);
    Ok(Place {
        name: "two hosts",
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

/// Starts those who answer.
fn serve(
    programs: &Programs,
    command: impl Fn(&Path) -> Command,
    board: &Path,
    target: &str,
    also: &[&str],
) -> Result<Vec<Process>> {
    let mut messages = command(&programs.messages);
    messages.env("CAUSEWAY_MX", board).arg("serve").args(also);
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

    /// One figure of `causeway-mx`, after messages of that length were looked at.
    fn messages(&self, programs: &Programs, play: &str, len: &str, of: &[&str]) -> Result<f64> {
        let said = |more: &[&str]| {
            let mut command = self.command(&programs.messages);
            let peer = format!("52:54:00:79:00:{:02x}", self.peer);
            command.env("CAUSEWAY_MX", self.asks.board_socket("mx1")).args([play, &peer, "--json"]);
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

    /// What the tool for sockets reports.
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
    Error::Traffic { what: format!("nobody can read '{text}'") }
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
