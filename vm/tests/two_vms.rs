//! `examples/two-vms/run` prints what docs/guide/qemu.md shows, apart from times and paths.

use causeway_vm::{RunDir, build, place};
use std::fs;
use std::process::{Command, Stdio};

/// The line of docs/guide/qemu.md above the output.
const CALL: &str = "$ examples/two-vms/run";
/// The folder of the sockets in docs/guide/qemu.md.
const FOLDER: &str = "/tmp/causeway";

/// Returns the lines of a session that do not differ between runs: without blank lines and the line
/// that names versions; numbers with a fraction (times) and the port of the host are replaced.
fn stable(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("two-vms: "));
    lines.map(|line| line.split(' ').map(stable_word).collect::<Vec<_>>().join(" ")).collect()
}

fn stable_word(word: &str) -> String {
    let numbers =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b"0123456789./".contains(&b));
    match word.split_once('=') {
        Some(("time", _)) => "time=T".into(),
        _ if numbers(word) && word.matches('/').count() == 2 => "T/T/T".into(),
        _ => word.into(),
    }
}

/// Returns the block of docs/guide/qemu.md that shows the output.
fn shown() -> String {
    let guide = fs::read_to_string(place::workspace().join("docs/guide/qemu.md")).unwrap();
    let from = guide.find(CALL).expect("docs/guide/qemu.md shows the call") + CALL.len();
    let rest = guide.get(from..).unwrap();
    rest.split("```").next().unwrap().trim_start().to_owned()
}

#[test]
fn two_vms_example_prints_the_session_of_the_guide() {
    let folder = RunDir::new().unwrap();
    let (daemon, _) = build::daemon().unwrap();
    let run = Command::new(place::workspace().join("examples/two-vms/run"))
        .arg(folder.path())
        .env("CAUSEWAY_BIN_DIR", daemon.parent().unwrap())
        .env("CAUSEWAY_GUEST_IMAGE", env!("CARGO_BIN_EXE_causeway-guest-image"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, error) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{out}\n{error}");
    let path = folder.path().display().to_string();
    let (printed, shown) = (stable(&out.replace(&path, FOLDER)), stable(&shown()));
    assert!(shown.len() > 15, "docs/guide/qemu.md shows the session: {shown:?}");
    assert_eq!(printed, shown);
}

#[test]
fn two_vms_stable_lines_have_no_times() {
    let line = "64 bytes from 10.0.0.2: seq=1 ttl=64 time=3.352 ms";
    assert_eq!(stable(line), ["64 bytes from 10.0.0.2: seq=1 ttl=64 time=T ms"]);
    assert_eq!(stable("min/avg/max = 1.911/47.9/138.441 ms"), ["min/avg/max = T/T/T ms"]);
    assert_eq!(stable("two-vms: Linux\n\n3 packets"), ["3 packets"]);
}
