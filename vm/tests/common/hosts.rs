//! Two hosts: network namespaces connected by veth pairs, with a causewayd in each, or in the first
//! only.

use super::LIMIT;
use causeway_guest_tool::limits::STREAM_PORT;
use causeway_vm::daemon::{Member, Setup};
use causeway_vm::process::{self, Process};
use causeway_vm::{Daemon, Key, Namespace, build, image};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for the slowest machine; no test waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Namespaces and keys of the hosts. Host 0 and host 1 have addresses `10.99.CABLE.1` and
/// `10.99.CABLE.2`, and `fd99:CABLE::1` and `fd99:CABLE::2`.
pub struct TestHosts {
    pub nets: Vec<Namespace>,
    keys: Vec<Key>,
}

impl TestHosts {
    /// Creates two hosts with a veth pair for each MTU; `None`, with a message, where this process
    /// may not create network namespaces.
    pub fn new(mtus: &[u16]) -> Option<Self> {
        let test_hosts = Self::bare(2)?;
        for (cable, mtu) in mtus.iter().enumerate() {
            test_hosts.cable(cable, [0, 1], *mtu);
        }
        Some(test_hosts)
    }

    /// Creates three hosts, each connected to both others: cable 0 excludes host 2, and so on.
    pub fn triangle() -> Option<Self> {
        let test_hosts = Self::bare(3)?;
        for (cable, ends) in [[0, 1], [1, 2], [0, 2]].into_iter().enumerate() {
            test_hosts.cable(cable, ends, 1500);
        }
        Some(test_hosts)
    }

    fn bare(hosts: usize) -> Option<Self> {
        let first = match Namespace::new() {
            Ok(first) => first,
            Err(why) => {
                eprintln!("skipped: {why}");
                return None;
            }
        };
        let mut nets = vec![first];
        while nets.len() < hosts {
            nets.push(nets[0].beside().unwrap());
        }
        let keys = nets.iter().map(|_| Key::new().unwrap()).collect();
        Some(Self { nets, keys })
    }

    fn cable(&self, cable: usize, ends: [usize; 2], mtu: u16) {
        let device = format!("cable{cable}");
        self.nets[ends[0]].cable(&self.nets[ends[1]], &device, mtu).unwrap();
        for host in ends {
            let lines = [
                format!("addr add {}/24 dev {device}", address(host, cable)),
                format!("addr add {}/64 dev {device} nodad", address6(host, cable)),
            ];
            self.nets[host].ip_each(&lines).unwrap();
        }
    }

    /// Starts a daemon on a host, with `links` as its `[[link]]` tables.
    pub fn daemon(&self, host: usize, members: &[Member], links: &str) -> Daemon {
        let mut setup = Setup::new(members);
        setup.namespace_of = Some(self.nets[host].holder());
        setup.links = links.into();
        Daemon::with(setup).unwrap()
    }

    /// Returns the `[[link]]` table of a link from host 0 or 1 to the other, by a cable.
    pub fn link(&self, host: usize, name: &str, kind: &str, cable: usize, more: &str) -> String {
        let ends = [address(host, cable), address(1 - host, cable)];
        self.link_between([host, 1 - host], name, kind, ends, more)
    }

    /// As [`Self::link`], between two hosts and two of their addresses, the link's own first.
    pub fn link_between(
        &self,
        [host, peer]: [usize; 2],
        name: &str,
        kind: &str,
        [local, remote]: [String; 2],
        more: &str,
    ) -> String {
        let mut text = format!(
            "\n[[link]]\nname = {name:?}\ngroup = \"blue\"\nkind = {kind:?}\n\
             remote = {remote:?}\n{more}\n"
        );
        // A stream has a listening end; the other end connects from any port.
        match kind {
            "tcp" if host < peer => {}
            "tcp" => text += &format!("listen = {local:?}\n"),
            _ => text += &format!("local = {local:?}\n"),
        }
        if kind == "causeway" {
            let (own, key) = (self.keys[host].file(), self.keys[peer].public());
            let _ = writeln!(text, "private_key = {own:?}\nkey = {key:?}");
        }
        text
    }

