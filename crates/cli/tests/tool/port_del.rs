//! `causeway port del` on a terminal (of `script`), and without, while a guest is attached.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use crate::common::serve;
use causeway_attach::native::{NetOptions, NetPort};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};

#[test]
fn port_del_of_a_running_guest_asks_on_a_terminal_only() {
    let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
    let control = serve(Arc::new(fabric.handle()));
    let causeway = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.env("CAUSEWAY_CONTROL", &control.socket).args(words.split_whitespace());
        command.output().unwrap()
    };
    let ok = |words: &str| assert!(causeway(words).status.success(), "{words}");
    let attach = |name: &str| {
        ok(&format!("port add {name} --kind net --group blue"));
        let socket = control.socket.with_file_name(format!("{name}.sock"));
        let guest = NetPort::attach(Path::new(&socket), NetOptions::default()).unwrap();
        let shown = || String::from_utf8(causeway(&format!("port show {name} -j")).stdout).unwrap();
        while !shown().contains("\"running\"") {
            std::thread::yield_now();
        }
        guest
    };
    let exists = |name: &str| causeway(&format!("port show {name}")).status.success();
    ok("group add blue");
    let _guests = ["vm1", "vm2"].map(attach);

    let on_terminal = |words: &str, answer: &str| -> Option<Output> {
        let tool = env!("CARGO_BIN_EXE_causeway");
        let mut child = Command::new("script")
            .args(["-qec", &format!("'{tool}' {words}"), "/dev/null"])
            .env("CAUSEWAY_CONTROL", &control.socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        // A tool that does not ask may have ended.
        let _ = child.stdin.take().unwrap().write_all(answer.as_bytes());
        Some(child.wait_with_output().unwrap())
    };
    let Some(declined) = on_terminal("port del vm1", "n\n") else {
        eprintln!("skipped: there is no script of util-linux");
        return;
    };
    let text = String::from_utf8_lossy(&declined.stdout).into_owned();
    assert_eq!(declined.status.code(), Some(1), "{text}");
    assert!(text.contains("port vm1 serves a running guest"), "{text}");
    assert!(text.contains("its network device: its traffic stops"), "{text}");
    assert!(text.contains("port vm1 was not deleted"), "{text}");
    assert!(exists("vm1"));
    let confirmed = on_terminal("port del vm1", "y\n").unwrap();
    assert!(confirmed.status.success() && !exists("vm1"), "{confirmed:?}");
    let forced = on_terminal("port del vm2 -f", "").unwrap();
    let text = String::from_utf8_lossy(&forced.stdout).into_owned();
    assert!(forced.status.success() && !text.contains("Delete port"), "{text}");

    // A script is not asked.
    let _guest = attach("vm3");
    let output = causeway("port del vm3");
    assert!(output.status.success() && !exists("vm3"), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "port vm3 deleted\n");
}
