//! Hot unplug of a function from a guest, after the unbind of its driver.
//!
//! The matrix calls [`unplug`], which boots one guest on an adapter of a daemon of its own, all as
//! child processes, from parts that must have been fetched. QEMU must report, with at most 60 s of
//! silence, that the device is gone, and must not end: some versions abort at the removal of a
//! vfio-user device with MSI-X. [`unplug`] unbinds the driver first; the unplug of a bound function
//! is not tested here. Daemon and guest are gone when [`unplug`] returns, also after an error. A
//! kernel that has reported a crash or a hang by then is an error, too.

use crate::daemon::Daemon;
use crate::error::Result;
use crate::monitor::Monitor;
use crate::rdma::{self, Group, Programs, RdmaGuest, Suite};
use crate::rundir::RunDir;
use serde_json::json;

/// Boots a guest, unbinds the driver from its function, and lets QEMU unplug the function
/// (`device_del`).
///
/// # Errors
/// When a part is missing, daemon or guest does not start, the driver does not unbind, QEMU ends or
/// is silent before it reports that the device is gone (with QEMU's output), or the kernel crashed.
pub fn unplug(suite: Suite) -> Result<()> {
    let daemon = Daemon::with(Group::setup(1))?;
    let machine = rdma::machine(suite, Programs::Verbs)?;
    let dir = RunDir::new()?;
    let path = dir.join("monitor.sock");
    let socket = daemon.adapter_socket("hca1");
    let mut guest = RdmaGuest::start_unpluggable(&machine, "rdma1", &socket, 1, &path)?;
    guest.await_ready()?;
    let mut monitor = Monitor::connect(&path)?;
    guest.unbind()?;
    let unplugged = monitor
        .ask("device_del", json!({"id": "function0"}))
        .and_then(|_| monitor.await_event("DEVICE_DELETED"));
    // A dead machine explains itself on its console.
    unplugged.map_err(|why| guest.explain("device_del after unbind", &why))?;
    guest.check_kernel_alive()
}
