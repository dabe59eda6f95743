//! As [`super::frames`], with AF_XDP in native mode: the possible gain of an AF_XDP carrier.
//!
//! Rows of messages between hosts compare with it. The program `af_xdp.c` is compiled on the
//! machine and started at both ends of a veth pair, each in a namespace: for a stream on two cores,
//! for round trips both on one. An end may take 60 s to be ready, and 60 s to answer; both are
//! killed then. Without a compiler, the kernel's headers or root, the peer is left out with the
//! reason. A failed run is not repeated. The benchmark waits in the thread of the row.

use std::path::Path;
use std::time::Duration;

use super::process::{Folder, Program, command, run};
use super::underlay::Underlay;
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER};

const SOURCE: &str = include_str!("af_xdp.c");
/// Length of the shortest frame, and of an Ethernet frame with 4 KiB of data.
const LENS: [usize; 2] = [60, 4096 + 14];
/// Time limit of an end to be ready, and of its answer.
const LONG: Duration = Duration::from_secs(60);

/// Roles of the two ends.
#[derive(Debug, Clone, Copy)]
struct Roles {
    near: &'static str,
    far: &'static str,
    len: usize,
    count: u64,
    /// Whether both ends poll, each on its own core; otherwise they sleep, on one core.
    spin: bool,
    /// Whether the near end reports the figure.
    near_says: bool,
}

fn one(underlay: &Underlay, program: &Path, roles: Roles) -> Result<f64, String> {
    let Roles { near, far, len, count, spin, near_says } = roles;
    let start = |host: usize, role: &str, core: usize| {
        let mut end = command("ip");
        end.args(["netns", "exec", underlay.name(host)?]).arg(program);
        end.args(["eth0", &core.to_string(), role, &len.to_string(), &count.to_string()]);
        let end = Program::start(end.arg(if spin { "spin" } else { "sleep" }))?;
        end.await_line(LONG, |line| (line == "ready").then_some(()))?;
        Ok::<_, String>(end)
    };
    let far = start(1, far, if spin { SERVER } else { CLIENT })?;
    let mut near = start(0, near, CLIENT)?;
    near.write_line("")?;
    let says = if near_says { &near } else { &far };
    says.await_line(LONG, |line| line.parse().ok())
}

fn each(effort: &Effort, roles: Roles) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    for host in 0..2 {
        let set = ["-n", underlay.name(host)?, "link", "set", "eth0", "mtu", "9000"];
        run(command("ip").args(set))?;
    }
    let folder = Folder::new("af-xdp")?;
    let (source, program) = (folder.file("af_xdp.c"), folder.file("af_xdp"));
    std::fs::write(&source, SOURCE).map_err(|e| e.to_string())?;
    run(command("cc").args(["-O2", "-o"]).args([&program, &source]))?;
    let roles = Roles { count: effort.rounds(roles.count), ..roles };
    effort.each(|| one(&underlay, &program, roles))
}

/// Round trips of the shortest frame between two sleeping ends: microseconds.
pub fn xdp_round_us(effort: &Effort) -> Result<Vec<f64>, String> {
    let (near, far, len, count) = ("ask", "echo", LENS[0], 30_000);
    each(effort, Roles { near, far, len, count, spin: false, near_says: true })
}

/// A stream of frames with 4 KiB of data each, in Gbit/s received, Ethernet headers included.
pub fn xdp_gbits(effort: &Effort) -> Result<Vec<f64>, String> {
    let (near, far, len, count) = ("source", "sink", LENS[1], 200_000);
    each(effort, Roles { near, far, len, count, spin: true, near_says: false })
}
