//! `causeway mpi-run`: the command runs with the environment, or nothing runs.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::{Dir, Host, output, text, tool};

/// Adds `mpi-run WORDS --mpi openmpi4 -- sh -c SCRIPT`.
fn mpi_run<'a>(
    tool: &'a mut Command,
    words: &str,
    provider: &Path,
    script: &str,
) -> &'a mut Command {
    tool.arg("mpi-run").args(words.split_whitespace()).arg("--provider").arg(provider);
    tool.args(["--mpi", "openmpi4", "--", "sh", "-c", script])
}

/// Asserts that nothing ran: status, no output, no file, and parts of the error.
#[track_caller]
fn fails(dir: &Dir, output: &Output, status: i32, says: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(status), ""), "{error}");
    assert!(!dir.0.join("ran").exists(), "the command ran: {error}");
    for word in says {
        assert!(error.contains(word), "no {word} in {error}");
    }
}

/// Runs a command that would leave a file, and asserts that it does not run.
#[track_caller]
fn refused(dir: &Dir, control: &Path, words: &str, status: i32, says: &[&str]) {
    let script = format!("echo ran; touch '{}'", dir.0.join("ran").display());
    let output = output(mpi_run(&mut tool(control), words, &dir.0, &script));
    fails(dir, &output, status, says);
}

#[test]
fn mpi_run_executes_the_command_with_the_environment_and_its_status() {
    let dir = Dir::with_provider("run");
    let host =
        Host::start(&["mx0 --kind mx --group blue", "other --kind vsock --group red --cid 3"]);
    let script = "printf '%s\\n' \"$CAUSEWAY_MX\" \"$FI_PROVIDER_PATH\" \
                  \"$OMPI_MCA_mtl_ofi_provider_include\" \"$OMPI_MCA_pml\"; cat; exit 7";
    let mut child = mpi_run(&mut tool(&host.control.socket), "", &dir.0, script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let (nic, provider) = (host.socket("mx0"), dir.0.display());
    let expected = format!("{}\n{provider}\ncauseway\ncm\ninput\n", nic.display());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), expected.as_str()));
}

#[test]
fn mpi_run_leaves_signals_to_the_command() {
    let dir = Dir::with_provider("signal");
    let host = Host::start(&["mx0 --kind mx --group blue"]);
    let script = "trap 'exit 9' USR1; echo $$; while :; do sleep 0.01; done";
    let mut child = mpi_run(&mut tool(&host.control.socket), "", &dir.0, script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line.trim(), child.id().to_string(), "the command has the process id");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    let killed = output(mpi_run(&mut tool(&host.control.socket), "", &dir.0, "kill -KILL $$"));
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
}

#[test]
fn mpi_run_starts_nothing_without_daemon_nic_or_provider() {
    let dir = Dir::with_provider("nothing");
    let host = Host::start(&["mx0 --kind mx --group blue", "mx1 --kind mx --group red"]);
    let control = host.control.socket.clone();
    let none = dir.0.join("none.sock");
    refused(&dir, &none, "", 4, &["no daemon serves", "systemctl start causewayd"]);
    refused(&dir, &none, "--nic mx0", 4, &["no daemon serves"]);
    refused(&dir, &control, "--nic mx7", 3, &["NIC mx7 does not exist", "mx0, mx1", "port add"]);
    refused(&dir, &control, "--group green", 3, &["group green", "port add"]);
    refused(&dir, &control, "--nic mx0 --group red", 3, &["group red"]);
    refused(&dir, &control, "", 2, &["mx0 of group blue, mx1 of group red", "--group"]);
    refused(&dir, &control, "--board /nonexistent", 3, &["/nonexistent", "does causewayd run"]);
    let bare = Dir::new("bare run");
    let output = output(mpi_run(&mut tool(&control), "--nic mx0", &bare.0, "echo ran"));
    fails(&dir, &output, 3, &["libcauseway-fi.so"]);
    let empty = Host::start(&[]);
    refused(&dir, &empty.control.socket, "", 3, &["no NIC of this host is found", "port add"]);
    // Both choices that the errors name work.
    for words in ["--group red", "--nic mx1"] {
        let chosen =
            super::output(mpi_run(&mut tool(&control), words, &dir.0, "echo $CAUSEWAY_MX"));
        assert_eq!(text(&chosen.stdout).trim(), host.socket("mx1").to_string_lossy(), "{chosen:?}");
    }
}

#[test]
fn mpi_run_starts_nothing_over_a_nic_that_refuses_the_user() {
    let dir = Dir::with_provider("user");
    let other = rustix::process::geteuid().as_raw() ^ 1;
    let closed = format!("mx1 --kind mx --group blue --allowed-users {other}");
    let host = Host::start(&["mx0 --kind mx --group blue", &closed]);
    let control = host.control.socket.clone();
    refused(&dir, &control, "--nic mx1", 4, &["mx1", "refuses user", "allowed_users"]);
    refused(&dir, &control, "--nic mx0 --nic mx1", 4, &["allowed_users"]);
    // Without a name, the usable NIC is chosen.
    let open = output(mpi_run(&mut tool(&control), "", &dir.0, "echo $CAUSEWAY_MX"));
    assert_eq!(text(&open.stdout).trim(), host.socket("mx0").to_string_lossy(), "{open:?}");
    assert!(text(&open.stderr).contains("left out"), "{open:?}");
    host.run("port del mx0");
    refused(&dir, &control, "", 4, &["mx1", "allowed_users"]);
}

