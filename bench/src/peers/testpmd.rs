//! DPDK's testpmd: as generator with two virtio-user ports, and as a vhost switch.
//!
//! The same generator drives Causeway and the peers' switches. Each port forwards received frames
//! to the other port, and the generator creates the first frames, so that a fixed number circulates
//! in each direction: no frame has to be dropped, and the generator's cost is close to the minimum
//! of a guest's driver. On split rings with bursts of 16 and more it receives frames by vector
//! instructions, several at a time; on packed rings these would require in-order completion, which
//! not every switch offers. (testpmd's mode `flowgen` generates frames continuously, but with a
//! fixed source address that is not that of its port. Causeway drops such forged frames.)
//!
//! `rows::switch` starts the [`Generator`] on Causeway's ports, and `ovs` and [`forwarding`] start
//! it on the ports of the switches; `rows::driver` starts the switches alone. testpmd is a child
//! process on one core; an answer may take 20 s. A missing program leaves the row or the peer out
//! with the reason.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::process::{Folder, Program, command, wait_for};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER};

/// The shortest burst for the vector path.
const VECTOR_BURST: usize = 16;
/// Frames in flight in each direction.
pub const IN_FLIGHT: usize = 128;
/// Observation time of a figure.
const WATCH: Duration = Duration::from_millis(1500);
const ANSWER: Duration = Duration::from_secs(20);

/// Traffic of the generator.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// Bytes of each frame, 60 to 1514.
    pub len: usize,
    /// Frames in a burst, 1 to 32.
    pub burst: usize,
    /// Whether rings are packed; otherwise split.
    pub packed: bool,
}

/// Starts testpmd with the options common to generator and switch.
fn testpmd(core: usize, devices: [String; 2], options: &[String]) -> Result<Program, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut program = command("stdbuf");
    program.args(["-oL", "dpdk-testpmd", "--lcores", &format!("0@{core},1@{core}")]);
    program.args(["--no-huge", "-m", "256", "--no-pci", "--iova-mode=va", "--no-telemetry"]);
    program.args(["--file-prefix", &format!("causeway-bench-{}-{number}", std::process::id())]);
    for device in &devices {
        program.args(["--vdev", device]);
    }
    program.args(["--", "-i", "--no-mlockall", "--total-num-mbufs=16384"]).args(options);
    if !Path::new("/usr/bin/dpdk-testpmd").exists() {
        return Err("dpdk-testpmd is not installed (scripts/bench-peers.sh)".into());
    }
    Program::start(&mut program)
}

/// The running generator.
#[derive(Debug)]
pub struct Generator(Program);

impl Generator {
    /// Attaches to two vhost-user sockets as the guests with addresses `02:00:00:00:00:01` and
    /// `…:02`.
    pub fn attach(sockets: [&Path; 2], traffic: &Traffic) -> Result<Self, String> {
        let device = |i: usize, socket: &Path| {
            let ring = match (traffic.packed, traffic.burst) {
                (true, _) => "packed_vq=1",
                (false, VECTOR_BURST..) => "mrg_rxbuf=0,vectorized=1",
                (false, _) => "packed_vq=0",
            };
            let path = socket.display();
            let mac = format!("02:00:00:00:00:{:02x}", i + 1);
            format!("net_virtio_user{i},path={path},mac={mac},{ring}")
        };
        let [a, b] = sockets;
        let options = [
            "--forward-mode=io".to_owned(),
            format!("--txpkts={}", traffic.len),
            format!("--burst={}", traffic.burst),
            "--eth-peer=0,02:00:00:00:00:02".to_owned(),
            "--eth-peer=1,02:00:00:00:00:01".to_owned(),
        ];
        let program = testpmd(CLIENT, [device(0, a), device(1, b)], &options)?;
        // testpmd prints a port's address once the port is attached and configured.
        for _ in 0..2 {
            program.await_line(ANSWER, |line| line.contains(": 02:00:00:00:00:0").then_some(()))?;
        }
        Ok(Self(program))
    }

    /// Starts the circulation of frames.
    pub fn start(&mut self, traffic: &Traffic) -> Result<(), String> {
        self.0.write_line(&format!("start tx_first {}", (IN_FLIGHT / traffic.burst).max(1)))
    }

    /// Frames per second that arrive at both ports together, in millions, for each run, after a
    /// second of warm-up. A run without a frame is an error.
    pub fn mpps(&mut self, effort: &Effort) -> Result<Vec<f64>, String> {
        std::thread::sleep(effort.time(Duration::from_secs(1)));
        self.show()?;
        effort.each(|| {
            std::thread::sleep(effort.time(WATCH));
            let mpps = self.show()? / 1e6;
            if mpps > 0.0 { Ok(mpps) } else { Err("no frame arrived".into()) }
        })
    }

    /// Returns the rate since the last call, by the generator's own clock.
    fn show(&mut self) -> Result<f64, String> {
        self.0.write_line("show port stats all")?;
        let one = || self.0.await_line(ANSWER, rate);
        Ok(one()? + one()?)
    }
}

/// Parses the rate in a line such as `Rx-pps: 747769   Rx-bps: …`.
fn rate(line: &str) -> Option<f64> {
    line.trim().strip_prefix("Rx-pps:")?.split_whitespace().next()?.parse().ok()
}

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.0.write_line("stop").and_then(|()| self.0.write_line("quit"));
        self.0.wait_end(Duration::from_secs(3));
    }
}

/// testpmd's own forwarding between two vhost ports, on the dispatcher's core.
#[derive(Debug)]
pub struct Switch {
    program: Program,
    folder: Folder,
}

impl Switch {
    /// Starts the switch.
    pub fn start() -> Result<Self, String> {
        let folder = Folder::new("testpmd")?;
        let device = |i: usize| {
            format!("eth_vhost{i},iface={},queues=1", folder.file(&format!("v{i}")).display())
        };
        let options = ["--forward-mode=io".to_owned(), "--auto-start".to_owned()];
        let program = testpmd(SERVER, [device(0), device(1)], &options)?;
        let switch = Self { program, folder };
        for socket in switch.sockets() {
            wait_for(&socket, ANSWER)?;
        }
        Ok(switch)
    }

    /// Returns the vhost-user sockets.
    pub fn sockets(&self) -> [PathBuf; 2] {
        [self.folder.file("v0"), self.folder.file("v1")]
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.program.write_line("stop").and_then(|()| self.program.write_line("quit"));
        self.program.wait_end(Duration::from_secs(3));
    }
}

/// Frames per second through testpmd's vhost forwarding, in millions; both directions together.
pub fn forwarding(effort: &Effort, traffic: &Traffic) -> Result<Vec<f64>, String> {
    let switch = Switch::start()?;
    let [a, b] = switch.sockets();
    let mut generator = Generator::attach([&a, &b], traffic)?;
    generator.start(traffic)?;
    generator.mpps(effort)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_are_read() {
        assert_eq!(rate("  Rx-pps:       747769          Rx-bps:    38"), Some(747_769.0));
        assert_eq!(rate("  Tx-pps:       747769          Tx-bps:    38"), None);
    }
}
