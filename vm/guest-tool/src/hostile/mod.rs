//! A guest that violates the rules of its devices.
//!
//! [`run`] takes a device from the kernel's driver, drives it by hand, commits the violation of one
//! case, and then behaves correctly until the device works again. The guest reports the time of
//! recovery; the host checks the state of the port. It runs as root in a test guest, by the agent:
//! `vm/tests/hostile.rs` calls `causeway-guest hostile` for each case. One device of a kind is
//! used, the first that is found, and it has no driver afterwards: [`rebind`] returns it. A device
//! that does not work again within 20 s, an unknown case and a missing device are errors, and so is
//! a missing answer of the peer in some cases of sockets. The effect of a violation on the port is
//! not judged here. Machines without QEMU's PCI devices (user-mode Linux) cannot run it.

mod device;
mod net;
mod pages;
mod pci;
mod rings;
mod vsock;

use device::Device;
use pci::Pci;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};

/// Time after which no further initialisation begins.
const HEALS: Duration = Duration::from_secs(20);

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the case.
    pub case: String,
    /// Whether the link went down afterwards; only network devices have a link.
    pub link_down: bool,
    /// Initialisations of the device until it worked again, the last included.
    pub tries: u32,
    /// Time from the first of these until the device worked again, in milliseconds.
    pub heals_ms: u64,
}

/// A kind of device and its cases.
trait Kind {
    /// PCI device IDs.
    const NUMBERS: &'static [&'static str];
    /// Feature bits negotiated by a correct driver.
    const FEATURES: u64;

    /// Reads the device's address from its configuration space; `peer` is the address of its peer.
    fn new(device: &mut Device, peer: &str) -> io::Result<Self>
    where
        Self: Sized;

    /// Commits the violation of a case; `None` if there is no such case.
    fn case(&self, device: &mut Device, name: &str) -> Option<io::Result<()>>;

    /// Waits for the violation to take effect. Returns whether the link went down.
    fn settle(&self, device: &mut Device) -> io::Result<bool>;

    /// Initialises the device correctly and exchanges data with the peer. Returns whether that
    /// worked.
    fn talks(&self, device: &mut Device) -> io::Result<bool>;
}

fn run_kind<K: Kind>(case: &str, peer: &str) -> io::Result<Verdict> {
    let mut device = Device::new(Pci::take(K::NUMBERS)?)?;
    let kind = K::new(&mut device, peer)?;
    let done = rings::case(&mut device, K::FEATURES, case).or_else(|| kind.case(&mut device, case));
    done.unwrap_or_else(|| Err(io::Error::other(format!("there is no case {case}"))))?;
    let link_down = kind.settle(&mut device)?;
    let start = Instant::now();
    let mut tries = 0;
    while start.elapsed() < HEALS {
        tries += 1;
        if kind.talks(&mut device)? {
            device.reset()?;
            let heals_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
            return Ok(Verdict { case: case.into(), link_down, tries, heals_ms });
        }
    }
    Err(io::Error::other(format!(
        "{case}: the device did not recover after {tries} initialisations"
    )))
}

/// Runs a case on the guest's device of a kind (`net` or `vsock`).
///
/// `peer` is the MAC address of a port that echoes frames, or the CID of a port that accepts
/// connections at port 9000. The case `none` has no violation. The device is reset at the end, also
/// after an error.
///
/// # Errors
/// When there is no such device or case, or the device does not work again.
pub fn run(kind: &str, case: &str, peer: &str) -> io::Result<Verdict> {
    match kind {
        "net" => run_kind::<net::Net>(case, peer),
        "vsock" => run_kind::<vsock::Vsock>(case, peer),
        _ => Err(unknown(kind)),
    }
}

/// Commits a violation of the socket device from which its port does not recover, and does not
/// check for recovery. Takes the cases of socket devices only; the device is reset at the end.
///
/// # Errors
/// When there is no such device or case, or the case fails.
pub fn last(case: &str, peer: &str) -> io::Result<()> {
    let mut device = Device::new(Pci::take(vsock::Vsock::NUMBERS)?)?;
    let kind = vsock::Vsock::new(&mut device, peer)?;
    let missing = || Err(io::Error::other(format!("there is no case {case}")));
    kind.case(&mut device, case).unwrap_or_else(missing)?;
    kind.settle(&mut device).map(drop)
}

/// Returns the device of a kind (`net` or `vsock`) to the kernel's driver.
///
/// # Errors
/// When there is no such kind or device, or the driver does not bind.
pub fn rebind(kind: &str) -> io::Result<()> {
    match kind {
        "net" => pci::rebind(net::Net::NUMBERS),
        "vsock" => pci::rebind(vsock::Vsock::NUMBERS),
        _ => Err(unknown(kind)),
    }
}

fn unknown(kind: &str) -> io::Error {
    io::Error::other(format!("there is no kind {kind}: the kinds are net and vsock"))
}
