//! Frames between two ports under DPDK's generator, compared with testpmd's vhost forwarding and
//! OVS with DPDK. Both directions are summed; the generator has one core, the switch the other. The
//! generator requests one ring type for a row; that of Causeway's ports is checked, that of a peer
//! is not. Without testpmd the rows are left out, without OVS its column, each with the reason. The
//! generator is a child process ([`crate::peers::testpmd`]); lost frames shrink the number in
//! circulation, which lowers the figure. A row of packed rings is left out if the dispatcher does
//! not offer them, and any row if the generator chooses other rings. A fault of a port fails the
//! row; an answer of the generator may take 20 s.

use std::time::Duration;

use causeway_attach::native::Client;

use super::ethernet::PACKED;
use crate::effort::Effort;
use crate::peers::ovs;
use crate::peers::testpmd::{self, Generator, Traffic};
use crate::rig::{GROUP, Rig};
use crate::row::{Against, Guest, Plan};

/// The peers' names.
pub const TESTPMD: &str = "testpmd vhost";
pub const OVS: &str = "OVS-DPDK";

fn ours(effort: &Effort, traffic: &Traffic) -> Result<Vec<f64>, String> {
    let rig = Rig::new(Duration::from_millis(100));
    let (a, b) = (rig.idle_net(GROUP, 1, false), rig.idle_net(GROUP, 2, false));
    if traffic.packed {
        let offered = Client::connect(&a).map_err(|e| e.to_string())?.offered();
        if offered & PACKED == 0 {
            return Err("packed rings are not offered".into());
        }
    }
    let mut generator = Generator::attach([&a, &b], traffic)?;
    let wanted = if traffic.packed { "packed" } else { "split" };
    for name in ["n1", "n2"] {
        rig.wait_running(name);
        let view = rig.view(name);
        if let Some(queue) = view.queues.iter().find(|q| q.format != wanted) {
            return Err(format!("the generator chose a ring that is {}", queue.format));
        }
    }
    generator.start(traffic)?;
    let rates = generator.mpps(effort);
    for name in ["n1", "n2"] {
        if let Some(fault) = rig.view(name).fault {
            return Err(format!("{name}: {fault}"));
        }
    }
    rates.map_err(|why| {
        let counters = rig.view("n1").counters;
        let dropped = counters.iter().filter(|(name, count)| name.contains("drop") && **count > 0);
        format!("{why}; dropped of the first port: {:?}", dropped.collect::<Vec<_>>())
    })
}

fn plan(name: String, traffic: Traffic) -> Plan {
    Plan::new(name, "Mpps", Guest::VirtioUser, move |effort| ours(effort, &traffic))
        .beside(TESTPMD, move |effort| testpmd::forwarding(effort, &traffic))
        .beside(OVS, move |effort| ovs::forwarding(effort, &traffic))
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for packed in [false, true] {
        let ring = if packed { "packed" } else { "split" };
        let plot = if packed { "switch-packed" } else { "switch-split" };
        let round = Traffic { len: 64, burst: 32, packed };
        for len in [64, 256, 512, 1500] {
            let name = format!("Ethernet port to port, {len} B, {ring} ring");
            let plan = plan(name, Traffic { len, ..round }).at(plot, len);
            plans.push(match len {
                64 => {
                    plan.near_cores().aim(Against::Peer(TESTPMD), 1.0).aim(Against::Peer(OVS), 2.0)
                }
                1500 => plan.near_cores().aim(Against::Peer(TESTPMD), 1.1),
                _ => plan,
            });
        }
        let plot = if packed { "switch-packed-burst" } else { "switch-split-burst" };
        for burst in [1, 4, 16] {
            let name = format!("Ethernet port to port, 64 B, burst {burst}, {ring} ring");
            plans.push(plan(name, Traffic { burst, ..round }).at(plot, burst));
        }
    }
    plans
}
