//! Unmodified MPI: Open MPI over Causeway's provider, beside all else that it can run over here.

use std::path::PathBuf;
use std::time::Duration;

use super::messages::{By, board, built};
use crate::effort::Effort;
use crate::peers::mpi::{
    CAUSEWAY, LIBFABRIC_TCP, Over, Play, SHARED_MEMORY, TCP, UCX, hpcc, mpi, tcp_between_hosts_us,
};
use crate::peers::process::{command, run};
use crate::peers::underlay::{Ends, Underlay, Way, udp_round_us};
use crate::pin::{CLIENT, SERVER};
use crate::rig::Rig;
use crate::row::{Against, Guest, Plan};

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Test {
    play: Play,
    len: usize,
    rounds: u64,
}

/// Where the provider is.
fn provider() -> Result<PathBuf, String> {
    let provider = built("libcauseway-fi.so")?;
    provider.parent().map(PathBuf::from).ok_or_else(|| "the provider has no folder".to_owned())
}

impl Test {
    fn over(self, effort: &Effort, mca: &'static [&'static str]) -> Result<Vec<f64>, String> {
        mpi(effort, &Over { mca, causeway: None }, self.play, self.len, self.rounds)
    }

    fn ours(self, effort: &Effort) -> Result<Vec<f64>, String> {
        let rig = Rig::new(Duration::ZERO);
        let socket = board(&rig, 1, By::Nothing);
        let causeway = Some(([&*socket; 2], provider()?));
        mpi(effort, &Over { mca: CAUSEWAY, causeway }, self.play, self.len, self.rounds)
    }

    /// Ranks of two hosts: their boards are in namespaces with a cable between them.
    fn between_hosts(self, effort: &Effort, by: By) -> Result<Vec<f64>, String> {
        let underlay = Underlay::new()?;
        let host = |host: usize, core: usize| {
            underlay.at(host, move || {
                let rig = Rig::on(core, Duration::from_millis(100));
                let socket = board(&rig, host as u8 + 1, by);
                Ok((rig, socket))
            })
        };
        for space in [underlay.name(0)?, underlay.name(1)?] {
            // MXoE's frames are longer than Ethernet's usual 1500 B.
            run(command("ip").args(["-n", space, "link", "set", "eth0", "mtu", "9000"]))?;
        }
        let (near, asks) = host(0, CLIENT)?;
        let (far, serves) = host(1, SERVER)?;
        near.wait_peer()?;
        far.wait_peer()?;
        let causeway = Some(([&*asks, &*serves], provider()?));
        mpi(effort, &Over { mca: CAUSEWAY, causeway }, self.play, self.len, self.rounds)
    }
}

/// A row of HPCC's latency and bandwidth.
fn hpcc_row(title: &str, unit: &'static str, name: &'static str) -> Plan {
    let ours = move |effort: &Effort| {
        let rig = Rig::new(Duration::ZERO);
        let socket = board(&rig, 1, By::Nothing);
        let causeway = Some(([&*socket; 2], provider()?));
        hpcc(effort, &Over { mca: CAUSEWAY, causeway }, name)
    };
    let over = move |effort: &Effort, mca| hpcc(effort, &Over { mca, causeway: None }, name);
    Plan::new(title, unit, Guest::Native, ours)
        .beside("shared memory", move |e| over(e, SHARED_MEMORY))
        .beside("TCP", move |e| over(e, TCP))
        .beside("UCX", move |e| over(e, UCX))
}

fn row(name: &str, unit: &'static str, test: Test) -> Plan {
    Plan::new(name, unit, Guest::Native, move |e| test.ours(e))
        .beside("shared memory", move |e| test.over(e, SHARED_MEMORY))
        .beside("TCP", move |e| test.over(e, TCP))
        .beside("libfabric, TCP", move |e| test.over(e, LIBFABRIC_TCP))
        .beside("UCX", move |e| test.over(e, UCX))
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let half = |len, rounds| Test { play: Play::HalfRound, len, rounds };
    let stream = Test { play: Play::Stream, len: 1 << 20, rounds: 2_000 };
    let mut plans = vec![
        row("MPI half round trip, 8 B", "us", half(8, 200_000))
            .near_cores()
            .aim(Against::Figure, 0.25)
            .note("Of cores that share a cache; all of it takes longer where the floor is 0.2 us."),
        row("MPI half round trip, 1 MiB", "us", half(1 << 20, 2_000))
            .aim(Against::Peer("shared memory"), 1.0)
            .aim(Against::Peer("UCX"), 1.0),
        row("MPI stream, 1 MiB", "GB/s", stream)
            .aim(Against::Peer("shared memory"), 1.0)
            .aim(Against::Peer("UCX"), 1.0),
    ];
    for (title, unit, name) in [
        ("HPCC ping-pong latency", "us", "AvgPingPongLatency_usec"),
        ("HPCC latency in a ring of random order", "us", "RandomlyOrderedRingLatency_usec"),
        ("HPCC ping-pong bandwidth", "GB/s", "AvgPingPongBandwidth_GBytes"),
        ("HPCC bandwidth in a ring of random order", "GB/s", "RandomlyOrderedRingBandwidth_GBytes"),
    ] {
        plans.push(hpcc_row(title, unit, name));
    }
    let far = half(8, 100_000);
    for (title, by, note) in [
        (
            "MPI between hosts, half round trip of 8 B",
            By::Frames,
            "Each host on one core: its rank, which never sleeps, and its daemon.",
        ),
        (
            "MPI between hosts past the daemon, half round trip of 8 B",
            By::Bypass,
            "Each host on one core: its rank, which is at the interface itself and never sleeps.",
        ),
    ] {
        plans.push(
            Plan::new(title, "us", Guest::Native, move |e| far.between_hosts(e, by))
                .beside("TCP", move |e| tcp_between_hosts_us(e, far.len, far.rounds))
                .aim(Against::Peer("TCP"), 2.0)
                .beside("raw veth, UDP", |e| {
                    udp_round_us(e, Way::Veth, Ends::Together)
                        .map(|us| us.iter().map(|us| us / 2.0).collect())
                })
                .note(note),
        );
    }
    plans
}
