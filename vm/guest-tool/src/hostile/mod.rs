//! A guest that breaks the rules of its devices: it takes one from the kernel, drives it by hand,
//! does one wrong thing, and then behaves and looks whether the device works again.
//!
//! What became of the port is for the host to say; here it is told when the device worked again.

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

/// How long a device may take to work again after a wrong thing was done with it.
const HEALS: Duration = Duration::from_secs(20);

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The case.
    pub case: String,
    /// Whether the link went down after it; only network devices have one.
    pub link_down: bool,
    /// How often the device was set up before it worked again.
    pub tries: u32,
    /// How long that took, in milliseconds.
    pub heals_ms: u64,
}

/// A kind of device and its cases.
trait Kind {
    /// PCI device numbers.
    const NUMBERS: &'static [&'static str];
    /// Feature bits to negotiate when behaving.
    const FEATURES: u64;

    /// From its configuration space, and whom it talks to.
    fn new(device: &mut Device, peer: &str) -> io::Result<Self>
    where
        Self: Sized;

    /// Does the wrong thing; none if there is no such case.
    fn case(&self, device: &mut Device, name: &str) -> Option<io::Result<()>>;

    /// Lets what was done take effect; says whether the link went down.
    fn settle(&self, device: &mut Device) -> io::Result<bool>;

    /// Behaves: sets the device up and talks to the peer. Whether that worked.
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
    Err(io::Error::other(format!("{case}: the device does not work again, tried {tries} times")))
}

/// Runs one case on the guest's device of a kind (`net` or `vsock`); `peer` is the MAC address
/// of one that echoes frames, or the CID of one that accepts connections. The case `none` is the
/// good behaviour alone.
///
/// # Errors
/// When there is no such device or case, or the device does not work again.
pub fn run(kind: &str, case: &str, peer: &str) -> io::Result<Verdict> {
    match kind {
        "net" => run_kind::<net::Net>(case, peer),
        "vsock" => run_kind::<vsock::Vsock>(case, peer),
        _ => Err(io::Error::other(format!("there are no cases for {kind}"))),
    }
}

/// Does the wrong thing and leaves it at that, for what no device recovers from.
///
/// # Errors
/// As [`run`].
pub fn last(case: &str, peer: &str) -> io::Result<()> {
    let mut device = Device::new(Pci::take(vsock::Vsock::NUMBERS)?)?;
    let kind = vsock::Vsock::new(&mut device, peer)?;
    let missing = || Err(io::Error::other(format!("there is no case {case}")));
    kind.case(&mut device, case).unwrap_or_else(missing)?;
    kind.settle(&mut device).map(drop)
}

/// Gives the device back to the kernel's driver.
///
/// # Errors
/// When the driver does not take it.
pub fn rebind(kind: &str) -> io::Result<()> {
    pci::rebind(match kind {
        "net" => net::Net::NUMBERS,
        _ => vsock::Vsock::NUMBERS,
    })
}
