//! Drops privileges of the process permanently: no gain by execve(2), no core dump, no ptrace(2) by
//! the same user, and only the capabilities in [`KEPT`], with CAP_NET_RAW for raw interfaces.
//!
//! The user and groups of the process stay: a daemon of root keeps uid 0 without the other
//! capabilities. No capability is gained, and the bounding set stays as it is. Capabilities change
//! for the calling thread and the threads that it starts later.
//!
//! `super::Sandbox` calls [`drop_privileges`] first, on the main thread: Landlock and seccomp need
//! the ban on new privileges.

use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{Requirements, SandboxError};

/// Capabilities that are kept if the daemon has them: for owners of sockets, directories of other
/// users, ports below 1024, interfaces and the buffer sizes of their sockets, priorities, limits of
/// resources, and locked memory.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::IPC_LOCK);

/// Forbids new privileges and core dumps, and drops the capabilities that `requirements` does not
/// require. Returns false if an outer sandbox forbids the change of capabilities.
///
/// # Errors
/// A system call fails otherwise.
pub fn drop_privileges(requirements: Requirements) -> Result<bool, SandboxError> {
    let wrong = |what| move |error: Errno| SandboxError::Privileges { what, error: error.into() };
    rustix::thread::set_no_new_privs(true).map_err(wrong("the gain of privileges"))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(wrong("core dumps"))?;
    let kept = if requirements.raw { KEPT.union(CapabilitySet::NET_RAW) } else { KEPT };
    let sets = match rustix::thread::capabilities(None) {
        Err(Errno::PERM | Errno::NOSYS) => return Ok(false),
        sets => sets.map_err(wrong("capabilities"))?,
    };
    let left = CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: sets.inheritable & kept,
    };
    if left.permitted == sets.permitted && left.inheritable == sets.inheritable {
        return Ok(true);
    }
    // The ambient set follows: a capability leaves it when it leaves the inheritable set.
    match rustix::thread::set_capabilities(None, left) {
        Err(Errno::PERM | Errno::NOSYS) => Ok(false),
        set => set.map(|()| true).map_err(wrong("capabilities")),
    }
}
