//! Large messages of a process in a guest to a process of another host, beside those of a host
//! process.
//!
//! Two hosts are two network namespaces with a veth pair; MXoE frames of 8 KiB cross it. Each host has
//! a dispatcher on a core of its own. Both ends are driven by one thread on the core of the near
//! dispatcher, which gets the core while no end has an event. The guest is a native driver of its
//! adapter; the receiver is a host process in both cases. Without the tool `ip` or the rights for
//! namespaces the row is left out with the reason.

use std::time::Duration;

use causeway_wire::mx::{Address, NicId};

use crate::effort::Effort;
use crate::peers::process::{command, run};
use crate::peers::underlay::Underlay;
use crate::pin::{CLIENT, SERVER, pin};
use crate::rig::{Rig, mac};
use crate::row::{Against, Guest, Plan};
use crate::rows::messages::By;

use super::{Side, end, stream_between};

/// Time for which the dispatchers poll.
const SPIN: Duration = Duration::from_millis(100);

/// Returns the rate of messages of 1 MiB to another host, in Gbit/s.
fn stream_gbits(effort: &Effort, side: Side) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    for host in [0, 1] {
        let link = ["-n", underlay.name(host)?, "link", "set", "eth0", "mtu", "9000"];
        run(command("ip").args(link))?;
    }
    let host = |host: usize, core: usize, side: Side| {
        underlay.at(host, move || {
            let rig = Rig::on(core, SPIN);
            let end = end(&rig, side, host as u8 + 1, By::Frames)?;
            Ok((rig, end))
        })
    };
    let (near, mut one) = host(0, CLIENT, side)?;
    let (far, mut two) = host(1, SERVER, Side::Host)?;
    near.wait_peer()?;
    far.wait_peer()?;
    pin(CLIENT);
    let to = Address { nic: NicId::of(mac(2)), endpoint: 0 };
    let [peer, _] = one.connect(&mut two, to)?;
    let rates = stream_between(effort, [one, two], peer, 1 << 20, std::thread::yield_now)?;
    Ok(rates.into_iter().map(|gb_s| gb_s * 8.0).collect())
}

/// The row.
pub fn plan() -> Plan {
    let title = "MX stream from a guest to another host, 1 MiB";
    Plan::new(title, "Gbit/s", Guest::Native, |e| stream_gbits(e, Side::Guest))
        .beside("from a host process", |e| stream_gbits(e, Side::Host))
        .aim(Against::Peer("from a host process"), 0.95)
        .note(
            "Four messages offered at a time; frames of 8 KiB are gathered from registered memory.",
        )
}
