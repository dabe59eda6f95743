//! System call filter of the daemon: seccomp(2).
//!
//! The filter has three answers:
//!
//! - A call that an attacker needs and the daemon never makes ([`KILLED`]) ends the process: a
//!   thread executes foreign code, and the kernel logs it.
//! - A call that is not in the list fails with ENOSYS. The C library tries newer calls first and
//!   falls back on that error, so a newer library works.
//! - A listed call with arguments that are never used (a raw socket, a new process, a signal to
//!   another process, input pushed into a terminal) fails with EPERM: name services and libraries
//!   may try it. In dispatchers, executable memory and a change of owners or permissions fail so.
//!
//! Filters compare numbers, not memory: paths and addresses behind pointers are not examined; paths
//! are Landlock's part (`super::files`). A filter holds for the calling thread and the threads that
//! it starts later, and cannot be removed. On an architecture that `seccompiler` does not know the
//! daemon does not start without `--no-sandbox`; on a kernel without seccomp it starts unfiltered,
//! with a warning.
//!
//! `super::Sandbox` calls [`restrict`] on the main thread after Landlock, and
//! [`restrict_dispatcher`] on the thread that starts the dispatchers.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use super::Requirements;

#[path = "call_list.rs"]
mod list;
use list::{ALLOWED, KILLED, OWNERSHIP};

/// Rules by number of the system call; a call without rules matches with any arguments.
type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

const EPERM: u32 = libc::EPERM as u32;
const ENOSYS: u32 = libc::ENOSYS as u32;
/// Mask of a socket's type without flags.
const TYPE_MASK: u64 = 0xf;

/// Restricts the calling thread and the threads that it starts. Returns false if the kernel has no
/// filters.
///
/// # Errors
/// The filter is invalid or the kernel refuses it.
pub fn restrict(requirements: Requirements) -> Result<bool, Error> {
    let all = [
        filter(numbers(KILLED), SeccompAction::Allow, SeccompAction::KillProcess)?,
        filter(numbers(ALLOWED), SeccompAction::Errno(ENOSYS), SeccompAction::Allow)?,
        filter(refused(requirements)?, SeccompAction::Allow, SeccompAction::Errno(EPERM))?,
    ];
    for program in &all {
        match apply_filter(program) {
            Err(Error::Prctl(_)) => return Ok(false),
            // The call does not exist, or an outer filter refuses it.
            Err(Error::Seccomp(error))
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)
                ) =>
            {
                return Ok(false);
            }
            other => other?,
        }
    }
    Ok(true)
}

/// Restricts a dispatcher further: no executable memory, no change of owners and permissions.
///
/// # Errors
/// The filter is invalid or the kernel refuses it.
pub fn restrict_dispatcher() -> Result<(), Error> {
    let executable = flag(2, libc::PROT_EXEC as u64)?;
    let mut rules = numbers(OWNERSHIP);
    for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![executable.clone()])?]);
    }
    apply_filter(&filter(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM))?)
}

/// Compiles a filter: action `these` for calls that match `rules`, action `other` for all others.
fn filter(
    rules: CallRules,
    other: SeccompAction,
    these: SeccompAction,
) -> Result<BpfProgram, Error> {
    let arch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, other, these, arch)?.try_into()?)
}

/// Returns rules that match the calls with any arguments.
fn numbers(calls: &[i64]) -> CallRules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

/// Returns rules for arguments that are refused.
fn refused(requirements: Requirements) -> Result<CallRules, BackendError> {
    let mut families = vec![libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    families.extend(requirements.raw.then_some(libc::AF_PACKET));
    let of_family = |family| argument(0, SeccompCmpOp::Eq, family as u64);
    let other = families.iter().map(|family| argument(0, SeccompCmpOp::Ne, *family as u64));
    let mut sockets = vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let raw = argument(1, SeccompCmpOp::MaskedEq(TYPE_MASK), libc::SOCK_RAW as u64)?;
        sockets.push(SeccompRule::new(vec![of_family(family)?, raw])?);
    }
    let thread = libc::CLONE_THREAD as u64;
    let process = argument(0, SeccompCmpOp::MaskedEq(thread), 0)?;
    // TIOCSTI pushes input into a terminal.
    let pushes = argument(1, SeccompCmpOp::Eq, libc::TIOCSTI)?;
    // Signals are allowed to threads of this process only.
    let pid = u64::from(std::process::id());
    let other_process =
        || SeccompRule::new(vec![argument(0, SeccompCmpOp::Ne, pid)?]).map(|rule| vec![rule]);
    Ok(BTreeMap::from([
        (libc::SYS_kill, other_process()?),
        (libc::SYS_tgkill, other_process()?),
        (libc::SYS_socket, sockets),
        (libc::SYS_clone, vec![SeccompRule::new(vec![process])?]),
        (libc::SYS_ioctl, vec![SeccompRule::new(vec![pushes])?]),
    ]))
}

/// Returns a condition on argument `at`, from 0. Only its lower 32 bits are compared.
fn argument(at: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, op, value)
}

/// Returns the condition that a flag of an argument is set.
fn flag(at: u8, flag: u64) -> Result<SeccompCondition, BackendError> {
    argument(at, SeccompCmpOp::MaskedEq(flag), flag)
}
