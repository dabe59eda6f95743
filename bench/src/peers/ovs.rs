//! Open vSwitch with DPDK, as a separate instance: own database, sockets and folder, independent of
//! the system's instance.
//!
//! Rows of frames compare with its forwarding between two vhost-user ports, driven by the same
//! generator as Causeway (`testpmd`, or the native frontend). The switch polls on the dispatcher's
//! core. The switch is started for each figure, and each step of the start may take 60 s; without
//! Debian's package, or enough memory (2,560 MiB), the peer is left out with the reason. Both
//! processes are killed, and the folder is removed, on drop.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::process::{Folder, Program, command, run, wait_for};
use super::testpmd::{Generator, Traffic};
use crate::effort::Effort;
use crate::pin::{CLIENT, SERVER};

/// Path of Debian's switch with DPDK support.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// With less memory the second port forwards nothing.
const EXTRA: &str = "--legacy-mem --no-huge -m 2560 --no-pci";
const START: Duration = Duration::from_secs(60);

/// The running switch, a bridge with two ports.
#[derive(Debug)]
pub struct Ovs {
    // Drop order: the switch ends before its database.
    _switch: Program,
    _database: Program,
    folder: Folder,
}

impl Ovs {
    fn command(&self, name: &str) -> Command {
        own_folders(name, self.folder.path())
    }

    fn set(&self, words: &[&str]) -> Result<String, String> {
        let database = format!("--db=unix:{}", self.folder.file("db.sock").display());
        run(self.command("ovs-vsctl").arg(database).args(["-t", "60"]).args(words))
    }

    /// Starts the switch.
    pub fn start() -> Result<Self, String> {
        if !Path::new(SWITCH).exists() {
            return Err("openvswitch-switch-dpdk is not installed".into());
        }
        let folder = Folder::new("ovs")?;
        let file = |name: &str| folder.file(name).display().to_string();
        run(own_folders("ovsdb-tool", folder.path()).args(["create", &file("db"), SCHEMA]))?;
        let database = Program::start(
            own_folders("ovsdb-server", folder.path())
                .args([&file("db"), &format!("--remote=punix:{}", file("db.sock"))])
                .args([format!("--unixctl={}", file("db.ctl"))]),
        )?;
        wait_for(&folder.file("db.sock"), START)?;
        // The polling thread has the dispatcher's core; the main thread, which sleeps, has the
        // other.
        let options = [
            "other_config:dpdk-init=true".to_owned(),
            format!("other_config:pmd-cpu-mask={:#x}", 1 << SERVER),
            format!("other_config:dpdk-lcore-mask={:#x}", 1 << CLIENT),
            format!("other_config:dpdk-extra={EXTRA} --file-prefix ovs{}", std::process::id()),
        ];
        let address = format!("--db=unix:{}", file("db.sock"));
        let mut set = own_folders("ovs-vsctl", folder.path());
        set.args([&address, "--no-wait", "--", "init", "--", "set", "Open_vSwitch", "."]);
        run(set.args(&options))?;
        let switch = Program::start(
            own_folders(SWITCH, folder.path())
                .arg(format!("unix:{}", file("db.sock")))
                .args([format!("--unixctl={}", file("vs.ctl")), "-vconsole:off".to_owned()])
                .arg(format!("--log-file={}", file("log"))),
        )?;
        let ovs = Self { _switch: switch, _database: database, folder };
        ovs.set(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"])?;
        for port in ["v0", "v1"] {
            let kind = ["--", "set", "Interface", port, "type=dpdkvhostuser"];
            ovs.set(&[&["add-port", "br0", port], &kind[..]].concat())?;
        }
        for socket in ovs.sockets() {
            wait_for(&socket, START)?;
        }
        Ok(ovs)
    }

    /// Returns the vhost-user sockets.
    pub fn sockets(&self) -> [PathBuf; 2] {
        [self.folder.file("v0"), self.folder.file("v1")]
    }

    /// Waits until both ports have a guest, at most 60 s.
    fn wait_up(&self) -> Result<(), String> {
        let up = |port| ["--", "wait-until", "Interface", port, "link_state=up"];
        self.set(&[up("v0"), up("v1")].concat()).map(drop)
    }
}

/// Returns a command that keeps all its files in `folder`.
fn own_folders(name: &str, folder: &Path) -> Command {
    let mut command = command(name);
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder);
    }
    command
}

/// Frames per second through a bridge with two ports, with address learning, in millions; both
/// directions together.
pub fn forwarding(effort: &Effort, traffic: &Traffic) -> Result<Vec<f64>, String> {
    let ovs = Ovs::start()?;
    let [a, b] = ovs.sockets();
    let mut generator = Generator::attach([&a, &b], traffic)?;
    ovs.wait_up()?;
    std::thread::sleep(Duration::from_secs(2));
    generator.start(traffic)?;
    generator.mpps(effort)
}
