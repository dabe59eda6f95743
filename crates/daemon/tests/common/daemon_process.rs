//! causewayd as a process that is started, killed and started again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Dir, send};

const LIMIT: Duration = Duration::from_secs(30);

/// Writes a configuration with this value of `hold` in `[daemon]`, with a group `blue`.
pub fn config(dir: &Dir, hold: &str, ports: &str) -> PathBuf {
    let (file, run) = (dir.file("causeway.toml"), dir.0.display());
    let text = format!(
        "[daemon]\ncontrol = \"{run}/control.sock\"\nlog = \"warn\"\nhold = \"{hold}\"\n\
         [[group]]\nname = \"blue\"\n{ports}"
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// A process of causewayd; killed with the test.
#[derive(Debug)]
pub struct DaemonProcess(Child);

impl DaemonProcess {
    /// Starts the process.
    pub fn start(causewayd: &str, config: &Path) -> Self {
        let child =
            Command::new(causewayd).arg("--config").arg(config).stderr(Stdio::inherit()).spawn();
        Self(child.unwrap())
    }

    /// Waits until the process answers.
    pub fn ready(mut self, dir: &Dir) -> Self {
        let (socket, since) = (dir.file("control.sock"), Instant::now());
        while std::os::unix::net::UnixStream::connect(&socket).is_err()
            || send(&socket, "GET", "/v1/info", "").1["pid"] != self.0.id()
        {
            assert!(self.0.try_wait().unwrap().is_none(), "ended early");
            assert!(since.elapsed() < LIMIT, "not ready");
            thread::sleep(Duration::from_millis(2));
        }
        self
    }

    /// Kills the process with SIGKILL, as the kernel does when memory is short.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Stops the process with `--release`: guests of held ports are disconnected.
    pub fn release(&mut self, dir: &Dir) {
        let body = r#"{"release":true}"#;
        assert_eq!(send(&dir.file("control.sock"), "POST", "/v1/shutdown", body).0, 204);
        assert!(self.0.wait().unwrap().success());
    }

    /// Waits until the process ends by itself, and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }

    /// Stops the process with SIGTERM.
    pub fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a port is in this state.
pub fn await_state(dir: &Dir, port: &str, state: &str) {
    let (path, since) = (format!("/v1/ports/{port}"), Instant::now());
    loop {
        let (_, shown) = send(&dir.file("control.sock"), "GET", &path, "");
        if shown["state"] == state {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{port} is not {state}: {shown}");
        thread::sleep(Duration::from_millis(2));
    }
}
