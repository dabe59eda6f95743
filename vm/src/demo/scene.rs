//! Test environment of the demo: causewayd, two guests, and a bridge.
//!
//! `super` sets the scene up in the main thread, before the rows of guests, and tears it down after
//! them, or with `--keep` at the end. The daemon and the guests are child processes; guests are
//! attached to the daemon's ports and, where possible, to taps of the bridge. A guest that does not
//! boot within 120 s (times `CAUSEWAY_PATIENCE`) ends the demo; a bridge that cannot be made does
//! not. The targets name a service of the second guest by each path between guests, and those of
//! the first guest and of the host for each other. Parts drop in the order of the fields, guests
//! first.

use crate::options::Options;
use crate::step;
use causeway_guest_tool::limits::STREAM_PORT;
use causeway_guest_tool::serve;
use causeway_guest_tool::transport::Target;
use causeway_vm::daemon::{HOST_CID, Member};
use causeway_vm::{Bridge, Daemon, Error, Guest, GuestSpec, Machine, Nic, NicBackend, Result};
use std::net::SocketAddr;
use std::time::Instant;

/// Processes of the demo. Fields drop in this order.
pub struct Scene {
    /// The two guests: the first is the client, the second the server.
    pub guests: Vec<Guest>,
    /// The guests' ports.
    pub members: Vec<Member>,
    /// The daemon between them.
    pub daemon: Daemon,
    /// The reference path; or the reason for its absence.
    pub bridge: std::result::Result<Bridge, String>,
    /// Engine and image of the guests.
    pub machine: Machine,
    /// Load of the host before the guests started.
    pub load: f64,
}

impl Scene {
    /// Builds and starts all parts.
    pub fn set_up(options: &Options) -> Result<Self> {
        let load = load();
        step("guest kernel and initramfs (the first run downloads a Debian kernel package)");
        let machine = Machine::qemu()?;
        step(&format!("guests: Linux {}, {}", machine.image.kernel.release, machine.describe()));
        let members = vec![Member::new("vm1", "blue", 1), Member::new("vm2", "blue", 2)];
        step("start causewayd");
        let daemon = Daemon::start(&members)?;
        let bridge = if options.bridge {
            Bridge::new(2, 1500).map_err(|e| e.to_string())
        } else {
            Err("omitted by --no-bridge".into())
        };
        match &bridge {
            Ok(_) => step("a Linux bridge with two taps, in a separate network namespace"),
            Err(why) => step(&format!("there is no comparison with a bridge: {why}")),
        }
        step("boot two guests");
        let start = Instant::now();
        let holder = bridge.as_ref().ok().map(Bridge::holder);
        let specs = members.iter().enumerate().map(|(i, m)| spec(&daemon, m, i, holder)).collect();
        let guests = Guest::boot_all(&machine, specs)?;
        step(&format!("both guests are up after {:.1} s", start.elapsed().as_secs_f64()));
        answer_for_host(&daemon, &members[0])?;
        Ok(Self { guests, members, daemon, bridge, machine, load })
    }

    /// Returns the second guest's service over Causeway's Ethernet.
    pub fn tcp(&self) -> Target {
        address(&self.members[1].ip())
    }

    /// Returns the second guest's service over the bridge.
    pub fn bridge_tcp(&self) -> Option<Target> {
        self.bridge.as_ref().ok().map(|_| address(&bridge_ip(1)))
    }

    /// Returns the second guest's service over AF_VSOCK.
    pub fn vsock(&self) -> Target {
        Target::Vsock(self.members[1].cid, STREAM_PORT)
    }

    /// Returns the first guest's service, from the host.
    pub fn host_to_guest(&self) -> Target {
        Target::Hybrid(self.daemon.host_socket(&self.members[0]), STREAM_PORT)
    }

    /// Returns the host's service, from the first guest.
    pub fn guest_to_host() -> Target {
        Target::Vsock(HOST_CID, STREAM_PORT)
    }

    /// Stops guests and daemon; the daemon must exit cleanly.
    pub fn tear_down(mut self) -> Result<()> {
        self.guests.clear();
        self.daemon.check()?;
        match self.daemon.stop() {
            Some(status) if status.success() => Ok(()),
            status => Err(Error::Daemon {
                what: format!("did not exit cleanly after SIGTERM: {status:?}"),
                log: self.daemon.log(),
            }),
        }
    }
}

/// Returns the load average of the last minute; 0 if the kernel does not report it.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Returns the bridge address of guest `index`.
pub fn bridge_ip(index: usize) -> String {
    format!("10.78.0.{}", index + 1)
}

/// Returns a TCP target at the agent's port.
fn address(ip: &str) -> Target {
    let ip = ip.parse().unwrap_or(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
    Target::Tcp(SocketAddr::new(ip, u16::try_from(STREAM_PORT).unwrap_or(0)))
}

/// Returns the guest of a member, with a tap if there is a bridge.
fn spec(daemon: &Daemon, member: &Member, index: usize, holder: Option<u32>) -> GuestSpec {
    let mut spec = daemon.guest(member);
    if holder.is_some() {
        spec.namespace_of = holder;
        spec = spec.nic(Nic {
            backend: NicBackend::Tap(format!("tap{index}")),
            mac: format!("52:54:00:78:00:{:02x}", index + 1),
            address: format!("{}/24", bridge_ip(index)),
            mtu: 1500,
        });
    }
    spec
}

/// Starts the server of a guest's connections to the host, in this process.
fn answer_for_host(daemon: &Daemon, member: &Member) -> Result<()> {
    let path = daemon.host_listener(member, STREAM_PORT);
    let what = format!("listen on {}", path.display());
    serve::spawn(Target::Unix(path.clone())).map_err(Error::io(what))?;
    daemon.open_to_daemon(&path)
}
