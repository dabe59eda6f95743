//! The process at the other end of a Unix socket: its pidfd and its supplementary groups (unix(7),
//! `SO_PEERPIDFD`, `SO_PEERGROUPS`).
//!
//! The MX service calls [`process`] for a process that attaches, in the dispatcher's thread, and
//! the holder for a causewayd that connects, in its main thread. `daemon::peer` calls [`groups`]
//! for a connection of the control socket, in the acceptor's thread. The module decides nothing
//! itself. The answers describe the process that connected, at the time of the connect, not the
//! process that uses the socket now. Older kernels lack the options: callers derive no permission
//! from an error (`daemon::peer` counts the primary group alone then). Calls are single system
//! calls that do not block.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// asm-generic/socket.h.
const SO_PEERPIDFD: libc::c_int = 77;
/// asm-generic/socket.h.
const SO_PEERGROUPS: libc::c_int = 59;
/// Most supplementary groups of a process (`NGROUPS_MAX` of linux/limits.h). A larger number of the
/// kernel is an error.
const GROUPS_MAX: usize = 65_536;
/// Groups that the first call has room for. If these are too few, the kernel returns the needed
/// size.
const GROUPS_FIRST: usize = 64;

/// Returns a pidfd of the process that connected, never of a later process with the same number.
///
/// # Errors
/// The kernel's: `ENOPROTOOPT` before Linux 6.5; `ESRCH` or `EINVAL` if the process has ended.
/// Newer kernels return a pidfd of the ended process.
pub fn process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut found: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let (fd, room) = (socket.as_raw_fd(), (&raw mut found).cast());
    // SAFETY: `room` points to `len` writable bytes.
    let done = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERPIDFD, room, &raw mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if found < 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: the kernel created the descriptor for this call; no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

/// Returns the supplementary groups that the peer of a connected Unix socket had when it connected.
///
/// # Errors
/// The kernel's: `ENOPROTOOPT` before Linux 4.13, `ENODATA` if the socket has no peer.
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_FIRST];
    loop {
        let bytes = groups.len().saturating_mul(size_of::<libc::gid_t>());
        let mut len = libc::socklen_t::try_from(bytes).unwrap_or(0);
        let (fd, room) = (socket.as_raw_fd(), groups.as_mut_ptr().cast());
        // SAFETY: `room` points to `len` writable bytes.
        let done =
            unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, SO_PEERGROUPS, room, &raw mut len) };
        let count = (len as usize).div_euclid(size_of::<libc::gid_t>());
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() || count > GROUPS_MAX
        {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    /// Returns whether a pidfd refers to the process with this number.
    fn is_of(process: &OwnedFd, pid: &str) -> bool {
        let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        info.contains(&format!("\nPid:\t{pid}\n"))
    }

    #[test]
    fn peer_pidfd_is_of_the_process_that_connected() {
        let own = std::env::temp_dir().join(format!("causeway-peer-{}", std::process::id()));
        let _ = std::fs::remove_file(&own);
        let listener = UnixListener::bind(&own).unwrap();
        let stream = UnixStream::connect(&own).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let found = match process(accepted.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                eprintln!("skipped: the kernel has no SO_PEERPIDFD");
                let _ = std::fs::remove_file(&own);
                return;
            }
            found => found.unwrap(),
        };
        assert!(is_of(&found, &std::process::id().to_string()));
        drop(stream);
        // The child connects, leaves the socket to a process that lives as long as the test, and
        // ends.
        let python = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX)\n\
                      s.connect(sys.argv[1])\nif os.fork(): os._exit(0)\ns.recv(1)";
        let gone = Command::new("python3").args(["-c", python]).arg(&own).status();
        if gone.is_ok_and(|status| status.success()) {
            let (accepted, _) = listener.accept().unwrap();
            let lives = process(accepted.as_fd()).is_ok_and(|found| !is_of(&found, "-1"));
            assert!(!lives, "the process that connected has ended");
        }
        std::fs::remove_file(&own).unwrap();
    }

    /// The supplementary groups of this process.
    fn own_groups() -> Vec<u32> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        line.split_whitespace().map(|group| group.parse().unwrap()).collect()
    }

    #[test]
    fn peer_groups_are_those_of_the_process_that_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let (mut found, mut own) = (groups(one.as_fd()).unwrap(), own_groups());
        found.sort_unstable();
        own.sort_unstable();
        assert_eq!(found, own);
    }

    #[test]
    fn peer_groups_of_more_than_the_first_call_has_room_for_are_complete() {
        let own = std::env::temp_dir().join(format!("causeway-groups-{}", std::process::id()));
        let _ = std::fs::remove_file(&own);
        let listener = UnixListener::bind(&own).unwrap();
        listener.set_nonblocking(true).unwrap();
        let many: Vec<u32> = (5000..5000 + 3 * GROUPS_FIRST as u32).collect();
        let list = many.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); \
                      s.connect(sys.argv[1]); s.recv(1)";
        let child = Command::new("setpriv")
            .args(["--groups", &list, "python3", "-c", script])
            .arg(&own)
            .stderr(std::process::Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: setpriv (util-linux) is not installed");
            let _ = std::fs::remove_file(&own);
            return;
        };
        let accepted = loop {
            match listener.accept() {
                Ok((stream, _)) => break Some(stream),
                Err(_) if child.try_wait().unwrap().is_some() => break None,
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        let _ = std::fs::remove_file(&own);
        match accepted {
            Some(stream) => assert_eq!(groups(stream.as_fd()).unwrap(), many),
            None => eprintln!("skipped: only root sets the groups of a process, by python3"),
        }
        let _ = child.wait();
    }

    #[test]
    fn peer_groups_of_a_socket_without_peer_are_an_error() {
        groups(std::os::unix::net::UnixDatagram::unbound().unwrap().as_fd()).unwrap_err();
    }
}
