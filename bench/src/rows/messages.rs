//! Messages through the MX API, between processes on two cores and between two hosts, measured by
//! `causeway-mx` with `libmyriexpress.so`.
//!
//! The rig's dispatcher serves the NICs in the benchmark's process; client and server are child
//! processes on the two cores, or in the namespaces of two hosts. A figure is read from the JSON
//! that `causeway-mx` prints. The server has 300 ms to open its endpoint, and is killed when the
//! figure is complete; NICs of two hosts have 10 s to find each other. A client is killed after 5
//! minutes ([`run`]). A program that `make bench` did not build, or a failed run, leaves the row
//! out with the reason. Peers are UCX, Open MPI's shared memory and a bare ring, and between hosts
//! UDP, TCP, bare frames, AF_XDP, and MX itself by datagrams or without the registration cache.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_model::Mac;
use causeway_model::{MxSpec, MxUdp, PortKind};

use crate::effort::Effort;
use crate::floor::bare_ring_us;
use crate::inner::busy_ns;
use crate::peers::af_xdp::{xdp_gbits, xdp_round_us};
use crate::peers::frames::{DATA, frame_gbits, frame_round_us};
use crate::peers::messages::{ucx_gb_s, ucx_mps, ucx_us};
use crate::peers::mpi::open_mpi_us;
use crate::peers::process::{Program, command, run};
use crate::peers::underlay::{Ends, PeerNetwork, Underlay, udp_round_us};
use crate::pin::{CLIENT, SERVER};
use crate::rig::{GROUP, Rig, mac};
use crate::row::{Against, Guest, Plan};

/// Time allowed for the server to open its endpoint.
const START_DELAY: Duration = Duration::from_millis(300);

/// Returns the path of a tool or library, which `make bench` builds into the folder of this
/// program; an error if it is absent.
pub(super) fn built(name: &str) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let file = me.parent().map(|dir| dir.join(name)).filter(|path| path.exists());
    file.ok_or_else(|| format!("{name} is not built: run cargo build --release"))
}

/// Returns a command for `causeway-mx` on a NIC, in a namespace or here.
fn tool(socket: &Path, space: Option<&str>) -> Result<Command, String> {
    built("libmyriexpress.so")?;
    let tool = built("causeway-mx")?;
    let mut command = match space {
        Some(space) => {
            let mut command = command("ip");
            command.args(["netns", "exec", space]).arg(tool);
            command
        }
        None => command(tool),
    };
    command.env("CAUSEWAY_MX", socket);
    Ok(command)
}

/// Transport of a NIC to those of other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// None: this host only.
    Nothing,
    /// MXoE frames on an interface.
    Frames,
    /// MXoE frames in direct mode, sent by the processes themselves.
    Bypass,
    /// UDP datagrams.
    Udp,
}

/// UDP port of the NICs.
const UDP_PORT: u16 = 4710;

/// Adds the NIC of this number to a rig; with a transport, number 1 is on host 0 and number 2 on
/// host 1.
pub(super) fn add_nic(rig: &Rig, number: u8, by: By) -> PathBuf {
    let name = format!("mx{number}");
    rig.add(GROUP, &name, PortKind::of(nic(number, by)));
    rig.socket(&name)
}

/// Returns the NIC of this number.
pub(super) fn nic(number: u8, by: By) -> MxSpec {
    let local = MxSpec::local(Mac(mac(number)), format!("bench{number}"));
    let at = |host: usize| -> SocketAddr {
        let text = format!("{}:{UDP_PORT}", PeerNetwork::Veth.address(host));
        text.parse().expect("an address")
    };
    match by {
        By::Nothing => local,
        By::Frames => MxSpec { interface: Some("eth0".into()), ..local },
        By::Bypass => MxSpec { interface: Some("eth0".into()), bypass: true, ..local },
        By::Udp => {
            let own = usize::from(number.saturating_sub(1));
            let udp = MxUdp { listen: at(own), peers: vec![at(1_usize.saturating_sub(own))] };
            MxSpec { udp: Some(udp), ..local }
        }
    }
}

