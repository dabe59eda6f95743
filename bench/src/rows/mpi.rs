//! Unmodified MPI: Open MPI over Causeway's provider, compared with its other transports on this
//! machine.
//!
//! Two ranks run as child processes on the two cores and attach to NICs of the rig's dispatcher in
//! the benchmark's process ([`crate::peers::mpi`]); in rows between hosts, each rank attaches to
//! the NIC of another dispatcher, in a namespace, while the ranks of the peer TCP run in the
//! namespaces. Without Open MPI, the provider that `make bench` builds, or HPCC for its rows, a row
//! is left out with the reason. The ping-pong checks no content.

use std::path::PathBuf;
use std::time::Duration;

use super::messages::{By, add_nic, built};
use crate::effort::Effort;
use crate::peers::mpi::{
    CAUSEWAY, Exchange, LIBFABRIC_TCP, SHARED_MEMORY, TCP, Transport, UCX, hpcc, mpi,
    tcp_between_hosts_us,
};
use crate::peers::process::{command, run};
use crate::peers::underlay::{Ends, PeerNetwork, Underlay, udp_round_us};
use crate::pin::{CLIENT, SERVER};
use crate::rig::Rig;
use crate::row::{Against, Guest, Plan};

/// Parameters of a measurement.
#[derive(Debug, Clone, Copy)]
struct Test {
    exchange: Exchange,
    len: usize,
    rounds: u64,
}

/// Returns the folder of the provider.
fn provider() -> Result<PathBuf, String> {
    let provider = built("libcauseway-fi.so")?;
    provider.parent().map(PathBuf::from).ok_or_else(|| "the provider has no folder".to_owned())
}

impl Test {
    fn over(self, effort: &Effort, mca: &'static [&'static str]) -> Result<Vec<f64>, String> {
        mpi(effort, &Transport { mca, causeway: None }, self.exchange, self.len, self.rounds)
    }

    fn ours(self, effort: &Effort) -> Result<Vec<f64>, String> {
        let rig = Rig::new(Duration::ZERO);
        let socket = add_nic(&rig, 1, By::Nothing);
        let causeway = Some(([&*socket; 2], provider()?));
        mpi(effort, &Transport { mca: CAUSEWAY, causeway }, self.exchange, self.len, self.rounds)
    }

    /// Measures ranks with NICs on two hosts: the dispatchers are in namespaces connected by a veth
    /// pair, the ranks are not.
    fn between_hosts(self, effort: &Effort, by: By) -> Result<Vec<f64>, String> {
        let underlay = Underlay::new()?;
        let host = |host: usize, core: usize| {
            underlay.at(host, move || {
                let rig = Rig::on(core, Duration::from_millis(100));
                let socket = add_nic(&rig, host as u8 + 1, by);
                Ok((rig, socket))
            })
        };
        for space in [underlay.name(0)?, underlay.name(1)?] {
            // MXoE frames exceed the standard Ethernet MTU of 1500 B.
            run(command("ip").args(["-n", space, "link", "set", "eth0", "mtu", "9000"]))?;
        }
        let (near, asks) = host(0, CLIENT)?;
        let (far, serves) = host(1, SERVER)?;
        near.wait_peer()?;
        far.wait_peer()?;
        let causeway = Some(([&*asks, &*serves], provider()?));
        mpi(effort, &Transport { mca: CAUSEWAY, causeway }, self.exchange, self.len, self.rounds)
    }
}

/// Returns a row of HPCC's latency and bandwidth test.
fn hpcc_row(title: &str, unit: &'static str, name: &'static str) -> Plan {
    let ours = move |effort: &Effort| {
        let rig = Rig::new(Duration::ZERO);
        let socket = add_nic(&rig, 1, By::Nothing);
        let causeway = Some(([&*socket; 2], provider()?));
        hpcc(effort, &Transport { mca: CAUSEWAY, causeway }, name)
    };
    let over = move |effort: &Effort, mca| hpcc(effort, &Transport { mca, causeway: None }, name);
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
    let half = |len, rounds| Test { exchange: Exchange::HalfRound, len, rounds };
    let stream = Test { exchange: Exchange::Stream, len: 1 << 20, rounds: 2_000 };
    let mut plans = vec![
        row("MPI half round trip, 8 B", "us", half(8, 200_000))
            .near_cores()
            .aim(Against::Figure, 0.25)
            .note(
                "For cores that share a cache; every step takes longer where the floor is 0.2 us.",
            ),
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
            "Each host on one core: its rank, which polls, and its daemon.",
        ),
        (
            "MPI between hosts past the daemon, half round trip of 8 B",
            By::Bypass,
            "Each host on one core: its rank, which sends on the interface itself and polls.",
        ),
    ] {
        plans.push(
            Plan::new(title, "us", Guest::Native, move |e| far.between_hosts(e, by))
                .beside("TCP", move |e| tcp_between_hosts_us(e, far.len, far.rounds))
                .aim(Against::Peer("TCP"), 2.0)
                .beside("raw veth, UDP", |e| {
                    udp_round_us(e, PeerNetwork::Veth, Ends::Together)
                        .map(|us| us.iter().map(|us| us / 2.0).collect())
                })
                .note(note),
        );
    }
    plans
}
