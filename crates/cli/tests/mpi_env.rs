//! `causeway mpi-env` as a process: output for a shell, and errors.

#[path = "../../daemon/tests/common/mod.rs"]
mod common;

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use common::{model::Model, serve};

/// A directory for each test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        // With a blank, which must be quoted for the shell.
        let name = format!("causeway mpi-env {name} {}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns a directory that contains a file with the provider's name.
    fn with_provider(name: &str) -> Self {
        let dir = Self::new(name);
        std::fs::write(dir.0.join("libcauseway-fi.so"), "").unwrap();
        dir
    }

    /// Returns a NIC's socket and its listener.
    fn board(&self, name: &str) -> (PathBuf, UnixListener) {
        let path = self.0.join(name);
        (path.clone(), UnixListener::bind(&path).unwrap())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn mpi_env(provider: &Path, boards: &[&Path], words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
    command.args(words).arg("mpi-env").env_remove("CAUSEWAY_MX").arg("--provider").arg(provider);
    for board in boards {
        command.arg("--board").arg(board);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
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
    let ((one, _a), (two, _b)) = (dir.board("mx0.sock"), dir.board("it's.sock"));
    let output = mpi_env(&dir.0, &[&one, &two], &[]);
    assert!(output.status.success(), "{output:?}");
    let shell = Command::new("sh")
        .env_clear()
        .env("said", text(&output.stdout))
        .args(["-c", "eval \"$said\"; printf '%s\\n' \"$CAUSEWAY_MX\" \"$FI_PROVIDER_PATH\""])
        .output()
        .unwrap();
    let folder = dir.0.canonicalize().unwrap();
    let expected = format!("{0}/mx0.sock:{0}/it's.sock\n{0}\n", folder.display());
    assert_eq!(text(&shell.stdout), expected, "{}", text(&output.stdout));
}

#[test]
fn mpi_env_has_a_json_form() {
    let dir = Dir::with_provider("json");
    let (board, _listener) = dir.board("mx0.sock");
    let output = mpi_env(&dir.0, &[&board], &["--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let environment = &value["environment"];
    assert_eq!(environment["OMPI_MCA_mtl_ofi_provider_include"], "causeway", "{value}");
    assert!(environment["CAUSEWAY_MX"].as_str().unwrap().ends_with("/mx0.sock"), "{value}");
    assert!(value["start"].as_str().unwrap().starts_with("mpirun "), "{value}");
}

#[test]
fn mpi_env_errors_name_the_remedy() {
    let (dir, bare) = (Dir::with_provider("missing"), Dir::new("bare"));
    let (board, listener) = dir.board("mx0.sock");
    fails(&mpi_env(&bare.0, &[&board], &[]), &["libcauseway-fi.so", &bare.0.to_string_lossy()]);
    let nowhere = dir.0.join("mx7.sock");
    fails(&mpi_env(&dir.0, &[&board, &nowhere], &[]), &["mx7.sock", "does causewayd run"]);
    // A socket left by a daemon. A child that another test forked has the listener until it executes
    // its program.
    drop(listener);
    let since = std::time::Instant::now();
    while std::os::unix::net::UnixStream::connect(&board).is_ok() {
        assert!(since.elapsed().as_secs() < 60, "the listener stays");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    fails(&mpi_env(&dir.0, &[&board], &[]), &["mx0.sock", "does causewayd run"]);
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
    let host = serve(Arc::new(Model::default()));
    let (board, _listener) = dir.board("b.sock");
    let add = format!(
        "causeway group add g && causeway port add b --kind mx --group g --socket '{}'",
        board.display()
    );
    assert_eq!(shell(&add, &host.socket).0, Some(0));
    let line = format!(
        "eval \"$(causeway mpi-env --provider '{}')\" && echo \"$CAUSEWAY_MX\"",
        dir.0.display()
    );
    let (status, out) = shell(&line, &host.socket);
    let expected = format!("{}\n", board.canonicalize().unwrap().display());
    assert_eq!((status, out), (Some(0), expected));
}