/// Returns a figure from a measurement's JSON.
fn figure(said: &str, of: &[&str]) -> Result<f64, String> {
    let value: serde_json::Value = serde_json::from_str(said).map_err(|e| e.to_string())?;
    let row = value.get("rows").and_then(|rows| rows.get(0));
    let found = of.iter().fold(row, |value, key| value.and_then(|value| value.get(key)));
    found.and_then(serde_json::Value::as_f64).ok_or_else(|| format!("causeway-mx: {said}"))
}

/// Parameters of a measurement.
#[derive(Debug, Clone, Copy)]
struct Test {
    words: &'static [&'static str],
    len: usize,
    count: u64,
    figure: &'static [&'static str],
    /// Factor from the tool's unit to the row's unit.
    factor: f64,
    /// Whether the registration cache keeps mapped buffers.
    cached: bool,
}

impl Test {
    /// Measures between the endpoints of two NICs, which may be the same NIC.
    fn between(
        &self,
        effort: &Effort,
        [asks, serves]: [(&Path, Option<&str>); 2],
        peer: &str,
        also: &[&str],
    ) -> Result<Vec<f64>, String> {
        let kept = if self.cached { "1" } else { "0" };
        let mut server = tool(serves.0, serves.1)?;
        server.env("MX_RCACHE", kept).args(["serve", "--core", &SERVER.to_string()]).args(also);
        let _server = Program::start(&mut server)?;
        std::thread::sleep(START_DELAY);
        let count = effort.rounds(self.count).to_string();
        effort.each(|| {
            let mut client = tool(asks.0, asks.1)?;
            client.env("MX_RCACHE", kept).args(self.words).args(also).args([
                peer,
                "--json",
                "--core",
                &CLIENT.to_string(),
            ]);
            client.args(["--sizes", &self.len.to_string(), "--count", &count]);
            figure(&run(&mut client)?, self.figure).map(|figure| figure * self.factor)
        })
    }

    fn on_one_host(&self, effort: &Effort) -> Result<Vec<f64>, String> {
        let rig = Rig::new(Duration::ZERO);
        let socket = add_nic(&rig, 1, By::Nothing);
        self.between(effort, [(&socket, None), (&socket, None)], "bench1", &[])
    }

    /// Measures `pairs` pairs of endpoints concurrently; returns their sum.
    fn in_pairs(&self, effort: &Effort, pairs: usize) -> Result<Vec<f64>, String> {
        let rig = Rig::new(Duration::ZERO);
        let socket = add_nic(&rig, 1, By::Nothing);
        let serve = |endpoint: usize| {
            let mut server = tool(&socket, None)?;
            server.args(["serve", "--blocking", "--endpoint", &endpoint.to_string()]);
            Program::start(server.args(["--core", &SERVER.to_string()]))
        };
        let _servers: Vec<Program> = (0..pairs).map(serve).collect::<Result<_, _>>()?;
        std::thread::sleep(START_DELAY);
        let count = (effort.rounds(self.count) / pairs as u64).max(1).to_string();
        let one = |endpoint: usize| {
            let mut client = tool(&socket, None)?;
            client.args(self.words).args(["bench1", "--json", "--blocking"]);
            client.args(["--core", &CLIENT.to_string(), "--endpoint", &endpoint.to_string()]);
            client.args(["--sizes", &self.len.to_string(), "--count", &count]);
            figure(&run(&mut client)?, self.figure).map(|figure| figure * self.factor)
        };
        effort.each(|| {
            std::thread::scope(|scope| {
                let one = &one;
                let all: Vec<_> =
                    (0..pairs).map(|endpoint| scope.spawn(move || one(endpoint))).collect();
                let died = |_| Err("a measuring thread panicked".to_owned());
                all.into_iter().map(|thread| thread.join().unwrap_or_else(died)).sum()
            })
        })
    }

    /// Returns the processor time of both processes, in microseconds for each MiB; between hosts
    /// also that of this process, with the dispatchers. A server's time is known only after its
    /// exit, so that each run has its own server.
    fn cost(&self, effort: &Effort, hosts: bool) -> Result<Vec<f64>, String> {
        let once = Effort { runs: 1, ..*effort };
        let mib = effort.rounds(self.count) as f64 * self.len as f64 / f64::from(1 << 20);
        effort.each(|| {
            let (ours, children) = (busy_ns(), children_us()?);
            // Threads that have ended are not counted; the dispatchers' threads still run.
            let threads = match hosts {
                true => self.hosts(&once, By::Frames)?.1,
                false => {
                    self.on_one_host(&once)?;
                    ours
                }
            };
            let daemons = threads.saturating_sub(ours) as f64 / 1e3;
            Ok((children_us()? - children + daemons) / mib)
        })
    }

