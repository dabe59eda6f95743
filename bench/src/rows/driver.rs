//! Frames between two ports with Causeway's own front end, compared with testpmd's vhost forwarding
//! and OVS with DPDK under the same front end. Both directions are summed; the front end has one
//! core, the switch the other.
//!
//! The front end does the minimum of a guest's driver: it does not write frames before sending or
//! read received frames. A switch therefore waits for it less than for DPDK's generator
//! ([`switch`](super::switch)). Packed rings are requested in their rows; a switch that does not
//! offer them runs split rings. The content is not checked; frames are counted, and a figure with a
//! lost frame, or without progress for 300 ms, fails with a reason. A peer that is not installed
//! has no column, with the reason. Both ends are in the thread of the row.

use std::path::Path;
use std::time::{Duration, Instant};

use causeway_attach::native::{NET_HEADER_BYTES, NativeError, NetOptions, NetPort};

use super::ethernet::{LOST, PACKED, frame};
use super::switch::{OVS, TESTPMD};
use crate::effort::Effort;
use crate::peers::ovs;
use crate::peers::testpmd::{self, IN_FLIGHT, Traffic};
use crate::pin::{CLIENT, pin};
use crate::rig::{GROUP, Rig, leave, mac};
use crate::row::{Against, Guest, Plan};

fn failed(error: NativeError) -> String {
    error.to_string()
}

/// Frames from one port to the other.
#[derive(Debug, Default)]
struct Direction {
    sent: u64,
    got: u64,
}

impl Direction {
    /// Sends at most a burst, if a burst more does not exceed [`IN_FLIGHT`]; takes received frames.
    /// Returns whether a frame arrived.
    fn turn(
        &mut self,
        from: &mut NetPort,
        to: &mut NetPort,
        traffic: &Traffic,
    ) -> Result<bool, String> {
        if self.sent.saturating_sub(self.got) <= (IN_FLIGHT - traffic.burst) as u64 {
            let len = (NET_HEADER_BYTES + traffic.len) as u32;
            let burst = traffic.burst as u16;
            self.sent += u64::from(from.queue_each_as_is(0, len, burst).map_err(failed)?);
            from.flush(0).map_err(failed)?;
        }
        let before = self.got;
        self.take(to)?;
        Ok(self.got != before)
    }

    fn take(&mut self, to: &mut NetPort) -> Result<(), String> {
        self.got += to.discard_all(0).map_err(failed)? as u64;
        Ok(())
    }
}

/// Millions of frames per second between two ports, for each run.
fn mpps(effort: &Effort, sockets: [&Path; 2], traffic: Traffic) -> Result<Vec<f64>, String> {
    pin(CLIENT);
    // Ring features are accepted if offered; net device features are not.
    let features = if traffic.packed { PACKED } else { 0 };
    let attach = |path: &Path| {
        let options = NetOptions { features, ..NetOptions::default() };
        NetPort::attach(path, options).map_err(failed)
    };
    let (mut a, mut b) = (attach(sockets[0])?, attach(sockets[1])?);
    if [&mut a, &mut b].iter_mut().any(|port| port.frontend().features() & features != features) {
        return Err("the switch does not offer packed rings".to_owned());
    }
    // A peer's switch does not report when it has enabled the queues.
    std::thread::sleep(Duration::from_secs(2));
    let header = [0; NET_HEADER_BYTES];
    let (there, back) = (frame(mac(1), mac(2), traffic.len), frame(mac(2), mac(1), traffic.len));
    leave(&mut a, &mut b, &header, &there).map_err(failed)?;
    leave(&mut b, &mut a, &header, &back).map_err(failed)?;
    let (mut to, mut fro) = (Direction::default(), Direction::default());
    // The clock is read only while no frame moves.
    let (mut vain, mut last) = (0_u64, Instant::now());
    let mut carry = |frames: u64| {
        let (until, since) = (to.got + fro.got + frames, Instant::now());
        while to.got + fro.got < until {
            if to.turn(&mut a, &mut b, &traffic)? | fro.turn(&mut b, &mut a, &traffic)? {
                vain = 0;
                continue;
            }
            vain += 1;
            if vain == 1 {
                last = Instant::now();
            } else if vain.is_multiple_of(1024) && last.elapsed() > LOST {
                return Err("frames were lost".to_owned());
            }
        }
        Ok(frames as f64 / since.elapsed().as_secs_f64() / 1e6)
    };
    carry(effort.rounds(2_000_000))?;
    let rates = effort.each(|| carry(effort.rounds(10_000_000)));
    // A lost or unsent frame would have changed the number of frames in flight.
    let since = Instant::now();
    while since.elapsed() < LOST {
        to.take(&mut b)?;
        fro.take(&mut a)?;
    }
    if (to.sent, fro.sent) != (to.got, fro.got) {
        return Err(format!(
            "frames were lost: {} and {} sent, {} and {} received",
            to.sent, fro.sent, to.got, fro.got
        ));
    }
    rates
}

fn ours(effort: &Effort, traffic: Traffic) -> Result<Vec<f64>, String> {
    let rig = Rig::new(Duration::from_millis(100));
    let (a, b) = (rig.idle_net(GROUP, 1, false), rig.idle_net(GROUP, 2, false));
    mpps(effort, [&a, &b], traffic)
}

/// The rows of this module.
pub fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for (len, packed) in [(64, false), (1500, false), (64, true), (1500, true)] {
        let ring = if packed { "packed" } else { "split" };
        let name =
            format!("Ethernet between ports of drivers that do the least, {len} B, {ring} ring");
        let traffic = Traffic { len, burst: 32, packed };
        let plan = Plan::new(name, "Mpps", Guest::Native, move |effort| ours(effort, traffic))
            .beside(TESTPMD, move |effort| {
                let switch = testpmd::Switch::start()?;
                let [a, b] = switch.sockets();
                mpps(effort, [&a, &b], traffic)
            })
            .beside(OVS, move |effort| {
                let switch = ovs::Ovs::start()?;
                let [a, b] = switch.sockets();
                mpps(effort, [&a, &b], traffic)
            });
        plans.push(match len {
            64 => plan.near_cores().aim(Against::Peer(TESTPMD), 1.0).aim(Against::Peer(OVS), 2.0),
            _ => plan.near_cores().aim(Against::Peer(TESTPMD), 1.1),
        });
    }
    plans
}
