//! The process at the other end of a Unix socket, as a pidfd (unix(7), `SO_PEERPIDFD`).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// asm-generic/socket.h.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of the process that connected: never of another one that has its number now.
///
/// # Errors
/// The system's own: `ENOPROTOOPT` of kernels before 6.5. Of a process that has ended `ESRCH` or
/// `EINVAL`; newer kernels give a descriptor of nothing that lives.
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
    // SAFETY: the kernel made it for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(found) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::Command;

    use super::*;

    /// Whether a descriptor is of the process that has this number.
    fn is_of(process: &OwnedFd, pid: &str) -> bool {
        let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        info.contains(&format!("\nPid:\t{pid}\n"))
    }

    #[test]
    fn who_connected_is_known_and_whoever_has_the_socket_after_it_is_not() {
        let own = std::env::temp_dir().join(format!("causeway-peer-{}", std::process::id()));
        let _ = std::fs::remove_file(&own);
        let listener = UnixListener::bind(&own).unwrap();
        let stream = UnixStream::connect(&own).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let found = match process(accepted.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                eprintln!("skipped: this kernel does not tell");
                let _ = std::fs::remove_file(&own);
                return;
            }
            found => found.unwrap(),
        };
        assert!(is_of(&found, &std::process::id().to_string()));
        drop(stream);
        // One connects, leaves the socket to a child that stays as long as we do, and ends.
        let python = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX)\n\
                      s.connect(sys.argv[1])\nif os.fork(): os._exit(0)\ns.recv(1)";
        let gone = Command::new("python3").args(["-c", python]).arg(&own).status();
        if gone.is_ok_and(|status| status.success()) {
            let (accepted, _) = listener.accept().unwrap();
            let lives = process(accepted.as_fd()).is_ok_and(|found| !is_of(&found, "-1"));
            assert!(!lives, "the one that connected has ended");
        }
        std::fs::remove_file(&own).unwrap();
    }
}
