//! Network namespaces, which stand for hosts, and the veth pairs between them.
//!
//! Each namespace belongs to a holder process that this process controls, and has no name that
//! could be left behind. The holder ends with this process in every case; when no other process is
//! left in the namespace, the kernel removes it with all its devices. Root creates namespaces
//! directly; other users create them inside a user namespace, where the host permits that. The demo
//! and tests with several hosts create them and start daemons and programs in them; a creation
//! takes at most 10 s. Without the privilege the creation is an error with the reason.

use crate::bridge;
use crate::console::Console;
use crate::error::{Error, Result};
use crate::limits::{CHECK, NAMESPACE_READY};
use crate::process::{self, Process};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// Line that a holder prints when its namespace exists.
const READY: &str = "namespace is there";

/// A network namespace. A drop ends the holder; the kernel removes the namespace afterwards.
#[derive(Debug)]
pub struct Namespace {
    holder: Process,
}

impl Namespace {
    /// Creates a namespace with only a loopback device.
    ///
    /// # Errors
    /// When this process may not create one, with the reason.
    pub fn new() -> Result<Self> {
        let mut prefix = vec!["unshare", "--net"];
        if !rustix::process::geteuid().is_root() {
            prefix.extend(["--user", "--map-root-user"]);
        }
        Self::held(prefix.into_iter().map(String::from).collect())
    }

    /// Creates another namespace with the same owner: veth pairs between the two are possible.
    ///
    /// # Errors
    /// As [`Namespace::new`].
    pub fn beside(&self) -> Result<Self> {
        let mut prefix = Vec::new();
        if !rustix::process::geteuid().is_root() {
            let user = format!("--user=/proc/{}/ns/user", self.holder());
            let enter = ["nsenter".into(), user, "--preserve-credentials".into(), "--".into()];
            prefix.extend(enter);
        }
        prefix.extend(["unshare", "--net"].map(String::from));
        Self::held(prefix)
    }

    fn held(prefix: Vec<String>) -> Result<Self> {
        let mut command = process::tied_within(&prefix, "sh");
        let script = format!("set -e; ip link set lo up; echo {READY}; exec sleep infinity");
        command.arg("-c").arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = Process::start("a network namespace", command)?;
        let said = Console::default();
        if let Some(stdout) = holder.child().stdout.take() {
            said.follow(stdout);
        }
        if let Some(stderr) = holder.child().stderr.take() {
            said.follow(stderr);
        }
        let start = Instant::now();
        while !said.tail().contains(READY) {
            if holder.ended().is_some() || start.elapsed() > NAMESPACE_READY {
                thread::sleep(5 * CHECK);
                return Err(Error::Missing {
                    what: format!("cannot create a network namespace: {}", said.tail()),
                    remedy: "run as root, or where user namespaces are allowed".into(),
                });
            }
            thread::sleep(CHECK);
        }
        Ok(Self { holder })
    }

    /// Returns the holder process; see [`crate::daemon::Setup::namespace_of`].
    #[must_use]
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// Returns a command in the namespace that is killed when this process dies.
    #[must_use]
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        bridge::inside(self.holder(), program.as_ref())
    }

    /// Runs `ip` in the namespace with blank-separated arguments; returns its output.
    ///
    /// # Errors
    /// When `ip` fails, with its output.
    pub fn ip(&self, arguments: &str) -> Result<String> {
        process::output(self.command("ip").args(arguments.split_whitespace()))
    }

    /// Runs `ip` for each line.
    ///
    /// # Errors
    /// As [`Namespace::ip`].
    pub fn ip_each(&self, lines: &[String]) -> Result<()> {
        lines.iter().try_for_each(|line| self.ip(line).map(drop))
    }

    /// Creates a veth pair to another namespace: a device `device` at both ends, up. Without root,
    /// one of the two must come from [`Namespace::beside`] of the other.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub fn cable(&self, to: &Self, device: &str, mtu: u16) -> Result<()> {
        let (end, mtu) = (format!("{device} mtu {mtu}"), format!("mtu {mtu}"));
        let peer = format!("peer name {device} {mtu} netns {}", to.holder());
        self.ip(&format!("link add {end} type veth {peer}"))?;
        for end in [self, to] {
            end.ip(&format!("link set {device} up"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_connect_and_are_removed_with_their_devices() {
        let one = match Namespace::new() {
            Ok(one) => one,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        let two = one.beside().unwrap();
        one.cable(&two, "cable0", 1400).unwrap();
        for (end, address) in [(&one, "10.99.0.1/24"), (&two, "10.99.0.2/24")] {
            end.ip(&format!("addr add {address} dev cable0")).unwrap();
            assert!(end.ip("link show cable0").unwrap().contains("mtu 1400"));
        }
        let route = one.ip("route get 10.99.0.2").unwrap();
        assert!(route.contains("dev cable0"), "{route}");
        let why = one.ip("link show cable1").unwrap_err().to_string();
        assert!(why.contains("cable1"), "{why}");
        drop(two);
        // The kernel removes the other end with its namespace, asynchronously.
        let start = Instant::now();
        while one.ip("link show cable0").is_ok() {
            assert!(
                start.elapsed() < NAMESPACE_READY,
                "a veth device outlived its peer's namespace"
            );
            thread::sleep(CHECK);
        }
    }
}
