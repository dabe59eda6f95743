//! The kernel limits the descriptors in flight of each user: a process that leaves many unread
//! exhausts the limit for others, which must not be disconnected for it.

use std::os::fd::OwnedFd;
use std::process::Command;

use causeway_attach::local::LocalAttachment;
use causeway_wire::local::MESSAGE_BYTES;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const INSIDE: &str = "CAUSEWAY_TEST_BOUNDED";
const NAME: &str = "local_stuck::hostile_unread_descriptors_disconnect_no_other_peer";

fn pair() -> (LocalAttachment, LocalAttachment) {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    (LocalAttachment::new(one), LocalAttachment::new(other))
}

fn memory() -> OwnedFd {
    causeway_memory::create("test", 4096).unwrap()
}

fn bounded() {
    let ((mut hog, mut unread), (mut other, mut reads)) = (pair(), pair());
    let mut sent = 0;
    while !hog.is_at_descriptor_limit() {
        hog.send([1; MESSAGE_BYTES], vec![memory(), memory()]).unwrap();
        sent += 1;
        assert!(sent < 1000, "no bound applies");
    }
    other.send([2; MESSAGE_BYTES], vec![memory()]).unwrap();
    other.send([3; MESSAGE_BYTES], vec![]).unwrap();
    assert!(other.is_at_descriptor_limit() && (other.backlog(), other.descriptors()) == (2, 1));
    assert!(!other.flush().unwrap() && other.is_at_descriptor_limit());
    // The peer reads them at last.
    for _ in 1..sent {
        assert_eq!(unread.receive().unwrap().unwrap().fds.len(), 2);
    }
    assert!(other.flush().unwrap() && !other.is_at_descriptor_limit());
    for (byte, fds) in [(2, 1), (3, 0)] {
        let received = reads.receive().unwrap().unwrap();
        assert_eq!((received.bytes[0], received.fds.len()), (byte, fds));
    }
}

#[test]
fn hostile_unread_descriptors_disconnect_no_other_peer() {
    if std::env::var_os(INSIDE).is_some() {
        return bounded();
    }
    // The limit does not apply to root: run as another user, with a low limit.
    let this = std::env::current_exe().unwrap();
    let as_nobody = |program: &std::ffi::OsStr| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65533", "--regid=65533", "--clear-groups", "--"]);
        command.args(["prlimit", "--nofile=64:64"]).arg(program);
        command
    };
    let may = as_nobody("test".as_ref()).arg("-x").arg(&this).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("skipped: to be another user takes root, `setpriv` and `prlimit`");
        return;
    }
    let mut process = as_nobody(this.as_os_str());
    process.args(["--exact", NAME, "--nocapture"]).env(INSIDE, "1");
    assert!(process.status().unwrap().success(), "the port is barred");
}
