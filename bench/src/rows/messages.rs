//! Messages through the MX API, between processes on two cores and between two hosts: what
//! `causeway-mx` measures with `libmyriexpress.so`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use causeway_fabric::Mac;
use causeway_fabric::spec::{MxSpec, PortKind};

use crate::effort::Effort;
use crate::peers::messages::{open_mpi_us, ucx_gb_s, ucx_mps, ucx_us};
use crate::peers::process::{Program, command, run};
use crate::peers::underlay::{Underlay, Way, tcp_gbits, udp_round_us};
use crate::pin::{CLIENT, SERVER};
use crate::rig::{GROUP, Rig, mac};
use crate::row::{Against, Guest, Plan};

/// How long whoever serves gets to open its endpoint.
const BEGUN: Duration = Duration::from_millis(300);

/// The tool and the library, which `make bench` builds beside us.
fn built(name: &str) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let file = me.parent().map(|dir| dir.join(name)).filter(|path| path.exists());
    file.ok_or_else(|| format!("{name} is not built: cargo build --release"))
}

/// `causeway-mx` for a board, in a namespace or here.
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

/// A board on a rig.
fn board(rig: &Rig, number: u8, interface: Option<&str>) -> PathBuf {
    let local = MxSpec::local(Mac(mac(number)), format!("bench{number}"));
    let spec = MxSpec { interface: interface.map(str::to_owned), ..local };
    let name = format!("mx{number}");
    rig.add(GROUP, &name, PortKind::Mx(spec));
    rig.socket(&name)
}

/// One figure of the JSON that a measure says.
fn figure(said: &str, of: &[&str]) -> Result<f64, String> {
    let value: serde_json::Value = serde_json::from_str(said).map_err(|e| e.to_string())?;
    let row = value.get("rows").and_then(|rows| rows.get(0));
    let found = of.iter().fold(row, |value, key| value.and_then(|value| value.get(key)));
    found.and_then(serde_json::Value::as_f64).ok_or_else(|| format!("causeway-mx: {said}"))
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Test {
    words: &'static [&'static str],
    len: usize,
    count: u64,
    figure: &'static [&'static str],
    /// What turns it into the row's unit.
    factor: f64,
}

impl Test {
    /// Measures between the endpoints of two boards, which may be one and the same.
    fn between(
        &self,
        effort: &Effort,
        [asks, serves]: [(&Path, Option<&str>); 2],
        peer: &str,
        also: &[&str],
    ) -> Result<Vec<f64>, String> {
        let mut server = tool(serves.0, serves.1)?;
        server.args(["serve", "--core", &SERVER.to_string()]).args(also);
        let _server = Program::start(&mut server)?;
        std::thread::sleep(BEGUN);
        let count = effort.rounds(self.count).to_string();
        effort.each(|| {
            let mut client = tool(asks.0, asks.1)?;
            client.args(self.words).args(also).args([
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
        let socket = board(&rig, 1, None);
        self.between(effort, [(&socket, None), (&socket, None)], "bench1", &[])
    }

    fn between_hosts(&self, effort: &Effort) -> Result<Vec<f64>, String> {
        let underlay = Underlay::new()?;
        let host = |host: usize, core: usize| {
            underlay.at(host, move || {
                let rig = Rig::on(core, Duration::from_millis(100));
                let socket = board(&rig, host as u8 + 1, Some("eth0"));
                Ok((rig, socket))
            })
        };
        let spaces = [underlay.name(0)?, underlay.name(1)?];
        for space in spaces {
            // MXoE's frames are longer than Ethernet's usual 1500 B.
            run(command("ip").args(["-n", space, "link", "set", "eth0", "mtu", "9000"]))?;
        }
        let (_near, asks) = host(0, CLIENT)?;
        let (_far, serves) = host(1, SERVER)?;
        // Boards find each other.
        std::thread::sleep(Duration::from_secs(2));
        let ends = [(&*asks, Some(spaces[0])), (&*serves, Some(spaces[1]))];
        // A process that never sleeps would keep its daemon from the core that they share.
        self.between(effort, ends, "bench2", &["--blocking"])
    }
}

const LATENCY: &[&str] = &["us", "median"];

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (name, len, aim, count) in [
        ("8 B", 8, 0.12, 1_000_000),
        ("1 KiB", 1024, 0.27, 500_000),
        ("64 KiB", 65_536, 3.7, 40_000),
        ("1 MiB", 1 << 20, 51.0, 4_000),
    ] {
        let (words, factor) = (&["pingpong"][..], 1.0);
        let test = Test { words, len, count, figure: LATENCY, factor };
        let title = format!("MX half round trip, {name}");
        plans.push(
            Plan::new(title, "us", Guest::Native, move |e| test.on_one_host(e))
                .beside("Open MPI", move |e| open_mpi_us(e, len, count))
                .beside("UCX", move |e| ucx_us(e, len, count))
                .aim(Against::Figure, aim)
                .aim(Against::Peer("Open MPI"), 1.0)
                .aim(Against::Peer("UCX"), 1.0)
                .at("mx-latency", len),
        );
    }
    let rate = Test {
        words: &["stream"],
        len: 8,
        count: 5_000_000,
        figure: &["messages_per_s"],
        factor: 1e-6,
    };
    plans.push(
        Plan::new("MX message rate, 8 B", "M/s", Guest::Native, move |e| rate.on_one_host(e))
            .beside("UCX", |e| ucx_mps(e, 8, 5_000_000))
            .aim(Against::Figure, 15.0),
    );
    let stream = Test {
        words: &["stream"],
        len: 1 << 20,
        count: 5_000,
        figure: &["mb_per_s"],
        factor: 1e-3,
    };
    plans.push(
        Plan::new("MX stream, 1 MiB", "GB/s", Guest::Native, move |e| stream.on_one_host(e))
            .beside("UCX", |e| ucx_gb_s(e, 1 << 20, 5_000))
            .aim(Against::Peer("UCX"), 1.0),
    );
    let round = Test { words: &["pingpong"], len: 8, count: 20_000, figure: LATENCY, factor: 2.0 };
    plans.push(
        Plan::new("MX between hosts, round trip of 8 B", "us", Guest::Native, move |e| {
            round.between_hosts(e)
        })
        .beside("raw veth, UDP", |e| udp_round_us(e, Way::Veth, false))
        .note("Each host on one core: its process and its daemon wake each other there."),
    );
    let wide = Test { count: 1_000, factor: 8e-3, ..stream };
    plans.push(
        Plan::new("MX between hosts, stream of 1 MiB", "Gbit/s", Guest::Native, move |e| {
            wide.between_hosts(e)
        })
        .beside("raw veth, TCP", |e| tcp_gbits(e, Way::Veth))
        .note("Each host on one core: its process and its daemon take turns there."),
    );
    plans
}
