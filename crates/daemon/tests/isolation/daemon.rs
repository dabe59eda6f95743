//! causewayd with one dispatcher and two groups.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::common::Dir;

/// Net ports of the attacker that are named `red-<n>`.
pub const RED_NET_PORTS: u8 = 32;
/// CIDs of the attacker's vsock ports, which are named `red-vsock-<cid>`.
pub const RED_CIDS: [u64; 2] = [3, 4];
/// The attacker's NIC.
pub const NIC: &str = "red-nic";
/// Net ports of the victim, which are named `blue-<n>`.
const BLUE_NET_PORTS: u8 = 2;
/// Adapters of each group, which are named `red-hca-<n>` and `blue-hca-<n>`.
const ADAPTERS: u8 = 4;
/// Longest pause between two polls of an idle adapter, in microseconds.
const IDLE_POLL_US: u32 = 100;
const MTU: u16 = 65_535;

/// A daemon that ends with its test.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    dir: Dir,
}

impl Daemon {
    /// Starts a daemon and waits until its ports accept frontends.
    pub fn start() -> Self {
        let dir = Dir::new();
        let config = dir.file("causeway.toml");
        std::fs::write(&config, text(&dir)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_causewayd"));
        command.env_remove("NOTIFY_SOCKET").arg("--config").arg(config).stderr(Stdio::null());
        let daemon = Self { child: command.spawn().unwrap(), dir };
        let last = daemon.socket(&format!("red-vsock-{}", RED_CIDS[1]));
        let start = Instant::now();
        while !last.exists() {
            assert!(start.elapsed() < PATIENCE, "causewayd does not start");
            thread::sleep(Duration::from_millis(2));
        }
        daemon
    }

    /// Returns the path of a port's socket.
    pub fn socket(&self, port: &str) -> PathBuf {
        self.dir.file(&format!("{port}.sock"))
    }

    /// Returns the path on which host processes reach a guest.
    pub fn host_socket(&self, cid: u64) -> PathBuf {
        self.dir.file(&format!("host-{cid}"))
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the MAC address of a net port of the group with this byte.
pub fn mac(group: u8, port: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, group, port]
}

/// Returns the MAC address of an adapter of the group with this byte.
pub fn adapter_mac(group: u8, port: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 1, group, port]
}

fn text_of(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The byte in the addresses of the attacker's ports.
pub const RED: u8 = 0x0a;
/// The byte in the addresses of the victim's ports.
pub const BLUE: u8 = 0x0b;

/// Returns the configuration file. The last port is created last.
fn text(dir: &Dir) -> String {
    let run = dir.0.display();
    let mut text = format!(
        "[daemon]\ncontrol = \"{run}/control.sock\"\nrun_dir = \"{run}\"\nlog = \"error\"\n\
         hold = \"none\"\n[dispatch]\ndispatchers = 1\n\
         [[group]]\nname = \"red\"\n[[group]]\nname = \"blue\"\n"
    );
    for (group, byte, ports) in [("blue", BLUE, BLUE_NET_PORTS), ("red", RED, RED_NET_PORTS)] {
        for port in 0..ports {
            let address = text_of(mac(byte, port));
            text += &format!(
                "[[port]]\nname = \"{group}-{port}\"\ngroup = \"{group}\"\nkind = \"net\"\n\
                 mac = \"{address}\"\nmtu = {MTU}\n"
            );
        }
        for port in 0..ADAPTERS {
            let address = text_of(adapter_mac(byte, port));
            text += &format!(
                "[[port]]\nname = \"{group}-hca-{port}\"\ngroup = \"{group}\"\nkind = \"hca\"\n\
                 mac = \"{address}\"\nidle_poll_us = {IDLE_POLL_US}\n"
            );
        }
    }
    text += &format!("[[port]]\nname = \"{NIC}\"\ngroup = \"red\"\nkind = \"mx\"\n");
    for cid in RED_CIDS {
        text += &format!(
            "[[port]]\nname = \"red-vsock-{cid}\"\ngroup = \"red\"\nkind = \"vsock\"\n\
             cid = {cid}\nhost_socket = \"{run}/host-{cid}\"\n"
        );
    }
    text
}
