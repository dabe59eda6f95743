//! `examples/ssh/run`: fresh guests of Debian 13 without a network interface are reached by ssh,
//! from the host, from guest to guest, and by the systemd of a newer host.
//!
//! The session is that of README.md. `make ssh` makes the guests' image (`scripts/ssh-guest.sh`), which
//! needs the network, mmdebstrap, and root or user namespaces, and runs the test.

use causeway_vm::{RunDir, build, place};
use std::fs;
use std::process::{Command, Stdio};

/// The line of README.md above the output: the script as its package installs it.
const CALL: &str = "$ /usr/share/doc/causeway/examples/ssh/run";
/// The folder of the sockets in README.md.
const FOLDER: &str = "/tmp/causeway";

/// Returns the lines of a session without blank lines and the line that names versions.
fn stable(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("ssh: ")).collect()
}

/// Returns whether the guests' image is there. It is made once, by `make ssh`: that takes longer than
/// the test.
fn has_image() -> bool {
    let is_there = place::cache().unwrap().join("ssh/complete").exists();
    if !is_there {
        eprintln!(
            "skipped: the image of the guests is missing; `make ssh` makes it and runs the test"
        );
    }
    is_there
}

#[test]
fn ssh_reaches_fresh_guests_without_a_network_interface() {
    if !has_image() {
        return;
    }
    let folder = RunDir::new().unwrap();
    let (daemon, _) = build::daemon().unwrap();
    let run = Command::new(place::workspace().join("examples/ssh/run"))
        .arg("--mux")
        .arg(folder.path())
        .env("CAUSEWAY_BIN_DIR", daemon.parent().unwrap())
        .env("CAUSEWAY_GUEST_IMAGE", env!("CARGO_BIN_EXE_causeway-guest-image"))
        .env("CAUSEWAY_SSH_GUEST", place::cache().unwrap().join("ssh"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, error) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{error}");
    let printed = out.replace(&folder.path().display().to_string(), FOLDER);
    let readme = fs::read_to_string(place::workspace().join("README.md")).unwrap();
    let (_, rest) = readme.split_once(CALL).expect("README.md shows the call");
    let mut shown = stable(rest.split("```").next().unwrap());
    assert!(shown.len() > 6, "README.md shows the session: {shown:?}");
    // Beyond README.md: a host with systemd 256 or later.
    shown.extend([
        "$ ssh -F /tmp/causeway/ssh_config vsock-mux/tmp/causeway/vm2.vsock hostname",
        "vm2",
    ]);
    assert_eq!(stable(&printed), shown);
}
