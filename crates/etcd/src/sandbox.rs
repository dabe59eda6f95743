//! Restrictions of the process, after its files are read. The verb `run` enters them, unless
//! `--no-sandbox` is given.
//!
//! [`enter`] forbids a gain of privileges and core dumps, drops all capabilities but
//! CAP_DAC_OVERRIDE, and permits writes in the state directory only, reads there and in `/etc`,
//! `/lib`, `/usr/lib` and `/run/systemd/resolve` (names are resolved anew), and TCP connections to
//! the ports of etcd and to port 53 (Landlock; connecting to the control socket is not an access
//! that Landlock restricts, nor is UDP). A kernel with an older Landlock restricts files but no
//! ports. If an outer sandbox forbids to drop capabilities, the process keeps them. The calling
//! thread and threads that it starts later are restricted; there is no way back.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::stream::Endpoint;

/// The capability that a process of root needs for a control socket of another user.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;
/// Directories that the resolver of the C library reads.
const READ: [&str; 4] = ["/etc", "/lib", "/usr/lib", "/run/systemd/resolve"];

/// A part of the sandbox that the kernel refuses although it supports it.
#[derive(Debug, thiserror::Error)]
pub enum RestrictError {
    /// A gain of privileges cannot be forbidden.
    #[error("cannot forbid a gain of privileges: {0}")]
    Privileges(std::io::Error),
    /// The rules for files and ports are refused.
    #[error("cannot restrict files and ports: {0}")]
    Rules(#[from] RulesetError),
}

/// Restricts the calling thread. Returns false if the kernel has no Landlock.
///
/// # Errors
/// The kernel refuses a part that it supports.
pub fn enter(state: &Path, endpoints: &[Endpoint]) -> Result<bool, RestrictError> {
    let wrong = |error: rustix::io::Errno| RestrictError::Privileges(error.into());
    rustix::thread::set_no_new_privs(true).map_err(wrong)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(wrong)?;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V5))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for dir in READ {
        if let Ok(fd) = PathFd::new(dir) {
            rules = rules.add_rule(PathBeneath::new(fd, read))?;
        }
    }
    let write = read
        | AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Refer
        | AccessFs::Truncate;
    if let Ok(fd) = PathFd::new(state) {
        rules = rules.add_rule(PathBeneath::new(fd, write))?;
    }
    for at in endpoints {
        rules = rules.add_rule(NetPort::new(at.port, AccessNet::ConnectTcp))?;
    }
    // Names are resolved over TCP if an answer is long.
    rules = rules.add_rule(NetPort::new(53, AccessNet::ConnectTcp))?;
    let status = rules.restrict_self()?.ruleset;
    let is_restricted = status != RulesetStatus::NotEnforced;
    let Ok(sets) = rustix::thread::capabilities(None) else { return Ok(is_restricted) };
    let left = CapabilitySets {
        effective: sets.effective & KEPT,
        permitted: sets.permitted & KEPT,
        inheritable: sets.inheritable & KEPT,
    };
    // An outer sandbox may forbid the call; the process then keeps its capabilities.
    let _ = rustix::thread::set_capabilities(None, left);
    Ok(is_restricted)
}
