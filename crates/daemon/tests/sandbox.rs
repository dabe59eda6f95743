//! The sandbox from the position of a compromised dispatcher: a child process enters the daemon's
//! sandbox and makes each attempt.

mod common;

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};

use causeway_daemon::config::{Config, ConfigContext};
use causeway_daemon::sandbox::Sandbox;
use causeway_daemon::services::{Registered, SERVICES};
use common::Dir;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};

/// Environment variable: the attempt of the child.
const ATTEMPT: &str = "CAUSEWAY_SANDBOX_ATTEMPT";
/// Environment variable: the directory of its configuration.
const RUN: &str = "CAUSEWAY_SANDBOX_RUN";
/// Exit status of the child if the attempt was refused, and if it was not.
const REFUSED: i32 = 40;
const PASSED: i32 = 41;

fn refused(result: Result<(), std::io::Error>) -> i32 {
    match result {
        Err(error) => {
            println!("refused: {error}");
            REFUSED
        }
        Ok(()) => PASSED,
    }
}

fn open_socket(family: AddressFamily, kind: SocketType) -> Result<(), std::io::Error> {
    Ok(socket(family, kind, None).map(drop)?)
}

/// Makes the attempt. Does not return if the kernel kills the process for it.
fn attempt(what: &str, run: &Path) -> i32 {
    match what {
        // Calls that the daemon makes must succeed.
        "serve" => {
            let file = run.join("file");
            std::fs::write(&file, "x").unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "x");
            std::fs::remove_file(&file).unwrap();
            std::os::unix::net::UnixListener::bind(run.join("new.sock")).unwrap();
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            std::fs::read_to_string("/proc/self/status").unwrap();
            std::thread::spawn(|| ()).join().unwrap();
            PASSED
        }
        "execve" => refused(Command::new("/bin/true").status().map(drop)),
        "execve-itself" => {
            use std::os::unix::process::CommandExt as _;
            refused(Err(Command::new("/bin/true").exec()))
        }
        "ptrace" => refused(nix::sys::ptrace::traceme().map_err(std::io::Error::from)),
        "write-outside" => refused(File::create("/etc/causeway-sandbox-test").map(drop)),
        "read-outside" => refused(std::fs::read_dir("/var/log").map(drop)),
        "socket-beside" => {
            refused(std::os::unix::net::UnixListener::bind("/etc/causeway-sandbox.sock").map(drop))
        }
        "raw-ip" => refused(open_socket(AddressFamily::INET, SocketType::RAW)),
        "raw-ip6" => refused(open_socket(AddressFamily::INET6, SocketType::RAW)),
        "packet" => refused(open_socket(AddressFamily::PACKET, SocketType::DGRAM)),
        "vsock" => refused(open_socket(AddressFamily::VSOCK, SocketType::STREAM)),
        "chmod" => {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::Permissions::from_mode(0o777);
            refused(std::fs::set_permissions(run, mode))
        }
        "signal" => {
            let parent = rustix::process::getppid().unwrap();
            refused(rustix::process::test_kill_process(parent).map_err(Errno::into))
        }
        other => panic!("{other}"),
    }
}

/// Not a test of its own: the body of the child that [`tried`] starts.
#[test]
fn child() {
    let Some(what) = std::env::var_os(ATTEMPT) else { return };
    let run = std::path::PathBuf::from(std::env::var_os(RUN).unwrap());
    let file = run.join("causeway.toml");
    let config = Config::load(&file, &ConfigContext::of_process(Registered::of(SERVICES))).unwrap();
    // As in the daemon: threads inherit the sandbox.
    let sandbox = Sandbox::enter(&config, Path::new("/etc/causeway/causeway.toml")).unwrap();
    let code = std::thread::spawn(move || {
        sandbox.enter_dispatcher().unwrap();
        std::thread::spawn(move || attempt(what.to_str().unwrap(), &run)).join().unwrap()
    });
    std::process::exit(code.join().unwrap_or(1));
}

fn tried(dir: &Dir, what: &str) -> (ExitStatus, String) {
    let file = dir.file("causeway.toml");
    let run = dir.0.display();
    std::fs::write(&file, format!("[daemon]\ncontrol = \"{run}/control.sock\"\n")).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(ATTEMPT, what)
        .env(RUN, &dir.0)
        .output()
        .unwrap();
    (
        child.status,
        String::from_utf8_lossy(&child.stdout).into_owned()
            + &String::from_utf8_lossy(&child.stderr),
    )
}

#[test]
fn sandbox_permits_the_calls_of_the_daemon() {
    let dir = Dir::new();
    let (status, said) = tried(&dir, "serve");
    assert_eq!(status.code(), Some(PASSED), "{status} {said}");
}

#[test]
fn sandbox_refuses_the_calls_of_a_compromised_dispatcher() {
    let dir = Dir::new();
    for what in [
        "execve",
        "write-outside",
        "read-outside",
        "socket-beside",
        "raw-ip",
        "raw-ip6",
        "packet",
        "vsock",
        "chmod",
        "signal",
    ] {
        let (status, said) = tried(&dir, what);
        assert_eq!(status.code(), Some(REFUSED), "{what}: {status} {said}");
    }
}

#[test]
fn sandbox_kills_a_process_that_executes_foreign_code() {
    let dir = Dir::new();
    for what in ["execve-itself", "ptrace"] {
        let (status, said) = tried(&dir, what);
        assert_eq!(status.signal(), Some(rustix::process::Signal::SYS.as_raw()), "{what}: {said}");
    }
}
