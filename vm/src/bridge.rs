//! The reference path of the comparison: a Linux bridge and taps in a network namespace.
//!
//! The namespace ends with its holder process and the guests in it. Root creates a network
//! namespace directly; other users create it inside a user namespace, where the host permits that.
//! Nothing outside the namespace changes. The demo and a test create one [`Bridge`], and QEMU
//! attaches the taps to their guests; the set-up takes at most 10 s. Without the privilege the
//! error has the reason, and the demo goes on without the comparison. Guests, daemons and
//! [`crate::namespace`] enter namespaces by the functions here.

use crate::console::Console;
use crate::error::{Error, Result};
use crate::limits::CHECK;
use crate::process::{self, Process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of the namespace's set-up.
const SET_UP: Duration = Duration::from_secs(10);
/// Line that the holder prints when the set-up is complete.
const READY: &str = "bridge is ready";

/// A bridge with taps named `tap0`, `tap1` and so on.
#[derive(Debug)]
pub struct Bridge {
    holder: Process,
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Bridge {
    /// Creates a bridge with `taps` taps, all with this MTU and up.
    ///
    /// # Errors
    /// When this process lacks the privilege or the kernel lacks a feature, with the reason.
    pub fn new(taps: usize, mtu: u16) -> Result<Self> {
        let mut script =
            format!("set -e; ip link add br0 mtu {mtu} type bridge; ip link set br0 up");
        for i in 0..taps {
            script.push_str(&format!(
                "; ip tuntap add tap{i} mode tap; ip link set tap{i} mtu {mtu} master br0 up"
            ));
        }
        script.push_str(&format!("; echo {READY}; exec sleep infinity"));
        let mut prefix = vec!["unshare", "--net"];
        if !is_root() {
            prefix.extend(["--user", "--map-root-user"]);
        }
        let prefix: Vec<String> = prefix.into_iter().map(String::from).collect();
        let mut command = process::tied_within(&prefix, "sh");
        command.arg("-c").arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Process::start("the bridge's namespace", command)?;
        let said = Console::default();
        if let Some(stdout) = holder.child().stdout.take() {
            said.follow(stdout);
        }
        if let Some(stderr) = holder.child().stderr.take() {
            said.follow(stderr);
        }
        await_ready(&mut holder, &said)?;
        Ok(Self { holder })
    }

    /// Returns the process that holds the namespace of the taps; see
    /// [`crate::GuestSpec::namespace_of`].
    #[must_use]
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }
}

fn await_ready(holder: &mut Process, said: &Console) -> Result<()> {
    let start = Instant::now();
    while !said.tail().contains(READY) {
        if holder.ended().is_some() || start.elapsed() > SET_UP {
            thread::sleep(Duration::from_millis(50));
            return Err(Error::Missing {
                what: format!("cannot create a bridge with taps: {}", said.tail()),
                remedy: "run as root, or where user namespaces are allowed".into(),
            });
        }
        thread::sleep(CHECK);
    }
    Ok(())
}

/// Returns a command in the namespaces of process `pid`.
pub fn inside(pid: u32, program: &Path) -> Command {
    process::tied_within(&enter(pid), program)
}

/// Returns the command prefix that enters the namespaces of process `pid`.
pub(crate) fn enter(pid: u32) -> Vec<String> {
    let mut prefix = vec!["nsenter".to_string(), format!("--net=/proc/{pid}/ns/net")];
    if !is_root() {
        prefix.push(format!("--user=/proc/{pid}/ns/user"));
        prefix.push("--preserve-credentials".into());
    }
    prefix.push("--".into());
    prefix
}
