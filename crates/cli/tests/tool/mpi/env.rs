//! `causeway mpi-env`: output for a shell, and errors.

use std::path::Path;
use std::process::{Command, Output};

use super::{Dir, Host, output, text, tool};

fn mpi_env(control: &Path, provider: &Path, words: &[&str]) -> Output {
    output(tool(control).args(words).arg("mpi-env").arg("--provider").arg(provider))
}

/// Asserts the status of a missing object, and parts of the error.
#[track_caller]
fn fails(output: &Output, says: &[&str]) {
    let error = text(&output.stderr);
    let evaluated = "false # causeway mpi-env failed\n";
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), evaluated), "{error}");
    for word in says {
        assert!(error.contains(word), "no {word} in {error}");
    }
}

#[test]
fn mpi_env_is_evaluated_by_a_shell_unchanged() {
    let dir = Dir::with_provider("shell");
    let host = Host::start(&["mx0 --kind mx --group blue", "mx1 --kind mx --group blue"]);
    let linked = dir.0.join("it's.sock");
    std::os::unix::fs::symlink(host.socket("mx1"), &linked).unwrap();
    let mut tool = tool(&host.control.socket);
    tool.arg("mpi-env").arg("--provider").arg(&dir.0);
    let output = output(tool.arg("--board").arg(host.socket("mx0")).arg("--board").arg(&linked));
    assert!(output.status.success(), "{output:?}");
    let shell = Command::new("sh")
        .env_clear()
        .env("said", text(&output.stdout))
        .args(["-c", "eval \"$said\"; printf '%s\\n' \"$CAUSEWAY_MX\" \"$FI_PROVIDER_PATH\""])
        .output()
        .unwrap();
    let (one, two) = (host.socket("mx0"), host.socket("mx1"));
    let expected = format!("{}:{}\n{}\n", one.display(), two.display(), dir.0.display());
    assert_eq!(text(&shell.stdout), expected, "{}", text(&output.stdout));
}

#[test]
fn mpi_env_has_a_json_form() {
    let dir = Dir::with_provider("json");
    let host = Host::start(&["mx0 --kind mx --group blue --hostname here:0"]);
    let output = mpi_env(&host.control.socket, &dir.0, &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let environment = &value["environment"];
    assert_eq!(environment["OMPI_MCA_mtl_ofi_provider_include"], "causeway", "{value}");
    assert!(environment["CAUSEWAY_MX"].as_str().unwrap().ends_with("/mx0.sock"), "{value}");
    assert!(value["start"].as_str().unwrap().starts_with("mpirun "), "{value}");
    let nic = &value["nics"][0];
    assert_eq!([&nic["port"], &nic["group"], &nic["name"]], ["mx0", "blue", "here:0"], "{value}");
}

#[test]
fn mpi_env_errors_name_the_remedy() {
    let (dir, bare) = (Dir::with_provider("missing"), Dir::new("bare"));
    let host = Host::start(&["mx0 --kind mx --group blue"]);
    let control = host.control.socket.clone();
    fails(&mpi_env(&control, &bare.0, &[]), &["libcauseway-fi.so", &bare.0.to_string_lossy()]);
    let board = |path: &Path| {
        output(tool(&control).arg("mpi-env").arg("--board").arg(path).arg("--provider").arg(&dir.0))
    };
    fails(&board(&dir.0.join("mx7.sock")), &["mx7.sock", "does causewayd run"]);
    // A socket that a killed daemon left.
    let left = dir.0.join("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    let since = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(&left).is_ok() {
        assert!(since.elapsed().as_secs() < 60, "the listener stays");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fails(&board(&left), &["left.sock", "does causewayd run"]);
}

/// Returns exit status and output of a shell line in which `causeway` is the tool.
fn shell(line: &str, control: &Path) -> (Option<i32>, String) {
    let tool = Path::new(env!("CARGO_BIN_EXE_causeway")).parent().unwrap();
    let path = format!("{}:{}", tool.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", line])
        .env("PATH", path)
        .env("CAUSEWAY_CONTROL", control)
        .env_remove("CAUSEWAY_MX")
        .output()
        .unwrap();
    (output.status.code(), text(&output.stdout).to_owned())
}

#[test]
fn mpi_env_failure_ends_the_line_that_evaluates_it() {
    let dir = Dir::with_provider("line");
    let none = dir.0.join("none.sock");
    for words in ["--provider /nonexistent", "--provider '$D'", "--mpi other", "--bogus"] {
        let words = words.replace("$D", &dir.0.display().to_string());
        let line = format!("eval \"$(causeway mpi-env {words} 2>&-)\" && echo ran");
        let (status, out) = shell(&line, &none);
        assert!(status != Some(0) && out.is_empty(), "{words}: {status:?} {out}");
    }
}

#[test]
fn mpi_env_finds_the_nics_of_the_daemon_at_the_control_socket() {
    let dir = Dir::with_provider("control");
    let host = Host::start(&["b --kind mx --group blue"]);
    let line = format!(
        "eval \"$(causeway mpi-env --provider '{}')\" && echo \"$CAUSEWAY_MX\"",
        dir.0.display()
    );
    let (status, out) = shell(&line, &host.control.socket);
    assert_eq!((status, out), (Some(0), format!("{}\n", host.socket("b").display())));
}