    fn between_hosts(&self, effort: &Effort, by: By) -> Result<Vec<f64>, String> {
        self.hosts(effort, by).map(|(figures, _)| figures)
    }

    /// Returns the figures, and the processor time of this process's threads, including the
    /// dispatchers'.
    fn hosts(&self, effort: &Effort, by: By) -> Result<(Vec<f64>, u64), String> {
        let underlay = Underlay::new()?;
        let host = |host: usize, core: usize| {
            underlay.at(host, move || {
                let rig = Rig::on(core, Duration::from_millis(100));
                let socket = add_nic(&rig, host as u8 + 1, by);
                Ok((rig, socket))
            })
        };
        let spaces = [underlay.name(0)?, underlay.name(1)?];
        for space in spaces {
            // MXoE frames exceed the standard Ethernet MTU of 1500 B.
            run(command("ip").args(["-n", space, "link", "set", "eth0", "mtu", "9000"]))?;
        }
        let (near, asks) = host(0, CLIENT)?;
        let (far, serves) = host(1, SERVER)?;
        near.wait_peer()?;
        far.wait_peer()?;
        let ends = [(&*asks, Some(spaces[0])), (&*serves, Some(spaces[1]))];
        // A process that polls would keep its daemon from the shared core.
        let also: &[&str] = if by == By::Bypass { &[] } else { &["--blocking"] };
        Ok((self.between(effort, ends, "bench2", also)?, busy_ns()))
    }
}

/// Returns the processor time of child processes that were waited for, in microseconds.
fn children_us() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    // After the name, which may contain blanks: the children's times are fields 16 and 17 of
    // /proc/self/stat.
    let behind = text.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks = behind.split_whitespace().skip(13).take(2);
    let ticks: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(ticks * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

const LATENCY: &[&str] = &["us", "median"];

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = latency_plans();
    plans.extend(rate_plans());
    plans.extend(round_trip_plans());
    plans.extend(cost_plans());
    plans.extend(stream_plans());
    plans
}

/// Rows of half round trips on one host.
fn latency_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, len, aim, count) in [
        ("8 B", 8, 0.12, 1_000_000),
        ("1 KiB", 1024, 0.27, 500_000),
        ("64 KiB", 65_536, 3.7, 40_000),
        ("1 MiB", 1 << 20, 51.0, 4_000),
    ] {
        let (words, factor) = (&["pingpong"][..], 1.0);
        let test = Test { words, len, count, figure: LATENCY, factor, cached: true };
        let title = format!("MX half round trip, {name}");
        plans.push(
            Plan::new(title, "us", Guest::Native, move |e| test.on_one_host(e))
                .beside("Open MPI", move |e| open_mpi_us(e, len, count))
                .beside("UCX", move |e| ucx_us(e, len, count))
                .beside("bare ring", move |e| e.each(|| bare_ring_us(len)))
                .aim(Against::Figure, aim)
                .aim(Against::Peer("Open MPI"), 1.0)
                .aim(Against::Peer("UCX"), 1.0)
                .note("A bare ring copies twice and does nothing else: the machine's own floor.")
                .at("mx-latency", len),
        );
    }
    plans
}

/// A stream of messages of 1 MiB.
const STREAM: Test = Test {
    words: &["stream"],
    len: 1 << 20,
    count: 5_000,
    figure: &["mb_per_s"],
    factor: 1e-3,
    cached: true,
};

