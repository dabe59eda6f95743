//! Restrictions of the process, after its listeners are open.
//!
//! [`enter`] forbids a gain of privileges and core dumps, drops all capabilities except access to
//! files and sockets of other users (`CAP_DAC_OVERRIDE`; all stay if an outer sandbox forbids
//! the call), and permits no access to the file system except the removal of files in
//! the directories of the process's own Unix sockets (Landlock; connecting to a Unix socket is not
//! an access that Landlock restricts). Where the kernel restricts TCP too (ABI 4, Linux 6.7), the
//! process connects only to the ports of its targets and listens at no further port. A kernel
//! without Landlock leaves this part out. The calling thread and threads that it starts later are
//! restricted; there is no way back. A second call adds restrictions and lifts none.
//!
//! `causeway forward` calls [`enter`] after [`crate::Relay::open`] and before
//! [`crate::Relay::run`], in the main thread, unless `--no-sandbox` is given.
//! `causeway forward --stdio` runs without a sandbox.

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{Forward, SocketAddress};

/// The capability that a process of root needs for sockets of other users, as those of a port.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE;

/// A part of the sandbox that the kernel refuses although it supports it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A gain of privileges cannot be forbidden.
    #[error("cannot forbid a gain of privileges: {0}")]
    Privileges(std::io::Error),
    /// The rules for files and ports are refused.
    #[error("cannot restrict files and ports: {0}")]
    Rules(#[from] RulesetError),
}

/// Restricts the calling thread to what `forwards` need. Returns false if the kernel has no
/// Landlock, or an outer sandbox forbids it.
///
/// # Errors
/// The kernel refuses a part that it supports.
pub fn enter(forwards: &[Forward]) -> Result<bool, SandboxError> {
    let wrong = |error: rustix::io::Errno| SandboxError::Privileges(error.into());
    rustix::thread::set_no_new_privs(true).map_err(wrong)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(wrong)?;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::from_all(ABI::V5))?
        .create()?;
    for dir in forwards.iter().filter_map(|forward| directory_of(&forward.from)) {
        if let Ok(fd) = PathFd::new(&dir) {
            rules = rules.add_rule(PathBeneath::new(fd, AccessFs::RemoveFile))?;
        }
    }
    for forward in forwards {
        if let SocketAddress::Tcp(all) = &forward.to {
            for at in all {
                rules = rules.add_rule(NetPort::new(at.port(), AccessNet::ConnectTcp))?;
            }
        }
    }
    let status = rules.restrict_self()?.ruleset;
    // Last: the rules above read directories by the capabilities of root.
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

/// Returns the directory of a source's Unix socket.
fn directory_of(source: &SocketAddress) -> Option<PathBuf> {
    let path = source.listening_path()?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    Some(dir.map_or_else(|| PathBuf::from("."), PathBuf::from))
}
