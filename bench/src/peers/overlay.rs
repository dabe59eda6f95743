//! User-space overlays between two hosts, as packaged by Debian: n2n and tinc, both as switches of
//! Ethernet frames over UDP.
//!
//! Rows of links compare with them. Each host is a namespace; the overlay's programs run there as
//! child processes, tinc's with configurations in a temporary folder, and TCP runs over their tap
//! devices. Programs and TCP of a host have a core, each host its own ([`Ends::Apart`]).
//! Both ends must reach each other within 60 s; a stream that
//! stalls for 20 s fails ([`super::tcp`]). A missing program or privilege, or a program that fails
//! or does not come up, leaves the peer out with the reason. The programs end and the folder is
//! removed after the measurement. n2n's package requires a cipher; tinc is measured with and
//! without. The benchmark waits in the thread of the row.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::process::{Folder, Program, command, run};
use super::underlay::{Ends, PeerNetwork, Underlay};
use crate::effort::Effort;

/// Time limit for both ends to reach each other.
const FOUND: Duration = Duration::from_secs(60);
/// Time allowed for the listening end to start.
const START_DELAY: Duration = Duration::from_millis(700);

/// An overlay program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlay {
    /// n2n; Debian's package requires a cipher.
    N2n,
    /// tinc with its default cipher and digest.
    Tinc,
    /// tinc without cipher and digest.
    TincPlain,
}

/// Returns the overlay's address of host 0 or 1.
fn address(host: usize) -> String {
    format!("10.196.0.{}", host + 1)
}

/// Starts a program on host 0 or 1; killed when dropped.
fn start(underlay: &Underlay, host: usize, words: &[&str]) -> Result<Program, String> {
    let (name, arguments) = words.split_first().ok_or("no program")?;
    // Otherwise only `ip` would report the missing program, on a stream that is not read.
    if !["/usr/bin", "/usr/sbin", "/usr/local/sbin"]
        .iter()
        .any(|at| Path::new(at).join(name).exists())
    {
        return Err(format!("{name} is not installed"));
    }
    let space = underlay.name(host)?;
    // Each host has a core, as the hosts of Causeway's rows.
    let core = Ends::Apart.core(host).to_string();
    let mut inside = command("taskset");
    inside.args(["--cpu-list", &core, "ip", "netns", "exec", space, name]).args(arguments);
    Program::start(&mut inside)
}

/// The overlay between the hosts of an underlay; it ends when dropped.
#[derive(Debug)]
struct Running {
    _programs: Vec<Program>,
    _folder: Folder,
}

