//! `causeway mpi-env` and `causeway mpi-run` as processes, against NICs of a real fabric.

mod env;
mod run;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, PoisonError};

use crate::common::{ControlSocket, serve};
use causeway_daemon::services::SERVICES;
use causeway_fabric::{Fabric, Options};

/// Locked while a process starts: a child that another test forks has the sockets of this process
/// until it executes its program.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A directory for each test, which also contains a file with the provider's name.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        // With a blank, which must be quoted for the shell.
        let name = format!("causeway mpi {name} {}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    /// Returns a directory that contains a file with the provider's name.
    fn with_provider(name: &str) -> Self {
        let dir = Self::new(name);
        std::fs::write(dir.0.join("libcauseway-fi.so"), "").unwrap();
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A daemon with groups blue and red.
struct Host {
    control: ControlSocket,
    _fabric: Fabric,
}

impl Host {
    /// Starts the daemon, and adds ports by the words after `port add`.
    fn start(ports: &[&str]) -> Self {
        let fabric = Fabric::start(SERVICES, Options::default()).unwrap();
        let control = serve(Arc::new(fabric.handle()));
        let host = Self { control, _fabric: fabric };
        for words in ["group add blue", "group add red"] {
            host.run(words);
        }
        ports.iter().for_each(|port| host.run(&format!("port add {port}")));
        host
    }

    fn run(&self, words: &str) {
        let mut tool = tool(&self.control.socket);
        let output = output(tool.args(words.split_whitespace()));
        assert!(output.status.success(), "{words}: {output:?}");
    }

    /// Returns the socket of a port.
    fn socket(&self, port: &str) -> PathBuf {
        self.control.dir.0.canonicalize().unwrap().join(format!("{port}.sock"))
    }
}

/// Returns `causeway` with a control socket, without variables of the caller.
fn tool(control: &Path) -> Command {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_causeway"));
    for name in ["CAUSEWAY_MX", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"] {
        tool.env_remove(name);
    }
    tool.env("CAUSEWAY_CONTROL", control);
    tool
}

/// Runs a command to its end.
fn output(command: &mut Command) -> Output {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
