//! vhost-device-vsock: another daemon that connects sibling guests by vsock.
//!
//! Causeway's native front end attaches to it as the guest, so that the same code drives both
//! daemons. The daemon is measured only with sizes that it supports: a packet that exceeds one
//! receive buffer is lost.
//!
//! `rows::sockets` starts the daemon for each figure, on the dispatcher's core, with ports for CIDs
//! 3 and 4; their sockets must exist within 10 s. The program is built by `scripts/bench-peers.sh`;
//! without it the peer is left out with the reason. The process ends on drop.

use std::path::PathBuf;
use std::time::Duration;

use causeway_attach::native::{VsockOptions, VsockPort};

use super::process::{Folder, Program, command, wait_for};
use crate::pin::SERVER;

/// Largest write of the rows with a packet that fits into a receive buffer of 4 KiB.
pub const WRITE_MAX: usize = 3072;

/// The running daemon with ports for CIDs 3 and 4.
#[derive(Debug)]
pub struct VhostDevice {
    _program: Program,
    folder: Folder,
}

/// Returns the program's path: `peers/bin` in a folder above this program, where
/// scripts/bench-peers.sh puts it.
fn binary() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let built = me.ancestors().map(|dir| dir.join("peers/bin/vhost-device-vsock"));
    let found = built.into_iter().find(|path| path.exists());
    found.ok_or_else(|| "vhost-device-vsock is not built (scripts/bench-peers.sh)".into())
}

impl VhostDevice {
    /// Starts the daemon on the dispatcher's core.
    pub fn start() -> Result<Self, String> {
        let folder = Folder::new("vsock")?;
        let vm = |cid: u32| {
            let path = |what: &str| folder.file(&format!("{what}{cid}")).display().to_string();
            format!("guest-cid={cid},socket={},uds-path={},groups=bench", path("v"), path("u"))
        };
        let mut daemon = command("taskset");
        daemon.args(["-c", &SERVER.to_string()]).arg(binary()?);
        let program = Program::start(daemon.args(["--vm", &vm(3), "--vm", &vm(4)]))?;
        for cid in [3, 4] {
            wait_for(&folder.file(&format!("v{cid}")), Duration::from_secs(10))?;
        }
        Ok(Self { _program: program, folder })
    }

    /// Attaches the guest with this CID.
    pub fn attach(&self, cid: u32, options: VsockOptions) -> Result<VsockPort, String> {
        let path = self.folder.file(&format!("v{cid}"));
        VsockPort::attach(&path, options).map_err(|e| e.to_string())
    }
}