/// Rows of streams on one host.
fn rate_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    let rate = Test {
        words: &["stream"],
        len: 8,
        count: 5_000_000,
        figure: &["messages_per_s"],
        factor: 1e-6,
        cached: true,
    };
    plans.push(
        Plan::new("MX message rate, 8 B", "M/s", Guest::Native, move |e| rate.on_one_host(e))
            .beside("UCX", |e| ucx_mps(e, 8, 5_000_000))
            .aim(Against::Figure, 15.0),
    );
    plans.push(
        Plan::new("MX stream, 1 MiB", "GB/s", Guest::Native, |e| STREAM.on_one_host(e))
            .beside("UCX", |e| ucx_gb_s(e, 1 << 20, 5_000))
            .aim(Against::Peer("UCX"), 1.0),
    );
    let pairs = Test { len: 65_536, count: 80_000, ..STREAM };
    plans.push(
        Plan::new("MX stream of 16 endpoints in pairs, 64 KiB", "GB/s", Guest::Native, move |e| {
            pairs.in_pairs(e, 8)
        })
        .beside("one pair", move |e| pairs.in_pairs(e, 1))
        .aim(Against::Peer("one pair"), 1.0)
        .note("All endpoints sleep while they wait: the senders on one core, the receivers on the other."),
    );
    plans
}

/// Rows of round trips between hosts.
fn round_trip_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    let (words, factor) = (&["pingpong"][..], 2.0);
    let round = Test { words, len: 8, count: 10_000, figure: LATENCY, factor, cached: true };
    for (title, by, note) in [
        (
            "MX between hosts, round trip of 8 B",
            By::Frames,
            "Each host on one core: its process and its daemon wake each other.",
        ),
        (
            "MX between hosts past the daemon, round trip of 8 B",
            By::Bypass,
            "Each host on one core: its process, which sends on the interface itself and polls.",
        ),
    ] {
        plans.push(
            Plan::new(title, "us", Guest::Native, move |e| round.between_hosts(e, by))
                .beside("by datagrams", move |e| round.between_hosts(e, By::Udp))
                .beside("raw veth, UDP", |e| udp_round_us(e, PeerNetwork::Veth, Ends::Together))
                .beside("raw veth, frames, asleep", |e| frame_round_us(e, Ends::Apart))
                .beside("raw veth, frames, spinning", |e| frame_round_us(e, Ends::Spinning))
                .beside("raw veth, frames, on one core", |e| frame_round_us(e, Ends::Together))
                .beside("raw veth, AF_XDP, on one core", xdp_round_us)
                .aim(Against::Peer("raw veth, frames, asleep"), 0.9)
                .aim(Against::Peer("raw veth, frames, spinning"), 0.9)
                .note(note),
        );
    }
    plans
}

/// Rows of processor time.
fn cost_plans() -> [Plan; 2] {
    let cost = Test { count: 4_000, ..STREAM };
    let far = Test { count: 500, ..STREAM };
    [
        Plan::new("MX processor time of 1 MiB", "us", Guest::Native, move |e| cost.cost(e, false))
            .note("Both processes, which poll, with their start-up."),
        Plan::new("MX between hosts, processor time of 1 MiB", "us", Guest::Native, move |e| {
            far.cost(e, true)
        })
        .note("Both processes and both daemons, with their start-up."),
    ]
}

/// Rows of streams between hosts.
fn stream_plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    let wide = Test { count: 500, factor: 8e-3, ..STREAM };
    let plain = Test { cached: false, ..wide };
    for (title, by, note) in [
        (
            "MX between hosts, stream of 1 MiB",
            By::Frames,
            "Each host on one core: process and daemon alternate. Frames of 8 KiB, one per system call.",
        ),
        (
            "MX between hosts past the daemon, stream of 1 MiB",
            By::Bypass,
            "Each host on one core: its process only. Frames of 8 KiB, many per system call.",
        ),
        (
            "MX between hosts by datagrams, stream of 1 MiB",
            By::Udp,
            "Each host on one core: process and daemon alternate. Frames of 4 KiB, many per system call.",
        ),
    ] {
        plans.push(
            Plan::new(title, "Gbit/s", Guest::Native, move |e| wide.between_hosts(e, by))
                .beside("buffers asked for each time", move |e| plain.between_hosts(e, by))
                .beside("raw veth, TCP", |e| {
                    Underlay::new()?.tcp_gbits(e, PeerNetwork::Veth.address(1), e.rounds(1 << 30))
                })
                .beside("raw veth, frames", |e| frame_gbits(e, 1 << 30, DATA))
                .beside("raw veth, frames of 8 KiB", |e| frame_gbits(e, 2 << 30, 2 * DATA))
                .beside("raw veth, AF_XDP", xdp_gbits)
                .aim(Against::Peer("raw veth, frames"), 0.9)
                .note(note),
        );
    }
    plans
}