impl Running {
    fn new(underlay: &Underlay, overlay: Overlay) -> Result<Self, String> {
        let folder = Folder::new("overlay")?;
        let programs = match overlay {
            Overlay::N2n => n2n(underlay)?,
            Overlay::Tinc => tinc(underlay, "", &folder)?,
            Overlay::TincPlain => tinc(underlay, "Cipher = none\nDigest = none\n", &folder)?,
        };
        let running = Self { _programs: programs, _folder: folder };
        // A refused connection is an answer too: it came from the far host.
        let far: SocketAddr = format!("{}:7", address(1)).parse().map_err(|_| "an address")?;
        let since = Instant::now();
        underlay.at(0, || {
            loop {
                match TcpStream::connect_timeout(&far, Duration::from_secs(1)) {
                    Err(e) if e.kind() != std::io::ErrorKind::ConnectionRefused => {
                        if since.elapsed() > FOUND {
                            return Err(format!("{overlay:?} does not connect the hosts: {e}"));
                        }
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    _ => return Ok(()),
                }
            }
        })?;
        Ok(running)
    }
}

/// Starts n2n: a supernode on the first host, where the edges find each other.
fn n2n(underlay: &Underlay) -> Result<Vec<Program>, String> {
    let near = PeerNetwork::Veth.address(0);
    let mut programs = vec![start(underlay, 0, &["supernode", "-l", "7654"])?];
    // Edges retry a failed lookup only after half a minute.
    std::thread::sleep(START_DELAY);
    for host in 0..2 {
        let (address, port) = (address(host), format!("{}", 7655 + host));
        let (supernode, mac) = (format!("{near}:7654"), format!("02:00:00:00:00:0{host}"));
        let mut words = vec!["edge", "-d", "over0", "-a", &address, "-c", "bench"];
        words.extend(["-l", &supernode, "-p", &port, "-m", &mac, "-u", "0", "-g", "0"]);
        words.extend(["-k", "a-key-of-the-bench"]);
        programs.push(start(underlay, host, &words)?);
    }
    Ok(programs)
}

/// Starts two tinc daemons, the first of which connects to the other.
fn tinc(underlay: &Underlay, seal: &str, folder: &Folder) -> Result<Vec<Program>, String> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    let name = |host: usize| format!("host{host}");
    for host in 0..2 {
        let at = folder.file(&name(host));
        std::fs::create_dir_all(at.join("hosts")).map_err(|e| e.to_string())?;
        let connect = if host == 0 { format!("ConnectTo = {}\n", name(1)) } else { String::new() };
        let of = format!(
            "Name = {}\nMode = switch\nDeviceType = tap\nInterface = over0\n{connect}",
            name(host)
        );
        write(&at.join("tinc.conf"), &of)?;
        let up = format!(
            "#!/bin/sh\nip addr add {}/24 dev $INTERFACE\nip link set $INTERFACE up\n",
            address(host)
        );
        write(&at.join("tinc-up"), &up)?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(at.join("tinc-up"), mode).map_err(|e| e.to_string())?;
        let own = format!("Address = {}\n{seal}", PeerNetwork::Veth.address(host));
        write(&at.join("hosts").join(name(host)), &own)?;
        run(Command::new("tincd").arg("-c").arg(&at).arg("-K2048"))?;
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let key = |of: usize| folder.file(&name(of)).join("hosts");
        std::fs::copy(key(from).join(name(from)), key(to).join(name(from)))
            .map_err(|e| e.to_string())?;
    }
    // The accepting daemon starts first: the other retries only after seconds.
    let daemon = |host: usize| {
        let (at, pid) = (folder.file(&name(host)), folder.file(&format!("pid{host}")));
        let pid = format!("--pidfile={}", pid.display());
        start(underlay, host, &["tincd", "-c", &at.to_string_lossy(), "-D", &pid])
    };
    let far = daemon(1)?;
    std::thread::sleep(START_DELAY);
    Ok(vec![daemon(0)?, far])
}

/// TCP over the overlay with writes of 64 KiB, in Gbit/s.
pub fn tcp_gbits(effort: &Effort, overlay: Overlay) -> Result<Vec<f64>, String> {
    let underlay = Underlay::new()?;
    let running = Running::new(&underlay, overlay)?;
    let measured = underlay.tcp_gbits(effort, &address(1), effort.rounds(512 << 20));
    drop(running);
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays_carry_traffic_where_they_are_to_be_had() {
        for overlay in [Overlay::N2n, Overlay::Tinc, Overlay::TincPlain] {
            let measured = Underlay::new().and_then(|underlay| {
                let _running = Running::new(&underlay, overlay)?;
                let effort = Effort { runs: 1, quick: true };
                underlay.tcp_gbits(&effort, &address(1), 4 << 20)
            });
            match measured {
                Ok(rates) => assert!(rates.iter().all(|rate| *rate > 0.0), "{overlay:?} {rates:?}"),
                Err(why) => {
                    let absent = ["not installed", "Operation not permitted"];
                    assert!(absent.iter().any(|word| why.contains(word)), "{overlay:?}: {why}");
                    eprintln!("left out: {overlay:?}: {why}");
                }
            }
        }
    }
}