    /// Returns the arguments of `causeway` that add the same link.
    pub fn link_add(&self, host: usize, name: &str, kind: &str, cable: usize) -> Vec<String> {
        let (local, remote) = (address(host, cable), address(1 - host, cable));
        let mut words = vec!["link", "add", name, "--group", "blue", "--kind", kind];
        words.extend(["--local", &local, "--remote", &remote]);
        let mut words: Vec<String> = words.into_iter().map(String::from).collect();
        if kind == "causeway" {
            let (own, peer) = (self.keys[host].file(), self.keys[1 - host].public());
            let own = own.display().to_string();
            words.extend(["--private-key", &own, "--key", peer].map(String::from));
        }
        words
    }
}

/// Returns the address of a host on a cable.
pub fn address(host: usize, cable: usize) -> String {
    format!("10.99.{cable}.{}", host + 1)
}

/// Returns the IPv6 address of a host on a cable.
pub fn address6(host: usize, cable: usize) -> String {
    format!("fd99:{cable}::{}", host + 1)
}

/// Returns a link as shown by `causeway link show`.
pub fn show(daemon: &Daemon, link: &str) -> Value {
    let text = daemon.cli(&["link", "show", link, "-o", "json"]).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns a counter of a link; 0 where it does not exist.
pub fn counter(daemon: &Daemon, link: &str, name: &str) -> u64 {
    show(daemon, link)["counters"][name].as_u64().unwrap_or(0)
}

/// Returns whether a port exists and has a frontend with all queues running.
pub fn is_served(daemon: &Daemon, port: &str) -> bool {
    let shown = daemon.cli(&["port", "show", port, "-o", "json"]);
    let Ok(Ok(view)) = shown.map(|text| serde_json::from_str::<Value>(&text)) else { return false };
    let queues = view["queues"].as_array().cloned().unwrap_or_default();
    !queues.is_empty() && queues.iter().all(|queue| queue["running"] == true)
}

/// Waits until a link is in `state`.
pub fn await_state(daemon: &Daemon, link: &str, state: &str) {
    wait(
        || show(daemon, link)["state"] == state,
        || format!("{state}: {:#}\n{}", show(daemon, link), daemon.log()),
    );
}

/// Waits until `done`; panics with `what` after the time limit.
pub fn wait(mut done: impl FnMut() -> bool, what: impl Fn() -> String) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "gave up waiting: {}", what());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A host without causewayd, with the kernel's network stack.
pub struct Native<'a> {
    pub net: &'a Namespace,
    tool: PathBuf,
    _service: Process,
}

impl<'a> Native<'a> {
    /// Serves TCP on every address of the host.
    pub fn serve(net: &'a Namespace) -> Self {
        let tool = build::guest_tool().unwrap();
        let mut command = net.command(&tool);
        command.args(["serve", &format!("tcp:0.0.0.0:{STREAM_PORT}")]).stdout(Stdio::null());
        let service = Process::start("the service of a native host", command).unwrap();
        Self { net, tool, _service: service }
    }

    /// Sends `bytes` bytes to `ip` by TCP; the receiver checks each.
    pub fn stream(&self, ip: &str, bytes: u64) -> causeway_vm::Result<String> {
        let (target, bytes) = (format!("tcp:{ip}:{STREAM_PORT}"), bytes.to_string());
        let limit = LIMIT.as_millis().to_string();
        let mut command = self.net.command(&self.tool);
        process::output(command.args(["stream", &target, "65536", &bytes, &limit]))
    }

    /// Pings `ip` with `bytes` bytes of payload; every reply must arrive.
    pub fn ping(&self, ip: &str, bytes: usize) -> causeway_vm::Result<String> {
        process::output(&mut ping(self.net, ip, bytes))
    }
}

/// Returns a command for three pings of `bytes` bytes from a namespace.
pub fn ping(net: &Namespace, ip: &str, bytes: usize) -> Command {
    let mut command = net.command(image::busybox().unwrap());
    let bytes = bytes.to_string();
    command.args(["ping", "-c", "3", "-A", "-w", "30", "-q", "-s", &bytes, ip]);
    command
}