#[test]
fn mpi_run_finds_nics_beside_a_control_socket_without_access() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: another user is needed, and this is not root");
        return;
    }
    let dir = Dir::with_provider("access");
    let host = Host::start(&["mx0 --kind mx --group blue", "mx1 --kind mx --group blue"]);
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&host.control.socket, 0o600);
    mode(&host.socket("mx0"), 0o666);
    mode(&host.socket("mx1"), 0o600);
    // The other user may not search the directory of the build.
    let copy = dir.0.join("causeway");
    std::fs::copy(env!("CARGO_BIN_EXE_causeway"), &copy).unwrap();
    let run = |words: &str, script: &str| {
        let mut tool = Command::new(&copy);
        tool.env("CAUSEWAY_CONTROL", &host.control.socket).env_remove("CAUSEWAY_MX");
        output(mpi_run(&mut tool, words, &dir.0, script).uid(65534).gid(65534).current_dir("/"))
    };
    for words in ["", "--nic mx0"] {
        let ran = run(words, "echo $CAUSEWAY_MX");
        assert_eq!(text(&ran.stdout).trim(), host.socket("mx0").to_string_lossy(), "{ran:?}");
    }
    fails(&dir, &run("--nic mx1", "echo ran"), 4, &["mx1", "user 65534", "socket_group"]);
    fails(&dir, &run("--group blue", "echo ran"), 4, &["control socket", "--nic"]);
    mode(&host.socket("mx0"), 0o600);
    fails(&dir, &run("", "echo ran"), 4, &["user 65534", "socket_group"]);
    host.run("port del mx0");
    host.run("port del mx1");
    fails(&dir, &run("", "echo ran"), 4, &["no access to the daemon's control socket"]);
}

#[test]
fn mpi_run_starts_nothing_if_the_socket_is_silent_or_not_of_a_nic() {
    let dir = Dir::with_provider("silent");
    let socket = dir.0.join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let board = |more: &str| {
        let mut tool = tool(Path::new("/nonexistent"));
        tool.args(["--timeout", "1", "mpi-run", "--board"]).arg(&socket);
        output(tool.arg("--provider").arg(&dir.0).args(["--mpi", "mpich", "--", "echo", more]))
    };
    fails(&dir, &board("ran"), 5, &["did not answer within 1 s"]);
    let (silent, _) = listener.accept().unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[b'S'; 200]).unwrap();
        // Kept until the reader has read: a close with unread bytes resets the connection.
        std::io::Read::read_to_end(&mut stream, &mut Vec::new()).unwrap_or(0)
    });
    fails(&dir, &board("ran"), 1, &["is not the socket of a NIC"]);
    server.join().unwrap();
}

#[test]
fn mpi_run_reports_a_command_that_cannot_be_executed() {
    let dir = Dir::with_provider("command");
    let host = Host::start(&["mx0 --kind mx --group blue"]);
    let run = |words: &[&str]| {
        let mut tool = tool(&host.control.socket);
        output(tool.arg("mpi-run").arg("--provider").arg(&dir.0).args(words))
    };
    let named = ["--mpi", "mpich", "--"];
    fails(&dir, &run(&[&named[..], &["/nonexistent"]].concat()), 127, &["nothing was started"]);
    fails(&dir, &run(&[&named[..], &["/etc"]].concat()), 126, &["cannot execute /etc"]);
    fails(&dir, &run(&["--", "srun", "./program"]), 2, &["--mpi openmpi4"]);
    let usage = run(&[]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
}

#[test]
fn mpi_run_of_a_rank_ends_by_a_signal_which_ends_the_job() {
    let dir = Dir::with_provider("rank");
    for variable in ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
        let mut tool = tool(Path::new("/nonexistent"));
        let failed = output(mpi_run(tool.env(variable, "1"), "", &dir.0, "echo ran"));
        assert_eq!((failed.status.signal(), text(&failed.stdout)), (Some(15), ""), "{failed:?}");
        assert!(text(&failed.stderr).contains("no daemon serves"), "{failed:?}");
    }
}

#[test]
fn mpi_run_prints_the_command_instead_of_running_it_on_request() {
    let dir = Dir::with_provider("dry");
    let host = Host::start(&["mx0 --kind mx --group blue"]);
    let script = format!("touch '{}'", dir.0.join("ran").display());
    let dry =
        |words: &str| output(mpi_run(&mut tool(&host.control.socket), words, &dir.0, &script));
    let shown = dry("--dry-run");
    assert!(shown.status.success() && !dir.0.join("ran").exists(), "{shown:?}");
    let json: serde_json::Value = serde_json::from_slice(&dry("--dry-run --json").stdout).unwrap();
    assert_eq!(json["command"], serde_json::json!(["sh", "-c", script]));
    // The text is a line for a shell.
    let ran = Command::new("sh").arg("-c").arg(text(&shown.stdout)).status().unwrap();
    assert!(ran.success() && dir.0.join("ran").exists(), "{}", text(&shown.stdout));
}
