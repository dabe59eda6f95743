//! Command line of a user-mode Linux guest: a Linux kernel built as a host program, with vhost-user
//! devices and no emulated hardware.
//!
//! [`crate::machine`] asks for the arguments, and [`crate::guest`] starts the kernel as a child
//! process, with the privileges of the test: the guest is not isolated from it. PCI functions,
//! monitor, migration, taps, backends of QEMU, packed rings, reconnection and the permission to
//! restart of a spec are ignored without an error. Neither KVM nor QEMU is needed. The kernel
//! reports a wrong argument on the console. Tests boot such guests where the package of user-mode
//! Linux can be had.

use crate::image::Image;
use crate::spec::{GuestSpec, NicBackend};
use std::path::Path;

/// Virtio device IDs of a guest's devices.
const NET: u32 = 1;
const VSOCK: u32 = 19;

/// Returns the arguments that boot `spec`. The console is on standard error, the agent's channel on
/// standard input and output; its files are in `dir`.
///
/// A network device's MAC comes from its port.
#[must_use]
pub fn arguments(spec: &GuestSpec, image: &Image, dir: &Path) -> Vec<String> {
    let mut line = vec![
        format!("mem={}M", spec.memory_mib),
        format!("initrd={}", image.initramfs.display()),
        // Its own files, which would otherwise be in the user's home.
        format!("uml_dir={}/", dir.display()),
        "con=null".into(),
        "con0=null,fd:2".into(),
        "ssl=null".into(),
        "ssl1=fd:0,fd:1".into(),
    ];
    for nic in &spec.nics {
        if let NicBackend::VhostUser(socket) = &nic.backend {
            line.push(format!("virtio_uml.device={}:{NET}", socket.display()));
        }
    }
    if let Some(socket) = &spec.vsock {
        line.push(format!("virtio_uml.device={}:{VSOCK}", socket.display()));
    }
    line
}
